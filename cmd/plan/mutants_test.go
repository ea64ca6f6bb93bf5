package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/executor"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/inputs"
	"inferplan/solver/highs"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/mutant"
)

// solved writes the problem of a kind below dir and returns its plan as JSON has it.
func solved(t *testing.T, dir string, documents mutant.Problem) any {
	t.Helper()
	for role, tree := range documents {
		data, err := json.Marshal(tree)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, role+".json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &inputs.Reader{}
	if err := errors.Join(r.ReadProfile(filepath.Join(dir, "profile.json")), r.ReadCluster(filepath.Join(dir, "cluster.json")), r.ReadWorkload(filepath.Join(dir, "workload.json"))); err != nil {
		t.Fatal(err)
	}
	res, err := planner.Solve(t.Context(), r.Documents, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := document.Marshal(res.Plan)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// checked holds a plan against the documents in dir as plan check --no-solve does, and
// returns the path at which it refuses the plan, and whether that is because plan serve
// would. Verdicts on figures are none.
func checked(t *testing.T, dir string, plan *formats.Plan) (path string, refused, asServe bool) {
	t.Helper()
	r := &inputs.Reader{}
	if err := errors.Join(r.ReadProfile(filepath.Join(dir, "profile.json")), r.ReadCluster(filepath.Join(dir, "cluster.json")), r.ReadWorkload(filepath.Join(dir, "workload.json"))); err != nil {
		t.Fatal(err)
	}
	res, err := check.Gate(t.Context(), check.GateInput{Plan: plan, Today: r.Documents, ServerFindings: refusedByServe})
	if err != nil {
		if found := document.Findings(err); len(found) > 0 {
			return found[0].Path, true, false
		}
		t.Errorf("check ends without a verdict: %v", err)
		return "", true, false
	}
	for _, f := range res.Findings {
		if f.Constraint == "serve" && f.Severity == check.Error {
			return f.Path, true, true
		}
	}
	return "", false, false
}

// Whatever plan serve refuses because of the plan, plan check refuses at the same field,
// and what check lets pass serve starts.
func TestCheckRefusesWhatServeRefuses(t *testing.T) {
	problems, err := mutant.Problems("../..")
	if err != nil {
		t.Fatal(err)
	}
	draws := 25
	if os.Getenv("INFERPLAN_LONG") != "" {
		draws = 2000
	}
	left := planner.Kinds()
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree := solved(t, dir, problems[name])
			left = slices.DeleteFunc(left, func(kind string) bool { return kind == tree.(map[string]any)["kind"] })
			rng := rand.New(rand.NewPCG(7, uint64(len(name))))
			counts := map[string]int{}
			try := func(tree any, how string) {
				data, err := json.Marshal(tree)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := formats.DecodePlan(data, "plan.json")
				if err != nil {
					counts["read by neither"]++
					return
				}
				path, refused, asServe := checked(t, dir, plan)
				at, why := startedAt(t, plan)
				switch {
				case why != nil && !refused:
					t.Errorf("%s\ncheck passes, serve does not start: %v", how, why)
				case why == nil && asServe:
					t.Errorf("%s\ncheck refuses at %q, serve starts", how, path)
				case why != nil && asServe && path != at:
					t.Errorf("%s\ncheck refuses at %q, serve at %q: %v", how, path, at, why)
				}
				counts[map[bool]string{true: "refused", false: "served"}[refused]]++
			}
			try(tree, "as solved")
			for _, policy := range []map[string]any{
				{"name": "nosuch"}, {"name": "reserve", "params": map[string]any{"guard_share": 1e308}}, {"name": "gear"}, {"name": "workflow"}, {"name": "vqueue", "params": map[string]any{"nosuch": 1}},
			} {
				other := maps.Clone(tree.(map[string]any))
				other["policy"] = policy
				try(other, fmt.Sprint("policy ", policy))
			}
			for range draws {
				other, how := mutant.Draw(rng, tree)
				try(other, strings.Join(how, "; "))
			}
			t.Log(counts)
		})
	}
	if len(left) > 0 && !t.Failed() {
		t.Errorf("testdata/kinds has no problem of kind %v", left)
	}
}

// startedAt starts a plan as plan serve --engine replay does, and returns the field at
// which it is refused.
func startedAt(t *testing.T, plan *formats.Plan) (path string, why error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	opt := executor.Options{CoreOptions: executor.CoreOptions{Engine: "replay", Log: slog.New(slog.DiscardHandler)}, WorkerOptions: executor.WorkerOptions{InProcess: true}}
	if q := formats.QueueOf(plan); q != nil {
		for i := range q.Instances {
			s, err := fake.Start(fake.Options{Models: q.Instances[i].Models, Slots: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			opt.Servers = append(opt.Servers, text.InstanceServer{Instance: i, URL: s.URL()})
		}
	}
	x, err := executor.New(ctx, plan, opt)
	if err != nil {
		if found := document.Findings(err); len(found) > 0 {
			path = found[0].Path
		}
		if errors.Is(err, engine.ErrNoDevice) || errors.Is(err, turn.ErrSimulatedOnly) {
			return "", nil
		}
		return path, err
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	return "", nil
}
