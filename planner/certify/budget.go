package certify

import (
	"errors"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// maxRequests bounds the requests in the simulations of a search for a plan, and in those of its
// tests, each at --effort 1. Together they take about twenty seconds of CPU time at most.
const maxRequests = 8_000_000

// Budgets bound the work of a search for a plan and of the tests that confirm it. A nil budget has no bound.
type Budgets struct{ Search, Tests *sim.Budget }

// NewBudgets returns how much the search and the tests may simulate, in proportion to the option effort. If the
// duration of the runs is set by the user, nothing limits them.
func NewBudgets(settings kind.TestSettings, effort int) Budgets {
	if settings.Duration > 0 {
		return Budgets{}
	}
	maxWork := float64(effort) * maxRequests
	return Budgets{Search: &sim.Budget{Remaining: maxWork}, Tests: &sim.Budget{Remaining: maxWork}}
}

// OverBudget reports whether err says that runs would exceed their budget.
func OverBudget(err error) bool {
	_, ok := errors.AsType[*sim.OverBudgetError](err)
	return ok
}

// NoteUnconfirmed handles the error of a test. If it says that the runs would exceed their budget, it notes in the
// plan that no test confirmed its rates, and returns nil. It returns other errors as they are.
func NoteUnconfirmed(plan *formats.Plan, err error) error {
	overBudget, ok := errors.AsType[*sim.OverBudgetError](err)
	if !ok {
		return err
	}
	plan.Assumptions = append(plan.Assumptions, "rates are not confirmed by simulation: "+overBudget.Error())
	return nil
}
