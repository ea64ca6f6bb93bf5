package pool

import (
	"fmt"
	"math"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// templateCatalogue holds the templates of a problem and the units in which programs over them count. Plans and programs
// name a template by its index in templates.
type templateCatalogue struct {
	problem    *problem.Problem
	units      programUnits
	templates  []stages.Template
	incomplete bool // templates exist that were not generated
}

// programUnits scales the programs. One unit of throughput is about what a cluster of this size reaches, so that
// all variables are near 1.
type programUnits struct {
	throughput float64   // requests/s per weight that one unit of throughput stands for
	modelRPS   []float64 // by model: throughput * weight
}

// newCatalogue returns the catalogue of some templates, with units that fit them.
func newCatalogue(p *problem.Problem, templates []stages.Template) *templateCatalogue {
	c := &templateCatalogue{problem: p, templates: templates}
	c.setUnits()
	return c
}

// listTemplates lists the templates of all models (pipelines without replica counts that keep the SLO), without
// those that another one beats in every respect. If a model has none, it returns a *kind.InfeasibleError that
// explains why, and if there are too many in all, an error.
func listTemplates(p *problem.Problem) (*templateCatalogue, error) {
	var templates []stages.Template
	for d := range p.Models {
		modelTemplates, tooBig, err := undominatedTemplates(p, d)
		if err != nil {
			return nil, err
		}
		if len(modelTemplates) == 0 {
			return nil, noPipeline(p, d, tooBig)
		}
		if templates = append(templates, modelTemplates...); len(templates) > stages.MaxTemplates {
			return nil, fmt.Errorf("%w: more than %d", stages.ErrTooManyTemplates, stages.MaxTemplates)
		}
	}
	return newCatalogue(p, templates), nil
}

// indexByKey returns the index of each template, by its key.
func (c *templateCatalogue) indexByKey() map[string]int {
	indexes := make(map[string]int, len(c.templates))
	for i := range c.templates {
		indexes[c.templates[i].Key()] = i
	}
	return indexes
}

// withProblem returns the catalogue with the same templates for a problem with other device counts or floors.
func (c *templateCatalogue) withProblem(p *problem.Problem) *templateCatalogue {
	q := *c
	q.problem = p
	return &q
}

// setUnits sets the unit of throughput: the least rate per weight that any model has with the whole cluster to
// itself, divided by the number of models. So one unit is about what the cluster reaches if all models share
// it, and the variables of programs stay near 1. If no model has a finite rate above 0, the unit is 1.
func (c *templateCatalogue) setUnits() {
	// The highest rate of each model with all devices to itself.
	loneRate := make([]float64, len(c.problem.Models))
	for i := range c.templates {
		t := &c.templates[i]
		if rate := c.problem.MaxRate(t); !math.IsInf(rate, 1) {
			loneRate[t.Model] = max(loneRate[t.Model], rate)
		}
	}
	scale := programUnits{throughput: math.Inf(1), modelRPS: make([]float64, len(c.problem.Models))}
	for d := range c.problem.Models {
		scale.throughput = min(scale.throughput, loneRate[d]/c.problem.Models[d].Weight)
	}
	scale.throughput /= float64(len(c.problem.Models))
	if !(scale.throughput > 0) || math.IsInf(scale.throughput, 0) {
		scale.throughput = 1
	}
	for d := range c.problem.Models {
		scale.modelRPS[d] = scale.throughput * c.problem.Models[d].Weight
	}
	c.units = scale
}

// unitCost returns the price of the devices that template t takes for one unit of its model's rate, with
// replicas in fractions. poolPrice holds the price of all devices of each pool together.
func (c *templateCatalogue) unitCost(t *stages.Template, poolPrice []float64) float64 {
	sum := 0.0
	for k := range c.problem.Pools {
		if poolPrice[k] != 0 {
			if v := t.DevicesPerRPS(k); v > 0 {
				sum += poolPrice[k] * v * c.units.modelRPS[t.Model] / float64(c.problem.Pools[k].Count)
			}
		}
	}
	return sum
}

// unitsToRate converts a value in units to requests/s per weight.
func (c *templateCatalogue) unitsToRate(v float64) float64 { return v * c.units.throughput }

// floorShare returns one unit of model d's rate as a part of its floor. Rows of floors are counted in such
// parts: a floor that is a millionth of what the cluster carries would else lie within the solver's tolerance
// and be ignored.
func (c *templateCatalogue) floorShare(d int) float64 {
	return c.units.modelRPS[d] / c.problem.Models[d].MinRPS
}

// allTemplates returns the index of every template.
func (c *templateCatalogue) allTemplates() []int {
	indexes := make([]int, len(c.templates))
	for i := range indexes {
		indexes[i] = i
	}
	return indexes
}
