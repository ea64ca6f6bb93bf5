package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// The results of a solve, see package kind.
type (
	Result          = kind.Result
	Incumbent       = kind.Incumbent
	Progress        = kind.Progress
	InfeasibleError = kind.InfeasibleError
)

// Solve makes a plan. The solver solves the mathematical programs. progress may be nil and is
// called from the solving goroutine.
//
// If the workload's method cannot do what is asked, Solve returns an error before any work. If
// ctx ends after a plan was found, Solve returns that plan without an error, with StoppedBy
// interrupt (or time, for the option time-limit).
func Solve(ctx context.Context, in Inputs, opt Options, solver milp.Solver, progress func(Progress)) (*Result, error) {
	// Find the method, and refuse what it cannot do.
	m, err := MethodFor(opt.Method, &in)
	if err != nil {
		return nil, err
	}
	v, err := opt.values(m)
	if err != nil {
		return nil, err
	}
	if err := refuse(m, &in, &opt, v); err != nil {
		return nil, err
	}

	// Replace models by their length buckets, if the kind has those.
	if m.Bucketed != nil {
		assumed, err := m.Bucketed(&in)
		if err != nil {
			return nil, err
		}
		opt.Assumptions = append(opt.Assumptions[:len(opt.Assumptions):len(opt.Assumptions)], assumed...)
	}
	if progress == nil {
		progress = func(Progress) {}
	}

	// Define the problem, and check the running plan, if there is one.
	p := &kind.Problem{Documents: in, Values: v, Seed: 1, Progress: progress}
	if opt.Seed != nil {
		p.Seed = *opt.Seed
	}
	if in.Running != nil {
		if err := m.From(p); err != nil {
			return nil, err
		}
	}
	var faults []error // of all solves
	once := func(ctx context.Context, q *kind.Problem, progress func(Progress)) (*Result, error) {
		return solve(ctx, m, q, opt.Assumptions, solver, &faults, progress)
	}

	// Solve once, or let the method solve several times.
	var res *Result
	begun := cputime.Used()
	switch {
	case tuned(v) != "":
		res, err = m.Tune(ctx, p, opt.Asked, once)
	case m.Hold != nil:
		res, err = m.Hold(ctx, p, opt.Asked, once)
	default:
		res, err = once(ctx, p, progress)
	}

	// If there is no plan, look for the nearest problem that has one.
	if inf, ok := errors.AsType[*InfeasibleError](err); ok && ctx.Err() == nil && !inf.Simulated && !opt.NearestUntold {
		progress(Progress{Phase: "what is nearest", Value: math.NaN(), Bound: math.NaN()})
		if name := tuned(v); name != "" { // if there is no plan at all, no margin for simulation is needed
			if err := p.Values.Set(name, 0.0); err != nil {
				return nil, err
			}
		}
		return nil, nearest(ctx, m, p, inf, cputime.Used()-begun, func(ctx context.Context, q *kind.Problem) error {
			_, err := solve(ctx, m, q, nil, solver, &faults, func(Progress) {})
			return err
		})
	}

	// Warn of failures of the solver, and certify the plan if that is asked.
	if err == nil && len(faults) > 0 {
		res.Plan.Warnings = append(res.Plan.Warnings, fmt.Sprintf("the search went on without %d of its steps, on which the solver failed; the first: %v", len(faults), faults[0]))
	}
	if err != nil || !opt.Certify || res.Plan.Certified != nil || ctx.Err() != nil {
		return res, err
	}
	progress(Progress{Phase: "certifying by simulation", Fraction: 1, Value: math.NaN(), Bound: math.NaN()})
	if err := m.Certify(ctx, res.Plan, opt.Asked); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	return res, nil
}

// Certify stores in a plan what simulation shows it to sustain. If ctx ends first, the plan is
// left as it was.
func Certify(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	m := MethodOf(plan.Kind)
	if m == nil || m.Certify == nil {
		return kind.Cannot("certify", plan.Kind, kindsWith(func(m *kind.Method) bool { return m.Certify != nil }), "plan simulate shows what a plan holds at any rate")
	}
	return m.Certify(ctx, plan, asked)
}

// intermediatePlan is a plan that a method reported during a solve.
type improvement struct {
	cpu          time.Duration
	value, bound float64
}

