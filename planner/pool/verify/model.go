package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/recompute"
)

// targetToday is the SLO and margin that a model has to keep today.
type targetToday struct{ slo, margin time.Duration }

// checkModel compares model mi of the deployment with today's documents: its target, rate, and the stages and
// latency of its pipelines. The promise for it stands at the same index in the plan's section.
func (c *planChecker) checkModel(mi int) {
	m, promised := &c.Plan.Deployment[mi], c.Plan.PromiseFor(mi)
	promisePath := fmt.Sprintf("pool.models[%d]", mi)
	target := c.checkTarget(m, &promised, promisePath)
	c.checkRequested(m, &promised, promisePath)
	pipelineRPS := 0.0
	for pi := range m.Pipelines {
		pl, today := &m.Pipelines[pi], &c.carried.pipelines[mi][pi]
		path := fmt.Sprintf("deployment[%d].pipelines[%d]", mi, pi)
		pipelineRPS += pl.RPS
		c.checkStages(m, pl, today, path)
		if today.IsKnown {
			c.checkLatency(m, pl, today.MaxLatency, target, path)
		}
	}
	if math.Abs(pipelineRPS-promised.RPS) > roundingTolerance*promised.RPS {
		c.AddError("rps", promisePath+".rps", fmt.Sprint(promised.RPS), fmt.Sprint(pipelineRPS), "the pipelines of %s do not add up to its rate", m.Key())
	}
}

// checkTarget compares the promised SLO with that of today, and returns today's.
func (c *planChecker) checkTarget(m *formats.Deployed, promised *formats.Served, promisePath string) targetToday {
	slo, isKnown := c.sloToday(m, promised)
	c.checkHeadroom(m, promised, promisePath)
	margin := c.margin(m, slo)
	if !isKnown {
		c.AddError("slo", promisePath+".slo_us", promised.SLOUS.String(), "a whole-model measurement", "the SLO of %s is a multiple of its latency, which the profile no longer has", m.Key())
		return targetToday{promised.SLOUS.D(), promised.MarginUS.D()}
	}
	if slo != promised.SLOUS.D() {
		c.AddWarning("slo", promisePath+".slo_us", promised.SLOUS.String(), document.Micros(slo).String(), "the SLO of %s has changed", m.Key())
	}
	return targetToday{slo, margin}
}

// headroom returns what the plan keeps back of a model: a margin off the SLO, and the utilisation that devices
// stay below. Without a section in the plan, the options have the margin, and devices are used fully.
func (c *planChecker) headroom(m *formats.Deployed) formats.Headroom {
	if s := formats.PoolOf(c.Plan); s != nil {
		if index := deployedIndex(c.Plan, m.Key()); index < len(s.Headroom) {
			return s.Headroom[index]
		}
	}
	return formats.Headroom{Margin: c.Plan.Options.Number("margin"), Utilisation: 1}
}

// margin returns what the plan keeps back of an SLO, in whole microseconds.
func (c *planChecker) margin(m *formats.Deployed, slo time.Duration) time.Duration {
	return time.Duration(math.Round(c.headroom(m).Margin*float64(slo)/1000)) * time.Microsecond
}

// checkHeadroom checks that the promised margin is the one that the plan says it keeps back, and that the
// workload still asks for it.
func (c *planChecker) checkHeadroom(m *formats.Deployed, promised *formats.Served, promisePath string) {
	headroom, expected := c.headroom(m), c.margin(m, promised.SLOUS.D())
	if difference := promised.MarginUS.D() - expected; difference.Abs() > time.Microsecond { // other programs may round differently
		c.AddError("margin", promisePath+".margin_us", promised.MarginUS.String(), document.Micros(expected).String(),
			"the margin of %s is not the share of its SLO that the plan says to keep back, %v", m.Key(), headroom.Margin)
	}
	workloadModel := c.workloadModel(m.Key())
	if workloadModel == nil {
		return
	}
	if workloadModel.Margin != nil && *workloadModel.Margin != headroom.Margin {
		c.AddWarning("margin", promisePath+".margin_us", fmt.Sprint(headroom.Margin), fmt.Sprint(*workloadModel.Margin), "the margin that the workload asks of %s has changed", m.Key())
	}
	if utilisation := workloadModel.Utilisation; utilisation > 0 && utilisation != headroom.Utilisation {
		c.AddWarning("utilisation", promisePath+".rps", fmt.Sprint(headroom.Utilisation), fmt.Sprint(utilisation), "the utilisation that the workload asks of %s has changed", m.Key())
	}
}

