package flow

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/terms"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/fewdraws"
)

// checkedReplan solves a problem from its running plan, and fails if what is found is not sound, moves more than is allowed or
// than it says, or is worse than what runs. It returns nil if no plan moves so few devices.
func checkedReplan(t *rapid.T, p *kind.Problem, maxMoved float64) *formats.Plan {
	set(p, "max-moved", maxMoved)
	run := kind.NewRun(highs.Solver{})
	if err := checkRunning(p); err != nil {
		t.Fatal(err)
	}
	out, err := solvePlan(context.Background(), p, run)
	if infeasible, ok := errors.AsType[*kind.InfeasibleError](err); ok && infeasible.Constraint == "max-moved" && maxMoved < 1 {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	made := kind.Plan(p, run, out, formats.PlanFlow, "test")
	if err := made.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, f := range verify.Check(&kind.CheckInput{Plan: made, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}) {
		t.Errorf("%+v", f)
	}

	// The moves, counted here.
	moved, devices := 0, 0
	before, after := p.RunningPlan.HeldByDevice(), made.HeldByDevice()
	for k := range made.Pools {
		devices += made.Pools[k].Count
		for n, held := range after[k] {
			old := formats.DeviceContent(nil)
			for i := range p.RunningPlan.Pools {
				if p.RunningPlan.Pools[i].Device == made.Pools[k].Device && n < len(before[i]) {
					old = before[i][n]
				}
			}
			if !old.Covers(held) {
				moved++
			}
		}
	}
	r, listed := made.Replan, 0
	for _, m := range r.Moves {
		listed += m.Count
	}
	if r.MovedGPUs != moved || listed != moved || r.GPUs != devices || float64(moved) > maxMoved*float64(devices)+1e-9 {
		t.Errorf("%d devices move with at most %v of %d: %+v", moved, maxMoved, devices, r)
	}
	if v := r.RunningValue; v != nil {
		if isMaximised := made.Objective.Name == "throughput"; isMaximised && made.Objective.Value < *v*(1-1e-9) || !isMaximised && made.Objective.Value > *v*(1+1e-9) {
			t.Errorf("%s of %v, and %v runs", made.Objective.Name, made.Objective.Value, *v)
		}
	}
	return made
}

// set sets the value of an option.
func set(p *kind.Problem, name string, value any) {
	if err := p.Values.Set(name, value); err != nil {
		panic(err)
	}
}

// drawnPlan solves a problem.
func drawnPlan(t *rapid.T, p *kind.Problem) *formats.Plan {
	run := kind.NewRun(highs.Solver{})
	out, err := solvePlan(context.Background(), p, run)
	if _, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		t.Skip("no plan")
	}
	if err != nil {
		t.Fatal(err)
	}
	return kind.Plan(p, run, out, formats.PlanFlow, "test")
}

// A plan of a graph that starts from another one is sound, moves no more devices than it may, and is no worse than what runs;
// if all may move it is as good as one made anew, within the gap.
func TestGraphsStartFromWhatRuns(t *testing.T) {
	fewdraws.Check(t, 10, func(t *rapid.T) {
		objective := rapid.SampledFrom([]string{"throughput", "gpus", "cost"}).Draw(t, "objective")
		sharing := rapid.SampledFrom([]string{"", formats.SharingTime}).Draw(t, "sharing")
		problem := func(label string) *kind.Problem {
			p := twoModuleProblem(objective)
			for k := range p.Cluster.Pools {
				p.Cluster.Pools[k].Count = rapid.IntRange(1, 6).Draw(t, label+" devices")
				p.Cluster.Pools[k].Sharing = sharing
			}
			app := &formats.ApplicationsOf(p.Workload)[0]
			app.RPS = float64(rapid.IntRange(20, 120).Draw(t, label+" rate"))
			app.SLO = document.SLO{Duration: time.Duration(rapid.IntRange(90, 300).Draw(t, label+" SLO")) * time.Millisecond}
			return p
		}
		running := drawnPlan(t, problem("running"))
		next := problem("next")
		anew := drawnPlan(t, next)
		next.RunningPlan = running
		maxMoved := rapid.SampledFrom([]float64{0, .1, .25, .5, 1}).Draw(t, "max-moved")
		made := checkedReplan(t, next, maxMoved)
		if made == nil || maxMoved < 1 {
			return
		}
		if a, b := made.Objective.Value, anew.Objective.Value; objective == "throughput" && a < b*.99 || objective != "throughput" && a > b*1.0102 {
			t.Errorf("%s of %v, made anew %v", objective, a, b)
		}
	})
}

