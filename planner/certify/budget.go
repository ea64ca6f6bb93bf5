package certify

import (
	"errors"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// mostRequests bounds the requests that the runs of a search for a plan simulate, and those that the
// runs of its tests do, each at --effort 1: together at most about twenty seconds of CPU.
const mostRequests = 8_000_000

// Budgets bound the work of a search for a plan and of the tests that confirm it. No bound: nil.
type Budgets struct{ Search, Tests *sim.Budget }

// NewBudgets returns the bounds at an effort. Runs whose duration is asked have none.
func NewBudgets(asked kind.Asked, effort int) Budgets {
	if asked.Duration > 0 {
		return Budgets{}
	}
	most := float64(effort) * mostRequests
	return Budgets{Search: &sim.Budget{Left: most}, Tests: &sim.Budget{Left: most}}
}

// OverBudget returns whether err says that runs would take more work than their budget allows.
func OverBudget(err error) bool {
	_, ok := errors.AsType[*sim.OverBudgetError](err)
	return ok
}

// Unconfirmed adds to the plan that no test confirmed its rates if err says that the runs would take
// more work than their budget allows. It returns other errors.
func Unconfirmed(plan *formats.Plan, err error) error {
	exceeded, ok := errors.AsType[*sim.OverBudgetError](err)
	if !ok {
		return err
	}
	plan.Assumptions = append(plan.Assumptions, "rates are not confirmed by simulation: "+exceeded.Error())
	return nil
}
