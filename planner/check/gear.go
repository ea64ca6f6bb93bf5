package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
)

// gears is a gear plan evaluated anew: what its own figures give, and what they
// give with the latencies and records of today.
type gears struct {
	devices [][]replica         // by model of the plan
	planned [][][]time.Duration // by model and stage of its pipelines, [b-1]
	today   [][][]time.Duration // as planned where the profile has none
	list    []gearToday
	moved   bool // latencies, records or devices are not those of the plan
	slower  bool // latencies alone
}

// replica is where a model stands: a chain of one device per stage of a pipeline.
type replica struct {
	pipeline int
	on       []place
}

// place is a device that runs a stage, one of all of its model's.
type place struct {
	stage, device int
	kind          string
}

// gearToday is one gear. Shares are of the samples planned on.
type gearToday struct {
	load, loadToday         float64 // of the busiest device at the upper edge
	accuracy, accuracyToday float64
}

// gearPlan validates a gear plan.
func (c *checker) gearPlan() *gears {
	p := c.plan
	if p.Gear == nil || len(p.Gear.Gears) == 0 || len(p.Gear.Models) != len(p.Models) {
		c.fail("gears", "gear", "no gears for the models", "gears, and the records of every model", "the plan answers nothing")
		return nil
	}
	sound := true
	for i := range p.Models {
		sound = c.structure(i) && sound
		for n := range p.Models[i].Pipelines {
			chains := p.Models[i].Pipelines[n].Chains()
			for k, s := range p.Models[i].Pipelines[n].Stages {
				if s.Replicas < 1 || chains%s.Replicas != 0 {
					c.fail("pipelines", fmt.Sprintf("models[%d].pipelines[%d].stages[%d].replicas", i, n, k), fmt.Sprint(s.Replicas), fmt.Sprintf("a divisor of %d", chains), "a replica of a model of a cascade is a chain of one device per stage")
					sound = false
				}
			}
		}
	}
	c.pools()
	if !sound {
		return nil
	}
	g := &gears{}
	if !c.family(g) || !c.deployed(g) {
		return nil
	}
	own, ok := c.ownRecords()
	if !ok {
		return nil
	}
	today := c.recordsToday(g, own)
	for i := range p.Gear.Gears {
		c.oneGear(g, i, own, today)
	}
	c.gearLate()
	c.gearObjective(g)
	c.gearBounds(g)
	return g
}

// oneGear recomputes a gear.
func (c *checker) oneGear(g *gears, i int, own, today *answers) {
	r := &c.plan.Gear.Gears[i]
	at := fmt.Sprintf("gear.gears[%d]", i)
	var models, levels []int
	for k := range r.Stages {
		m := slices.IndexFunc(c.plan.Gear.Models, func(m formats.GearModel) bool { return m.Model == r.Stages[k].Model })
		if m < 0 || r.Stages[k].Level < 0 || r.Stages[k].Level > len(c.plan.Gear.Models[m].Thresholds) || len(r.Stages[k].Split) != len(g.devices[m]) {
			c.fail("gears", fmt.Sprintf("%s.stages[%d]", at, k), fmt.Sprintf("%s, level %d, %d shares", r.Stages[k].Model, r.Stages[k].Level, len(r.Stages[k].Split)),
				"a model of the plan, one of its levels, a share for each of its devices", "a stage that cannot be")
			g.list = append(g.list, gearToday{})
			return
		}
		models, levels = append(models, m), append(levels, r.Stages[k].Level)
	}
	var out gearToday
	fractions, accuracy := own.replay(models, levels)
	out.accuracy = accuracy
	for k := range fractions {
		if math.Abs(fractions[k]-r.Stages[k].Fraction) > rounding {
			c.fail("fraction", fmt.Sprintf("%s.stages[%d].fraction", at, k), fmt.Sprint(r.Stages[k].Fraction), fmt.Sprint(fractions[k]), "the plan's records send another share of the samples to %s", r.Stages[k].Model)
		}
	}
	if math.Abs(accuracy-r.Accuracy) > rounding {
		c.fail("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(accuracy), "the plan's records give the gear another accuracy")
	}
	fractionsToday, accuracyToday := fractions, accuracy
	if today != own {
		fractionsToday, accuracyToday = today.replay(models, levels)
	}
	out.accuracyToday = accuracyToday
	if math.Abs(accuracyToday-accuracy) > rounding {
		c.warn("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(accuracyToday), "today's records give the gear another accuracy")
	}
	out.load = g.load(c.plan, r, models, fractions, g.planned)
	out.loadToday = g.load(c.plan, r, models, fractionsToday, g.today)
	switch {
	case math.Abs(min(1, out.load)-r.Utilisation) > rounding:
		c.fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprint(out.load), "at %.6g requests per second the busiest device has another load", r.ToQPS)
	case out.loadToday > 1+rounding:
		c.fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", out.loadToday), "the devices no longer hold %.6g requests per second of this gear", r.ToQPS)
	case math.Abs(out.loadToday-out.load) > rounding:
		c.warn("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", out.loadToday), "the load of the busiest device has moved")
	}
	if r.LatencyUS > c.plan.Gear.SLOUS && c.plan.Gear.Over != formats.OverRequests {
		c.fail("slo", at+".latency_us", r.LatencyUS.String(), "at most "+c.plan.Gear.SLOUS.String(), "the gear was planned past the SLO")
	}
	g.list = append(g.list, out)
}

// load is the share of the time that the busiest device works at the gear's
// upper edge, in full batches.
func (g *gears) load(p *formats.Plan, r *formats.Gear, models []int, fractions []float64, times [][][]time.Duration) float64 {
	type device struct {
		kind string
		n    int
	}
	loads := map[device]float64{}
	most := 0.0
	for k, m := range models {
		for i, on := range g.devices[m] {
			batch := p.Models[m].Pipelines[on.pipeline].Batch
			for _, at := range on.on {
				per := times[m][at.stage][batch-1].Seconds() / float64(batch)
				d := device{at.kind, at.device}
				loads[d] += r.ToQPS * fractions[k] * r.Stages[k].Split[i] * per
				most = max(most, loads[d])
			}
		}
	}
	return most
}
