package pool

import (
	"cmp"
	"math"
	"slices"
)

// candidate is a choice of the blocking rule: the templates that keep it, with
// their relaxation and what each loses at least.
type candidate struct {
	of      *catalogue
	rule    *blocking
	allowed []int
	lp      *relaxation
	bound   float64   // proven so far
	loss    []float64 // per template; +Inf where not allowed
}

// weigh works out the losses.
func (c *candidate) weigh() {
	c.loss = slices.Repeat([]float64{math.Inf(1)}, len(c.of.templates))
	for _, i := range c.allowed {
		c.loss[i] = c.of.loss(&c.of.templates[i], c.lp)
	}
}

// ranked lists the allowed templates by rising loss.
func (c *candidate) ranked() []int {
	out := slices.Clone(c.allowed)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(c.loss[a], c.loss[b]) })
	return out
}

// pick takes the basis and the first n of each model.
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

func subset(a, b []int) bool {
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); !ok {
			return false
		}
	}
	return true
}

// with is a set with the templates of plans, in order.
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

// incumbent is the best plan so far, by what is looked for.
type incumbent struct {
	*catalogue
	goal goal
	stay *staying // of a plan that runs; nil without one
	best *counts
}

// theta is a value in units as requests/s per weight.
func (x *incumbent) theta(v float64) float64 { return v * x.u.theta }

// shown is a score as people see it.
func (x *incumbent) shown(score float64) float64 { return x.goal.shown(x.catalogue, score) }

// score is the best plan's, in units.
func (x *incumbent) score() float64 {
	if x.best == nil {
		return x.goal.none()
	}
	return x.goal.score(x.catalogue, x.best)
}

// value is the throughput of the best plan, in units; 0 without one.
func (x *incumbent) value() float64 {
	if x.best == nil {
		return 0
	}
	return x.best.value / x.u.theta
}

// keep takes a plan that is better than the best one. What does not fit on
// devices one by one counts without what is in the way.
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

// fits tells whether a plan that is no better by the objective may take the place
// of the best one: it packs, and moves little.
func (x *incumbent) fits(c *counts) bool { return x.stuck(c) < 0 && x.stay.allows(c) }
