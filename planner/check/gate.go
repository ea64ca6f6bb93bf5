package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/milp"
)

// GateInput is what the gate compares.
type GateInput struct {
	Plan    *formats.Plan // under check
	Against *formats.Plan // what was promised before; nil: Plan itself
	// Today are the documents of today. A cluster or workload that the plan
	// was made without may be nil: it is taken from the plan.
	Today planner.Inputs
	// OldProfile is the profile that Against was made from, where it can still
	// be had; without it the blocks are compared with the plan's own figures.
	OldProfile *formats.Profile
	Tolerances Tolerances
	// Solver plans again; nil leaves that out, with a note.
	Solver   milp.Solver
	Progress func(planner.Progress)
}

// Verdicts.
const (
	Pass = "pass"
	Fail = "fail"
)

// Result is what the gate found.
type Result struct {
	Verdict  string             `json:"verdict"`
	Findings []Finding          `json:"findings"`
	Metrics  []Comparison       `json:"metrics"`
	Blocks   []BlockChange      `json:"blocks"` // slower than the tolerance, slowest first
	Planned  *formats.Objective `json:"planned_again,omitempty"`
	Notes    []string           `json:"notes,omitempty"`
}

// Comparison is one figure then and now.
type Comparison struct {
	Metric    string  `json:"metric"`
	What      string  `json:"what"`
	Unit      string  `json:"unit"`
	Old       float64 `json:"old"`
	New       float64 `json:"new"`
	Worse     float64 `json:"worse"` // relative; negative: better
	Tolerance float64 `json:"tolerance"`
	Failed    bool    `json:"failed"`
}

// ClusterOf is the cluster that a plan was made for.
func ClusterOf(p *formats.Plan) *formats.Cluster {
	return &formats.Cluster{Format: "inferplan.cluster/v1", Pools: slices.Clone(p.Pools)}
}

// WorkloadOf is the workload that a plan was made for, with its targets as times.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	w := &formats.Workload{Format: "inferplan.workload/v1", Arrivals: p.Arrivals}
	if p.Gear != nil {
		w.Cascade = cascadeOf(p)
		return w
	}
	for _, m := range p.Models {
		wm := formats.WorkloadModel{Model: m.Model, Class: m.Class, SLO: formats.SLO{Duration: m.SLOUS.D()}, Percentile: m.Percentile, Weight: m.Weight}
		w.Models = append(w.Models, wm)
	}
	return w
}

// Gate checks a plan against today's documents, plans again with the plan's own
// options, and compares. The error is for documents that cannot be compared at
// all and for a solve that failed; what does not hold is in the result.
func Gate(ctx context.Context, in GateInput) (*Result, error) {
	if in.Plan == nil || in.Today.Profile == nil {
		return nil, errors.New("checking a plan needs the plan and a profile")
	}
	if k := in.Plan.Kind; k != formats.PlanPool && k != formats.PlanGear {
		return nil, &formats.Error{Path: "kind", Found: fmt.Sprintf("%q", k), Expected: formats.PlanPool + " or " + formats.PlanGear, Hint: "plans of this kind cannot be checked yet"}
	}
	if in.Against == nil {
		in.Against = in.Plan
	}
	if a, b := in.Against.Kind, in.Plan.Kind; a != b {
		return nil, &formats.Error{Path: "kind", Found: fmt.Sprintf("%q", b), Expected: fmt.Sprintf("%q, as promised", a), Hint: "plans of two kinds have no figures in common"}
	}
	if in.Today.Cluster == nil {
		in.Today.Cluster = ClusterOf(in.Plan)
	}
	given := in.Today.Workload
	if given == nil {
		in.Today.Workload = WorkloadOf(in.Plan)
		if in.Plan.Kind != formats.PlanGear { // which does not tell of models that no gear asks
			given = in.Today.Workload
		}
	}
	r := &Result{Verdict: Pass, Findings: Recompute(in.Plan, in.Today.Profile, in.Today.Cluster, given), Metrics: []Comparison{}, Blocks: []BlockChange{}}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	planned, err := r.planAgain(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, in, planned); err != nil {
		return nil, err
	}
	r.withinMargin(in.Tolerances.of(metric("p99")))
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error }) ||
		slices.ContainsFunc(r.Metrics, func(c Comparison) bool { return c.Failed }) {
		r.Verdict = Fail
	}
	return r, nil
}

// planAgain solves today's problem with the options of the plan.
func (r *Result) planAgain(ctx context.Context, in GateInput) (*formats.Plan, error) {
	if in.Solver == nil {
		r.Notes = append(r.Notes, "not planned again: there is no solver")
		return nil, nil
	}
	res, err := planner.Solve(ctx, in.Today, planner.OptionsOf(in.Plan), in.Solver, in.Progress)
	var inf *planner.InfeasibleError
	switch {
	case ctx.Err() != nil: // the best so far says nothing about what is reachable
		return nil, fmt.Errorf("planning again: %w", ctx.Err())
	case err == nil:
	case errors.As(err, &inf):
		r.Findings = append(r.Findings, Finding{Severity: Error, Constraint: "infeasible", Expected: inf.Nearest.String(), Message: "there is no plan any more: " + inf.Reason})
		return nil, nil
	case formats.Findings(err) != nil && slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error }):
		// What does not fit together has been found already.
		r.Notes = append(r.Notes, "not planned again: "+err.Error())
		return nil, nil
	default:
		return nil, fmt.Errorf("planning again: %w", err)
	}
	r.Planned = &res.Plan.Objective
	return res.Plan, nil
}

