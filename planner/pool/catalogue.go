package pool

import (
	"fmt"
	"math"

	"inferplan/planner/stages"
)

// templateCatalogue holds the templates of a problem and the units in which programs over them count. Plans and programs
// name a template by its index in templates.
type catalogue struct {
	*Problem
	u         units
	templates []stages.Template
	partial   bool // templates exist that were not generated
}

// programUnits scales the programs. One unit of throughput is about what a cluster of this size reaches, so that
// all variables are near 1.
type units struct {
	theta float64   // requests/s per weight that one unit of throughput stands for
	rps   []float64 // by model: throughput * weight
}

// newCatalogue returns the catalogue of some templates, with units that fit them.
func (p *Problem) catalogue(templates []stages.Template) *catalogue {
	c := &catalogue{Problem: p, templates: templates}
	c.setUnits()
	return c
}

// listTemplates enumerates the undominated templates of all models. If a model has none, it returns an
// *Infeasible that explains why.
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

// withProblem returns the catalogue with the same templates for a problem with other device counts or floors.
func (c *catalogue) on(p *Problem) *catalogue {
	q := *c
	q.Problem = p
	return &q
}

// setUnits sets the unit of throughput: the least rate per weight that any model has with the whole cluster to
// itself, divided by the number of models.
func (c *catalogue) setUnits() {
	// The highest rate of each model with all devices to itself.
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

// maxRate returns the rate in requests/s that a template carries with all devices to itself.
func (p *Problem) fullRate(t *stages.Template) float64 {
	rate := math.Inf(1)
	for k := range p.Pools {
		if c := t.DevicesPerRPS(k); c > 0 {
			rate = min(rate, float64(p.Pools[k].Count)/c)
		}
	}
	return rate
}

// hasTimeShared reports whether the problem has a time-shared pool.
func (p *Problem) timed() bool {
	for k := range p.Pools {
		if p.Pools[k].Time {
			return true
		}
	}
	return false
}

// usesBundles reports whether the models are so many that plans are looked for by bundles.
func (p *Problem) many() bool { return len(p.Models) >= manyModels && !p.timed() }

// totalDevices returns the number of devices of all pools.
func (p *Problem) devices() (n int) {
	for k := range p.Pools {
		n += p.Pools[k].Count
	}
	return n
}

// withoutFloors returns the problem without floors under the models' rates.
func (p *Problem) withoutFloors() *Problem {
	free := *p
	free.Models = append([]stages.Model(nil), p.Models...)
	for d := range free.Models {
		free.Models[d].MinRPS = 0
	}
	return &free
}

// unitCost returns the price of the devices that one unit of rate through t takes. poolPrice holds the price of
// all devices of each pool together.
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

// floorShare returns one unit of model d's rate as a part of its floor. Rows of floors are counted in such
// parts: a floor that is a millionth of what the cluster carries would else lie within the solver's tolerance
// and be ignored.
func (c *catalogue) ofFloor(d int) float64 { return c.u.rps[d] / c.Models[d].MinRPS }

// indexesBelow returns 0, 1, ..., n-1.
func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
