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
const tolerance = recompute.Rounding

// planDocuments reads devices and models from the plan and from the documents of today.
type planDocuments struct{ checker *recompute.Checker }

// gearChecker checks a plan of gears.
type gearChecker struct {
	*recompute.Checker
	documents *planDocuments
	gear      *formats.GearPlan
	cascade   *formats.Cascade // of the workload; nil if there is no workload, and then the plan's own data is used

	workloadDir string // folder from which paths in the workload start; empty if it is not known
}

func newChecker(t *kind.CheckInput) *gearChecker {
	findings := recompute.NewChecker(t)
	return &gearChecker{Checker: findings, documents: &planDocuments{findings}, gear: formats.GearOf(t.Plan), cascade: formats.CascadeOf(t.Workload), workloadDir: t.WorkloadDir}
}

// gearsToday is a gear plan evaluated anew: with its own figures, and with today's latencies and records.
type gearsToday struct {
	replicas         [][]modelReplica    // by model of the plan
	plannedTimes     [][][]time.Duration // by model and stage of its pipelines: time of a batch of b at [b-1]
	todayTimes       [][][]time.Duration // the same today; as planned if the profile has no measurement
	gears            []gearToday
	inputsChanged    bool // latencies, records or devices are not those of the plan
	latenciesChanged bool // latencies are not those of the plan
}

// modelReplica is a replica of a pipeline of a model: one device per stage.
type modelReplica struct {
	pipeline int
	stages   []stageDevice
}

// stageDevice is a device that runs a stage. stage counts over all pipelines of the model.
type stageDevice struct {
	stage, device int
	kind          string
}

// gearToday is one gear, evaluated with the figures of the plan and with those of today. Accuracies are shares of
// the planning samples.
type gearToday struct {
	load, loadToday         float64 // share of the time that the busiest device is busy at the upper edge
	accuracy, accuracyToday float64
}

// Check compares a plan of gears with today's documents: profile, cluster and workload. A gear is the cascade of
// models that serves a range of request rates. If Check returns no finding, the plan still holds and nothing has
// changed.
func Check(t *kind.CheckInput) []kind.Finding {
	c := newChecker(t)
	if g := c.evaluateGears(); g != nil {
		c.checkLateShare()
		c.checkObjective(g)
		newBoundChecker(c).checkBounds(g)
		c.checkMeasuredRates(g)
	}
	return c.Findings
}

// evaluateGears recomputes the accuracy and load of every gear, from the plan's figures and from today's. If the
// plan does not fit the documents, it records why and returns nil.
func (c *gearChecker) evaluateGears() *gearsToday {
	if c.gear == nil || len(c.gear.Gears) == 0 || len(c.gear.Models) != len(c.Plan.Deployment) {
		c.AddError("gears", "gear", "no gears for the models", "gears, and the records of every model", "the plan answers nothing")
		return nil
	}

	// The structure of the deployment.
	isSound := true
	for i := range c.Plan.Deployment {
		isSound = c.CheckDeployment(i) && isSound
		isSound = c.checkChains(i) && isSound
	}
	c.CheckPools(true)
	c.CheckRequestCosts()
	if !isSound {
		return nil
	}

	// Models, devices, records, and then gear by gear.
	g := &gearsToday{}
	if !c.checkFamily() || !c.readDeployment(g) {
		return nil
	}
	planSamples, ok := c.planRecords()
	if !ok {
		return nil
	}
	todaySamples := c.recordsToday(g, planSamples)
	for i := range c.gear.Gears {
		g.gears = append(g.gears, c.evaluateGear(g, i, planSamples, todaySamples))
	}
	return g
}

// checkChains returns whether the replicas of a model's stages form whole chains: one replica of every stage,
// through which a request passes. It records an error for each pipeline that does not.
func (c *gearChecker) checkChains(i int) bool {
	ok := true
	for n := range c.Plan.Deployment[i].Pipelines {
		pl := &c.Plan.Deployment[i].Pipelines[n]
		chains := pl.ChainCount()
		for k, s := range pl.Stages {
			if err := formats.ChainError(fmt.Sprintf("deployment[%d].pipelines[%d]", i, n), k, s.Replicas, chains); err != nil {
				c.AddError("pipelines", err.Path, err.Found, err.Expected, "%s", err.Hint)
				ok = false
			}
		}
	}
	return ok
}