// compare fills in the metrics.
func (r *Result) compare(ctx context.Context, in GateInput, planned *formats.Plan) error {
	c := &comparison{against: in.Against, world: world{in.Plan, in.Today.Profile, in.Today.Cluster, in.Today.Workload}, planned: planned}
	c.blocks = blockChanges(in.Against, in.OldProfile, in.Today.Profile)
	// Where the structure itself is broken, nothing can be computed from it.
	ck := &checker{world: c.world}
	if in.Plan.Kind == formats.PlanGear {
		if c.gears = ck.gearPlan(); c.gears == nil {
			r.Notes = append(r.Notes, "figures are not compared: the plan does not fit the documents")
			return nil
		}
		var err error
		if c.tails, err = c.simulate(ctx); err != nil {
			return err
		}
	} else {
		if slices.Contains(soundness(ck), false) {
			r.Notes = append(r.Notes, "figures are not compared: the plan does not fit the profile's blocks")
			return nil
		}
		c.held = c.hold()
	}
	for i := range metrics {
		m := &metrics[i]
		for _, s := range m.samples(c) {
			cmp := Comparison{Metric: m.Name, What: s.what, Unit: s.unit, Old: s.old, New: s.now, Tolerance: in.Tolerances.of(m)}
			switch {
			case s.old == s.now:
			case m.Higher:
				cmp.Worse = (s.old - s.now) / s.old
			case s.old == 0:
				cmp.Worse = math.MaxFloat64
			default:
				cmp.Worse = (s.now - s.old) / s.old
			}
			cmp.Failed = cmp.Worse > cmp.Tolerance+rounding
			if m.Name == "block" && !cmp.Failed {
				continue // only those that matter: there are many
			}
			r.Metrics = append(r.Metrics, cmp)
		}
		if m.Name == "block" {
			for _, b := range c.blocks {
				if b.Change > in.Tolerances.of(m)+rounding {
					r.Blocks = append(r.Blocks, b)
				}
			}
		}
	}
	r.nameBlocks(c)
	return nil
}

// withinMargin turns a latency that eats into the margin by no more than the
// tolerance into a warning: pipelines often fill what the SLO leaves, and a new
// measurement is never quite the old one.
func (r *Result) withinMargin(tolerance float64) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Constraint == "slo" && f.excess > 0 && f.excess <= tolerance+rounding {
			f.Severity = Warning
		}
	}
}

// soundness is whether each model's structure can be computed with.
func soundness(c *checker) []bool {
	var out []bool
	for i := range c.plan.Models {
		out = append(out, c.structure(i))
	}
	return out
}

// nameBlocks adds the slowest blocks below their own tolerance where another
// metric failed, so that a failure always names what moved.
func (r *Result) nameBlocks(c *comparison) {
	if len(r.Blocks) > 0 || !slices.ContainsFunc(r.Metrics, func(m Comparison) bool { return m.Failed }) {
		return
	}
	for _, b := range c.blocks {
		if b.Change <= rounding || len(r.Blocks) == 5 {
			break
		}
		r.Blocks = append(r.Blocks, b)
	}
}

// Text is the result for people: the verdict first, then what failed.
func (r *Result) Text() []string {
	var out []string
	failed := 0
	for _, m := range r.Metrics {
		if m.Failed {
			failed++
		}
	}
	errs := 0
	for _, f := range r.Findings {
		if f.Severity == Error {
			errs++
		}
	}
	head := r.Verdict + ": the plan holds"
	if r.Verdict == Fail {
		head = fmt.Sprintf("%s: %d constraints broken, %d figures worse than allowed", r.Verdict, errs, failed)
	}
	out = append(out, head)
	for _, f := range r.Findings {
		out = append(out, f.String())
	}
	for _, m := range r.Metrics {
		if m.Failed {
			out = append(out, fmt.Sprintf("regression: %s of %s: %.6g %s, was %.6g (%.2g %% worse, allowed %.2g %%)", m.Metric, m.What, m.New, m.Unit, m.Old, 100*m.Worse, 100*m.Tolerance))
		}
	}
	for _, b := range r.Blocks {
		out = append(out, "slower: "+b.String())
	}
	if r.Planned != nil && r.Verdict == Fail {
		out = append(out, fmt.Sprintf("planned again today: %.6g; take it with: plan solve", r.Planned.Value))
	}
	for _, n := range r.Notes {
		out = append(out, "note: "+n)
	}
	return out
}
