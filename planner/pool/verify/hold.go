package verify

import (
	"math"
	"time"

	"inferplan/planner/recompute"
)

// planToday holds the rates that the whole plan carries today.
type planToday struct {
	pipelines  [][]recompute.PipelineCosts // by model and pipeline
	modelRPS   []float64                   // by model; NaN if something is not known
	latency    []time.Duration             // by model: of its slowest pipeline, with the filling of the batch
	timeShares map[string]float64          // by time-shared device kind: devices taken at the planned rates
}

// evaluatePlan computes the rate and latency of each model by today's profile. On a time-shared pool, where stages
// take turns on devices, too little time scales down all pipelines there by the same factor. A model with a
// pipeline that was not measured has the rate NaN.
func (c *planChecker) evaluatePlan() *planToday {
	carried := &planToday{timeShares: map[string]float64{}}

	// The rate of each pipeline, and the load on time-shared pools. The rate is at first the planned one, or less if the
	// replicas of a stage carry less today. Of what replicas on exclusive pools carry, only the model's utilisation counts. On
	// a time-shared pool a stage takes, at the planned rate, so many devices' time. A stage that was not measured has the
	// rate 0, and its pipeline is not known.
	for mi := range c.Plan.Deployment {
		m := &c.Plan.Deployment[mi]
		var list []recompute.PipelineCosts
		for pi := range m.Pipelines {
			p := c.PipelineCosts(m, &m.Pipelines[pi])
			for si, s := range m.Pipelines[pi].Stages {
				pool, replicaRate := c.Pool(s.Device), p.Stages[si].Rate
				if pool != nil && pool.TimeShared() && replicaRate > 0 {
					carried.timeShares[s.Device] += m.Pipelines[pi].RPS / replicaRate
				} else if pool != nil {
					p.RPS = min(p.RPS, replicaRate*float64(s.Replicas)*c.headroom(m).Utilisation)
				}
			}
			list = append(list, p)
		}
		carried.pipelines = append(carried.pipelines, list)
	}

	// Scale down pipelines on overloaded time-shared pools, in proportion to their planned rates, and add up the models. All
	// pools of a pipeline that is known are there.
	for mi := range c.Plan.Deployment {
		m := &c.Plan.Deployment[mi]
		modelRPS, longest := 0.0, time.Duration(0)
		for pi := range m.Pipelines {
			p := &carried.pipelines[mi][pi]
			if !p.IsKnown {
				modelRPS = math.NaN()
				continue
			}
			for _, s := range m.Pipelines[pi].Stages {
				pool := c.Pool(s.Device)
				if takenDevices := carried.timeShares[s.Device]; takenDevices > float64(pool.Count) && pool.TimeShared() {
					p.RPS = min(p.RPS, m.Pipelines[pi].RPS*float64(pool.Count)/takenDevices)
				}
			}
			modelRPS += p.RPS
			longest = max(longest, p.Latency+m.Pipelines[pi].BatchBuildUS.D())
		}
		carried.modelRPS = append(carried.modelRPS, modelRPS)
		carried.latency = append(carried.latency, longest)
	}
	return carried
}
