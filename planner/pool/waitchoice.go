package pool

import (
	"cmp"
	"math"
	"slices"

	"inferplan/planner/pool/templates"
)

// waitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type waitChoice struct {
	catalogue        *templates.Catalogue
	waits            *templates.WaitBounds
	allowedTemplates []int
	lp               *relaxation
	bound            float64   // proven so far for plans of the choice
	losses           []float64 // by template; +Inf if it is not allowed
}

// computeLosses computes the loss of each template that the wait choice allows: how far below the bound of the
// relaxation every plan with it stays at least. All other templates get an infinite loss, so no program takes
// them.
func (c *waitChoice) computeLosses() {
	c.losses = slices.Repeat([]float64{math.Inf(1)}, len(c.catalogue.Templates))
	for _, i := range c.allowedTemplates {
		c.losses[i] = templateLoss(c.catalogue, &c.catalogue.Templates[i], c.lp)
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
	pickedOfModel := make([]int, len(c.catalogue.Problem.Models))
	isPicked := make(map[int]bool, len(basis))
	for _, i := range basis {
		isPicked[i] = true
	}
	for _, i := range byLoss {
		if d := c.catalogue.Templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.losses[i], 1) {
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
