package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"inferplan/cputime"
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
	d, err := newDriver(in, opt, solver, progress)
	if err != nil {
		return nil, err
	}

	// Search. If there is no plan, look for the nearest problem that has one, unless simulation refuted plans (then the
	// error has it already) or the caller does not want it.
	startCPU := cputime.Used()
	res, err := d.search(ctx)
	if infeasible, ok := errors.AsType[*InfeasibleError](err); ok && ctx.Err() == nil && !infeasible.RefutedBySimulation && !opt.SkipNearest {
		return nil, d.findNearest(ctx, infeasible, cputime.Used()-startCPU)
	}
	if err != nil {
		return res, err
	}
	if len(d.faults) > 0 {
		res.Plan.Warnings = append(res.Plan.Warnings, fmt.Sprintf("the search went on without %d of its steps, on which the solver failed; the first: %v", len(d.faults), d.faults[0]))
	}

	// Certify the plan, if that is asked.
	if !opt.Certify || res.Plan.Certificate != nil || ctx.Err() != nil {
		return res, nil
	}
	d.problem.Progress(Progress{Phase: "certifying by simulation", Fraction: 1, Value: math.NaN(), Bound: math.NaN()})
	if err := d.method.Certify(ctx, res.Plan, opt.TestSettings); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	return res, nil
}

// driver solves a problem by the method of a kind of plans.
type driver struct {
	method  *kind.Method
	problem *kind.Problem
	options Options
	solver  milp.Solver
	faults  []error // failures of the solver, of all solves
}

// newDriver returns the driver of a solve: the documents with the values of all options, and the method that the
// workload asks for. If the method cannot do what the options ask, or the plan that runs does not fit the problem, it
// returns an error. progress may be nil.
func newDriver(in Inputs, opt Options, solver milp.Solver, progress func(Progress)) (*driver, error) {
	// Find the method, and refuse what it cannot do.
	method, err := MethodFor(opt.Method, &in)
	if err != nil {
		return nil, err
	}
	values, err := opt.methodValues(method)
	if err != nil {
		return nil, err
	}
	if err := checkSupported(method, &in, &opt, values); err != nil {
		return nil, err
	}

	// Replace models by their length buckets, if the kind has those.
	if method.UseLengthBuckets != nil {
		assumptions, err := method.UseLengthBuckets(&in)
		if err != nil {
			return nil, err
		}
		opt.Assumptions = slices.Concat(opt.Assumptions, assumptions)
	}
	if progress == nil {
		progress = func(Progress) {}
	}

	// Define the problem, and check the running plan, if there is one.
	p := &kind.Problem{Documents: in, Values: values, Seed: 1, Progress: progress}
	if opt.Seed != nil {
		p.Seed = *opt.Seed
	}
	if in.RunningPlan != nil {
		if err := method.CheckRunning(p); err != nil {
			return nil, err
		}
	}
	return &driver{method: method, problem: p, options: opt, solver: solver}, nil
}

// search returns the plan of the problem. If the value of an option is auto, the method solves with several values and
// simulates the plans (Tune). If its kind tests plans by simulation, it solves until a test confirms one. Otherwise
// it solves once.
func (d *driver) search(ctx context.Context) (*Result, error) {
	solveOnce := func(ctx context.Context, q *kind.Problem, progress func(Progress)) (*Result, error) {
		return d.runMethod(ctx, q, d.options.Assumptions, progress)
	}
	switch {
	case autoOption(d.problem.Values) != "":
		return d.method.Tune(ctx, d.problem, d.options.TestSettings, solveOnce)
	case d.method.SolveUntilConfirmed != nil:
		return d.method.SolveUntilConfirmed(ctx, d.problem, d.options.TestSettings, solveOnce)
	}
	return solveOnce(ctx, d.problem, d.problem.Progress)
}

// findNearest returns the error that there is no plan, completed by the nearest problem that has one, which it searches
// for by further solves. An option whose value is auto is set to 0 in the driver's problem. solveTime is the CPU time
// that the failed solve took; it limits the search.
func (d *driver) findNearest(ctx context.Context, infeasible *InfeasibleError, solveTime time.Duration) error {
	d.problem.Progress(Progress{Phase: "what is nearest", Value: math.NaN(), Bound: math.NaN()})
	if name := autoOption(d.problem.Values); name != "" { // if there is no plan at all, nothing that simulation could keep back is needed
		if err := d.problem.Values.Set(name, 0.0); err != nil {
			return err
		}
		for name, value := range d.method.WithoutWaits {
			if !d.problem.Values.IsChosen(name) {
				d.problem.Values.Put(name, value)
			}
		}
	}
	return nearestFeasible(ctx, d.method, d.problem, infeasible, solveTime, func(ctx context.Context, q *kind.Problem) error {
		_, err := d.runMethod(ctx, q, nil, func(Progress) {})
		return err
	})
}

// intermediatePlan is a plan that a method reported during a solve.
type intermediatePlan struct {
	cpu          time.Duration
	value, bound float64
}

