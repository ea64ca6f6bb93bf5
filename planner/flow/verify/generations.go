package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
	"inferplan/policy/flow"
)

// languageChecker checks what a plan says about its language models.
type languageChecker struct {
	plan  *formats.FlowPlan
	today map[string]*formats.FlowGeneration // by name, by today's profile
	err   error                              // why today is empty
}

// newLanguageChecker returns the checker of a plan's language models, and a copy of the check's input in which those that the plan's
// workflows ask for stand among the profile's models, as if measured in batches. The times of their sequences follow from the profile's
// iterations. If that fails, the checker has the error, and the input is as given.
func newLanguageChecker(plan *formats.FlowPlan, t *kind.CheckInput) (*languageChecker, *kind.CheckInput) {
	var apps []formats.Application
	for i := range plan.Applications {
		a := &plan.Applications[i]
		apps = append(apps, formats.Application{Name: a.Model, Segments: a.Segments})
	}
	profile, llms, err := flow.WithLanguageModels(t.Profile, apps, "flow.applications")
	if err != nil {
		return &languageChecker{plan: plan, err: err}, t
	}
	today := *t
	today.Profile = profile
	return &languageChecker{plan: plan, today: llms}, &today
}

// check compares the mean tokens and the instances that the plan states for every language model with those of today, and adds
// differences to the findings.
func (c *languageChecker) check(findings *recompute.Checker) {
	if c.err != nil {
		findings.AddError("model", "flow.applications", "", "", "%v", c.err)
	}
	for i := range c.plan.Modules {
		m, docPath := &c.plan.Modules[i], fmt.Sprintf("flow.modules[%d].generation", i)
		today := c.today[m.Model]
		if (today == nil) != (m.Generation == nil) {
			findings.AddError("model", docPath, fmt.Sprint(m.Generation != nil), fmt.Sprint(today != nil), "%s is a language model in one of the plan's section and its segments", m.Model)
			continue
		}
		if today == nil {
			continue
		}
		if math.Abs(m.Generation.PromptMean-today.PromptMean) > relativeTolerance*today.PromptMean || math.Abs(m.Generation.OutputMean-today.OutputMean) > relativeTolerance*today.OutputMean {
			findings.AddError("tokens", docPath, fmt.Sprintf("%.6g and %.6g", m.Generation.PromptMean, m.Generation.OutputMean), fmt.Sprintf("%.6g and %.6g", today.PromptMean, today.OutputMean), "the segments ask %s for other tokens", m.Model)
		}
		checkInstances(findings, m, today, docPath)
	}
}

// checkInstances compares the instances that the plan states for language model m with those of today's profile, and adds to the
// findings: an instance that is gone, too little KV memory (for the state of all tokens) for its sequences, another time of an iteration,
// or more sequences than it runs at once today. docPath is the model's place in the plan.
func checkInstances(findings *recompute.Checker, m *formats.FlowModule, today *formats.FlowGeneration, docPath string) {
	for k := range m.Generation.Instances {
		planned, instancePath := &m.Generation.Instances[k], fmt.Sprintf("%s.instances[%d]", docPath, k)
		current := today.InstanceOn(planned.Device)
		switch {
		case current == nil:
			findings.AddError("measurement", instancePath, planned.Device, "an instance of the profile", "the profile has no %s on %s any more", m.Model, planned.Device)
		case float64(planned.KVTokens) < float64(planned.Sequences)*(today.PromptMean+today.OutputMean)-1:
			findings.AddError("memory", instancePath+".kv_tokens", fmt.Sprint(planned.KVTokens), fmt.Sprintf("%.0f", float64(planned.Sequences)*(today.PromptMean+today.OutputMean)), "the KV memory of %s does not hold its %d sequences", m.Model, planned.Sequences)
		case current.Iteration != planned.Iteration:
			findings.AddWarning("iteration", instancePath+".iteration", fmt.Sprintf("%.6g ns", planned.Iteration.BaseNS), fmt.Sprintf("%.6g ns", current.Iteration.BaseNS), "an iteration of %s takes another time today", m.Model)
		case current.Sequences > 0 && planned.Sequences > current.Sequences:
			findings.AddError("sequences", instancePath+".sequences", fmt.Sprint(planned.Sequences), fmt.Sprintf("at most %d", current.Sequences), "%s runs fewer sequences at once today", m.Model)
		}
	}
}
