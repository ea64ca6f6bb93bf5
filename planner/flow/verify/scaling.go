package verify

import "fmt"

// minRowShare is the least part of a row's rate that its replicas must carry. A row may fall a little short
// if one more replica would gain next to nothing.
const minRowShare = .9

// checkScaling checks the table by which replicas come and go with the rate at the entry, if the plan has one or its options have a cold
// start (the time that a new replica takes): the table must then exist and state that cold start, and the replicas of every row must
// carry, today, nearly the rate from which the row counts. In plans of applications no model is cut, so a pipeline is one stage.
func (c *checker) checkScaling() {
	s, coldStart := c.section.Scaling, c.Plan.Options.Time("cold-start")
	if s == nil {
		if coldStart > 0 {
			c.AddError("scaling", "flow.scaling", "nothing", "a table", "the plan's options have a cold start of %v", coldStart)
		}
		return
	}
	plannedRate := 0. // at the entry, of all applications
	for i := range c.section.Applications {
		plannedRate += c.section.Applications[i].RPS
	}
	for m := range c.section.Modules {
		if planned := c.section.Modules[m].ColdStartUS.D(); coldStart > 0 && planned != coldStart {
			c.AddError("scaling", fmt.Sprintf("flow.modules[%d].cold_start_us", m), planned.String(), coldStart.String(), "the cold start of %s is not that of the options", c.section.Modules[m].Model)
		}
	}

	// For each row and model, compute the rate of the model that the row's replicas carry, which fill its pipelines in order.
	for i, row := range s.Table {
		for m, rowReplicas := range row.Replicas {
			d := &c.Plan.Deployment[m]
			carriedRate, remaining := 0., rowReplicas
			for k := range d.Pipelines {
				current := c.PipelineCosts(d, &d.Pipelines[k])
				if !current.IsKnown {
					return // the check of the pipelines reports it
				}
				replicas := min(remaining, d.Pipelines[k].Stages[0].Replicas)
				carriedRate, remaining = carriedRate+float64(replicas)*current.Stages[0].Rate, remaining-replicas
			}
			// The planned rate at the entry asks requiredRate of the model. With that ratio the carried rate is one at the entry.
			carriedRate *= plannedRate / c.requiredRate[d.Model]
			if carriedRate < minRowShare*row.AboveRPS {
				c.AddError("scaling", fmt.Sprintf("flow.scaling.table[%d].replicas[%d]", i, m), fmt.Sprintf("%d, which carry %.6g rps", rowReplicas, carriedRate), fmt.Sprintf("what carries %.6g rps", row.AboveRPS),
					"the replicas of %s do not carry the rate of their row", d.Model)
				break
			}
		}
	}
}
