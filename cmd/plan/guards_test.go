package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Recording anew defeats the purpose of the guards: they hold what was simulated and
// solved before a change against what is after it. The flag is for a change that is
// meant to give something else.
var recordGuards = flag.Bool("record-guards", false, "write the reports and solved plans of testdata/guards anew, which defeats their purpose")

// guardDir is the folder of the guards; tests go elsewhere.
func guardDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../testdata/guards")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// planDone runs a command line that must succeed.
func planDone(t *testing.T, args ...string) {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := execute(context.Background(), args, &out, &stderr); code != exitDone {
		t.Fatalf("plan %v: exit %d: %s", args, code, stderr.String())
	}
}

func copyTo(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A plan document of the first form is simulated to the same bytes of the report,
// whatever form plans have by now.
func TestGuardReports(t *testing.T) {
	dir := guardDir(t)
	plain := []string{"--load", "0.9", "--duration", "5s"}
	for _, c := range []struct {
		name, plan string
		args       []string
	}{
		{"pool", "pool", plain},
		{"classes", "classes", plain},
		{"two-stage", "two-stage", plain},
		{"shared", "shared", plain},
		{"time-shared", "time-shared", plain},
		{"gear-one", "gear-one", plain},
		{"gear-kinds", "gear-kinds", plain},
		{"gear-stages", "gear-stages", plain},
		{"two-stage-runs", "two-stage", []string{"--load", "1.1", "--duration", "2s", "--warmup", "500ms", "--window", "500ms", "--runs", "3", "--jitter", "0.2", "--seed", "9"}},
		{"shared-artifact", "shared", []string{"--load", "0.9", "--duration", "2s", "--policy", "artifact"}},
		{"shared-reactive", "shared", []string{"--load", "0.9", "--duration", "2s", "--policy", "reactive"}},
		{"classes-curve", "classes", []string{"--loads", "0.5,1.2", "--duration", "2s"}},
		{"gear-kinds-most", "gear-kinds", []string{"--find-max-load", "--duration", "1s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			copyTo(t, "plan.json", filepath.Join(dir, "plans", c.plan+".json"))
			planDone(t, append([]string{"simulate", "plan.json", "-o", "report.json"}, c.args...)...)
			got, err := os.ReadFile("report.json")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(dir, "reports", c.name+".json")
			if *recordGuards {
				copyTo(t, golden, "report.json")
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the report differs (-want +got):\n%s", cmp.Diff(string(want), string(got)))
			}
		})
	}
}

// The same problems give the same plans.
func TestGuardSolves(t *testing.T) {
	dir := guardDir(t)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"pool", nil},
		{"cost", []string{"--objective", "cost"}},
		{"gear", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			from := filepath.Join(dir, "solve", c.name)
			for _, file := range []string{"profile.json", "cluster.yaml", "workload.yaml"} {
				copyTo(t, file, filepath.Join(from, file))
			}
			planDone(t, append([]string{"solve", "-o", "plan.json"}, c.args...)...)
			golden := filepath.Join(from, "plan.json")
			if *recordGuards {
				copyTo(t, golden, "plan.json")
			}
			want, got := decidedV1(readDocument(t, golden)), decided(readDocument(t, "plan.json"))
			for name, part := range want {
				if d := cmp.Diff(part, got[name]); d != "" {
					t.Errorf("%s differs (-want +got):\n%s", name, d)
				}
			}
			if len(want) != len(got) {
				t.Errorf("%d parts of the plan, expected %d", len(got), len(want))
			}
			for _, name := range []string{"kind", "objective", "pools", "policy", "models", "pipelines"} {
				if want[name] == nil {
					t.Errorf("the stored plan says nothing of %s", name)
				}
			}
		})
	}
}

// decided takes from a plan as it is written today what a solve decides, named as in
// decidedV1. Only this function follows a change of the document's form.
func decided(doc any) map[string]any { return decidedV1(doc) }

// decidedV1 does so from a plan of the first form, as the stored ones are. What says
// who made the plan, from which files, is left out.
func decidedV1(doc any) map[string]any {
	out := map[string]any{}
	for _, name := range []string{
		"kind", "seed", "algorithm", "objective", "stopped_by", "options", "pools", "gear", "policy",
		"execution", "arrivals", "certified", "replan", "limits", "assumptions", "warnings",
	} {
		out[name] = at(doc, name)
	}
	// Of each model: what is promised, and apart from it the pipelines, stages and
	// placements that keep the promise.
	models, _ := at(doc, "models").([]any)
	var promised, pipelines []any
	for _, m := range models {
		promise := map[string]any{}
		for _, name := range []string{"model", "class", "sha256", "slo_us", "margin_us", "percentile", "weight", "rps", "num_blocks", "inputs", "outputs"} {
			promise[name] = at(m, name)
		}
		promised, pipelines = append(promised, promise), append(pipelines, at(m, "pipelines"))
	}
	out["models"], out["pipelines"] = promised, pipelines
	return out
}

// at follows a path of keys; nil where it ends.
func at(v any, path ...string) any {
	for _, key := range path {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	return v
}

// readDocument reads JSON and keeps its numbers as they are written.
func readDocument(t *testing.T, path string) any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
