package relaxation

import (
	"cmp"
	"math"
	"slices"

	"inferplan/planner/pool/templates"
)

// WaitChoice is a choice of wait bounds with the templates that keep the rule under it, their relaxation, and
// the loss of each.
type WaitChoice struct {
	Catalogue        *templates.Catalogue
	Waits            *templates.WaitBounds
	AllowedTemplates []int
	Relaxation       *Solution
	Bound            float64   // proven so far for plans of the choice
	Losses           []float64 // by template; +Inf if it is not allowed
}

// ComputeLosses computes the loss of each template that the wait choice allows: how far below the bound of the
// relaxation every plan with it stays at least. All other templates get an infinite loss, so no program takes
// them.
func (c *WaitChoice) ComputeLosses() {
	c.Losses = slices.Repeat([]float64{math.Inf(1)}, len(c.Catalogue.Templates))
	for _, i := range c.AllowedTemplates {
		c.Losses[i] = TemplateLoss(c.Catalogue, &c.Catalogue.Templates[i], c.Relaxation)
	}
}

// TemplatesByLoss returns the allowed templates by rising loss.
func (c *WaitChoice) TemplatesByLoss() []int {
	byLoss := slices.Clone(c.AllowedTemplates)
	slices.SortStableFunc(byLoss, func(a, b int) int { return cmp.Compare(c.Losses[a], c.Losses[b]) })
	return byLoss
}

// PickTemplates returns the basis and, of each model, the first n templates of byLoss (sorted by loss, the
// least first) that a plan can use, as sorted indexes. They are the templates of a small integer program.
func (c *WaitChoice) PickTemplates(byLoss, basis []int, n int) []int {
	pickedOfModel, picked := make([]int, len(c.Catalogue.Problem.Models)), slices.Clone(basis)
	for _, i := range byLoss {
		if d := c.Catalogue.Templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.Losses[i], 1) {
			pickedOfModel[d]++
			picked = append(picked, i)
		}
	}
	slices.Sort(picked)
	return slices.Compact(picked)
}

// BestTemplates returns the basis of the relaxation and the n templates of least loss of each model, sorted.
func (c *WaitChoice) BestTemplates(n int) []int {
	return c.PickTemplates(c.TemplatesByLoss(), c.Relaxation.UsedTemplates, n)
}
