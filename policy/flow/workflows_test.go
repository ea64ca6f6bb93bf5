package flow_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// readerSegments are the segments of a reader of pages and a router over experts.
func readerSegments() []formats.Segment {
	none := []string{}
	return []formats.Segment{
		{Name: "page", Modules: []formats.Module{{Name: "boxes", Model: "detector", Predecessors: none, Outputs: map[string]string{"found": "list(string)"}}},
			NextBranches: []formats.Branch{{Targets: []string{"lines"}, Condition: "size(boxes.found) > 0", Probability: .8}, {Targets: none, Probability: .2}}},
		{Name: "lines", Modules: []formats.Module{
			{Name: "turn", Model: "orientation", Predecessors: []string{"boxes"}, Items: "boxes.found", Chances: []float64{0, .5, .5}},
			{Name: "text", Model: "recogniser", ForEach: "turn", Predecessors: []string{"turn"}, Outputs: map[string]string{"sure": "bool"}, Work: .5},
		}, NextBranches: []formats.Branch{{Targets: []string{"again"}, Condition: "!text.sure.all(s, s)", Probability: .5}, {Targets: none, Probability: .5}}},
		{Name: "again", MaxVisits: 2, Modules: []formats.Module{
			{Name: "expert", Predecessors: []string{"text"}, Route: "'expert-' + string(visit)", Routes: []formats.Route{{Model: "expert-1", Probability: .75}, {Model: "expert-2", Probability: .25}}},
		}, NextBranches: []formats.Branch{{Targets: []string{"again"}, Condition: "visit < 9", Probability: .5, LaterProbabilities: []float64{.9}}, {Targets: none, Probability: .5, LaterProbabilities: []float64{.1}}}},
	}
}

// walkedTasks are the tasks of a request in order, each with what it reads.
func walkedTasks(t *testing.T, choices flow.Choices, own *flow.WorkflowTables, names []string) string {
	t.Helper()
	tab := &policy.Tables{Models: []policy.Model{{Name: "read"}}, KindTables: own}
	walk := flow.NewWorkflowControl(tab).(*flow.WorkflowControl)
	walk.SetChoices(choices)
	var out policy.RevealedTasks
	var words []string
	walk.BeginRequest(0, 0, &out)
	for i := 0; i < len(out.Tasks); i++ {
		r := &out.Tasks[i]
		words = append(words, fmt.Sprintf("%s%v", names[r.Service], out.InputsOf(r)))
		walk.TaskEnded(r.Task, policy.Outcome{}, &out)
	}
	if len(out.EndedRequests) != 1 || len(out.UnreadTasks) != len(out.Tasks) {
		t.Errorf("over %v, %d of %d slots free", out.EndedRequests, len(out.UnreadTasks), len(out.Tasks))
	}
	return strings.Join(words, " ")
}

func TestConditionsChoose(t *testing.T) {
	w, names, err := flow.CompileSegments(&formats.Application{Name: "read", Segments: readerSegments()}, "a")
	if err != nil {
		t.Fatal(err)
	}
	own := &flow.WorkflowTables{Apps: []flow.Workflow{*w}}
	for _, c := range []struct {
		values map[string]any
		want   string
		failed int
	}{
		{map[string]any{"boxes.found": []string{}}, "detector[-1]", 0},
		{map[string]any{"boxes.found": []string{"a", "b"}, "text.sure": []bool{true, true}}, "detector[-1] orientation[0] orientation[0] recogniser[1] recogniser[2]", 0},
		{map[string]any{"boxes.found": []string{"a"}, "text.sure": []bool{false}}, "detector[-1] orientation[0] recogniser[1] expert-1[2] expert-2[2]", 0},
		{map[string]any{}, "detector[-1]", 1},
		{map[string]any{"boxes.found": []string{"a", "b", "c"}}, "detector[-1]", 2}, // more than there are chances of; then no text to ask of
	} {
		failed := 0
		got := walkedTasks(t, flow.NewConditionChoices(own, func(_ int32, name string) (any, bool) { v, ok := c.values[name]; return v, ok }, func(int32, error) { failed++ }), own, names)
		if got != c.want || failed != c.failed {
			t.Errorf("%v: %s with %d failures, expected %s with %d", c.values, got, failed, c.want, c.failed)
		}
	}
}

// What is computed of visits and of what they ask is what draws show.
func TestVisitsAreThoseThatAreDrawn(t *testing.T) {
	w, names, err := flow.CompileSegments(&formats.Application{Name: "read", Segments: readerSegments()}, "a")
	if err != nil {
		t.Fatal(err)
	}
	visits, err := w.VisitCounts()
	if err != nil {
		t.Fatal(err)
	}
	sum, mean, work := 0.0, map[string]float64{}, map[string]float64{}
	for _, v := range visits {
		sum += v.Chance
		for g, n := range v.Counts {
			for _, a := range w.ServiceDemands(g) {
				mean[names[a.Service]] += v.Chance * float64(n) * a.Tasks
				work[names[a.Service]] += v.Chance * float64(n) * a.Work
			}
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("chances sum to %v", sum)
	}
	const n = 40_000
	drawn, done := map[string]float64{}, map[string]float64{}
	for _, way := range flow.DrawPaths(w, "read", names, n, 1) {
		for _, task := range way.Tasks {
			share := 1.0
			if task.Work > 0 {
				share = task.Work
			}
			drawn[task.Model] += float64(way.Count) / n
			done[task.Model] += share * float64(way.Count) / n
		}
	}
	for _, name := range names {
		if math.Abs(drawn[name]-mean[name]) > .02 || math.Abs(done[name]-work[name]) > .02 {
			t.Errorf("%s: %.3f tasks of work %.3f drawn, %.3f of %.3f expected", name, drawn[name], done[name], mean[name], work[name])
		}
	}
}

// In steady state a walk allocates nothing.
func TestWalkAllocatesNothing(t *testing.T) {
	w, _, err := flow.CompileSegments(&formats.Application{Name: "read", Segments: readerSegments()}, "a")
	if err != nil {
		t.Fatal(err)
	}
	walk := flow.NewWorkflowControl(&policy.Tables{Models: []policy.Model{{Name: "read"}}, KindTables: &flow.WorkflowTables{Apps: []flow.Workflow{*w}}})
	var out policy.RevealedTasks
	request := func() {
		walk.BeginRequest(0, 0, &out)
		for i := 0; i < len(out.Tasks); i++ {
			walk.TaskEnded(out.Tasks[i].Task, policy.Outcome{}, &out)
		}
		for _, slot := range out.UnreadTasks {
			out.ReleaseSlot(slot)
		}
		out.Reset()
	}
	for range 1000 {
		request()
	}
	if n := testing.AllocsPerRun(200, request); n > 0 {
		t.Errorf("%v allocations per request", n)
	}
}
