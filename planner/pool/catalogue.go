package pool

import (
	"fmt"
	"math"

	"inferplan/planner/stages"
)

// catalogue is the possible pipelines of a problem, with the units in which
// programs over them count. A plan names its templates by their index there.
type catalogue struct {
	*Problem
	u         units
	templates []stages.Template
	partial   bool // there are others, which were not generated
}

// units scales the programs: rates are counted in the throughput objective
// that a cluster of this size reaches roughly, so that all variables are near 1.
type units struct {
	theta float64   // requests/s per weight
	rps   []float64 // per model: theta * weight
}

// catalogue is the problem with templates, in the units that go with them.
func (p *Problem) catalogue(templates []stages.Template) *catalogue {
	c := &catalogue{Problem: p, templates: templates}
	c.setUnits()
	return c
}

// list enumerates the templates of all models; an *Infeasible names the models
// that have none.
func (p *Problem) list() (*catalogue, error) {
	var all []stages.Template
	for d := range p.Models {
		list, tooBig, err := p.enumerate(d)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, p.noPipeline(d, tooBig)
		}
		if all = append(all, list...); len(all) > stages.MaxTemplates {
			return nil, fmt.Errorf("%w: more than %d", stages.ErrTooMany, stages.MaxTemplates)
		}
	}
	return p.catalogue(all), nil
}

// on is the same catalogue on other devices, or under other floors.
func (c *catalogue) on(p *Problem) *catalogue {
	q := *c
	q.Problem = p
	return &q
}

func (c *catalogue) setUnits() {
	alone := make([]float64, len(c.Models))
	for i := range c.templates {
		t := &c.templates[i]
		if rate := c.fullRate(t); !math.IsInf(rate, 1) {
			alone[t.Model] = max(alone[t.Model], rate)
		}
	}
	u := units{theta: math.Inf(1), rps: make([]float64, len(c.Models))}
	for d := range c.Models {
		u.theta = min(u.theta, alone[d]/c.Models[d].Weight)
	}
	u.theta /= float64(len(c.Models))
	if !(u.theta > 0) || math.IsInf(u.theta, 0) {
		u.theta = 1
	}
	for d := range c.Models {
		u.rps[d] = u.theta * c.Models[d].Weight
	}
	c.u = u
}

// fullRate is what a template carries, in requests/s, with all devices to itself.
func (p *Problem) fullRate(t *stages.Template) float64 {
	rate := math.Inf(1)
	for k := range p.Pools {
		if c := t.DevicesPerRPS(k); c > 0 {
			rate = min(rate, float64(p.Pools[k].Count)/c)
		}
	}
	return rate
}

// timed tells whether there is a time-shared pool.
func (p *Problem) timed() bool {
	for k := range p.Pools {
		if p.Pools[k].Time {
			return true
		}
	}
	return false
}

// many tells whether bundles are tried.
func (p *Problem) many() bool { return len(p.Models) >= manyModels && !p.timed() }

// devices is how many there are.
func (p *Problem) devices() (n int) {
	for k := range p.Pools {
		n += p.Pools[k].Count
	}
	return n
}

// withoutFloors is the problem with no rate asked of any model.
func (p *Problem) withoutFloors() *Problem {
	free := *p
	free.Models = append([]stages.Model(nil), p.Models...)
	for d := range free.Models {
		free.Models[d].MinRPS = 0
	}
	return &free
}

// cost is the price of the devices that one unit of rate through t takes.
func (c *catalogue) cost(t *stages.Template, price []float64) float64 {
	sum := 0.0
	for k := range c.Pools {
		if price[k] != 0 {
			if v := t.DevicesPerRPS(k); v > 0 {
				sum += price[k] * v * c.u.rps[t.Model] / float64(c.Pools[k].Count)
			}
		}
	}
	return sum
}

// ofFloor is what one unit of a model's rate is in parts of its floor. The rows
// of floors are counted so: a floor that is a millionth of what the cluster
// carries would else lie within the solver's tolerance, and be ignored.
func (c *catalogue) ofFloor(d int) float64 { return c.u.rps[d] / c.Models[d].MinRPS }

// all lists the first n indexes.
func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
