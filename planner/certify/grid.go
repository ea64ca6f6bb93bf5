package certify

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// Grid is a search over settings that are steps along some axes: it goes to the nearest setting of
// the best so far that was not tried.
type Grid struct {
	Costs []int // of a step, by axis
	tried map[string]bool
}

// Try notes that a setting was tried.
func (g *Grid) Try(at []int) {
	if g.tried == nil {
		g.tried = map[string]bool{}
	}
	g.tried[fmt.Sprint(at)] = true
}

// Nearest returns the nearest setting to one that was not tried, of those with fewer steps than
// sizes along each axis; false: there is none. Of several it is the one with the fewest steps
// along the first axis, then the second, and so on.
func (g *Grid) Nearest(to, sizes []int) ([]int, bool) {
	var nearest []int
	shortest := math.MaxInt
	at := make([]int, len(sizes))
	var walk func(axis, distance int)
	walk = func(axis, distance int) {
		if distance >= shortest {
			return
		}
		if axis == len(sizes) {
			if !g.tried[fmt.Sprint(at)] {
				nearest, shortest = append([]int(nil), at...), distance
			}
			return
		}
		for at[axis] = 0; at[axis] < sizes[axis]; at[axis]++ {
			walk(axis+1, distance+g.Costs[axis]*max(at[axis]-to[axis], to[axis]-at[axis]))
		}
	}
	walk(0, 0)
	return nearest, nearest != nil
}

// Halvings returns the number of times that a batch can be halved until none is left.
func Halvings(batch int) (n int) {
	for ; batch > 0; batch /= 2 {
		n++
	}
	return n
}

// Equal returns whether two plans of a problem behave alike in simulation: they deploy the same and
// promise the same rates.
func Equal(p, q *formats.Plan) bool {
	return reflect.DeepEqual(p.Deployment, q.Deployment) && slices.EqualFunc(p.Served(), q.Served(), func(a, b formats.Served) bool { return a.RPS == b.RPS })
}

// WorkOf returns the cost of a solve, in events of the simulator, each about .7 microseconds.
func WorkOf(res *kind.Result) int64 {
	work := 30 * int64(res.Templates)
	for _, phase := range res.Phases {
		work += 40*phase.Iterations + 500*phase.Nodes
	}
	return work
}
