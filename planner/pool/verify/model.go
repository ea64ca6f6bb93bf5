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
type target struct{ slo, margin time.Duration }

// checkModel checks model mi against today's documents. Its promise has the same index in the plan's section as
// the model has in the deployment.
func (c *checker) model(mi int) {
	m, promised := &c.Plan.Deployment[mi], c.Plan.Promised(mi)
	said := fmt.Sprintf("pool.models[%d]", mi)
	t := c.targetOf(m, &promised, said)
	c.asked(m, &promised, said)
	sum := 0.0
	for pi := range m.Pipelines {
		pl, now := &m.Pipelines[pi], &c.held.pipelines[mi][pi]
		path := fmt.Sprintf("deployment[%d].pipelines[%d]", mi, pi)
		sum += pl.RPS
		c.stages(m, pl, now, path)
		if now.Known {
			c.inTime(m, pl, now.Most, t, path)
		}
	}
	if math.Abs(sum-promised.RPS) > rounding*promised.RPS {
		c.Fail("rps", said+".rps", fmt.Sprint(promised.RPS), fmt.Sprint(sum), "the pipelines of %s do not add up to its rate", m.Key())
	}
}

// checkTarget compares the promised SLO with that of today, and returns today's.
func (c *checker) targetOf(m *formats.Deployed, promised *formats.Served, said string) target {
	slo, known := c.slo(m, promised)
	c.keptBack(m, promised, said)
	margin := c.margin(m, slo)
	if !known {
		c.Fail("slo", said+".slo_us", promised.SLOUS.String(), "a whole-model measurement", "the SLO of %s is a multiple of its latency, which the profile no longer has", m.Key())
		return target{promised.SLOUS.D(), promised.MarginUS.D()}
	}
	if slo != promised.SLOUS.D() {
		c.Warn("slo", said+".slo_us", promised.SLOUS.String(), document.Micros(slo).String(), "the SLO of %s has changed", m.Key())
	}
	return target{slo, margin}
}

// headroom returns what the plan says it keeps back of a model.
func (c *checker) headroom(m *formats.Deployed) formats.Headroom {
	if s := formats.PoolOf(c.Plan); s != nil {
		if at := deployed(c.Plan, m.Key()); at < len(s.Headroom) {
			return s.Headroom[at]
		}
	}
	return formats.Headroom{Margin: c.Plan.Options.Number("margin"), Utilisation: 1}
}

// margin returns what the plan keeps back of an SLO, in whole microseconds.
func (c *checker) margin(m *formats.Deployed, slo time.Duration) time.Duration {
	return time.Duration(math.Round(c.headroom(m).Margin*float64(slo)/1000)) * time.Microsecond
}

// checkHeadroom checks that the promised margin is the one that the plan says it keeps back, and that the
// workload still asks for it.
func (c *checker) keptBack(m *formats.Deployed, promised *formats.Served, said string) {
	h, want := c.headroom(m), c.margin(m, promised.SLOUS.D())
	if d := promised.MarginUS.D() - want; d.Abs() > time.Microsecond { // other programs may round differently
		c.Fail("margin", said+".margin_us", promised.MarginUS.String(), document.Micros(want).String(),
			"the margin of %s is not the share of its SLO that the plan says to keep back, %v", m.Key(), h.Margin)
	}
	wm := c.workloadModel(m.Key())
	if wm == nil {
		return
	}
	if wm.Margin != nil && *wm.Margin != h.Margin {
		c.Warn("margin", said+".margin_us", fmt.Sprint(h.Margin), fmt.Sprint(*wm.Margin), "the margin that the workload asks of %s has changed", m.Key())
	}
	if u := wm.Utilisation; u > 0 && u != h.Utilisation {
		c.Warn("utilisation", said+".rps", fmt.Sprint(h.Utilisation), fmt.Sprint(u), "the utilisation that the workload asks of %s has changed", m.Key())
	}
}

// sloToday returns a model's SLO today. If the documents do not say it, ok is false.
func (c *checker) slo(m *formats.Deployed, promised *formats.Served) (slo time.Duration, ok bool) {
	var target document.SLO
	if wm := c.workloadModel(m.Key()); wm != nil {
		target = wm.SLO
	}
	if s := c.Plan.Options.SLO("slo"); !s.IsZero() {
		target = s
	}
	if target.IsZero() {
		return promised.SLOUS.D(), true
	}
	if target.Times == 0 {
		return target.Duration, true
	}

	// A multiple of the least latency of the whole model at batch 1.
	pm := c.ProfileModel(m.Model)
	if pm == nil {
		return 0, false
	}
	var wholes []time.Duration
	for _, ms := range pm.Measurements {
		if ms.Batch == 1 && ms.Share <= 1 && ms.Whole != nil && ms.Whole.WallUS > 0 {
			wholes = append(wholes, ms.Whole.WallUS.D())
		}
	}
	if len(wholes) == 0 {
		return 0, false
	}
	return target.Of(slices.Min(wholes)), true
}

