package certify

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
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
