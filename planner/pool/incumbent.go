package pool

import (
	"cmp"
	"math"
	"slices"
)

// waitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type candidate struct {
	of      *catalogue
	rule    *blocking
	allowed []int
	lp      *relaxation
	bound   float64   // proven so far for plans of the choice
	loss    []float64 // by template; +Inf if it is not allowed
}

// computeLosses computes the losses of the allowed templates.
func (c *candidate) weigh() {
	c.loss = slices.Repeat([]float64{math.Inf(1)}, len(c.of.templates))
	for _, i := range c.allowed {
		c.loss[i] = c.of.loss(&c.of.templates[i], c.lp)
	}
}

// templatesByLoss returns the allowed templates by rising loss.
func (c *candidate) ranked() []int {
	out := slices.Clone(c.allowed)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(c.loss[a], c.loss[b]) })
	return out
}

// pickTemplates returns the basis and the first n templates of each model, sorted.
func (c *candidate) pick(ranked, basis []int, n int) []int {
	taken := make([]int, len(c.of.Models))
	in := make(map[int]bool, len(basis))
	for _, i := range basis {
		in[i] = true
	}
	for _, i := range ranked {
		if d := c.of.templates[i].Model; taken[d] < n && !math.IsInf(c.loss[i], 1) {
			taken[d]++
			in[i] = true
		}
	}
	out := make([]int, 0, len(in))
	for i := range in {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// isSubset reports whether all of a are in b, which is sorted.
func subset(a, b []int) bool {
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); !ok {
			return false
		}
	}
	return true
}

// unionTemplates returns a set with the templates of some plans, sorted and without duplicates.
func with(set []int, plans ...[]count) []int {
	out := slices.Clone(set)
	for _, list := range plans {
		for _, c := range list {
			out = append(out, c.template)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// incumbent is the best plan so far, by the goal of the search.
type incumbent struct {
	*catalogue
	goal goal
	stay *staying // of the plan that runs; nil without one
	best *counts
}

// unitsToRate converts a value in units to requests/s per weight.
func (x *incumbent) theta(v float64) float64 { return v * x.u.theta }

// displayValue returns a score as users see it: requests/s per weight, or a price.
func (x *incumbent) shown(score float64) float64 { return x.goal.shown(x.catalogue, score) }

// bestScore returns the score of the best plan, in units. Without a plan it is the goal's noPlanScore.
func (x *incumbent) score() float64 {
	if x.best == nil {
		return x.goal.none()
	}
	return x.goal.score(x.catalogue, x.best)
}

// bestValue returns the throughput of the best plan, in units. Without a plan it is 0.
func (x *incumbent) value() float64 {
	if x.best == nil {
		return 0
	}
	return x.best.value / x.u.theta
}

// keepIfBetter makes a plan the best one if it scores higher, is placeable and moves few enough devices. If its
// shares do not fit devices one by one, it counts without the replicas that are in the way.
func (x *incumbent) keep(c *counts) {
	better := func() bool {
		return c != nil && (x.best == nil || x.goal.score(x.catalogue, c) > x.score())
	}
	if !better() {
		return
	}
	if c, _, _ = x.place(c, nil); better() && x.stay.allows(c) {
		x.best = c
	}
}

// isPlaceable reports whether a plan that scores no higher may still replace the best one: whether it packs into
// the devices and moves few enough of them.
func (x *incumbent) fits(c *counts) bool { return x.stuck(c) < 0 && x.stay.allows(c) }
