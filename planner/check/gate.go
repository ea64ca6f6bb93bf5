package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
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
	return &formats.Cluster{Format: formats.FormatCluster, Pools: slices.Clone(p.Pools)}
}

// WorkloadOf is the workload that a plan was made for, with its targets as times;
// nil where its kind does not tell.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	if m := planner.MethodOf(p.Kind); m != nil && m.WorkloadOf != nil {
		return m.WorkloadOf(p)
	}
	return nil
}

// Gate checks a plan against today's documents, plans again with the plan's own
// options, and compares. The error is for documents that cannot be compared at
// all and for a solve that failed; what does not hold is in the result.
func Gate(ctx context.Context, in GateInput) (*Result, error) {
	if in.Plan == nil || in.Today.Profile == nil {
		return nil, errors.New("checking a plan needs the plan and a profile")
	}
	if methodOf(in.Plan) == nil {
		return nil, &formats.Error{Path: "kind", Found: fmt.Sprintf("%q", in.Plan.Kind), Expected: checkable(), Hint: cannotCheck}
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
	r := &Result{Verdict: Pass, Findings: Recompute(in.Plan, in.Today.Profile, in.Today.Cluster, in.Today.Workload), Metrics: []Comparison{}, Blocks: []BlockChange{}}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	if in.Today.Workload == nil {
		in.Today.Workload = WorkloadOf(in.Plan)
	}
	planned, err := r.planAgain(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, in, planned); err != nil {
		return nil, err
	}
	r.withinMargin(in.Tolerances.of(metric("p99")))
	if hasError(r.Findings) || slices.ContainsFunc(r.Metrics, func(c Comparison) bool { return c.Failed }) {
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
	case formats.Findings(err) != nil && hasError(r.Findings):
		// What does not fit together has been found already.
		r.Notes = append(r.Notes, "not planned again: "+err.Error())
		return nil, nil
	default:
		return nil, fmt.Errorf("planning again: %w", err)
	}
	r.Planned = &res.Plan.Objective
	return res.Plan, nil
}

// compare fills in the metrics: those of the plan's kind, what devices cost, and
// the blocks.
func (r *Result) compare(ctx context.Context, in GateInput, planned *formats.Plan) error {
	t := &kind.Today{Plan: in.Plan, Against: in.Against, Profile: in.Today.Profile, Cluster: in.Today.Cluster, Workload: in.Today.Workload, Planned: planned}
	var list []kind.Sample
	if m := methodOf(in.Plan); m.Figures != nil {
		figures, note, err := m.Figures(ctx, t)
		if err != nil {
			return err
		}
		if note != "" {
			r.Notes = append(r.Notes, note)
			return nil
		}
		list = figures
	}
	list = append(list, recompute.Cost(t)...)
	for i := range list {
		if metric(list[i].Metric) == nil {
			return fmt.Errorf("the figure of %s belongs to no metric: %q", list[i].What, list[i].Metric)
		}
	}
	for i := range metrics {
		m := &metrics[i]
		for k := range list {
			if list[k].Metric == m.Name {
				r.Metrics = append(r.Metrics, m.compare(&list[k], in.Tolerances.of(m)))
			}
		}
	}
	r.compareBlocks(recompute.BlockChanges(in.Against, in.OldProfile, in.Today.Profile), in.Tolerances)
	return nil
}

// compareBlocks adds the blocks that are slower than the tolerance. Where another
// metric failed and none is, the slowest below it are named, so that a failure
// always names what moved.
func (r *Result) compareBlocks(blocks []BlockChange, tolerances Tolerances) {
	m := metric(blockMetric)
	tolerance := tolerances.of(m)
	for _, b := range blocks {
		s := b.Sample()
		if c := m.compare(&s, tolerance); c.Failed {
			r.Metrics = append(r.Metrics, c)
		}
		if b.Change > tolerance+recompute.Rounding {
			r.Blocks = append(r.Blocks, b)
		}
	}
	if len(r.Blocks) > 0 || !slices.ContainsFunc(r.Metrics, func(m Comparison) bool { return m.Failed }) {
		return
	}
	for _, b := range blocks {
		if b.Change <= recompute.Rounding || len(r.Blocks) == 5 {
			break
		}
		r.Blocks = append(r.Blocks, b)
	}
}

// withinMargin turns a latency that eats into the margin by no more than the
// tolerance into a warning: pipelines often fill what the SLO leaves, and a new
// measurement is never quite the old one.
func (r *Result) withinMargin(tolerance float64) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Constraint == "slo" && f.Excess > 0 && f.Excess <= tolerance+recompute.Rounding {
			f.Severity = Warning
		}
	}
}