// evaluateGear recomputes gear i: what share of the samples reaches each model, how accurate the answers are, and
// how busy the devices, by the samples recorded in the plan and by those of today's profile. It records what
// differs from the plan. If the gear is not valid, the result is zero.
func (c *gearChecker) evaluateGear(g *gearsToday, i int, planSamples, todaySamples *sampleBits) gearToday {
	gear := &c.gear.Gears[i]
	path := fmt.Sprintf("gear.gears[%d]", i)
	models, levels, ok := c.cascadeOfGear(g, gear, path)
	if !ok {
		return gearToday{}
	}
	var evaluated gearToday

	// Fractions and accuracy by the plan's records.
	var fractions, fractionsToday []float64
	fractions, evaluated.accuracy = planSamples.replayCascade(models, levels)
	for k := range fractions {
		if math.Abs(fractions[k]-gear.Stages[k].Fraction) > tolerance {
			c.AddError("fraction", fmt.Sprintf("%s.stages[%d].fraction", path, k), fmt.Sprint(gear.Stages[k].Fraction), fmt.Sprint(fractions[k]), "the plan's records send another share of the samples to %s", gear.Stages[k].Model)
		}
	}
	if math.Abs(evaluated.accuracy-gear.Accuracy) > tolerance {
		c.AddError("accuracy", path+".accuracy", fmt.Sprint(gear.Accuracy), fmt.Sprint(evaluated.accuracy), "the plan's records give the gear another accuracy")
	}

	// The same by today's records.
	fractionsToday, evaluated.accuracyToday = fractions, evaluated.accuracy
	if todaySamples != planSamples {
		fractionsToday, evaluated.accuracyToday = todaySamples.replayCascade(models, levels)
	}
	if math.Abs(evaluated.accuracyToday-evaluated.accuracy) > tolerance {
		c.AddWarning("accuracy", path+".accuracy", fmt.Sprint(gear.Accuracy), fmt.Sprint(evaluated.accuracyToday), "today's records give the gear another accuracy")
	}

	// Load, and the SLO.
	evaluated.load = g.busiestLoad(c.Plan, gear, models, fractions, g.plannedTimes)
	evaluated.loadToday = g.busiestLoad(c.Plan, gear, models, fractionsToday, g.todayTimes)
	c.checkUtilisation(gear, &evaluated, path)
	if gear.LatencyUS > c.gear.SLOUS && c.gear.SLOScope != formats.ScopeRequests {
		c.AddError("slo", path+".latency_us", gear.LatencyUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO")
	}
	if gear.LatencyHeldOutUS > c.gear.SLOUS && c.gear.SLOScope != formats.ScopeRequests {
		c.AddError("slo", path+".latency_held_out_us", gear.LatencyHeldOutUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO on the samples held out")
	}
	return evaluated
}

// cascadeOfGear returns the models that a gear asks in turn, as indexes into the plan's models, and for each the
// level of certainty below which it forwards a sample. It returns false if a stage is not valid.
func (c *gearChecker) cascadeOfGear(g *gearsToday, gear *formats.Gear, path string) (models, levels []int, ok bool) {
	for k := range gear.Stages {
		s := &gear.Stages[k]
		m := slices.IndexFunc(c.gear.Models, func(m formats.GearModel) bool { return m.Model == s.Model })
		if m < 0 || s.Level < 0 || s.Level > len(c.gear.Models[m].Thresholds) || len(s.Split) != len(g.replicas[m]) {
			c.AddError("gears", fmt.Sprintf("%s.stages[%d]", path, k), fmt.Sprintf("%s, level %d, %d shares", s.Model, s.Level, len(s.Split)),
				"a model of the plan, one of its levels, a share for each of its devices", "a stage that cannot be")
			return nil, nil, false
		}
		models, levels = append(models, m), append(levels, s.Level)
	}
	return models, levels, true
}

// checkUtilisation compares the recomputed load of the busiest device with the one that the plan states, and
// today's load with the time that the device has, which is 1. Plans over measured rates may exceed it for a while.
func (c *gearChecker) checkUtilisation(gear *formats.Gear, evaluated *gearToday, path string) {
	load := evaluated.load
	if !c.isOverMeasured() {
		load = min(1, load)
	}
	switch {
	case math.Abs(load-gear.Utilisation) > tolerance:
		c.AddError("utilisation", path+".utilisation", fmt.Sprint(gear.Utilisation), fmt.Sprint(evaluated.load), "at %.6g requests per second the busiest device has another load", gear.ToQPS)
	case evaluated.loadToday > 1+tolerance && !c.isOverMeasured(): // on measured rates checkMeasuredRates runs the plan
		c.AddError("utilisation", path+".utilisation", fmt.Sprint(gear.Utilisation), fmt.Sprintf("%.4g today", evaluated.loadToday), "the devices no longer hold %.6g requests per second of this gear", gear.ToQPS)
	case math.Abs(evaluated.loadToday-evaluated.load) > tolerance:
		c.AddWarning("utilisation", path+".utilisation", fmt.Sprint(gear.Utilisation), fmt.Sprintf("%.4g today", evaluated.loadToday), "the load of the busiest device has moved")
	}
}

// busiestLoad returns the load of the busiest device: the share of its time that it works when requests come at
// the gear's highest rate, in full batches. fractions has the share of the requests that reach each model, and
// times the batch times by model, stage and batch size.
func (g *gearsToday) busiestLoad(p *formats.Plan, gear *formats.Gear, models []int, fractions []float64, times [][][]time.Duration) float64 {
	type device struct {
		kind string
		n    int
	}
	loads := map[device]float64{}
	maxLoad := 0.0
	for k, m := range models {
		for i, replica := range g.replicas[m] {
			l := &p.Deployment[m].Pipelines[replica.pipeline]
			for stageIndex, stage := range replica.stages {
				// The mean time of a run changes by the same factor as the undisturbed time.
				s := &l.Stages[stageIndex]
				perSample := times[m][stage.stage][l.Batch-1].Seconds() / float64(l.Batch) * float64(p.RunUS(l, s)) / float64(s.InferUS[l.Batch-1])
				d := device{stage.kind, stage.device}
				loads[d] += gear.ToQPS * fractions[k] * gear.Stages[k].Split[i] * perSample
				maxLoad = max(maxLoad, loads[d])
			}
		}
	}
	return maxLoad
}
