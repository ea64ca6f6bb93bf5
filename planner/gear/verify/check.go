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

// gearChecker checks a plan of gears. It reads devices and models from the plan and from the documents of today, and
// adds what does not hold to its findings. Steps that gather something while they check are types of their own, which
// hold the checker: deploymentReader and singleSearch.
type gearChecker struct {
	*recompute.Checker
	gear    *formats.GearPlan
	cascade *formats.Cascade // of the workload; nil if there is no workload, and then the plan's own data is used

	workloadDir string // folder from which paths in the workload start; empty if it is not known
}

// newChecker returns a checker of a plan of gears, without findings, with the cascade that the workload asks for.
func newChecker(t *kind.CheckInput) *gearChecker {
	return &gearChecker{Checker: recompute.NewChecker(t), gear: formats.GearOf(t.Plan), cascade: formats.CascadeOf(t.Workload), workloadDir: t.WorkloadDir}
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

// Check compares a plan of gears (cascades of ranges of rates) with today's documents, as the half of `plan check` that
// knows this kind of plan, and returns its findings: errors and warnings. If it returns none, the plan holds and
// nothing has changed.
func Check(t *kind.CheckInput) []kind.Finding {
	c := newChecker(t)
	if g := c.evaluateGears(); g != nil {
		c.checkLateShare()
		c.checkObjective(g)
		c.checkBounds(g)
		c.checkMeasuredRates(g)
	}
	return c.Findings
}

// evaluateGears checks the plan's deployment and recomputes every gear (the cascade of a range of rates), with the
// plan's figures and with today's from the documents. Differences are added to the findings. If the plan does not fit
// the documents, it returns nil, and nothing else can be checked.
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

// checkChains reports whether the replicas of each pipeline of model i of the deployment form whole chains, one replica
// of each stage, and adds an error to the findings if not.
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

// evaluateGear recomputes gear i, the cascade of one range of rates: its accuracy by the plan's records and by today's,
// and the load of the busiest device with planned and today's times. It adds differences from the plan to the findings.
// If the gear is not valid, the result is zero.
func (c *gearChecker) evaluateGear(g *gearsToday, i int, planSamples, todaySamples *sampleBits) gearToday {
	r := &c.gear.Gears[i]
	path := fmt.Sprintf("gear.gears[%d]", i)
	models, levels, ok := c.cascadeOfGear(g, r, path)
	if !ok {
		return gearToday{}
	}
	var evaluated gearToday

	// Fractions and accuracy by the plan's records.
	var fractions, fractionsToday []float64
	fractions, evaluated.accuracy = planSamples.replayCascade(models, levels)
	for k := range fractions {
		if math.Abs(fractions[k]-r.Stages[k].Fraction) > tolerance {
			c.AddError("fraction", fmt.Sprintf("%s.stages[%d].fraction", path, k), fmt.Sprint(r.Stages[k].Fraction), fmt.Sprint(fractions[k]), "the plan's records send another share of the samples to %s", r.Stages[k].Model)
		}
	}
	if math.Abs(evaluated.accuracy-r.Accuracy) > tolerance {
		c.AddError("accuracy", path+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(evaluated.accuracy), "the plan's records give the gear another accuracy")
	}

	// The same by today's records.
	fractionsToday, evaluated.accuracyToday = fractions, evaluated.accuracy
	if todaySamples != planSamples {
		fractionsToday, evaluated.accuracyToday = todaySamples.replayCascade(models, levels)
	}
	if math.Abs(evaluated.accuracyToday-evaluated.accuracy) > tolerance {
		c.AddWarning("accuracy", path+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(evaluated.accuracyToday), "today's records give the gear another accuracy")
	}

	// Load, and the SLO.
	evaluated.load = g.busiestLoad(c.Plan, r, models, fractions, g.plannedTimes)
	evaluated.loadToday = g.busiestLoad(c.Plan, r, models, fractionsToday, g.todayTimes)
	c.checkUtilisation(r, &evaluated, path)
	if r.LatencyUS > c.gear.SLOUS && c.gear.SLOScope != formats.ScopeRequests {
		c.AddError("slo", path+".latency_us", r.LatencyUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO")
	}
	if r.LatencyHeldOutUS > c.gear.SLOUS && c.gear.SLOScope != formats.ScopeRequests {
		c.AddError("slo", path+".latency_held_out_us", r.LatencyHeldOutUS.String(), "at most "+c.gear.SLOUS.String(), "the gear was planned past the SLO on the samples held out")
	}
	return evaluated
}

// cascadeOfGear returns the models of gear r, by index in the plan, and for each the level of certainty below which it
// forwards a sample; it is 0 for the last. path is the gear's field in the plan. If a stage is not valid, it adds an
// error to the findings and returns false.
func (c *gearChecker) cascadeOfGear(g *gearsToday, r *formats.Gear, path string) (models, levels []int, ok bool) {
	for k := range r.Stages {
		s := &r.Stages[k]
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

// checkUtilisation compares the load of the busiest device at the upper edge of gear r (the share of the time that it
// is busy) with the plan's figure, and reports an error if devices have no time for it today. A load above 1 counts as
// 1, because of rounding, unless the SLO is over measured rates, where ranges need not hold their edge.
func (c *gearChecker) checkUtilisation(r *formats.Gear, evaluated *gearToday, path string) {
	load := evaluated.load
	if !c.isOverMeasured() {
		load = min(1, load)
	}
	switch {
	case math.Abs(load-r.Utilisation) > tolerance:
		c.AddError("utilisation", path+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprint(evaluated.load), "at %.6g requests per second the busiest device has another load", r.ToQPS)
	case evaluated.loadToday > 1+tolerance && !c.isOverMeasured(): // on measured rates checkMeasuredRates runs the plan
		c.AddError("utilisation", path+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", evaluated.loadToday), "the devices no longer hold %.6g requests per second of this gear", r.ToQPS)
	case math.Abs(evaluated.loadToday-evaluated.load) > tolerance:
		c.AddWarning("utilisation", path+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", evaluated.loadToday), "the load of the busiest device has moved")
	}
}

// busiestLoad returns the share of the time that the busiest device works at the upper edge of gear r, in full batches.
// models are those of the gear, fractions the share of the requests that reaches each of them, and times the
// undisturbed times of batches, planned ones or today's: by model of the plan, stage of its pipelines, and batch size
// from 1.
func (g *gearsToday) busiestLoad(p *formats.Plan, r *formats.Gear, models []int, fractions []float64, times [][][]time.Duration) float64 {
	type device struct {
		kind string
		n    int
	}

	// Add up the work of each device: requests per second, times the share of the samples that its replica gets, times seconds.
	// Model m of the plan is the k-th of the gear, whose stage k has the shares of its replicas.
	loads := map[device]float64{}
	maxLoad := 0.0
	for k, m := range models {
		for i, replica := range g.replicas[m] {
			pipeline := &p.Deployment[m].Pipelines[replica.pipeline]
			for stageIndex, stage := range replica.stages {
				// RunUS is the planned time that loads are computed with: the mean of runs, if there is one. It is supposed to change by
				// the same factor as the undisturbed time, which was planned as InferUS.
				s := &pipeline.Stages[stageIndex]
				perSample := times[m][stage.stage][pipeline.Batch-1].Seconds() / float64(pipeline.Batch) * float64(p.RunUS(pipeline, s)) / float64(s.InferUS[pipeline.Batch-1])
				d := device{stage.kind, stage.device}
				loads[d] += r.ToQPS * fractions[k] * r.Stages[k].Split[i] * perSample
				maxLoad = max(maxLoad, loads[d])
			}
		}
	}
	return maxLoad
}
