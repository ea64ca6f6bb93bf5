package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// withLanguageModels returns today's documents with the language models that the plan's workflows ask for
// in the profile. The times of their sequences follow from the profile's iterations.
func (c languages) measure(t *kind.Today) *kind.Today {
	var apps []formats.Application
	for i := range c.plan.Applications {
		a := &c.plan.Applications[i]
		apps = append(apps, formats.Application{Name: a.Model, Segments: a.Segments})
	}
	profile, llms, err := flow.Measured(t.Profile, apps, "flow.applications")
	if err != nil {
		c.without = err
		return t
	}
	today := *t
	today.Profile, c.llms = profile, llms
	return &today
}

// languageChecker checks what a plan says about its language models.
type languages struct{ *checker }

// check compares the tokens and instances of every language model with today's.
func (c languages) check() {
	if c.without != nil {
		c.Fail("model", "flow.applications", "", "", "%v", c.without)
	}
	for i := range c.plan.Modules {
		m, at := &c.plan.Modules[i], fmt.Sprintf("flow.modules[%d].generation", i)
		today := c.llms[m.Model]
		if (today == nil) != (m.Generation == nil) {
			c.Fail("model", at, fmt.Sprint(m.Generation != nil), fmt.Sprint(today != nil), "%s is a language model in one of the plan's section and its segments", m.Model)
			continue
		}
		if today == nil {
			continue
		}
		if math.Abs(m.Generation.PromptMean-today.PromptMean) > rounding*today.PromptMean || math.Abs(m.Generation.OutputMean-today.OutputMean) > rounding*today.OutputMean {
			c.Fail("tokens", at, fmt.Sprintf("%.6g and %.6g", m.Generation.PromptMean, m.Generation.OutputMean), fmt.Sprintf("%.6g and %.6g", today.PromptMean, today.OutputMean), "the segments ask %s for other tokens", m.Model)
		}
		c.instances(m, today, at)
	}
}

// checkInstances compares the instances of a language model with those of today's profile.
func (c languages) instances(m *formats.FlowModule, today *formats.FlowGeneration, at string) {
	for k := range m.Generation.Instances {
		in, here := &m.Generation.Instances[k], fmt.Sprintf("%s.instances[%d]", at, k)
		now := today.On(in.Device)
		switch {
		case now == nil:
			c.Fail("measurement", here, in.Device, "an instance of the profile", "the profile has no %s on %s any more", m.Model, in.Device)
		case float64(in.KVTokens) < float64(in.Sequences)*(today.PromptMean+today.OutputMean)-1:
			c.Fail("memory", here+".kv_tokens", fmt.Sprint(in.KVTokens), fmt.Sprintf("%.0f", float64(in.Sequences)*(today.PromptMean+today.OutputMean)), "the KV memory of %s does not hold its %d sequences", m.Model, in.Sequences)
		case now.Iteration != in.Iteration:
			c.Warn("iteration", here+".iteration", fmt.Sprintf("%.6g ns", in.Iteration.BaseNS), fmt.Sprintf("%.6g ns", now.Iteration.BaseNS), "an iteration of %s takes another time today", m.Model)
		case now.Sequences > 0 && in.Sequences > now.Sequences:
			c.Fail("sequences", here+".sequences", fmt.Sprint(in.Sequences), fmt.Sprintf("at most %d", now.Sequences), "%s runs fewer sequences at once today", m.Model)
		}
	}
}