// What runs goes on if nothing changed.
func TestNothingMovesIfNothingChanged(t *testing.T) {
	fewdraws.Check(t, 10, func(t *rapid.T) {
		p := twoModuleProblem(rapid.SampledFrom([]string{"throughput", "gpus"}).Draw(t, "objective"))
		if rapid.Bool().Draw(t, "workflows") {
			p = problemOf(rapid.IntRange(2, 8).Draw(t, "devices"), 24e9, time.Minute, [3]float64{1, 1, 1})
		}
		running := drawnPlan(t, p)
		p.RunningPlan = running
		made := checkedReplan(t, p, 1)
		if made.Replan.MovedGPUs != 0 || made.Replan.RunningValue == nil || made.Objective.Value < running.Objective.Value*(1-1e-9) && made.Objective.Name == "throughput" {
			t.Errorf("%v after %v, with %+v", made.Objective, running.Objective, made.Replan)
		}
	})
}

// A plan of workflows that starts from another one is sound, and moves no more devices than it may.
func TestWorkflowsStartFromWhatRuns(t *testing.T) {
	fewdraws.Check(t, 10, func(t *rapid.T) {
		problem := func(label string) *kind.Problem {
			var rates [3]float64
			for i := range rates {
				rates[i] = float64(rapid.IntRange(0, 4).Draw(t, label+" rate"))
			}
			if rates == [3]float64{} {
				rates[0] = 1
			}
			memory := document.Bytes(rapid.SampledFrom([]int64{16e9, 24e9, 40e9}).Draw(t, "memory"))
			return problemOf(rapid.IntRange(2, 12).Draw(t, label+" devices"), memory, time.Minute, rates)
		}
		running := drawnPlan(t, problem("running"))
		next := problem("next")
		fresh := drawnPlan(t, next)
		next.RunningPlan = running
		if err := checkRunning(next); err != nil {
			t.Skip("no model in common")
		}
		made := checkedReplan(t, next, rapid.SampledFrom([]float64{0, .1, .25, .5, 1}).Draw(t, "max-moved"))
		if made != nil && made.Objective.Bound != nil && *made.Objective.Bound < fresh.Objective.Value*(1-1e-9) {
			t.Errorf("a bound of %v, and a fresh plan has %v", *made.Objective.Bound, fresh.Objective.Value)
		}
	})
}

// Under the algorithm shares, where a new plan cannot start with what devices hold, what runs stands if too many devices would
// move.
func TestSharesKeepWhatRuns(t *testing.T) {
	problem := func(rates [3]float64) *kind.Problem {
		p := problemOf(4, 24e9, time.Minute, rates)
		set(p, "algorithm", terms.AlgorithmShares)
		return p
	}
	p := problem([3]float64{1, 1, 1})
	p.RunningPlan = planOf(t, problem([3]float64{4, 1, 1}))
	set(p, "max-moved", 0.)
	out, err := solvePlan(t.Context(), p, kind.NewRun(highs.Solver{}))
	if err != nil {
		t.Fatal(err)
	}
	if r := out.Replan; r.MovedGPUs != 0 || r.RunningValue == nil || *r.RunningValue != out.Objective.Value {
		t.Errorf("%+v, %+v", out.Objective, r)
	}
}

// The share of the time that runs what devices hold is that of what they hold after moves were limited.
func TestServedTimeIsThatOfLimitedMoves(t *testing.T) {
	p := problemOf(4, 24e9, time.Minute, [3]float64{1, 0, 0})
	running := planOf(t, p)
	next := problemOf(8, 24e9, time.Minute, [3]float64{1, 1, 1})
	next.RunningPlan = running
	served := func(maxMoved float64) float64 {
		set(next, "max-moved", maxMoved)
		out, err := solvePlan(t.Context(), next, kind.NewRun(highs.Solver{}))
		if err != nil {
			t.Fatal(err)
		}
		return out.Phases[1].Value
	}
	if few, all := served(0), served(1); few >= all {
		t.Errorf("%v devices of time served without a move, %v with all", few, all)
	}
}

// If a search ends before it has a plan, what runs stands, without a bound: none is known of other plans.
func TestWhatRunsStandsIfTheSearchEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, p := range map[string]*kind.Problem{"graph": twoModuleProblem("throughput"), "workflows": problemOf(4, 24e9, time.Minute, [3]float64{1, 1, 1})} {
		p.RunningPlan = planOf(t, p)
		out, err := solvePlan(ended, p, kind.NewRun(highs.Solver{}))
		if err != nil {
			t.Fatal(name, err)
		}
		if out.Objective.Bound != nil || out.Objective.Gap != nil || out.Objective.BoundAmong != "" {
			t.Errorf("%s: a bound that was not searched for: %+v", name, out.Objective)
		}
		if r := out.Replan; out.StoppedBy != milp.StoppedByInterrupt || r.MovedGPUs != 0 || r.RunningValue == nil || *r.RunningValue != out.Objective.Value {
			t.Errorf("%s: stopped by %s with %+v, %+v", name, out.StoppedBy, out.Objective, r)
		}
	}
}
