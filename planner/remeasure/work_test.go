package remeasure_test

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/remeasure"
)

// The iterations of a language model take the factor that a server saw, if that is of enough work and differs by more than
// chance. Loads stay, and so does the profile itself.
func TestIterationsTakeFactors(t *testing.T) {
	iteration := formats.Iteration{BaseNS: 1000, SequenceNS: 100, ContextNS: 10, PromptNS: 50, HingeTokens: 200, AttentionNS: 1, CPUNS: 30, CPUSequenceNS: 3}
	profile := &formats.Profile{LLMs: []formats.LLMProfile{{Model: "m", Instances: []formats.LLMInstance{
		{Device: "L4", Iteration: iteration, OneBatch: &formats.OneBatch{PrefillUS: 4000, TokenUS: 400, TokensPerSecond: 90}}, {Device: "T4", Iteration: iteration},
	}}}}
	work := func(device string, factor float64, planned time.Duration) []formats.WorkReport {
		return []formats.WorkReport{{Model: "m", Device: device, Factor: factor, PlannedUS: document.Micros(planned)}}
	}
	for _, c := range []struct {
		work []formats.WorkReport
		text string
	}{
		{work("L4", 3, 59*time.Second), "as profiled; 59s of work, of at least 1m0s"},
		{work("L4", 1.04, time.Hour), "as long as profiled, within 5 %"},
	} {
		if changed, text := remeasure.WithWork(profile, c.work), remeasure.WorkLine(&c.work[0]); changed != nil || !strings.Contains(text, c.text) {
			t.Errorf("%+v: %v, %q, expected %q", c.work, changed, text, c.text)
		}
	}
	w := work("L4", 2, time.Hour)
	if text := remeasure.WorkLine(&w[0]); !strings.Contains(text, "iterations take 2.00 times the profiled time (1h0m0s of work)") {
		t.Error(text)
	}
	changed := remeasure.WithWork(profile, w)
	in := changed.LLMs[0].Instances
	if want := (formats.Iteration{BaseNS: 2000, SequenceNS: 200, ContextNS: 20, PromptNS: 100, HingeTokens: 200, AttentionNS: 2, CPUNS: 60, CPUSequenceNS: 6}); in[0].Iteration != want || in[1].Iteration != iteration {
		t.Errorf("found %+v, expected %+v on L4 alone", in, want)
	}
	if b := in[0].OneBatch; b.PrefillUS != 8000 || b.TokenUS != 800 || b.TokensPerSecond != 45 {
		t.Errorf("one batch: %+v", b)
	}
	if profile.LLMs[0].Instances[0].Iteration != iteration || profile.LLMs[0].Instances[0].OneBatch.TokenUS != 400 {
		t.Error("the profile itself was changed")
	}
}
