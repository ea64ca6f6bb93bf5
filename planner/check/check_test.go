package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/pooltest"
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
	if err := document.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	out, err := formats.DecodePlan(b.Bytes(), "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func verdict(t *testing.T, in GateInput) *Result {
	t.Helper()
	in.Solver = highs.Solver{}
	r, err := Gate(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	return r
}

// text is a result as a user reads it.
func text(r *Result) string {
	lines := []string{r.Verdict}
	for i := range r.Metrics {
		if c := &r.Metrics[i]; c.Failed {
			lines = append(lines, c.FailureText())
		}
	}
	return strings.Join(append(lines, r.Explanation()...), "\n")
}

func TestGateFailsOnRegressions(t *testing.T) {
	today, plan := planned(t)
	r := verdict(t, GateInput{Plan: plan, Today: today})
	if r.Verdict != Pass || len(r.Findings) > 0 || len(r.Blocks) > 0 || len(r.Metrics) < 6 {
		t.Errorf("an unchanged world: %s", text(r))
	}

	// A model that is slower fails, and the blocks that moved are named once.
	slower := pooltest.Documents()
	pooltest.Slower(slower.Profile, 0, -1, 1.05)
	r = verdict(t, GateInput{Plan: plan, Today: slower})
	says(t, r, Fail, "rps of resnet", "slower: 4 blocks of resnet on", "by +5.0 to +5.0 %", "the best plan of today reaches throughput", "take it with: plan solve")

	// One block of it is no failure where that costs less than two profiles of one
	// model differ by. It is named all the same.
	for block := range 4 {
		worse := pooltest.Documents()
		pooltest.Slower(worse.Profile, 0, block, 1.05)
		r = verdict(t, GateInput{Plan: plan, Today: worse})
		if r.Verdict != Pass || len(r.Blocks) == 0 || slices.ContainsFunc(r.Blocks, func(b BlockChange) bool { return b.Block != block || b.Model != "resnet" }) {
			t.Errorf("block %d: %s", block, text(r))
		}
		says(t, r, fmt.Sprintf("block %d (resnet/%d) of resnet", block, block), "+5.0 %")
	}

	// With the old profile at hand, a plan without block times names it too.
	worse := pooltest.Documents()
	pooltest.Slower(worse.Profile, 1, 1, 1.3)
	bare := copyOf(t, plan)
	for i := range bare.Deployment {
		for j := range bare.Deployment[i].Pipelines {
			for k := range bare.Deployment[i].Pipelines[j].Stages {
				bare.Deployment[i].Pipelines[j].Stages[k].BlockUS = nil
			}
		}
	}
	r = verdict(t, GateInput{Plan: bare, Today: worse, OldProfiles: []*formats.Profile{today.Profile}})
	says(t, r, Fail, "block 1 (ocr/1) of ocr")

	// Tolerances are the caller's.
	wide, err := ParseTolerances("rps=30%, p99=30%,cost=1%,block=30%")
	if err != nil {
		t.Fatal(err)
	}
	if r = verdict(t, GateInput{Plan: plan, Today: worse, Tolerances: wide}); r.Verdict != Pass {
		t.Errorf("within tolerance: %s", text(r))
	}
}

// The world changes: what is lost fails, what is gained passes.
func TestGateOfAnotherWorld(t *testing.T) {
	_, plan := planned(t)
	faster := pooltest.Documents()
	pooltest.Slower(faster.Profile, 0, -1, 0.9)
	if r := verdict(t, GateInput{Plan: plan, Today: faster}); r.Verdict != Pass {
		t.Errorf("a faster world: %s", text(r))
	}

	removed := pooltest.Documents()
	removed.Cluster.Pools = removed.Cluster.Pools[1:]
	r := verdict(t, GateInput{Plan: plan, Today: removed})
	says(t, r, "error: pool: the cluster has no H any more")

	tight := pooltest.Documents()
	formats.ModelsOf(tight.Workload)[0].SLO = document.SLO{Duration: time.Millisecond}
	r = verdict(t, GateInput{Plan: plan, Today: tight})
	says(t, r, "error: slo: ", "error: infeasible: ")

	dear := pooltest.Documents()
	dear.Cluster.Pools[0].USDPerHour *= 1.5
	r = verdict(t, GateInput{Plan: plan, Today: dear})
	says(t, r, "cost of devices used")
}

// Another plan is judged, or fewer documents, or none of a solver.
func TestGateOfOtherInput(t *testing.T) {
	today, plan := planned(t)

	// A plan in place of a better one.
	poor := pooltest.Documents()
	poor.Cluster.Pools[0].Count = 1
	poorPlan := copyOf(t, solve(t, poor))
	r := verdict(t, GateInput{Plan: poorPlan, Promised: plan, Today: today})
	says(t, r, "rps of resnet")

	// Documents that the plan was made without come from the plan.
	r = verdict(t, GateInput{Plan: plan, Today: planner.Inputs{Profile: today.Profile}})
	if r.Verdict != Pass {
		t.Errorf("without cluster and workload: %s", text(r))
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

// planned is a world and its plan.
func planned(t *testing.T) (planner.Inputs, *formats.Plan) {
	t.Helper()
	today := pooltest.Documents()
	return today, copyOf(t, solve(t, today))
}

// says checks that a result has these parts.
func says(t *testing.T, r *Result, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text(r), p) {
			t.Errorf("%q is not in\n%s", p, text(r))
		}
	}
}

func TestParseTolerances(t *testing.T) {
	got, err := ParseTolerances("rps=1%,p99=2%,cost=0")
	if err != nil || len(got) != 3 || got["rps"] != 0.01 || got["p99"] != 0.02 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"rps", "rp=1%", "rps=x", "rps=-1%", "rps=1%,rps=2%", "rps=NaN", "rps=1", "p99=0.02"} {
		if _, err := ParseTolerances(bad); document.Findings(err) == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// No document that decodes may make the check panic.
func FuzzRecompute(f *testing.F) {
	in := pooltest.Documents()
	var b bytes.Buffer
	plan := solve(f, in)
	if err := document.Write(&b, plan); err != nil {
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

// profilesOf are profiles of one machine taken at different times: all times of a
// profile are off by one factor, and each by a little more.
func profilesOf(n int, model int, slower, spread float64, seed uint64) []*formats.Profile {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []*formats.Profile
	for range n {
		p := pooltest.Documents().Profile
		run := math.Exp(spread * rng.NormFloat64())
		for m := range p.Models {
			factor := run
			if m == model {
				factor *= slower
			}
			for b := range p.Models[m].Blocks {
				pooltest.Slower(p, m, b, factor*math.Exp(spread/4*rng.NormFloat64()))
			}
		}
		out = append(out, p)
	}
	return out
}

// An unchanged model rarely fails, and one that got slower does: with one profile a
// side 5 %, with three a side 3 %.
func TestGateTellsChangeFromChance(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	fails := func(n int, slower, spread float64) (failed int) {
		for seed := range uint64(20) {
			old, now := profilesOf(n, -1, 1, spread, 2*seed), profilesOf(n, 0, slower, spread, 2*seed+1)
			in := today
			in.Profile = now[0]
			r, err := Gate(t.Context(), GateInput{Plan: plan, Today: in, Profiles: now[1:], OldProfiles: old})
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict == Fail {
				failed++
			}
		}
		return failed
	}
	for _, c := range []struct {
		name           string
		n              int
		slower, spread float64
		least, most    int
	}{
		{"unchanged, one profile a side", 1, 1, 0.01, 0, 1},
		{"unchanged, three a side", 3, 1, 0.01, 0, 2},
		{"8 % slower, one a side", 1, 1.08, 0.01, 19, 20},
		{"3 % slower, three a side", 3, 1.03, 0.004, 18, 20},
	} {
		if got := fails(c.n, c.slower, c.spread); got < c.least || got > c.most {
			t.Errorf("%s: %d of 20 fail, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// A plan that lost a device keeps nothing that could be called ok: only what can be
// planned today is compared.
func TestGateOfABrokenPlan(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	today.Cluster.Pools[1].Count /= 2
	r := verdict(t, GateInput{Plan: plan, Today: today, SameProfile: true})
	if r.Verdict != Fail {
		t.Fatal(text(r))
	}
	for _, c := range r.Metrics {
		if c.Metric != "rps" {
			continue
		}
		if c.Subject != "objective (today: of the best plan)" || c.New != r.Planned.Value || !c.Failed {
			t.Errorf("%s: %g (failed: %v), of a plan that no longer fits; planned again %g", c.Subject, c.New, c.Failed, r.Planned.Value)
		}
	}
}

// Where nothing was measured anew, no difference is by chance.
func TestGateOfTheSameProfile(t *testing.T) {
	today := pooltest.Documents()
	plan := copyOf(t, solve(t, today))
	worse := copyOf(t, plan)
	worse.Objective.Value *= 0.97
	for i := range formats.PoolOf(worse).Models {
		formats.PoolOf(worse).Models[i].RPS *= 0.97
	}
	if r := verdict(t, GateInput{Plan: worse, Promised: plan, Today: today, SameProfile: true}); r.Verdict != Fail {
		t.Errorf("3 %% worse by the same profile: %s", text(r))
	}
}
