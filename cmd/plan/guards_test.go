package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/document"
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
	if code := executeCommand(context.Background(), args, &out, &stderr); code != exitDone {
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
		{"pool", []string{"--margin", "0.4"}},
		{"cost", []string{"--margin", "0.4", "--objective", "cost"}},
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
			if d := cmp.Diff(decided(t, golden), decided(t, "plan.json")); d != "" {
				t.Errorf("the plan differs (-want +got):\n%s", d)
			}
		})
	}
}

// decided is what a solve decides, in the form that plans have today: a stored
// plan of the first form is upgraded. What says who made the plan, from which
// files, is left out.
func decided(t *testing.T, path string) string {
	t.Helper()
	p, err := formats.ReadPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	p.Tool, p.Inputs = formats.Tool{}, nil
	data, err := document.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
