package formats

import (
	"slices"
	"testing"

	"inferplan/formats/document"
)

// What a class leaves out is what every model gets alike.
func TestLLMAsks(t *testing.T) {
	w, err := ReadWorkload(compat + "workload-llm-classes.v1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := LLMOf(w)
	for i, want := range []struct {
		models []string
		shares []float64
	}{{[]string{"chat-7b", "chat-13b"}, []float64{0.7, 0.3}}, {[]string{"chat-7b"}, []float64{1}}, {[]string{"chat-13b"}, []float64{1}}} {
		models, shares := d.ModelShares(i)
		if !slices.Equal(models, want.models) || !slices.Equal(shares, want.shares) {
			t.Errorf("class %d asks %v with shares %v, want %v, %v", i, models, shares, want.models, want.shares)
		}
	}
	if files := d.Files(); len(files) != 1 || files[0] != (SectionFile{Role: "lengths[2]", Path: "lengths.csv"}) {
		t.Errorf("files %v", files)
	}
	if k := d.Classes[2].WithDefaults(); k.Figure != FigureE2E || k.Percentile != "p99" {
		t.Errorf("defaults %+v", k)
	}
}

// A plan of queues promises its classes, each at its own percentile.
func TestQueuePlanServes(t *testing.T) {
	p, err := ReadPlan(compat + "plan-queue.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.ServedModels(); len(got) != 2 || got[1].Key() != (ModelClass{"chat-7b", "batch"}) || p.PromiseFor(1) != got[1] {
		t.Errorf("serves %+v", got)
	}
	if shares := p.AttainmentShares(); shares[1] != 0.95 || len(p.AttainmentGroups()) != 2 {
		t.Errorf("held to %v, %v together", shares, p.AttainmentGroups())
	}
	if _, in := (&Profile{LLMs: QueueOf(p).Models}).LLMOn("chat-7b", "A100", 2); in == nil || in.Iteration.BaseNS != 9e6 {
		t.Errorf("instance on two devices: %+v", in)
	}
}

// Runs of more requests than any search makes, and answers that no context holds, are refused
// where the document is read: both would be simulated.
func TestQueuePlanBoundsItsRuns(t *testing.T) {
	plan := func(change func(*QueuePlan)) error {
		p, err := ReadPlan(compat + "plan-queue.v2.json")
		if err != nil {
			t.Fatal(err)
		}
		q := QueueOf(p)
		q.Runs = &QueueRuns{Runs: 2, DurationUS: 2e12, Seed: 1}
		change(q)
		return p.Validate()
	}
	if err := plan(func(*QueuePlan) {}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at     string
		change func(*QueuePlan)
	}{
		{"queue.runs.runs", func(q *QueuePlan) { q.Runs.Runs = 1e15 }},
		{"queue.runs.runs", func(q *QueuePlan) { q.Runs.Runs = 0 }},
		{"queue.runs.duration_us", func(q *QueuePlan) { q.Runs.DurationUS = 0 }},
		{"queue.runs", func(q *QueuePlan) { q.Runs.DurationUS = 1e17 }},
		{"queue.runs", func(q *QueuePlan) { q.Classes[0].RPS = 1e9 }},
		{"queue.runs", func(q *QueuePlan) { q.Classes[0].RPS = 1e300 }},
		{"queue.classes[0].output", func(q *QueuePlan) {
			q.Models[0].ContextTokens = 8192
			q.Classes[0].Output = &Lengths{Distribution: LengthsFixed, Mean: 65537}
		}},
	} {
		list := document.Findings(plan(c.change))
		if len(list) == 0 || list[0].Path != c.at {
			t.Errorf("%v, expected one of %s", list, c.at)
		}
	}
}
