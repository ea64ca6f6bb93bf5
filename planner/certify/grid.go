package certify

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/sim"
)

// SettingGrid is a search over settings, each a number of steps along some axes. It goes to the untried
// setting that is nearest to the best one so far.
type SettingGrid struct {
	Costs         []int // of a step, by axis
	triedSettings map[string]bool
}

// MarkTried notes that a setting was tried, so that NearestUntried does not return it.
func (g *SettingGrid) MarkTried(setting []int) {
	if g.triedSettings == nil {
		g.triedSettings = map[string]bool{}
	}
	g.triedSettings[fmt.Sprint(setting)] = true
}

// NearestUntried returns the setting nearest to best that was not tried, or false if all were. A setting holds, by axis,
// a number of steps from 0 to sizes[axis]-1; each step between two settings adds Costs[axis] to their distance. Among
// equally near ones it takes the one with the fewest steps along the first axis, then the second, and so on.
func (g *SettingGrid) NearestUntried(best, sizes []int) ([]int, bool) {
	// Walk through all settings, axis by axis, and leave those out that are further than the nearest so far.
	var nearest []int
	shortest := math.MaxInt
	setting := make([]int, len(sizes))
	var walk func(axis, distance int)
	walk = func(axis, distance int) {
		if distance >= shortest {
			return
		}
		if axis == len(sizes) {
			if !g.triedSettings[fmt.Sprint(setting)] {
				nearest, shortest = append([]int(nil), setting...), distance
			}
			return
		}
		for setting[axis] = 0; setting[axis] < sizes[axis]; setting[axis]++ {
			walk(axis+1, distance+g.Costs[axis]*max(setting[axis]-best[axis], best[axis]-setting[axis]))
		}
	}
	walk(0, 0)
	return nearest, nearest != nil
}

// CountHalvings returns how often a batch size can be halved, rounding down, until it is 0. It is the number of limits
// on the batch size that a search tries.
func CountHalvings(batch int) (n int) {
	for ; batch > 0; batch /= 2 {
		n++
	}
	return n
}

// EqualPlans returns whether two plans of a problem behave the same in simulation: they have the same
// deployment and promise the same rates.
func EqualPlans(p, q *formats.Plan) bool {
	return reflect.DeepEqual(p.Deployment, q.Deployment) && slices.EqualFunc(p.ServedModels(), q.ServedModels(), func(a, b formats.Served) bool { return a.RPS == b.RPS })
}

// SolveWork returns the cost of a solve in events of the simulator, each about .7 microseconds, so that solves and
// simulations count against one budget. A template counts as 30 events, an iteration of the solver as 40, a node
// of its tree as 500.
func SolveWork(res *kind.Result) int64 {
	work := 30 * int64(res.Templates)
	work += lists.Sum(len(res.Phases), func(i int) int64 { return 40*res.Phases[i].Iterations + 500*res.Phases[i].Nodes })
	return work
}

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
