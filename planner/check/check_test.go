package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/pool/pooltest"
	"inferplan/solver/highs"
)

func solve(t testing.TB, in planner.Inputs) *formats.Plan {
	t.Helper()
	res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// copyOf copies a plan through its document.
func copyOf(t testing.TB, p *formats.Plan) *formats.Plan {
	t.Helper()
	var b bytes.Buffer
	if err := formats.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	out, err := formats.DecodePlan(b.Bytes(), "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gate(t *testing.T, in GateInput) *Result {
	t.Helper()
	in.Solver = highs.Solver{}
	r, err := Gate(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(r.Text()[0], r.Verdict+": ") {
		t.Errorf("%q", r.Text())
	}
	return r
}

func TestGate(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	says := func(r *Result, parts ...string) {
		t.Helper()
		text := strings.Join(r.Text(), "\n")
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%q is not in\n%s", p, text)
			}
		}
	}

	r := gate(t, GateInput{Plan: plan, Today: today})
	if r.Verdict != Pass || len(r.Findings) > 0 || len(r.Blocks) > 0 || len(r.Metrics) < 6 {
		t.Errorf("an unchanged world: %s", strings.Join(r.Text(), "\n"))
	}

	for block := range 4 {
		worse := pooltest.Documents()
		pooltest.Slower(worse.Profile, 0, block, 1.05)
		r = gate(t, GateInput{Plan: plan, Today: worse})
		if r.Verdict != Fail || len(r.Blocks) == 0 || slices.ContainsFunc(r.Blocks, func(b BlockChange) bool { return b.Block != block || b.Model != "resnet" }) {
			t.Errorf("block %d: %s", block, strings.Join(r.Text(), "\n"))
		}
		says(r, fmt.Sprintf("block %d (resnet/%d) of resnet", block, block), "+5.0 %")
	}

	// With the old profile at hand, a plan without block times names it too.
	worse := pooltest.Documents()
	pooltest.Slower(worse.Profile, 1, 1, 1.05)
	bare := copyOf(t, plan)
	for i := range bare.Deployment {
		for j := range bare.Deployment[i].Pipelines {
			for k := range bare.Deployment[i].Pipelines[j].Stages {
				bare.Deployment[i].Pipelines[j].Stages[k].BlockUS = nil
			}
		}
	}
	r = gate(t, GateInput{Plan: bare, Today: worse, OldProfile: today.Profile})
	says(r, "fail: ", "block 1 (ocr/1) of ocr")

	// Tolerances are the caller's.
	wide, err := ParseTolerances("rps=10%, p99=10%,cost=1%,block=10%")
	if err != nil {
		t.Fatal(err)
	}
	if r = gate(t, GateInput{Plan: plan, Today: worse, Tolerances: wide}); r.Verdict != Pass {
		t.Errorf("within tolerance: %s", strings.Join(r.Text(), "\n"))
	}

	faster := pooltest.Documents()
	pooltest.Slower(faster.Profile, 0, -1, 0.9)
	if r = gate(t, GateInput{Plan: plan, Today: faster}); r.Verdict != Pass {
		t.Errorf("a faster world: %s", strings.Join(r.Text(), "\n"))
	}

	removed := pooltest.Documents()
	removed.Cluster.Pools = removed.Cluster.Pools[1:]
	r = gate(t, GateInput{Plan: plan, Today: removed})
	says(r, "fail: ", "error: pool: the cluster has no H any more")

	tight := pooltest.Documents()
	formats.ModelsOf(tight.Workload)[0].SLO = formats.SLO{Duration: time.Millisecond}
	r = gate(t, GateInput{Plan: plan, Today: tight})
	says(r, "fail: ", "error: slo: ", "error: infeasible: ")

	dear := pooltest.Documents()
	dear.Cluster.Pools[0].USDPerHour *= 1.5
	r = gate(t, GateInput{Plan: plan, Today: dear})
	says(r, "fail: ", "regression: cost of devices used")

	// A plan in place of a better one.
	poor := pooltest.Documents()
	poor.Cluster.Pools[0].Count = 1
	poorPlan := copyOf(t, solve(t, poor))
	r = gate(t, GateInput{Plan: poorPlan, Against: plan, Today: today})
	says(r, "fail: ", "regression: rps of resnet")

	// Documents that the plan was made without come from the plan.
	r = gate(t, GateInput{Plan: plan, Today: planner.Inputs{Profile: today.Profile}})
	if r.Verdict != Pass {
		t.Errorf("without cluster and workload: %s", strings.Join(r.Text(), "\n"))
	}

	if r, err := Gate(context.Background(), GateInput{Plan: plan, Today: today}); err != nil || r.Verdict != Pass || len(r.Notes) != 1 {
		t.Errorf("without a solver: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Gate(ctx, GateInput{Plan: plan, Today: today, Solver: highs.Solver{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestParseTolerances(t *testing.T) {
	got, err := ParseTolerances("rps=1%,p99=0.02")
	if err != nil || len(got) != 2 || got["rps"] != 0.01 || got["p99"] != 0.02 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"rps", "rp=1%", "rps=x", "rps=-1%", "rps=1%,rps=2%", "rps=NaN"} {
		if _, err := ParseTolerances(bad); formats.Findings(err) == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// No document that decodes may make the check panic.
func FuzzRecompute(f *testing.F) {
	in := pooltest.Documents()
	var b bytes.Buffer
	plan := solve(f, in)
	if err := formats.Write(&b, plan); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"format":"inferplan.plan/v1","kind":"pool"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := formats.DecodePlan(data, "plan.json")
		if err != nil {
			return
		}
		Recompute(p, in.Profile, in.Cluster, in.Workload)
		if _, err := Gate(t.Context(), GateInput{Plan: p, Today: in}); err != nil {
			return
		}
	})
}

// A check that is interrupted while it plans again has no verdict: what the
// solver holds at that moment says nothing about what is reachable.
func TestGateInterrupted(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := Gate(ctx, GateInput{Plan: plan, Today: today, Solver: highs.Solver{}})
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, %v, expected no verdict and context.Canceled", r, err)
	}
}
