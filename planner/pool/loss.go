package pool

import (
	"math"

	"inferplan/planner/stages"
)

// maxLossReplicas is the number of replica counts of each stage that templateLoss tries.
const lossSteps = 24

// templateLoss returns, in units, how far every plan that uses template t stays below the bound of r at least.
// For every plan
//
//	theta <= bound - Σ loss over its templates
//
// because whole replicas of t cost, at the prices of r, so much more than the rate that they carry is worth:
//
//	loss_t = min over integer g >= 1 of  Σ_s π_k g_s / v_s - λ_d min_s X_s g_s
//
// Devices are priced by the parts that replicas take of them. Rounding up to whole devices only adds to the
// loss.
func (c *catalogue) loss(t *stages.Template, r *relaxation) float64 {
	worth := r.worth[t.Model]
	unit := c.u.rps[t.Model]
	// The minimum lies at a rate, in units, at which the replica count of some stage must grow.
	most := c.fullRate(t) / unit
	exclusive, timed := false, false
	best, tail := math.Inf(1), math.Inf(1)
	try := func(x float64) { best = min(best, c.paid(t, r, x, unit)-worth*x) }
	for i := range t.Stages {
		if !c.Pools[t.Stages[i].Pool].Time {
			continue
		}
		// The cost of a time-shared stage grows with every request. So the least loss may lie just after the
		// next replica has begun, and the stage may carry less than a single replica of the others.
		timed = true
		try(most * 1e-6)
		try(most)
		break
	}

	// Try the rates of 1, 2, ... replicas of each stage on an exclusive pool.
	for i := range t.Stages {
		if c.Pools[t.Stages[i].Pool].Time {
			continue
		}
		exclusive = true
		for g := 1; g <= lossSteps; g++ {
			x := t.Stages[i].Rate * float64(g) / unit
			if x > most*(1+1e-9) {
				break
			}
			try(x)
			if timed {
				try(min(x*(1+1e-7), most))
			}
			if g == lossSteps {
				tail = min(tail, x)
			}
		}
	}
	if !exclusive {
		return 0
	}
	if !math.IsInf(tail, 1) {
		// Beyond the rates that were tried, the loss grows at least in proportion to the rate.
		best = min(best, (c.cost(t, r.price)-worth)*tail)
	}
	if math.IsInf(best, 1) {
		return best // not even one replica of each stage fits
	}
	return max(best, 0)
}

// replicaPrice returns the price of the whole replicas of t that carry so many units of rate.
func (c *catalogue) paid(t *stages.Template, r *relaxation, x, unit float64) float64 {
	sum := 0.0
	for i := range t.Stages {
		s := &t.Stages[i]
		n := x * unit / s.Rate
		if !c.Pools[s.Pool].Time {
			n = math.Ceil(n - 1e-9)
		}
		sum += r.price[s.Pool] * n / float64(s.Share*c.Pools[s.Pool].Count)
	}
	return sum
}
