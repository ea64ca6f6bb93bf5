package check

import (
	"context"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
	"inferplan/testkit/pooltest"
)

// confirmed is the plan of a world whose rates simulation confirms.
func confirmed(t *testing.T, in planner.Inputs) *formats.Plan {
	t.Helper()
	opt := planner.Options{TestSettings: kind.TestSettings{Runs: 2, Duration: 2 * time.Second}}
	opt.Set("gap", 0.05)
	opt.Set("margin", planner.Auto)
	res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Plan.Objective.Fluid == nil {
		t.Fatal("no simulation decided the rates of the plan")
	}
	return copyOf(t, res.Plan)
}

// rates are the rates of a model, as promised before and as the plan under check has them.
func rates(t *testing.T, r *Result, what string) (promised, today float64) {
	t.Helper()
	for _, c := range r.Metrics {
		if c.Metric == "rps" && c.Subject == what {
			return c.Old, c.New
		}
	}
	t.Fatalf("no rate of %s in\n%s", what, text(r))
	return 0, 0
}

// A plan that states what its devices carry without queueing is compared by what
// simulation shows it to hold, whichever of the two it is, and stays as it was.
func TestGateComparesWhatHolds(t *testing.T) {
	today := pooltest.Documents()
	tested, fluid := confirmed(t, today), copyOf(t, solve(t, today))
	stated := fluid.Objective.Value
	const note = "states what its devices carry without queueing: compared is what simulation shows it to hold"

	r := verdict(t, GateInput{Plan: tested, Promised: fluid, Today: today})
	says(t, r, "the plan promised before "+note)
	before, now := rates(t, r, "resnet")
	if before >= fluid.Deployment[0].RPS() || now != tested.Deployment[0].RPS() {
		t.Errorf("%.4g promised before of %.4g stated, %.4g now of %.4g stated", before, fluid.Deployment[0].RPS(), now, tested.Deployment[0].RPS())
	}

	r = verdict(t, GateInput{Plan: fluid, Promised: tested, Today: today})
	says(t, r, "the plan under check "+note)
	if was, after := rates(t, r, "resnet"); was != now || after != before {
		t.Errorf("the other way round %.4g and %.4g, expected %.4g and %.4g", was, after, now, before)
	}
	if fluid.Objective.Value != stated || fluid.Objective.Fluid != nil {
		t.Errorf("the caller's plan states %.4g, expected %.4g", fluid.Objective.Value, stated)
	}

	// A machine that is slower by a fifth fails either way.
	pooltest.Slower(today.Profile, 0, -1, 1.2)
	says(t, verdict(t, GateInput{Plan: tested, Promised: fluid, Today: today}), Fail)

	// Two plans of one sort are compared as they are.
	today = pooltest.Documents()
	for name, p := range map[string]*formats.Plan{"tested": tested, "fluid": fluid} {
		if r := verdict(t, GateInput{Plan: p, Today: today}); r.Verdict != Pass || strings.Contains(text(r), note) {
			t.Errorf("%s plan against itself: %s", name, text(r))
		}
	}
}