// sloToday returns a model's SLO today: that of the options or else of the workload, or the promised one if
// neither has any. ok is false if it is a multiple of a latency that the profile does not have.
func (c *planChecker) sloToday(m *formats.Deployed, promised *formats.Served) (slo time.Duration, ok bool) {
	var target document.SLO
	if workloadModel := c.workloadModel(m.Key()); workloadModel != nil {
		target = workloadModel.SLO
	}
	if s := c.Plan.Options.SLO("slo"); !s.IsZero() {
		target = s
	}
	if target.IsZero() {
		return promised.SLOUS.D(), true
	}
	if target.Factor == 0 {
		return target.Duration, true
	}

	// A multiple of the least latency of the whole model at batch 1.
	profileModel := c.ProfileModel(m.Model)
	if profileModel == nil {
		return 0, false
	}
	var wholeLatencies []time.Duration
	for _, ms := range profileModel.Measurements {
		if ms.Batch == 1 && ms.Share <= 1 && ms.WholeModel != nil && ms.WholeModel.WallUS > 0 {
			wholeLatencies = append(wholeLatencies, ms.WholeModel.WallUS.D())
		}
	}
	if len(wholeLatencies) == 0 {
		return 0, false
	}
	return target.Resolve(slices.Min(wholeLatencies)), true
}

// checkRequested compares the promised weight, percentile and rate with those that the workload asks for.
func (c *planChecker) checkRequested(m *formats.Deployed, promised *formats.Served, promisePath string) {
	workloadModel := c.workloadModel(m.Key())
	if workloadModel == nil {
		return
	}
	if weight := cmp.Or(workloadModel.Weight, 1); weight != promised.Weight {
		c.AddWarning("weight", promisePath+".weight", fmt.Sprint(promised.Weight), fmt.Sprint(weight), "the weight of %s has changed", m.Key())
	}
	if p := workloadModel.Percentile; p != "" && p != promised.Percentile {
		c.AddWarning("percentile", promisePath+".percentile", promised.Percentile, p, "the percentile of %s has changed", m.Key())
	}
	if floor := workloadModel.MinRPS; promised.RPS < floor*(1-roundingTolerance) {
		c.AddError("min_rps", promisePath+".rps", fmt.Sprint(promised.RPS), fmt.Sprint(floor), "the plan gives %s less than the workload asks", m.Key())
	}
}

// checkLatency checks that a pipeline's latency of today keeps the model's SLO, together with the margin and the
// time that a batch takes to fill. If not, it records by which part the latency is too long.
func (c *planChecker) checkLatency(m *formats.Deployed, pl *formats.Pipeline, latency time.Duration, target targetToday, path string) {
	buildTime := c.buildTime(m, pl)
	totalTime := target.margin + buildTime + latency
	if totalTime <= target.slo {
		return
	}
	remaining := target.slo - target.margin - buildTime
	c.AddError("slo", path+".latency_us",
		fmt.Sprintf("%s us with margin and batch building", document.Micros(totalTime)), fmt.Sprintf("at most %s us", document.Micros(target.slo)),
		"a pipeline of %s takes %s today, and the margin of %s and %s for filling a batch leave %s",
		m.Key(), latency, target.margin, buildTime, remaining)
	if remaining > 0 {
		c.Findings[len(c.Findings)-1].Excess = float64(latency)/float64(remaining) - 1
	}
}

