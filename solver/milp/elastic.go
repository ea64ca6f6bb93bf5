package milp

import (
	"errors"
	"fmt"
	"math"
)

// Side says which limit of a row or variable is meant.
type Side int8

// The sides.
const (
	Lower Side = iota
	Upper
)

// String returns the relation that the limit sets: <= for an upper one, >= for a lower one.
func (s Side) String() string {
	if s == Upper {
		return "<="
	}
	return ">="
}

// Limit is one side of a row.
type Limit struct {
	Row   Row
	Side  Side
	Name  string
	Value float64 // the limit
}

// String returns the limit with its row, such as "row capacity <= 4".
func (l Limit) String() string { return fmt.Sprintf("row %s %s %v", l.Name, l.Side, l.Value) }

// rowLimits returns the finite sides of a model's rows as limits, in the order of the rows. An equation has two, its
// lower and its upper one.
func rowLimits(model *Model) []Limit {
	var limits []Limit
	for i := range model.rows {
		row, name := Row(i), model.RowName(Row(i))
		if lower := model.rows[i].lo; !math.IsInf(lower, 0) {
			limits = append(limits, Limit{row, Lower, name, lower})
		}
		if upper := model.rows[i].hi; !math.IsInf(upper, 0) {
			limits = append(limits, Limit{row, Upper, name, upper})
		}
	}
	return limits
}

// elasticModel is a model in which some limits may be violated at a price of 1 per unit. Each has a slack
// variable, and the objective minimises the price.
type elasticModel struct {
	model  *Model
	limits []Limit
	slack  []Var // by limit; -1 if the limit is hard
}

// newElastic returns the elastic model, a copy of the model in which the given limits are soft: a slack variable of at
// least 0 is added to the row for a lower limit, and subtracted for an upper one, so that it takes up the violation. The
// objective becomes the sum of the slacks, to be minimised.
func newElastic(model *Model, limits []Limit) *elasticModel {
	elastic := model.WithoutObjective()
	elastic.Name = model.Name + " (elastic)"
	elastic.sense, elastic.offset = Minimize, 0
	relaxed := &elasticModel{model: elastic, limits: limits, slack: make([]Var, len(limits))}
	for k, limit := range limits {
		sign := 1.0
		if limit.Side == Upper {
			sign = -1
		}
		slack := elastic.AddVar("slack "+limit.String(), 0, Inf, 1)
		relaxed.slack[k] = slack
		elastic.AddTerm(limit.Row, slack, sign)
	}
	return relaxed
}

// violatedBy returns by how much limit k is violated at x, a solution of the elastic model: the value of its slack. A
// violation below the tolerance counts as 0, and so does that of a hard limit, which has no slack (-1).
func (e *elasticModel) violatedBy(x []float64, k int) float64 {
	if e.slack[k] < 0 {
		return 0
	}
	slackValue := x[e.slack[k]]
	if slackValue <= Tolerance*max(1, math.Abs(e.limits[k].Value)) {
		return 0
	}
	return slackValue
}

// makeHard makes limit k hard: it fixes its slack at 0, without a price.
func (e *elasticModel) makeHard(k int) {
	slack := e.slack[k]
	e.slack[k] = -1
	e.model.vars[slack].hi = 0
	e.model.vars[slack].obj = 0
}

// errNotInfeasible is returned if a conflict of a feasible model is asked for.
var errNotInfeasible = errors.New("the model is feasible: nothing is in conflict")
