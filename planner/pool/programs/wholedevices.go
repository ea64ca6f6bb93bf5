package programs

import (
	"fmt"

	"inferplan/planner/lists"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// NewWholeDevices builds a program of which the optimum bounds all plans under the slot rule (no two models share a
// device): the most throughput θ of rates through templates, where each model takes a whole number of devices of each
// pool and replicas may be fractions. It has few whole numbers, so it is solved soon. templates holds indexes in the
// catalogue, and maxValue is a limit of θ that is known, in units.
func NewWholeDevices(c *templates.Catalogue, templates []int, maxValue float64) *milp.Model {
	p := c.Problem
	m := milp.New("whole devices per model")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, maxValue, 1)

	// Rows: the whole devices of a pool that models take are at most its count; the rate of each model is at least θ; and
	// the devices that its templates take of a pool are at most its whole ones there.
	var rateRows []milp.Row
	poolRows := lists.Filled(len(p.Pools), func(k int) milp.Row { return m.AddLE("", float64(p.Pools[k].Count)) })
	takenRows := make([][]milp.Row, len(p.Models))
	for d := range p.Models {
		rateRows = append(rateRows, m.AddGE("", 0, milp.Term{Var: theta, Coef: -1}))
		takenRows[d] = make([]milp.Row, len(p.Pools))
		for k := range p.Pools {
			if n := p.Pools[k].Count; n > 0 {
				v := m.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(n), 0)
				m.AddTerm(poolRows[k], v, 1)
				takenRows[d][k] = m.AddLE("", 0, milp.Term{Var: v, Coef: -1})
			}
		}
	}

	// Columns: the rate through each template, in units, with the devices that a unit takes.
	for _, ti := range templates {
		t := &c.Templates[ti]
		entries := []milp.Entry{{Row: rateRows[t.Model], Coef: 1}}
		for k := range p.Pools {
			if devices := t.DevicesPerRPS(k); devices > 0 {
				entries = append(entries, milp.Entry{Row: takenRows[t.Model][k], Coef: devices * c.Units.ModelRPS[t.Model]})
			}
		}
		m.AddColumn("", 0, milp.Inf, 0, entries...)
	}
	return m
}
