package flow_test

import (
	"math"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy/flow"
)

// talkApplications is a workflow that asks a language model for a long answer and a short one.
func talkApplications() []formats.Application {
	fixed := func(n float64) *formats.Lengths { return &formats.Lengths{Distribution: formats.LengthsFixed, Mean: n} }
	return []formats.Application{{Name: "talk", Segments: []formats.Segment{
		{Name: "think", Modules: []formats.Module{{Name: "short", Model: "llama", Prompt: fixed(100), Output: fixed(50)}}},
		{Name: "say", Modules: []formats.Module{{Name: "long", Model: "llama", Prompt: fixed(100), Output: &formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: []int{100, 300}}}}},
	}}}
}

func llamaProfile() *formats.Profile {
	return &formats.Profile{LLMs: []formats.LLMProfile{{Model: "llama", WeightBytes: 1000, KVBytesPerToken: 10, Instances: []formats.LLMInstance{
		{Device: "A", TensorParallel: 1, Sequences: 8, KVTokens: 1600, Iteration: formats.Iteration{BaseNS: 1e7, SequenceNS: 1e5, ContextNS: 100}},
		{Device: "A", TensorParallel: 2, Sequences: 99, Iteration: formats.Iteration{BaseNS: 1e6}},
	}}}, Models: []formats.ProfileModel{{Model: "draw"}}}
}

// A language model stands among the models with the times of sequences among others, in
// as many as KV memory holds at their ends.
func TestLanguageModelIsProfiledByItsSequences(t *testing.T) {
	p, llms, err := flow.WithLanguageModels(llamaProfile(), talkApplications(), "applications")
	if err != nil {
		t.Fatal(err)
	}
	l, m := llms["llama"], p.Models[0]
	if l == nil || l.PromptMean != 100 || l.OutputMean != 200 || len(l.Instances) != 1 || p.Models[1].Model != "draw" || m.Model != "llama" {
		t.Fatalf("%+v, %+v", l, m)
	}
	if len(m.Measurements) != 5 { // of 300 tokens each in 1600
		t.Fatalf("%d batches, expected 5", len(m.Measurements))
	}
	for i, x := range m.Measurements {
		kv := int64(max(400, 300*(i+1))+15) / 16 * 16
		if want := l.Instances[0].Iteration.ResidenceTime(int32(i+1), 100, 200, 0); x.Batch != i+1 || x.WholeModel.WallUS.D() != want || x.MemoryBytes != 1000+10*kv {
			t.Errorf("%+v, expected %v and %d bytes", x, want, 1000+10*kv)
		}
	}
	graph, _, err := flow.CompileSegments(&formats.Application{Name: "talk", Segments: flow.WithTokenWork(talkApplications()[0].Segments, llms)}, "a")
	if err != nil {
		t.Fatal(err)
	}
	it := &l.Instances[0].Iteration
	want := it.ResidenceTime(1, 100, 50, 0).Seconds() / it.ResidenceTime(1, 100, 200, 0).Seconds()
	if short, long := graph.Segments[0].Steps[0].Work, graph.Segments[1].Steps[0].Work; long != 0 || math.Abs(float64(short)/1e6-want) > 1e-6 {
		t.Errorf("works %d and %d, expected %.6f and the usual", short, long, want)
	}
}

// What a profile lacks is named with the module that asks for it.
func TestNotMeasured(t *testing.T) {
	for _, c := range []struct {
		spoil func(p *formats.Profile)
		want  string
	}{
		{func(p *formats.Profile) { p.LLMs[0].Model = "other" }, `x[0].segments[0].modules[0]: found "llama" with tokens, expected a language model of the profile's llms` + "\n  hint: the profile has other"},
		{func(p *formats.Profile) { p.LLMs[0].WeightBytes, p.LLMs[0].Instances[0].KVTokens = 0, 0 }, `x[0].segments[0].modules[0]: found "llama", whose profile says nothing of its memory, expected weight_bytes and kv_bytes_per_token in the profile's llms, or kv_tokens of each instance`},
		{func(p *formats.Profile) { p.LLMs[0].Instances[0].KVTokens = 390 }, `x[0].segments[0].modules[0]: found sequences of "llama" of up to 400 tokens, expected an instance of one device in the profile's llms, with KV memory for one of them`},
	} {
		p := llamaProfile()
		c.spoil(p)
		if _, _, err := flow.WithLanguageModels(p, talkApplications(), "x"); err == nil || err.Error() != c.want {
			t.Errorf("%v, expected %s", err, c.want)
		}
	}
}

// What servers say of their KV memory in tokens is enough.
func TestMeasuredByTokens(t *testing.T) {
	p := llamaProfile()
	p.LLMs[0].WeightBytes, p.LLMs[0].KVBytesPerToken = 0, 0
	p.LLMs[0].Instances[0].KVTokens = 700
	models, llms, err := flow.WithLanguageModels(p, talkApplications(), "x")
	if err != nil {
		t.Fatal(err)
	}
	m := models.Models[slices.IndexFunc(models.Models, func(m formats.ProfileModel) bool { return m.Model == "llama" })]
	if n := len(m.Measurements); n != 2 || m.Measurements[1].MemoryBytes != 608 || llms["llama"].KVBytesPerToken != 1 {
		t.Errorf("%d batches, %+v, expected two, the larger of 608 tokens", n, m.Measurements)
	}
}

// The mean of a distribution is that of what is drawn from it.
func TestMeanLength(t *testing.T) {
	for _, c := range []struct {
		l    *formats.Lengths
		want float64
		off  float64
	}{
		{nil, 1, 0},
		{&formats.Lengths{Distribution: "fixed", Mean: 30}, 30, 0},
		{&formats.Lengths{Distribution: "empirical", Tokens: []int{10, 20, 90}, Weights: []float64{1, 2, 1}, Max: 50}, 25, 0},
		{&formats.Lengths{Distribution: "lognormal", Mean: 100, SD: 60, Max: 1000}, 100, 1.5},
		{&formats.Lengths{Distribution: "normal", Mean: 100, SD: 20}, 100, .5},
	} {
		if got := arrivals.MeanLength(c.l); math.Abs(got-c.want) > c.off {
			t.Errorf("%+v: %v, expected %v", c.l, got, c.want)
		}
	}
}
