package templates

import (
	"fmt"
	"math"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// Catalogue holds the templates of a problem and the units in which programs over them count. Plans and programs
// name a template by its index in templates.
type Catalogue struct {
	Problem    *problem.Problem
	Units      Units
	Templates  []stages.Template
	Incomplete bool // templates exist that were not generated
}

// Units scales the programs. One unit of throughput is about what a cluster of this size reaches, so that
// all variables are near 1.
type Units struct {
	Throughput float64   // requests/s per weight that one unit of throughput stands for
	ModelRPS   []float64 // by model: throughput * weight
}

// newCatalogue returns the catalogue of some templates, with units that fit them.
func newCatalogue(p *problem.Problem, templates []stages.Template) *Catalogue {
	c := &Catalogue{Problem: p, Templates: templates}
	c.SetUnits()
	return c
}

// ListAll returns the catalogue of the templates of all models (pipelines without replica counts that keep the SLO),
// without those that another one beats in every respect. A search calls it first, unless templates are so many that it
// generates only useful ones. If a model has none, it returns a *kind.InfeasibleError that explains why; if there are
// more than stages.MaxTemplates in all, the error wraps stages.ErrTooManyTemplates.
func ListAll(p *problem.Problem) (*Catalogue, error) {
	var templates []stages.Template
	for d := range p.Models {
		modelTemplates, tooBig, err := UndominatedTemplates(p, d)
		if err != nil {
			return nil, err
		}
		if len(modelTemplates) == 0 {
			return nil, NoPipeline(p, d, tooBig)
		}
		if templates = append(templates, modelTemplates...); len(templates) > stages.MaxTemplates {
			return nil, fmt.Errorf("%w: more than %d", stages.ErrTooManyTemplates, stages.MaxTemplates)
		}
	}
	return newCatalogue(p, templates), nil
}

// IndexByKey returns the index of each template, by its key.
func (c *Catalogue) IndexByKey() map[string]int {
	indexes := make(map[string]int, len(c.Templates))
	for i := range c.Templates {
		indexes[c.Templates[i].Key()] = i
	}
	return indexes
}

// WithProblem returns the catalogue with the same templates for a problem with other device counts or floors.
func (c *Catalogue) WithProblem(p *problem.Problem) *Catalogue {
	q := *c
	q.Problem = p
	return &q
}

// SetUnits sets the units in which programs over the templates count rates, so that their variables stay near 1. One
// unit of throughput (requests/s per weight of a model) is about what the cluster reaches if all models share it: the
// rate per weight that each model has with the whole cluster to itself, of these the least, divided by the number of
// models. A unit of one model's rate is that times its weight. If some model has no template with a finite rate above
// 0, the unit is 1 request/s per weight.
func (c *Catalogue) SetUnits() {
	// The highest rate of each model, in requests/s, with all devices to itself.
	loneRate := make([]float64, len(c.Problem.Models))
	for i := range c.Templates {
		t := &c.Templates[i]
		if rate := c.Problem.MaxRate(t); !math.IsInf(rate, 1) {
			loneRate[t.Model] = max(loneRate[t.Model], rate)
		}
	}

	// The unit of throughput, and from it the unit of each model's rate.
	scale := Units{Throughput: math.Inf(1), ModelRPS: make([]float64, len(c.Problem.Models))}
	scale.Throughput = lists.Min(scale.Throughput, len(c.Problem.Models), func(d int) float64 { return loneRate[d] / c.Problem.Models[d].Weight })
	scale.Throughput /= float64(len(c.Problem.Models))
	if !(scale.Throughput > 0) || math.IsInf(scale.Throughput, 0) {
		scale.Throughput = 1
	}
	for d := range c.Problem.Models {
		scale.ModelRPS[d] = scale.Throughput * c.Problem.Models[d].Weight
	}
	c.Units = scale
}

// UnitCost returns the price of the devices that template t takes for one unit of its model's rate (Units.ModelRPS
// requests/s), with replicas in fractions. poolPrice holds the price of all devices of each pool together: a dual of
// the relaxation, or a cost. Column generation compares it with the worth of that unit.
func (c *Catalogue) UnitCost(t *stages.Template, poolPrice []float64) float64 {
	sum := 0.0
	for k := range c.Problem.Pools {
		if poolPrice[k] != 0 {
			// The part of the pool's devices that the unit takes, at the price of the pool.
			if devicesPerRPS := t.DevicesPerRPS(k); devicesPerRPS > 0 {
				sum += poolPrice[k] * devicesPerRPS * c.Units.ModelRPS[t.Model] / float64(c.Problem.Pools[k].Count)
			}
		}
	}
	return sum
}

// UnitsToRate converts a value in units to requests/s per weight.
func (c *Catalogue) UnitsToRate(v float64) float64 { return v * c.Units.Throughput }

// FloorShare returns one unit of model d's rate as a part of its floor. Rows of floors are counted in such
// parts: a floor that is a millionth of what the cluster carries would else lie within the solver's tolerance
// and be ignored.
func (c *Catalogue) FloorShare(d int) float64 {
	return c.Units.ModelRPS[d] / c.Problem.Models[d].MinRPS
}

// AllTemplates returns the index of every template.
func (c *Catalogue) AllTemplates() []int {
	return lists.Indexes(len(c.Templates))
}