// buildTime returns how long the first request of a batch waits for the batch to fill, today: at the rate that the
// workload states for it, times the option batch-build, or as planned if the workload states none.
func (c *planChecker) buildTime(m *formats.Deployed, pl *formats.Pipeline) time.Duration {
	if workloadModel := c.workloadModel(m.Key()); workloadModel != nil && workloadModel.BatchBuildRPS > 0 {
		perRequestUS := c.Plan.Options.Number("batch-build") * 1e6 / workloadModel.BatchBuildRPS
		return time.Duration(math.Round(perRequestUS * float64(pl.Batch-1) * 1000))
	}
	return pl.BatchBuildUS.D()
}

// checkStages compares the stages of a pipeline with today's profile and cluster: share, batch time, cut, the rate
// that its replicas carry, and the number of devices.
func (c *planChecker) checkStages(m *formats.Deployed, pl *formats.Pipeline, today *recompute.PipelineCosts, path string) {
	profileModel := c.ProfileModel(m.Model)
	for si := range pl.Stages {
		s := &pl.Stages[si]
		stagePath := fmt.Sprintf("%s.stages[%d]", path, si)
		pool := c.Pool(s.Device)
		if pool == nil {
			continue // the missing pool is a finding itself
		}

		// The share and the measurement must exist.
		if s.Share > max(pool.MaxShares, 1) || pool.TimeShared() && s.Share != 1 {
			c.AddError("share", stagePath+".share", fmt.Sprint(s.Share), fmt.Sprintf("1 to %d", max(pool.MaxShares, 1)), "%s has no such shares", s.Device)
		}
		if profileModel != nil && !today.Stages[si].IsKnown {
			c.AddError("measurement", stagePath, fmt.Sprintf("%s, share 1/%d, batch %d", s.Device, s.Share, pl.Batch), "a measurement of it",
				"the profile does not say what %s costs there", m.Model)
			continue
		}
		if profileModel == nil {
			continue
		}

		// Times, cuts, rates and the number of devices.
		inferPlanned := s.InferUS[pl.Batch-1].D()
		if inferToday := today.Stages[si].Median; recompute.Differs(inferPlanned, inferToday) {
			c.AddWarning("latency", fmt.Sprintf("%s.infer_us[%d]", stagePath, pl.Batch-1), s.InferUS[pl.Batch-1].String(), document.Micros(inferToday).String(),
				"blocks %d to %d of %s on %s at batch %d take %s today", s.Blocks[0], s.Blocks[1]-1, m.Model, s.Device, pl.Batch, recompute.ChangeText(inferPlanned, inferToday))
		}
		c.checkServedTimes(profileModel, m, s, stagePath)
		if s.Cut != nil {
			c.CheckCut(m, pl, s, &today.Stages[si], stagePath)
		}
		if pool.TimeShared() {
			continue // time shares are checked with the pool
		}
		if carriedRPS := today.Stages[si].Rate * float64(s.Replicas) * c.headroom(m).Utilisation; carriedRPS < pl.RPS*(1-roundingTolerance) {
			c.AddWarning("rps", stagePath+".rps", fmt.Sprintf("%.6g for the pipeline", pl.RPS), fmt.Sprintf("at most %.6g", carriedRPS),
				"the %d replicas of a stage of %s on %s no longer carry the pipeline's rate", s.Replicas, m.Model, s.Device)
		}
		if gpus := float64(s.Replicas) / float64(s.Share); math.Abs(gpus-s.GPUs) > roundingTolerance*gpus {
			c.AddError("devices", stagePath+".gpus", fmt.Sprint(s.GPUs), fmt.Sprint(gpus), "replicas and shares do not give this number of devices")
		}
	}
}

