package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// tolerance is the difference up to which figures are equal.
const rounding = recompute.Rounding

// planDocuments reads devices and models from the plan and from the documents of today.
type documents struct{ recompute.Checker }

// gearChecker checks a plan of gears.
type checker struct {
	documents
	gear    *formats.GearPlan
	cascade *formats.Cascade // of the workload; nil if there is no workload, and then the plan's own data is used

	workloadDir string // folder from which paths in the workload start; empty if it is not known
}

func newChecker(t *kind.Today) *checker {
	return &checker{documents: documents{*recompute.New(t)}, gear: formats.GearOf(t.Plan), cascade: formats.CascadeOf(t.Workload), workloadDir: t.WorkloadDir}
}

// gearsToday is a gear plan evaluated anew: with its own figures, and with today's latencies and records.
type gears struct {
	devices [][]replica         // by model of the plan
	planned [][][]time.Duration // by model and stage of its pipelines: time of a batch of b at [b-1]
	today   [][][]time.Duration // the same today; as planned if the profile has no measurement
	list    []gearToday
	moved   bool // latencies, records or devices are not those of the plan
	slower  bool // latencies are not those of the plan
}

// modelReplica is a replica of a pipeline of a model: one device per stage.
type replica struct {
	pipeline int
	on       []place
}

// stageDevice is a device that runs a stage. stage counts over all pipelines of the model.
type place struct {
	stage, device int
	kind          string
}

// gearToday is one gear, evaluated with the figures of the plan and with those of today. Accuracies are shares of
// the planning samples.
type gearToday struct {
	load, loadToday         float64 // share of the time that the busiest device is busy at the upper edge
	accuracy, accuracyToday float64
}

// Check compares a plan of gears with documents. If it returns no finding, the plan holds and nothing has changed.
func Check(t *kind.Today) []kind.Finding {
	c := newChecker(t)
	if g := c.evaluate(); g != nil {
		c.lateness()
		c.objective(g)
		relaxation{c}.bounds(g)
		c.onRates(g)
	}
	return c.Findings
}

// evaluateGears recomputes every gear. If the plan does not fit the documents, it returns nil.
func (c *checker) evaluate() *gears {
	if c.gear == nil || len(c.gear.Gears) == 0 || len(c.gear.Models) != len(c.Plan.Deployment) {
		c.Fail("gears", "gear", "no gears for the models", "gears, and the records of every model", "the plan answers nothing")
		return nil
	}

	// The structure of the deployment.
	sound := true
	for i := range c.Plan.Deployment {
		sound = c.Structure(i) && sound
		sound = c.chains(i) && sound
	}
	c.Pools(true)
	c.Requests()
	if !sound {
		return nil
	}

	// Models, devices, records, and then gear by gear.
	g := &gears{}
	if !c.family() || !c.deployed(g) {
		return nil
	}
	own, ok := c.ownRecords()
	if !ok {
		return nil
	}
	today := c.recordsToday(g, own)
	for i := range c.gear.Gears {
		g.list = append(g.list, c.oneGear(g, i, own, today))
	}
	return g
}

// checkChains reports whether the replicas of a model's stages form whole chains.
func (c *checker) chains(i int) bool {
	ok := true
	for n := range c.Plan.Deployment[i].Pipelines {
		pl := &c.Plan.Deployment[i].Pipelines[n]
		chains := pl.Chains()
		for k, s := range pl.Stages {
			if err := formats.ChainError(fmt.Sprintf("deployment[%d].pipelines[%d]", i, n), k, s.Replicas, chains); err != nil {
				c.Fail("pipelines", err.Path, err.Found, err.Expected, "%s", err.Hint)
				ok = false
			}
		}
	}
	return ok
}

