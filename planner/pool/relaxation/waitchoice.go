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

// ComputeLosses sets the loss of each template of the catalogue, in units: how far below the bound of the relaxation
// every plan with it stays at least. Templates that the wait choice does not allow get an infinite loss, so no program
// takes them. It is called once the relaxation is solved.
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

// PickTemplates returns the templates of a small integer program: those of basis (such as the ones with a rate in the
// relaxation) and, of each model, the first n of byLoss that a plan can use (of finite loss). All are indexes in the
// catalogue: byLoss by rising loss, and the result sorted and without duplicates.
func (c *WaitChoice) PickTemplates(byLoss, basis []int, n int) []int {
	pickedOfModel, templateSet := make([]int, len(c.Catalogue.Problem.Models)), slices.Clone(basis)
	for _, i := range byLoss {
		if d := c.Catalogue.Templates[i].Model; pickedOfModel[d] < n && !math.IsInf(c.Losses[i], 1) {
			pickedOfModel[d]++
			templateSet = append(templateSet, i)
		}
	}
	slices.Sort(templateSet)
	return slices.Compact(templateSet)
}

// BestTemplates returns the templates with a rate in the relaxation and the n templates of least loss of each model, as
// sorted indexes in the catalogue. A plan that uses a template stays below the bound by its loss at least.
func (c *WaitChoice) BestTemplates(n int) []int {
	return c.PickTemplates(c.TemplatesByLoss(), c.Relaxation.UsedTemplates, n)
}
