package deploy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/sim/llm"
)

// chatAndBatch is a model in two classes on one kind of device.
func chatAndBatch() *Search {
	sample := make([]llm.Request, 500)
	for i := range sample {
		sample[i] = llm.Request{Prompt: int32(200 + 7*i%900), Output: int32(50 + 11*i%300)}
	}
	on := &formats.LLMInstance{Device: "A100", TensorParallel: 1, KVTokens: 66144, Iteration: formats.Iteration{BaseNS: 23e6, SequenceNS: 60000, ContextNS: 593, PromptNS: 140000}}
	class := func(name string, slo time.Duration, judged int) Class {
		return Class{Name: name, Figure: formats.FigureE2E, SLO: slo, Percentile: "p99", RequiredShare: 0.99, Sample: sample, JudgeGroup: judged}
	}
	return NewSearch(&Problem{
		Pools: []formats.Pool{{Device: "A100", Count: 8, MaxShares: 1, PerNode: 1}}, Kinds: []Kind{{Device: "A100", TP: 1, MaxInstances: 8, Price: 1}}, Caps: []int{8, 12, 16, 24, 32},
		Models:  []Model{{Name: "m13", Profile: &formats.LLMProfile{Model: "m13", KVBytesPerToken: 819200}, ByKind: []*formats.LLMInstance{on}}},
		Classes: []Class{class("chat", 30*time.Second, 0), class("batch", 300*time.Second, 1)},
		Items:   []Item{{Class: 0, RPS: 1, Weight: 1}, {Class: 1, RPS: 4, Weight: 1}},
		Seed:    1, Runs: 1, Policy: formats.PolicySpec{Name: "vqueue"},
	})
}

// TestCapsOfClasses: caps of what does not hurry go from none to half of what runs at
// once, and on in steps up to none. Plans have them.
func TestCapsOfClasses(t *testing.T) {
	p := chatAndBatch()
	x, err := p.newPool([]int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	x.Counts[0], x.Caps[0][0] = 2, 32
	for _, c := range []struct{ step, want int }{{1, 0}, {-1, 16}, {-1, 12}, {1, 16}, {1, 24}, {1, 0}} {
		if y, ok := p.Problem.applyMove(&x, capMove{class: 1, step: c.step}); ok {
			x = y
		} else if c.want != x.ClassCaps[1] {
			t.Errorf("no step %d from %d", c.step, x.ClassCaps[1])
		}
		if x.ClassCaps[1] != c.want {
			t.Errorf("a step %d gives a cap of %d, want %d", c.step, x.ClassCaps[1], c.want)
		}
	}
	x.Caps[0][0] = 16
	x, ok := p.Problem.applyMove(&x, capMove{models: []int{0}, step: 1, holdOthers: true})
	if !ok || x.Caps[0][0] != 24 || !slices.Equal(x.ClassCaps, []int{0, 16}) {
		t.Fatalf("%+v: a step up that holds the others back", x)
	}
	plan, err := p.Plans.Plan(&Layout{Pools: []Pool{x}}, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	in := &formats.QueueOf(plan).Instances[1]
	if !slices.Equal(in.Caps, []formats.ClassCap{{Class: "batch", Sequences: 16}}) || in.Sequences[0] != 24 {
		t.Errorf("instance %+v", in)
	}
	if x, _ = p.Problem.applyMove(&x, capMove{models: []int{0}, step: -1}); x.ClassCaps[1] != 0 {
		t.Errorf("a cap of %d where 16 run at once", x.ClassCaps[1])
	}
}

// TestCapsWithoutListOrServer: a server that has no limit and a problem that lists no caps run one sequence at once.
// Where a model cannot run, it has no caps.
func TestCapsWithoutListOrServer(t *testing.T) {
	p := chatAndBatch().Problem
	p.Kinds = append(p.Kinds, Kind{Device: "T4", TP: 1, MaxInstances: 1, Price: 1})
	p.Models[0].ByKind = append(p.Models[0].ByKind, nil)
	limited := *p.Models[0].ByKind[0]
	limited.Sequences = 4
	for _, c := range []struct {
		listed   []int
		instance *formats.LLMInstance
		want     []int
	}{
		{[]int{8, 12}, p.Models[0].ByKind[0], []int{8, 12}}, {[]int{8, 12}, &limited, []int{4}}, {[]int{2, 4, 8}, &limited, []int{2, 4}},
		{nil, &limited, []int{4}}, {nil, p.Models[0].ByKind[0], []int{1}}, {nil, nil, nil}, {[]int{8}, nil, nil},
	} {
		p.Caps, p.Models[0].ByKind[1] = c.listed, c.instance
		if got := p.capsOf(0, 1); !slices.Equal(got, c.want) {
			t.Errorf("caps %v of %v: %v, want %v", c.listed, c.instance, got, c.want)
		}
		if got := p.maxSequences(0, 1); len(c.want) > 0 && got != slices.Max(c.want) || len(c.want) == 0 && got != 0 {
			t.Errorf("caps %v of %v: at most %d", c.listed, c.instance, got)
		}
	}
}

// TestKindWithoutEstimateIsNoKindLess: a kind of servers whose work cannot be estimated, here because the longest
// prompt has no room in its memory, is not left out in silence.
func TestKindWithoutEstimateIsNoKindLess(t *testing.T) {
	p := chatAndBatch()
	x, err := p.newPool([]int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	tight := *p.Problem.Models[0].ByKind[0]
	tight.KVTokens = 64
	p.Problem.Kinds = append(p.Problem.Kinds, Kind{Device: "T4", TP: 1, MaxInstances: 1, Price: 0.1})
	p.Problem.Models[0].ByKind = append(p.Problem.Models[0].ByKind, &tight)
	x.Counts, x.Caps = append(x.Counts, 0), append(x.Caps, []int{8})
	if kinds, err := p.kindsByCost(&x); err == nil {
		t.Errorf("kinds %v without an error", kinds)
	}
	l := &Layout{Pools: []Pool{x}}
	if err := p.addInstance(l, 0); err == nil || errors.Is(err, ErrTooFewDevices) {
		t.Errorf("an instance more: %v", err)
	}
	if err := p.addInitialInstances(l); err == nil || errors.Is(err, ErrTooFewDevices) {
		t.Errorf("the first instances: %v", err)
	}
}
