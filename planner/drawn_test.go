package planner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/policy/policies"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// Documents with parts left out, doubled, unused or renamed end in an error with its
// place, or in a plan that can be run.
func TestDrawnDocuments(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	draws := 25
	if os.Getenv("INFERPLAN_LONG") != "" {
		draws = 1000
	}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(len(name))))
			counts := map[string]int{}
			for i := range draws {
				documents, how := problems[name], "nothing changed"
				if i > 0 {
					documents, how = mutateDocument(rng, documents)
				}
				counts[solvesOrSays(t, documents, how)]++
			}
			t.Log(counts)
			if counts["plan"] < draws/20 || counts["error"] == 0 {
				t.Errorf("%v of %d draws: too few for the test to say anything", counts, draws)
			}
		})
	}
}

// mutateDocument changes one of the documents, in three of four draws the workload.
func mutateDocument(rng *rand.Rand, from mutant.Problem) (mutant.Problem, string) {
	role := []string{"profile", "cluster", "workload", "workload", "workload"}[rng.IntN(5)]
	out := maps.Clone(from)
	tree, how := mutant.Draw(rng, from[role])
	out[role] = tree
	return out, role + ": " + strings.Join(how, "; ")
}

// decodeDocuments are documents as trees of JSON.
func decodeDocuments(documents mutant.Problem) (in planner.Inputs, err error) {
	for role, tree := range documents {
		text, err := json.Marshal(tree)
		if err != nil {
			return in, err
		}
		_, doc, err := formats.Decode(text, role+".json")
		if err != nil {
			return in, err
		}
		switch d := doc.(type) {
		case *formats.Profile:
			in.Profile = d
		case *formats.Cluster:
			in.Cluster = d
		case *formats.Workload:
			in.Workload = d
		}
	}
	return in, nil
}

// solvesOrSays solves documents and returns what came of it.
func solvesOrSays(t *testing.T, documents mutant.Problem, how string) (outcome string) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		text, _ := json.Marshal(documents["workload"])
		t.Errorf("%s\n%s\n%s", how, fmt.Sprintf(format, args...), text)
	}
	defer func() {
		if r := recover(); r != nil {
			fail("panic: %v\n%s", r, debug.Stack())
		}
	}()
	in, err := decodeDocuments(documents)
	if err != nil {
		if len(document.Findings(err)) == 0 {
			fail("an error without a place: %v", err)
		}
		return "error"
	}
	in.WorkloadDir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	opt := planner.Options{SkipNearest: true}
	res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
	if ctx.Err() != nil {
		return "not solved in a minute"
	}
	var infeasible *planner.InfeasibleError
	switch {
	case errors.As(err, &infeasible):
		return "infeasible"
	case err != nil:
		if found := document.Findings(err); len(found) == 0 || found[0].Path == "" && !strings.Contains(found[0].Expected, "of them") {
			fail("an error without a place: %v", err)
		}
		return "error"
	}
	if err := res.Plan.Validate(); err != nil {
		fail("a plan that is not valid: %v", err)
		return "plan"
	}
	tables, err := policies.Compile(res.Plan)
	if err == nil {
		_, err = policies.New(res.Plan.Policy, tables)
	}
	if err != nil {
		fail("a plan that does not compile: %v", err)
	}
	return "plan"
}
