package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// withLanguageModels returns today's documents with the language models of the plan's workflows added to the
// profile, as if they were usual models: the time of a sequence follows from its tokens and the profile's
// iterations. An error is kept for check.
func (c languageChecker) withLanguageModels(t *kind.CheckInput) *kind.CheckInput {
	var apps []formats.Application
	for i := range c.plan.Applications {
		a := &c.plan.Applications[i]
		apps = append(apps, formats.Application{Name: a.Model, Segments: a.Segments})
	}
	profile, llms, err := flow.WithLanguageModels(t.Profile, apps, "flow.applications")
	if err != nil {
		c.languageErr = err
		return t
	}
	today := *t
	today.Profile, c.languageModels = profile, llms
	return &today
}

// languageChecker checks what a plan says about its language models.
type languageChecker struct{ *checker }

// check compares every language model of the plan, its mean tokens per request and its instances, with today's
// profile and segments.
func (c languageChecker) check() {
	if c.languageErr != nil {
		c.AddError("model", "flow.applications", "", "", "%v", c.languageErr)
	}
	for i := range c.plan.Modules {
		m, docPath := &c.plan.Modules[i], fmt.Sprintf("flow.modules[%d].generation", i)
		today := c.languageModels[m.Model]
		if (today == nil) != (m.Generation == nil) {
			c.AddError("model", docPath, fmt.Sprint(m.Generation != nil), fmt.Sprint(today != nil), "%s is a language model in one of the plan's section and its segments", m.Model)
			continue
		}
		if today == nil {
			continue
		}
		if math.Abs(m.Generation.PromptMean-today.PromptMean) > relativeTolerance*today.PromptMean || math.Abs(m.Generation.OutputMean-today.OutputMean) > relativeTolerance*today.OutputMean {
			c.AddError("tokens", docPath, fmt.Sprintf("%.6g and %.6g", m.Generation.PromptMean, m.Generation.OutputMean), fmt.Sprintf("%.6g and %.6g", today.PromptMean, today.OutputMean), "the segments ask %s for other tokens", m.Model)
		}
		c.checkInstances(m, today, docPath)
	}
}

// checkInstances compares the instances of a language model in the plan, one per device kind, with those of
// today's profile: KV memory, time per iteration, and sequences at once.
func (c languageChecker) checkInstances(m *formats.FlowModule, today *formats.FlowGeneration, docPath string) {
	for k := range m.Generation.Instances {
		planned, instancePath := &m.Generation.Instances[k], fmt.Sprintf("%s.instances[%d]", docPath, k)
		current := today.InstanceOn(planned.Device)
		switch {
		case current == nil:
			c.AddError("measurement", instancePath, planned.Device, "an instance of the profile", "the profile has no %s on %s any more", m.Model, planned.Device)
		case float64(planned.KVTokens) < float64(planned.Sequences)*(today.PromptMean+today.OutputMean)-1:
			c.AddError("memory", instancePath+".kv_tokens", fmt.Sprint(planned.KVTokens), fmt.Sprintf("%.0f", float64(planned.Sequences)*(today.PromptMean+today.OutputMean)), "the KV memory of %s does not hold its %d sequences", m.Model, planned.Sequences)
		case current.Iteration != planned.Iteration:
			c.AddWarning("iteration", instancePath+".iteration", fmt.Sprintf("%.6g ns", planned.Iteration.BaseNS), fmt.Sprintf("%.6g ns", current.Iteration.BaseNS), "an iteration of %s takes another time today", m.Model)
		case current.Sequences > 0 && planned.Sequences > current.Sequences:
			c.AddError("sequences", instancePath+".sequences", fmt.Sprint(planned.Sequences), fmt.Sprintf("at most %d", current.Sequences), "%s runs fewer sequences at once today", m.Model)
		}
	}
}