// evaluateGear recomputes a gear. If the gear is not valid, the result is zero.
func (c *checker) oneGear(g *gears, i int, own, today *answers) gearToday {
	r := &c.gear.Gears[i]
	at := fmt.Sprintf("gear.gears[%d]", i)
	models, levels, ok := c.cascadeOf(g, r, at)
	if !ok {
		return gearToday{}
	}
	var out gearToday

	// Fractions and accuracy by the plan's records.
	var fractions, fractionsToday []float64
	fractions, out.accuracy = own.replay(models, levels)
	for k := range fractions {
		if math.Abs(fractions[k]-r.Stages[k].Fraction) > rounding {
			c.Fail("fraction", fmt.Sprintf("%s.stages[%d].fraction", at, k), fmt.Sprint(r.Stages[k].Fraction), fmt.Sprint(fractions[k]), "the plan's records send another share of the samples to %s", r.Stages[k].Model)
		}
	}
	if math.Abs(out.accuracy-r.Accuracy) > rounding {
		c.Fail("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(out.accuracy), "the plan's records give the gear another accuracy")
	}

	// The same by today's records.
	fractionsToday, out.accuracyToday = fractions, out.accuracy
	if today != own {
		fractionsToday, out.accuracyToday = today.replay(models, levels)
	}
	if math.Abs(out.accuracyToday-out.accuracy) > rounding {
		c.Warn("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(out.accuracyToday), "today's records give the gear another accuracy")
	}

	// Load, and the SLO.
	out.load = g.load(c.Plan, r, models, fractions, g.planned)
	out.loadToday = g.load(c.Plan, r, models, fractionsToday, g.today)
	c.utilisation(r, &out, at)
	if r.LatencyUS > c.gear.SLOUS && c.gear.Over != formats.OverRequests {
		c.Fail("slo", at+".latency_us", r.LatencyUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO")
	}
	if r.LatencyHeldOutUS > c.gear.SLOUS && c.gear.Over != formats.OverRequests {
		c.Fail("slo", at+".latency_held_out_us", r.LatencyHeldOutUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO on the samples held out")
	}
	return out
}

// cascadeOfGear returns the models of a gear and their levels. It returns false if a stage is not valid.
func (c *checker) cascadeOf(g *gears, r *formats.Gear, at string) (models, levels []int, ok bool) {
	for k := range r.Stages {
		s := &r.Stages[k]
		m := slices.IndexFunc(c.gear.Models, func(m formats.GearModel) bool { return m.Model == s.Model })
		if m < 0 || s.Level < 0 || s.Level > len(c.gear.Models[m].Thresholds) || len(s.Split) != len(g.devices[m]) {
			c.Fail("gears", fmt.Sprintf("%s.stages[%d]", at, k), fmt.Sprintf("%s, level %d, %d shares", s.Model, s.Level, len(s.Split)),
				"a model of the plan, one of its levels, a share for each of its devices", "a stage that cannot be")
			return nil, nil, false
		}
		models, levels = append(models, m), append(levels, s.Level)
	}
	return models, levels, true
}

// checkUtilisation compares the load of the busiest device with the plan's, and with the time that it has.
func (c *checker) utilisation(r *formats.Gear, now *gearToday, at string) {
	load := now.load
	if !c.overMeasured() {
		load = min(1, load)
	}
	switch {
	case math.Abs(load-r.Utilisation) > rounding:
		c.Fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprint(now.load), "at %.6g requests per second the busiest device has another load", r.ToQPS)
	case now.loadToday > 1+rounding && !c.overMeasured(): // on measured rates checkMeasuredRates runs the plan
		c.Fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", now.loadToday), "the devices no longer hold %.6g requests per second of this gear", r.ToQPS)
	case math.Abs(now.loadToday-now.load) > rounding:
		c.Warn("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", now.loadToday), "the load of the busiest device has moved")
	}
}

// busiestLoad returns the share of the time that the busiest device works at the gear's upper edge, in full
// batches.
func (g *gears) load(p *formats.Plan, r *formats.Gear, models []int, fractions []float64, times [][][]time.Duration) float64 {
	type device struct {
		kind string
		n    int
	}
	loads := map[device]float64{}
	most := 0.0
	for k, m := range models {
		for i, on := range g.devices[m] {
			l := &p.Deployment[m].Pipelines[on.pipeline]
			for hop, at := range on.on {
				// The mean time of a run changes by the same factor as the undisturbed time.
				s := &l.Stages[hop]
				per := times[m][at.stage][l.Batch-1].Seconds() / float64(l.Batch) * float64(p.RunUS(l, s)) / float64(s.InferUS[l.Batch-1])
				d := device{at.kind, at.device}
				loads[d] += r.ToQPS * fractions[k] * r.Stages[k].Split[i] * per
				most = max(most, loads[d])
			}
		}
	}
	return most
}