// runMethod solves problem p once by the method, within the option time-limit, and returns the plan with its header, the
// better and better plans on the way (incumbents), and the time that it took. assumptions come first in the plan.
// Failures of the solver, which the search survives, are added to the driver's faults. If the time ends before there
// is a plan, or there is none because the solver failed, the error says so.
func (d *driver) runMethod(ctx context.Context, p *kind.Problem, assumptions []string, progress func(Progress)) (*Result, error) {
	// The search runs in a context that ends with that of the caller, at the time limit, or by search.interrupt. The
	// fault-tolerant solver calls that after a failure that the search cannot survive.
	start, cpu := time.Now(), cputime.Used()
	limitedContext, limit := ctx, p.Values.Time("time-limit")
	if limit > 0 {
		var cancel context.CancelFunc
		limitedContext, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var intermediates []intermediatePlan
	search := &searchContext{Context: limitedContext}
	tolerant := milp.NewFaultTolerant(d.solver, search.interrupt)

	// Run the method.
	run := kind.NewRun(tolerant)
	run.Progress = progress
	run.Incumbent = func(value, bound float64) {
		intermediates = append(intermediates, intermediatePlan{cputime.Used() - cpu, value, bound})
	}
	run.Assumptions = append(run.Assumptions, assumptions...)
	outcome, err := d.method.Solve(search, p, run)
	faults := tolerant.Faults()
	d.faults = append(d.faults, faults...)

	// Say why there is no plan.
	if err != nil {
		if len(faults) > 0 {
			return nil, fmt.Errorf("there is no plan without the steps on which the solver failed: %w", faults[0])
		}
		if ctx.Err() == nil && search.Err() != nil && !isFinalError(err) {
			return nil, fmt.Errorf("the time limit of %v ended before there was a plan: raise it or leave it out: %w", limit, err)
		}
		return nil, err
	}

	// A method only sees that its context has ended, and calls that an interrupt. Correct the reason, unless the caller
	// did interrupt it: a failure of the solver counts as the end of the search's work, and otherwise the time limit ended.
	switch {
	case outcome.StoppedBy != milp.StoppedByInterrupt || ctx.Err() != nil:
	case search.interrupted.Load():
		outcome.StoppedBy = milp.StoppedByWork
	default:
		outcome.StoppedBy = milp.StoppedByTime
	}

	// Make the plan.
	res := &Result{
		Plan: kind.Plan(p, run, outcome, d.method.Kind, solverName(d.solver)), StoppedBy: string(outcome.StoppedBy), Status: kind.StatusOf(outcome.StoppedBy),
		Phases: outcome.Phases, Templates: outcome.Candidates,
	}
	res.Plan.Warnings = append(res.Plan.Warnings, looseRateWarnings(res.Plan, p.Profile)...)
	res.Incumbents = mergeIncumbents(intermediates, outcome, cputime.Used()-cpu)
	res.WallMS = math.Round(time.Since(start).Seconds()*1e6) / 1e3
	return res, nil
}

// searchContext is the context of a search. A failure of the solver ends it, too. Its parent is
// asked at every call of Err.
type searchContext struct {
	context.Context
	interrupted atomic.Bool
}

// interrupt ends the search.
func (c *searchContext) interrupt(error) { c.interrupted.Store(true) }

// Err returns why the search ends, or nil if it goes on.
func (c *searchContext) Err() error {
	if c.interrupted.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// isFinalError reports whether more time would not change an error.
func isFinalError(err error) bool {
	_, infeasible := errors.AsType[*InfeasibleError](err)
	return infeasible || len(document.Findings(err)) > 0
}

// solverNoise is the relative difference that the value of a plan by the solver, which holds up to the solver's
// tolerance, may have from the plan's own value, which is computed from whole replicas.
const solverNoise = 1e-7

// mergeIncumbents returns, for the result of a solve, those of the reported plans that were better than all reported
// before them, and the final plan at the end, after the CPU time cpu. A plan that equals the final one within the
// solver's noise keeps its time and gets the final value. A reported value that is better than the final one by more is
// left out, as no plan has it. Plans after it are still only listed if they were reported to be better.
func mergeIncumbents(plans []intermediatePlan, outcome *kind.Outcome, cpu time.Duration) []Incumbent {
	isBetter := func(a, b float64) bool { return kind.IsBetter(outcome.Sense, a, b) }
	final := outcome.Objective
	var incumbents []Incumbent
	bestReported, isFirst := 0.0, true
	for _, plan := range plans {
		if !isFirst && !isBetter(plan.value, bestReported) {
			continue
		}
		bestReported, isFirst = plan.value, false
		value := plan.value
		if math.Abs(value-final.Value) <= solverNoise*final.Value {
			value = final.Value
		} else if isBetter(value, final.Value) {
			continue
		}
		// Several plans may have got the final value: list the first of them.
		if n := len(incumbents); n == 0 || isBetter(value, incumbents[n-1].Value) {
			incumbents = append(incumbents, incumbent(plan.cpu, value, plan.bound))
		}
	}
	bound := math.NaN()
	if final.Bound != nil {
		bound = *final.Bound
	}
	return append(incumbents, incumbent(cpu, final.Value, bound))
}

// incumbent returns a reported plan, with its CPU time in milliseconds to three digits. A bound that is NaN or
// infinite is unknown and left out.
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