// solve runs a method once, with clock, time limit, improvements and header. It appends the
// solver's failures to allFaults.
func solve(ctx context.Context, m *kind.Method, p *kind.Problem, assumed []string, solver milp.Solver, noted *[]error, progress func(Progress)) (*Result, error) {
	// Bound the time, and end the search when the solver fails.
	start, cpu := time.Now(), cputime.Used()
	outer, limit := ctx, p.Values.Time("time-limit")
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var better []improvement
	search := &searchContext{Context: ctx}
	ctx = search
	tolerant := milp.NewFaultTolerant(solver, search.interrupt)

	// Run the method.
	run := kind.NewRun(tolerant)
	run.Progress = progress
	run.Incumbent = func(value, bound float64) { better = append(better, improvement{cputime.Used() - cpu, value, bound}) }
	run.Assumptions = append(run.Assumptions, assumed...)
	out, err := m.Solve(ctx, p, run)
	faults := tolerant.Faults()
	*noted = append(*noted, faults...)

	// Say why there is no plan.
	if err != nil {
		if len(faults) > 0 {
			return nil, fmt.Errorf("there is no plan without the steps on which the solver failed: %w", faults[0])
		}
		if outer.Err() == nil && ctx.Err() != nil && !settled(err) {
			return nil, fmt.Errorf("the time limit of %v ended before there was a plan: raise it or leave it out: %w", limit, err)
		}
		return nil, err
	}

	// Say what stopped the search, and make the plan.
	switch {
	case out.StoppedBy != milp.StoppedByInterrupt || outer.Err() != nil:
	case search.broken.Load():
		out.StoppedBy = milp.StoppedByWork
	default:
		out.StoppedBy = milp.StoppedByTime
	}
	res := &Result{
		Plan: kind.Plan(p, run, out, m.Kind, solverName(solver)), StoppedBy: string(out.StoppedBy), Status: kind.Status(out.StoppedBy),
		Phases: out.Phases, Templates: out.Considered,
	}
	res.Plan.Warnings = append(res.Plan.Warnings, loosePromises(res.Plan, p.Profile)...)
	res.Incumbents = settle(better, out, cputime.Used()-cpu)
	res.WallMS = math.Round(time.Since(start).Seconds()*1e6) / 1e3
	return res, nil
}

// searchContext is the context of a search. A failure of the solver ends it, too. Its parent is
// asked at every call of Err.
type searchContext struct {
	context.Context
	broken atomic.Bool
}

// interrupt ends the search.
func (c *searchContext) interrupt(error) { c.broken.Store(true) }

// Err returns why the search ends, or nil if it goes on.
func (c *searchContext) Err() error {
	if c.broken.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// isFinalError reports whether more time would not change an error.
func settled(err error) bool {
	_, infeasible := errors.AsType[*InfeasibleError](err)
	return infeasible || len(document.Findings(err)) > 0
}

// solverNoise is the relative difference that the solver's value of a plan may have from the
// plan's own value, which is computed from whole replicas.
const solverNoise = 1e-7

// mergeIncumbents returns the plans that were better than all before, and the final plan at the
// end. A plan that equals the final one within the solver's noise keeps its time and gets the
// final value. A plan that claims more than the final one is left out.
func settle(list []improvement, out *kind.Outcome, cpu time.Duration) []Incumbent {
	better := func(a, b float64) bool { return a != b && (a > b) == (out.Sense == milp.Maximize) }
	last := out.Objective
	var kept []Incumbent
	so, first := 0.0, true

	// Keep what improves, with the final value if it equals the final plan.
	for _, in := range list {
		if !first && !better(in.value, so) {
			continue
		}
		so, first = in.value, false
		if math.Abs(in.value-last.Value) <= solverNoise*last.Value {
			in.value = last.Value
		} else if better(in.value, last.Value) {
			continue
		}
		if n := len(kept); n == 0 || better(in.value, kept[n-1].Value) {
			kept = append(kept, incumbent(in.cpu, in.value, in.bound))
		}
	}
	bound := math.NaN()
	if last.Bound != nil {
		bound = *last.Bound
	}
	return append(kept, incumbent(cpu, last.Value, bound))
}

// incumbent returns an improvement with its CPU time in milliseconds.
func incumbent(cpu time.Duration, value, bound float64) Incumbent {
	in := Incumbent{CPUMS: math.Round(cpu.Seconds()*1e6) / 1e3, Value: value}
	if !math.IsNaN(bound) && !math.IsInf(bound, 0) {
		in.Bound = &bound
	}
	return in
}

// solverName returns the solver's name and version, or an empty string if it has none.
func solverName(s milp.Solver) string {
	if v, ok := s.(interface{ Version() string }); ok {
		return v.Version()
	}
	return ""
}