// checkServedTimes compares the times by which the plan serves a stage with today's profile: of each batch size the
// longest time, which is above the median if the size was not measured (checkInterval), and the mean, and how much
// longer a run takes after a pause. Means count only down to the first size, from the largest, without one. If not even
// the largest size has one, the plan shall state no time after a pause either.
func (c *planChecker) checkServedTimes(profileModel *formats.ProfileModel, m *formats.Deployed, s *formats.Stage, path string) {
	pauseToday, hasMean := document.Micros(0), true
	for b := len(s.InferUS); b >= 1; b-- { // largest batch first
		today, ok := c.BatchTime(profileModel, s.Device, s.Share, b, s.Blocks[0], s.Blocks[1])
		if !ok {
			return
		}
		c.checkInterval(m, s, b, today, path)
		hasMean = hasMean && today.Mean > 0
		if hasMean {
			pauseToday = pauseTime(profileModel, s)
		} else {
			today.Mean = 0
		}
		plannedMean := time.Duration(0)
		if len(s.MeanUS) >= b {
			plannedMean = s.MeanUS[b-1].D()
		}
		if difference := plannedMean - today.Mean; difference.Abs() > time.Nanosecond { // other programs may round differently
			c.AddWarning("latency", fmt.Sprintf("%s.mean_us[%d]", path, b-1), document.Micros(plannedMean).String(), document.Micros(today.Mean).String(), "%s on %s at batch %d takes another time on average than the plan says (0: not known)", m.Model, s.Device, b)
			return
		}
	}

	// The additional time after a pause.
	if s.IdleUS != pauseToday {
		c.AddWarning("latency", path+".idle_us", s.IdleUS.String(), pauseToday.String(), "a run of %s on %s after a pause takes another time than the plan says", m.Model, s.Device)
	}
}

// checkInterval warns if the longest time that a batch of this size may take by the plan is not today's. A size between
// measured ones has an interval of times around the planned time, the median, and its upper end is the longest. If all
// sizes were measured, a plan states no intervals, and the planned time is the longest. Then, if today's profile has no
// interval either, nothing is compared here: the planned times themselves are compared elsewhere (checkStages).
func (c *planChecker) checkInterval(m *formats.Deployed, s *formats.Stage, batch int, today recompute.BatchTime, path string) {
	planHasIntervals := s.InferRangeUS != nil
	todayHasInterval := today.Max != today.Median
	if !planHasIntervals && !todayHasInterval {
		return
	}
	plannedMax := s.InferUS[batch-1]
	if planHasIntervals {
		if batch > len(s.InferRangeUS) {
			return // a faulty plan: it states no interval of this size
		}
		plannedMax = s.InferRangeUS[batch-1][1]
	}
	if recompute.Differs(plannedMax.D(), today.Max) {
		c.AddWarning("latency", fmt.Sprintf("%s.infer_range_us[%d]", path, batch-1), plannedMax.String(), document.Micros(today.Max).String(), "%s on %s at batch %d takes another time at most than the plan says", m.Model, s.Device, batch)
	}
}

// pauseTime returns how much longer than the mean a run of the stage takes after a pause, measured at the smallest
// batch size that has it. It is 0 if none was measured.
func pauseTime(profileModel *formats.ProfileModel, s *formats.Stage) document.Micros {
	smallestBatch, addedTime := math.MaxInt, document.Micros(0)
	for i := range profileModel.Measurements {
		if ms := &profileModel.Measurements[i]; hasMeans(ms, s) && ms.WholeModel.IdleUS > 0 && ms.Batch < smallestBatch {
			smallestBatch, addedTime = ms.Batch, max(0, ms.WholeModel.IdleUS-ms.WholeModel.MeanUS)
		}
	}
	return addedTime
}

// hasMeans reports whether a measurement is of a stage's device and share and has means.
func hasMeans(ms *formats.Measurement, s *formats.Stage) bool {
	return ms.Device == s.Device && max(ms.Share, 1) == s.Share && ms.WholeModel != nil && ms.WholeModel.MeanUS > 0
}
