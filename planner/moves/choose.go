package moves

import (
	"context"
	"iter"
	"slices"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Chooser chooses one of several plans that start from the one that runs.
type Chooser struct {
	Sense      milp.Sense // whether the objective is maximised
	Gap        float64    // relative gap within which values count as equal
	MaxMoved   int        // devices that may move
	candidates []*kind.Outcome
}

// Add adds a renumbered plan to the candidates, if it moves few enough devices, and returns how many it moves.
func (c *Chooser) Add(o *kind.Outcome) (moved int) {
	if o.Replan.MovedGPUs <= c.MaxMoved {
		c.candidates = append(c.candidates, o)
	}
	return o.Replan.MovedGPUs
}

// isNear reports whether a value is within the gap of the best one.
func (c *Chooser) isNear(value, best float64) bool {
	return milp.RelativeGap(c.Sense, value, best) <= c.Gap
}

// HasNear reports whether a candidate that moves at most so many devices is within the gap of a value.
func (c *Chooser) HasNear(best float64, maxMoved int) bool {
	return slices.ContainsFunc(c.candidates, func(o *kind.Outcome) bool {
		return o.Replan.MovedGPUs <= maxMoved && c.isNear(o.Objective.Value, best)
	})
}

// Best returns, of the candidates within the gap of the best one, the one with the fewest moves, and of those the best. Of
// equal ones it is the first. Without candidates it returns nil.
func (c *Chooser) Best() (chosen *kind.Outcome) {
	isBetter := func(a, b *kind.Outcome) bool {
		return kind.IsBetter(c.Sense, a.Objective.Value, b.Objective.Value)
	}
	var best *kind.Outcome
	for _, o := range c.candidates {
		if best == nil || isBetter(o, best) {
			best = o
		}
	}
	chosen = best
	for _, o := range c.candidates {
		if c.isNear(o.Objective.Value, best.Objective.Value) && (o.Replan.MovedGPUs < chosen.Replan.MovedGPUs || o.Replan.MovedGPUs == chosen.Replan.MovedGPUs && isBetter(o, chosen)) {
			chosen = o
		}
	}
	return chosen
}

// Limits returns the numbers of devices that searches near what runs may move, one after the other: none, one, and then twice as many, up
// to the most that may move. It ends before the number that the best plan of all moves, of which best is the value, where a candidate is
// near enough to that, and once ctx ends.
func (c *Chooser) Limits(ctx context.Context, best float64, bestMoved int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for limit := 0; limit <= c.MaxMoved && limit < bestMoved && ctx.Err() == nil && !c.HasNear(best, limit); limit = nextLimit(limit, c.MaxMoved) {
			if !yield(limit) {
				return
			}
		}
	}
}

// nextLimit returns the number of devices that the next search may move: one after none, and then twice as many, up to most.
// After most it returns more than that.
func nextLimit(limit, most int) int {
	if next := max(1, 2*limit); limit >= most || next <= most {
		return next
	}
	return most
}
