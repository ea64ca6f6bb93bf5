package remeasure_test

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/remeasure"
	"inferplan/policy"
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

// Loads between the shortest and the longest planned time are as planned. Others change the times of loads, not those of
// unloads.
func TestLoadsTakeFactors(t *testing.T) {
	tables := &policy.Tables{Networks: []policy.Network{
		{Name: "m", LoadTimes: [][2]time.Duration{{100 * ms, 400 * ms}, {200 * ms, 0}}}, {Name: "n"}, {Name: "o", LoadTimes: [][2]time.Duration{{100 * ms, 400 * ms}}},
	}}
	profile := &formats.Profile{Models: []formats.ProfileModel{{Model: "m", Loads: []formats.DeviceLoad{{Device: "L4", ModelLoads: formats.ModelLoads{ColdUS: 400, WarmUS: 100, UnloadUS: 7}}}}}}
	for _, c := range []struct {
		mean  time.Duration
		loads int
		text  string
		cold  document.Micros
	}{
		{300 * ms, 10, "as long as profiled", 0}, {800 * ms, 9, "9, of at least 10", 0}, {800 * ms, 10, "2.00 times", 800}, {50 * ms, 30, "0.50 times", 200},
	} {
		paces := remeasure.LoadPaces(tables, [][]time.Duration{repeated(c.mean, c.loads), repeated(ms, 50)})
		if len(paces) != 1 || !strings.Contains(paces[0].String(), c.text) {
			t.Errorf("%v: %v, expected %q", c.mean, paces, c.text)
		}
		changed := remeasure.WithLoads(profile, paces)
		if (changed == nil) != (c.cold == 0) {
			t.Errorf("%v: changed %v", c.mean, changed != nil)
		} else if changed != nil && (changed.Models[0].Loads[0].ColdUS != c.cold || changed.Models[0].Loads[0].UnloadUS != 7 || profile.Models[0].Loads[0].ColdUS != 400) {
			t.Errorf("%v: %+v, and before %+v", c.mean, changed.Models[0].Loads[0], profile.Models[0].Loads[0])
		}
	}
}