// checkRequested compares the promised weight, percentile and rate with those that the workload asks for.
func (c *checker) asked(m *formats.Deployed, promised *formats.Served, said string) {
	wm := c.workloadModel(m.Key())
	if wm == nil {
		return
	}
	if weight := cmp.Or(wm.Weight, 1); weight != promised.Weight {
		c.Warn("weight", said+".weight", fmt.Sprint(promised.Weight), fmt.Sprint(weight), "the weight of %s has changed", m.Key())
	}
	if p := wm.Percentile; p != "" && p != promised.Percentile {
		c.Warn("percentile", said+".percentile", promised.Percentile, p, "the percentile of %s has changed", m.Key())
	}
	if floor := wm.MinRPS; promised.RPS < floor*(1-rounding) {
		c.Fail("min_rps", said+".rps", fmt.Sprint(promised.RPS), fmt.Sprint(floor), "the plan gives %s less than the workload asks", m.Key())
	}
}

// checkLatency checks that a pipeline, with its margin and the filling of a batch, keeps the SLO.
func (c *checker) inTime(m *formats.Deployed, pl *formats.Pipeline, latency time.Duration, t target, path string) {
	build := c.build(m, pl)
	need := t.margin + build + latency
	if need <= t.slo {
		return
	}
	left := t.slo - t.margin - build
	c.Fail("slo", path+".latency_us",
		fmt.Sprintf("%s us with margin and batch building", document.Micros(need)), fmt.Sprintf("at most %s us", document.Micros(t.slo)),
		"a pipeline of %s takes %s today, and the margin of %s and %s for filling a batch leave %s",
		m.Key(), latency, t.margin, build, left)
	if left > 0 {
		c.Findings[len(c.Findings)-1].Excess = float64(latency)/float64(left) - 1
	}
}

// buildTime returns the time that the first request of a batch waits for it to fill, today.
func (c *checker) build(m *formats.Deployed, pl *formats.Pipeline) time.Duration {
	if wm := c.workloadModel(m.Key()); wm != nil && wm.BatchBuildRPS > 0 {
		us := c.Plan.Options.Number("batch-build") * 1e6 / wm.BatchBuildRPS
		return time.Duration(math.Round(us * float64(pl.Batch-1) * 1000))
	}
	return pl.BatchBuildUS.D()
}

// checkStages compares what a pipeline's stages were planned with to what holds today.
func (c *checker) stages(m *formats.Deployed, pl *formats.Pipeline, now *recompute.PipelineToday, path string) {
	pm := c.ProfileModel(m.Model)
	for si := range pl.Stages {
		s := &pl.Stages[si]
		spath := fmt.Sprintf("%s.stages[%d]", path, si)
		pool := c.Pool(s.Device)
		if pool == nil {
			continue // the missing pool is a finding itself
		}

		// The share and the measurement must exist.
		if s.Share > max(pool.MaxShares, 1) || pool.TimeShared() && s.Share != 1 {
			c.Fail("share", spath+".share", fmt.Sprint(s.Share), fmt.Sprintf("1 to %d", max(pool.MaxShares, 1)), "%s has no such shares", s.Device)
		}
		if pm != nil && !now.Stages[si].Known {
			c.Fail("measurement", spath, fmt.Sprintf("%s, share 1/%d, batch %d", s.Device, s.Share, pl.Batch), "a measurement of it",
				"the profile does not say what %s costs there", m.Model)
			continue
		}
		if pm == nil {
			continue
		}

		// Times, cuts, rates and the number of devices.
		planned := s.InferUS[pl.Batch-1].D()
		if got := now.Stages[si].Infer; recompute.Moved(planned, got) {
			c.Warn("latency", fmt.Sprintf("%s.infer_us[%d]", spath, pl.Batch-1), s.InferUS[pl.Batch-1].String(), document.Micros(got).String(),
				"blocks %d to %d of %s on %s at batch %d take %s today", s.Blocks[0], s.Blocks[1]-1, m.Model, s.Device, pl.Batch, recompute.Change(planned, got))
		}
		c.served(pm, m, s, spath)
		if s.Cut != nil {
			c.Cut(m, pl, s, &now.Stages[si], spath)
		}
		if pool.TimeShared() {
			continue // time shares are checked with the pool
		}
		if carries := now.Stages[si].Rate * float64(s.Replicas) * c.headroom(m).Utilisation; carries < pl.RPS*(1-rounding) {
			c.Warn("rps", spath+".rps", fmt.Sprintf("%.6g for the pipeline", pl.RPS), fmt.Sprintf("at most %.6g", carries),
				"the %d replicas of a stage of %s on %s no longer carry the pipeline's rate", s.Replicas, m.Model, s.Device)
		}
		if gpus := float64(s.Replicas) / float64(s.Share); math.Abs(gpus-s.GPUs) > rounding*gpus {
			c.Fail("devices", spath+".gpus", fmt.Sprint(s.GPUs), fmt.Sprint(gpus), "replicas and shares do not give this number of devices")
		}
	}
}
