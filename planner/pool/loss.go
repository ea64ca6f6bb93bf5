package pool

import (
	"math"

	"inferplan/planner/stages"
)

// lossSteps is how many replica counts of each stage are looked at.
const lossSteps = 24

// loss is what any plan that uses template t must stay below the bound of r at
// least, in units: for every plan,
//
//	theta <= bound - sum of loss over its templates
//
// because whole replicas of t cost, at the prices of r, at least so much more
// than the rate they carry is worth. Devices of one kind are priced by what
// replicas take of them; rounding up to whole devices only adds to it.
func (c *catalogue) loss(t *stages.Template, r *relaxation) float64 {
	worth := r.worth[t.Model]
	unit := c.u.rps[t.Model]
	// Rates, in units, at which a stage's replica count must grow.
	most := c.fullRate(t) / unit
	exclusive, timed := false, false
	best, tail := math.Inf(1), math.Inf(1)
	try := func(x float64) { best = min(best, c.paid(t, r, x, unit)-worth*x) }
	for i := range t.Stages {
		if !c.Pools[t.Stages[i].Pool].Time {
			continue
		}
		// What a time-shared stage takes grows with every request, so the least
		// may lie where the next replica has just begun; and it may carry less
		// than a single replica of the others.
		timed = true
		try(most * 1e-6)
		try(most)
		break
	}
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
		// Beyond the rates looked at, the loss grows with the rate at least.
		best = min(best, (c.cost(t, r.price)-worth)*tail)
	}
	if math.IsInf(best, 1) {
		return best // not even one replica of each stage fits
	}
	return max(best, 0)
}

// paid is the price of the whole replicas that carry rate x.
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
