package verify

import (
	"math"
	"time"

	"inferplan/planner/recompute"
)

// held is what the whole plan carries today: per model and pipeline.
type held struct {
	pipelines [][]recompute.PipelineToday
	rps       []float64 // per model; NaN where something is not known
	latency   []time.Duration
	shares    map[string]float64 // time-shared pools: devices taken at the planned rates
}

// hold evaluates the whole plan. Pipelines on an overloaded time-shared pool
// are scaled down alike.
func (c *checker) hold() *held {
	h := &held{shares: map[string]float64{}}
	for mi := range c.Plan.Deployment {
		m := &c.Plan.Deployment[mi]
		var list []recompute.PipelineToday
		for pi := range m.Pipelines {
			p := c.Pipeline(m, &m.Pipelines[pi])
			for si, s := range m.Pipelines[pi].Stages {
				if pool := c.Pool(s.Device); pool != nil && pool.TimeShared() && p.Stages[si].Rate > 0 {
					h.shares[s.Device] += m.Pipelines[pi].RPS / p.Stages[si].Rate
				} else if pool != nil {
					p.RPS = min(p.RPS, p.Stages[si].Rate*float64(s.Replicas)*c.headroom(m).Utilisation)
				}
			}
			list = append(list, p)
		}
		h.pipelines = append(h.pipelines, list)
	}
	for mi := range c.Plan.Deployment {
		m := &c.Plan.Deployment[mi]
		total, longest := 0.0, time.Duration(0)
		for pi := range m.Pipelines {
			p := &h.pipelines[mi][pi]
			if !p.Known {
				total = math.NaN()
				continue
			}
			for _, s := range m.Pipelines[pi].Stages {
				pool := c.Pool(s.Device)
				if taken := h.shares[s.Device]; taken > float64(pool.Count) && pool.TimeShared() {
					p.RPS = min(p.RPS, m.Pipelines[pi].RPS*float64(pool.Count)/taken)
				}
			}
			total += p.RPS
			longest = max(longest, p.Latency+m.Pipelines[pi].BatchBuildUS.D())
		}
		h.rps = append(h.rps, total)
		h.latency = append(h.latency, longest)
	}
	return h
}
