package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// problemWithLengthsFile is the problem of the example whose answering model has the lengths of a file.
func problemWithLengthsFile(t *testing.T, text string) *kind.Problem {
	t.Helper()
	p := ragOf(t, workflows.ExampleRAG(), "")
	p.WorkloadDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(p.WorkloadDir, "lengths.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &formats.ApplicationsOf(p.Workload)[0].Segments[1].Modules[0]
	m.Prompt, m.Output, m.LengthsFile = nil, nil, "lengths.csv"
	return p
}

// Tokens of prompts and answers come from a file together: a plan has rows of it, by which it is planned,
// checked without the file, and simulated.
func TestLengthsFile(t *testing.T) {
	p := problemWithLengthsFile(t, "prompt_tokens,output_tokens\n2000,20\n100,400\n900,120\n")
	rows := [][2]int{{2000, 20}, {100, 400}, {900, 120}}
	if err := p.Workload.Validate(); err != nil {
		t.Fatal(err)
	}
	if files := p.Workload.Section.Files(); len(files) != 1 || files[0].Path != "lengths.csv" {
		t.Errorf("files %v", files)
	}
	made := planOf(t, p)
	if m := formats.FlowOf(made).Applications[0].Segments[1].Modules[0]; !slices.Equal(m.Sample, rows) {
		t.Errorf("the plan has %v", m.Sample)
	}
	chat := slices.IndexFunc(made.Deployment, func(d formats.Deployed) bool { return d.Model == "chat" })
	if g := formats.FlowOf(made).Modules[chat].Generation; g.PromptMean != 1000 || g.OutputMean != 180 {
		t.Errorf("means of %v and %v tokens", g.PromptMean, g.OutputMean)
	}
	for _, workload := range []*formats.Workload{p.Workload, verify.WorkloadOf(made)} {
		if found := verify.Check(&kind.CheckInput{Plan: made, Profile: p.Profile, Cluster: p.Cluster, Workload: workload}); len(found) > 0 {
			t.Errorf("%+v", found)
		}
	}
	tables, err := policies.Compile(made)
	if err != nil {
		t.Fatal(err)
	}
	own := flow.WorkflowTablesOf(tables)
	ask := slices.IndexFunc(own.GenerationSteps, func(a flow.GenerationStep) bool { return len(a.TokenSamples) > 0 })
	draws, seen := flow.NewRandomChoices(own, tables, 1), map[[2]int]int{}
	draws.BeginRequest(0, 0)
	for range 300 {
		prompt, output := draws.TokenLengths(0, int32(ask))
		seen[[2]int{int(prompt), int(output)}]++
	}
	for _, row := range rows {
		if n := seen[row]; n < 60 || len(seen) != len(rows) {
			t.Errorf("%v was drawn %d times of 300, among %v", row, n, seen)
		}
	}
}

// Of a long file a plan has rows from all of it.
func TestLongLengthsFile(t *testing.T) {
	var text strings.Builder
	text.WriteString("prompt_tokens,output_tokens\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "%d,%d\n", i+1, 5000-i)
	}
	p := problemWithLengthsFile(t, text.String())
	if err := p.Values.Set("slo", document.SLO{Duration: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	made := planOf(t, p)
	rows := formats.FlowOf(made).Applications[0].Segments[1].Modules[0].Sample
	if len(rows) != formats.MaxSampleRows || !strings.Contains(strings.Join(made.Assumptions, "\n"), "rows of the 5000 of lengths.csv") {
		t.Fatalf("%d rows, %v", len(rows), made.Assumptions)
	}
	for i, row := range rows {
		if row[0]+row[1] != 5001 || row[0] != 5*i+3 {
			t.Fatalf("row %d is %v", i, row)
		}
	}
}

// Recorded lengths stand alone, and what is wrong with them is told.
func TestWrongLengths(t *testing.T) {
	for text, expected := range map[string]string{"prompt_tokens,output_tokens\n": "lengths of requests", "a,b\n1,2\n": "prompt_tokens and output_tokens", "prompt_tokens,output_tokens\n0,2\n": "expected a whole number from 1"} {
		if _, err := solvePlan(t.Context(), problemWithLengthsFile(t, text), kind.NewRun(highs.Solver{})); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v, expected %q", text, err, expected)
		}
	}
	for expected, spoil := range map[string]func(m *formats.Module){
		"one of the two":     func(m *formats.Module) { m.Prompt = &formats.Lengths{Distribution: formats.LengthsFixed, Mean: 10} },
		"prompt and answer":  func(m *formats.Module) { m.LengthsFile, m.Sample = "", [][2]int{{10, 0}} },
		"nothing beside":     func(m *formats.Module) { m.Work = 2 },
		"lengths_file takes": func(m *formats.Module) { m.Sample = slices.Repeat([][2]int{{1, 1}}, formats.MaxSampleRows+1) },
	} {
		p := problemWithLengthsFile(t, "")
		spoil(&formats.ApplicationsOf(p.Workload)[0].Segments[1].Modules[0])
		if err := p.Workload.Validate(); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v, expected %q", err, expected)
		}
	}
}
