package pool

import (
	"cmp"
	"math"
	"slices"
)

// waitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type waitChoice struct {
	choiceCatalogue  *templateCatalogue
	waits            *waitBounds
	allowedTemplates []int
	lp               *relaxation
	bound            float64   // proven so far for plans of the choice
	losses           []float64 // by template; +Inf if it is not allowed
}

// computeLosses computes the losses of the allowed templates.
func (c *waitChoice) computeLosses() {
	c.losses = slices.Repeat([]float64{math.Inf(1)}, len(c.choiceCatalogue.templates))
	for _, i := range c.allowedTemplates {
		c.losses[i] = c.choiceCatalogue.templateLoss(&c.choiceCatalogue.templates[i], c.lp)
	}
}

// templatesByLoss returns the allowed templates by rising loss.
func (c *waitChoice) templatesByLoss() []int {
	byLoss := slices.Clone(c.allowedTemplates)
	slices.SortStableFunc(byLoss, func(a, b int) int { return cmp.Compare(c.losses[a], c.losses[b]) })
	return byLoss
}

// pickTemplates returns the basis and the first n templates of each model, sorted.
func (c *waitChoice) pickTemplates(byLoss, basis []int, n int) []int {
	pickedOfModel := make([]int, len(c.choiceCatalogue.Models))
	isPicked := make(map[int]bool, len(basis))
	for _, i := range basis {
		isPicked[i] = true
	}
	for _, i := range byLoss {
		if d := c.choiceCatalogue.templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.losses[i], 1) {
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
	*templateCatalogue
	goal     planGoal
	replan   *replanState // of the plan that runs; nil without one
	bestPlan *replicaPlan
}

// unitsToRate converts a value in units to requests/s per weight.
func (x *incumbent) unitsToRate(v float64) float64 { return v * x.units.throughput }

// displayValue returns a score as users see it: requests/s per weight, or a price.
func (x *incumbent) displayValue(score float64) float64 {
	return x.goal.displayValue(x.templateCatalogue, score)
}

// bestScore returns the score of the best plan, in units. Without a plan it is the goal's noPlanScore.
func (x *incumbent) bestScore() float64 {
	if x.bestPlan == nil {
		return x.goal.noPlanScore()
	}
	return x.goal.scoreOf(x.templateCatalogue, x.bestPlan)
}

// bestValue returns the throughput of the best plan, in units. Without a plan it is 0.
func (x *incumbent) bestValue() float64 {
	if x.bestPlan == nil {
		return 0
	}
	return x.bestPlan.value / x.units.throughput
}

// keepIfBetter makes a plan the best one if it scores higher, is placeable and moves few enough devices. If its
// shares do not fit devices one by one, it counts without the replicas that are in the way.
func (x *incumbent) keepIfBetter(plan *replicaPlan) {
	isBetter := func() bool {
		return plan != nil && (x.bestPlan == nil || x.goal.scoreOf(x.templateCatalogue, plan) > x.bestScore())
	}
	if !isBetter() {
		return
	}
	if plan, _, _ = x.placePlan(plan, nil); isBetter() && x.replan.allowsMoves(plan) {
		x.bestPlan = plan
	}
}

// isPlaceable reports whether a plan that scores no higher may still replace the best one: whether it packs into
// the devices and moves few enough of them.
func (x *incumbent) isPlaceable(plan *replicaPlan) bool {
	return x.unpackablePool(plan) < 0 && x.replan.allowsMoves(plan)
}
