package pool

import (
	"cmp"
	"math"
	"slices"
)

// waitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type waitChoice struct {
	catalogue        *templateCatalogue
	waits            *waitBounds
	allowedTemplates []int
	lp               *relaxation
	bound            float64   // proven so far for plans of the choice
	losses           []float64 // by template; +Inf if it is not allowed
}

// computeLosses computes the loss of each template that the wait choice allows: how far below the bound of the
// relaxation every plan with it stays at least. All other templates get an infinite loss, so no program takes
// them.
func (c *waitChoice) computeLosses() {
	c.losses = slices.Repeat([]float64{math.Inf(1)}, len(c.catalogue.templates))
	for _, i := range c.allowedTemplates {
		c.losses[i] = c.catalogue.templateLoss(&c.catalogue.templates[i], c.lp)
	}
}

// templatesByLoss returns the allowed templates by rising loss.
func (c *waitChoice) templatesByLoss() []int {
	byLoss := slices.Clone(c.allowedTemplates)
	slices.SortStableFunc(byLoss, func(a, b int) int { return cmp.Compare(c.losses[a], c.losses[b]) })
	return byLoss
}

// pickTemplates returns the basis and, of each model, the first n templates of byLoss (sorted by loss, the
// least first) that a plan can use, as sorted indexes. They are the templates of a small integer program.
func (c *waitChoice) pickTemplates(byLoss, basis []int, n int) []int {
	pickedOfModel := make([]int, len(c.catalogue.problem.Models))
	isPicked := make(map[int]bool, len(basis))
	for _, i := range basis {
		isPicked[i] = true
	}
	for _, i := range byLoss {
		if d := c.catalogue.templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.losses[i], 1) {
			pickedOfModel[d]++
			isPicked[i] = true
		}
	}
	picked := make([]int, 0, len(isPicked))
	for i := range isPicked {
		picked = append(picked, i)
	}
	slices.Sort(picked)
	return picked
}

// bestTemplates returns the basis of the relaxation and the n templates of least loss of each model, sorted.
func (c *waitChoice) bestTemplates(n int) []int {
	return c.pickTemplates(c.templatesByLoss(), c.lp.usedTemplates, n)
}

// isSubset reports whether all of a are in b, which is sorted.
func isSubset(a, b []int) bool {
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); !ok {
			return false
		}
	}
	return true
}

// unionTemplates returns a set with the templates of some plans, sorted and without duplicates.
func unionTemplates(templates []int, plans ...[]planPipeline) []int {
	union := slices.Clone(templates)
	for _, pipelines := range plans {
		for _, c := range pipelines {
			union = append(union, c.template)
		}
	}
	slices.Sort(union)
	return slices.Compact(union)
}

// incumbent is the best plan so far, by the goal of the search.
type incumbent struct {
	catalogue *templateCatalogue
	goal      planGoal
	replan    *replanState // of the plan that runs; nil without one
	plan      *replicaPlan // nil as long as there is none
}

// score returns the score of the best plan (the value by the goal, higher is better), in units. Without a plan
// it is the goal's noPlanScore.
func (b *incumbent) score() float64 {
	if b.plan == nil {
		return b.goal.noPlanScore()
	}
	return b.goal.scoreOf(b.catalogue, b.plan)
}

// value returns the throughput of the best plan (the least rate per weight of a model), in units. Without a
// plan it is 0.
func (b *incumbent) value() float64 {
	if b.plan == nil {
		return 0
	}
	return b.plan.value / b.catalogue.units.throughput
}

// servesAll reports whether the best plan serves every model. Without a plan it returns false.
func (b *incumbent) servesAll() bool { return b.plan != nil && b.plan.value > 0 }

// keepIfBetter makes a plan the best one if it scores higher, is placeable and moves few enough devices. If its
// shares do not fit devices one by one, it counts without the replicas that are in the way.
func (b *incumbent) keepIfBetter(plan *replicaPlan) {
	isBetter := func() bool {
		return plan != nil && (b.plan == nil || b.goal.scoreOf(b.catalogue, plan) > b.score())
	}
	if !isBetter() {
		return
	}
	if plan, _, _ = b.catalogue.placePlan(plan, nil); isBetter() && b.replan.allowsMoves(plan) {
		b.plan = plan
	}
}

// isPlaceable reports whether a plan that scores no higher may still replace the best one: whether it packs into
// the devices and moves few enough of them.
func (b *incumbent) isPlaceable(plan *replicaPlan) bool {
	return b.catalogue.unpackablePool(plan) < 0 && b.replan.allowsMoves(plan)
}
