package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
	"inferplan/solver/milp"
)

// GateInput is the input of the gate.
type GateInput struct {
	Plan     *formats.Plan // the plan under check
	Promised *formats.Plan // what was promised before; if nil, Plan itself
	// Today holds the documents of today. If a cluster or workload is nil, it is taken from the
	// plan.
	Today planner.Inputs
	// Profiles are further profiles of today, measured at other times.
	Profiles []*formats.Profile
	// OldProfiles are the profiles by which Promised was measured, first the one from which it
	// was made, if it is available. If there is none, blocks are compared with the plan's own
	// figures.
	OldProfiles []*formats.Profile
	// SameProfile says that Promised was made from the profile of today, byte for byte. Then
	// nothing was measured again, and no difference is by chance.
	SameProfile bool
	Tolerances  Tolerances
	// ServerFindings returns what is wrong with a plan for the server that is to execute it. It
	// may be nil.
	ServerFindings func(*formats.Plan) []Finding
	// Solver is used to solve again. If it is nil, that is left out, with a note.
	Solver   milp.Solver
	Progress func(planner.Progress)
}

// The verdicts.
const (
	Pass = "pass"
	Fail = "fail"
)

// Result is the result of the gate.
type Result struct {
	Verdict  string             `json:"verdict"`
	Findings []Finding          `json:"findings"`
	Metrics  []Comparison       `json:"metrics"`
	Blocks   []BlockChange      `json:"blocks"` // slower than the tolerance, the slowest first; they explain a failure and cause none
	Planned  *formats.Objective `json:"planned_again,omitempty"`
	Advice   []string           `json:"advice,omitempty"` // what to do after a failure
	Notes    []string           `json:"notes,omitempty"`
}

// Comparison is a figure before and now. It fails if it is worse than the tolerance and that is no
// chance: beyond Noise, or, with several profiles on a side, with P below 5 %.
type Comparison struct {
	Metric    string   `json:"metric"`
	Subject   string   `json:"what"`
	Unit      string   `json:"unit"`
	Old       float64  `json:"old"`
	New       float64  `json:"new"`
	WorseBy   float64  `json:"worse"` // relative; negative if it is better
	Tolerance float64  `json:"tolerance"`
	Noise     float64  `json:"noise"`       // relative; profiles of unchanged models differ by up to this much
	P         *float64 `json:"p,omitempty"` // probability that several profiles on a side differ this much by chance
	Failed    bool     `json:"failed"`
}

// isWithinChance reports whether a figure is worse than the tolerance, but by no more than may be
// chance.
func (c *Comparison) isWithinChance() bool {
	return !c.Failed && c.WorseBy > c.Tolerance+recompute.Rounding
}

// ClusterOf returns the cluster for which a plan was made.
func ClusterOf(p *formats.Plan) *formats.Cluster {
	return &formats.Cluster{Format: formats.FormatCluster, Host: formats.HostShared, Pools: slices.Clone(p.Pools)}
}

// WorkloadOf returns the workload for which a plan was made, with its targets as times. It returns nil
// if the plan's kind does not say it.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	if m := planner.MethodOf(p.Kind); m != nil && m.WorkloadOf != nil {
		return m.WorkloadOf(p)
	}
	return nil
}

// Gate checks a plan against today's documents for `plan check`: it recomputes the plan, solves again with the plan's own options, and
// compares its figures with those of the promised plan. The result has the verdict and all that does not hold. It returns an error only
// if the documents cannot be compared or a solve failed. Documents and profiles that the input leaves out are taken from the plans.
func Gate(ctx context.Context, in GateInput) (*Result, error) {
	if in.Plan == nil || in.Today.Profile == nil {
		return nil, errors.New("checking a plan needs the plan and a profile")
	}
	if methodOf(in.Plan) == nil {
		return nil, &document.Error{Path: "kind", Found: fmt.Sprintf("%q", in.Plan.Kind), Expected: checkableKinds(), Hint: cannotCheck}
	}
	if in.Promised == nil {
		in.Promised = in.Plan
	}

	// Plans of different kinds have no common figures.
	if a, b := in.Promised.Kind, in.Plan.Kind; a != b {
		return nil, &document.Error{Path: "kind", Found: fmt.Sprintf("%q", b), Expected: fmt.Sprintf("%q, as promised", a), Hint: "plans of two kinds have no figures in common"}
	}

	// If simulation tested the rates of one plan only, let in have a copy of the other plan whose rates are those that simulation shows.
	notes, err := simulateUntested(ctx, &in)
	if err != nil {
		return nil, err
	}

	// Replace what is missing in the documents of today.
	if in.Today.Cluster == nil {
		in.Today.Cluster = ClusterOf(in.Plan)
	}

	// The profiles of today are in.Today.Profile and further ones. Once they are comparable, the one by which the plan's work (the sum of
	// its stages' times) is the median takes the place of in.Today.Profile. noise says by how much figures differ by chance.
	currentProfiles := append([]*formats.Profile{in.Today.Profile}, in.Profiles...)
	g := &gateRun{in: &in, profiles: &profileSets{promised: in.OldProfiles, current: currentProfiles, sameProfile: in.SameProfile}}
	g.notes = append(notes, g.profiles.makeComparable(in.Plan)...)
	in.Today.Profile = g.profiles.current[middleProfile(in.Plan, g.profiles.current)]
	g.noise = g.profiles.chanceOf(in.Plan)
	return g.buildResult(ctx)
}

// gateRun is the state of a check.
type gateRun struct {
	in       *GateInput
	profiles *profileSets
	noise    chanceModel
	notes    []string
}

// buildResult evaluates the plan by today's documents and by each profile, compares each of its figures with the promised one, and
// returns the verdict with its reasons: findings, comparisons, slower blocks, advice and notes.
func (g *gateRun) buildResult(ctx context.Context) (*Result, error) {
	r := &Result{Verdict: Pass, Findings: []Finding{}, Metrics: []Comparison{}, Blocks: []BlockChange{}}
	today, err := g.evaluate(ctx, g.in.Plan, &g.in.Today)
	if err != nil {
		return nil, err
	}
	r.Findings, r.Notes = append(r.Findings, today.findings...), today.notes
	if today.bestPlan != nil {
		r.Planned = &today.bestPlan.Objective
	}
	if g.in.ServerFindings != nil {
		r.Findings = append(r.Findings, g.in.ServerFindings(g.in.Plan)...)
	}
	currentFigures, promisedFigures, err := g.figuresByProfile(ctx, today)
	if err != nil {
		return nil, err
	}

	// Compare the figures of every metric, over all profiles.
	for i := range metrics {
		m := &metrics[i]
		for k := range today.figures {
			if figure := &today.figures[k]; figure.Metric == m.Name {
				values := figureValues{}
				values.collect(figure, currentFigures, promisedFigures)
				r.Metrics = append(r.Metrics, m.compare(figure, g.in.Tolerances.ToleranceOf(m), &g.noise, &values))
			}
		}
	}
	for i := range g.profiles.machineFigures {
		m := metricNamed(machineMetric)
		r.Metrics = append(r.Metrics, m.compare(&g.profiles.machineFigures[i], g.in.Tolerances.ToleranceOf(m), &g.noise, nil))
	}

	// Decide, and explain the verdict.
	if hasError(r.Findings) || slices.ContainsFunc(r.Metrics, func(c Comparison) bool { return c.Failed }) {
		r.Verdict = Fail
	}
	var promisedProfile *formats.Profile
	if len(g.profiles.promised) > 0 {
		promisedProfile = g.profiles.promised[0]
	}
	r.addSlowBlocks(recompute.BlockChanges(g.in.Promised, promisedProfile, g.in.Today.Profile), g.in.Tolerances.ToleranceOf(metricNamed(blockMetric)))
	r.addAdvice(g.in.Today.Profile)
	r.Notes = append(r.Notes, g.notes...)
	if g.profiles.cpuTimes {
		r.Notes = append(r.Notes, fmt.Sprintf("other work had the processor while a profile was taken: CPU times are compared, and less than %.0f %% is not found; measure again with --realtime, or on a quiet machine", 100*g.noise.minDifference()))
	}
	return r, nil
}

// figuresByProfile returns the plan's figures by every profile of today, and the promised plan's figures by every promised profile, so
// that medians can be compared. today is the evaluation by in.Today.Profile, so that this one is not computed again.
//
// With a single promised profile, the promised plan itself states its figures by that profile, and promised is nil. If all times were
// replaced by CPU times, the stated figures are of other times, and promised has the figures by the single profile, too.
func (g *gateRun) figuresByProfile(ctx context.Context, today *planView) (current, promised [][]kind.FigurePair, err error) {
	current = [][]kind.FigurePair{today.figures}
	for _, profile := range g.profiles.current {
		if profile == g.in.Today.Profile {
			continue
		}
		in := g.in.Today
		in.Profile = profile
		view, err := g.evaluate(ctx, g.in.Plan, &in)
		if err != nil {
			return nil, nil, err
		}
		current = append(current, view.figures)
	}

	// The gate has only the profiles of the promise. Its cluster and workload are those that the plan states.
	if len(g.profiles.promised) < 2 && !g.profiles.cpuTimes {
		return current, nil, nil
	}
	for _, profile := range g.profiles.promised {
		in := planner.Inputs{Profile: profile, Cluster: ClusterOf(g.in.Promised), Workload: WorkloadOf(g.in.Promised)}
		view, err := g.evaluate(ctx, g.in.Promised, &in)
		if err != nil {
			return nil, nil, fmt.Errorf("the promised plan by its own profiles: %w", err)
		}
		promised = append(promised, view.figures)
	}
	return current, promised, nil
}

// planView is the evaluation of a plan by some documents.
type planView struct {
	findings []Finding
	bestPlan *formats.Plan // best plan by the same documents, or nil
	figures  []kind.FigurePair
	notes    []string
}

// evaluate evaluates a plan by some documents: which constraints it breaks, the best plan that its options give now, and its figures,
// each with the promised one. If figures cannot be compared, a note says why.
func (g *gateRun) evaluate(ctx context.Context, plan *formats.Plan, in *planner.Inputs) (*planView, error) {
	// Some kinds plan for buckets of request lengths: the documents get these, as when the plan was made.
	documents := *in
	if m := methodOf(plan); m != nil && m.UseLengthBuckets != nil {
		if _, err := m.UseLengthBuckets(&documents); err != nil {
			return nil, err
		}
	}
	v := &planView{findings: FindingsOf(&kind.CheckInput{Plan: plan, Profile: in.Profile, Cluster: in.Cluster, Workload: documents.Workload, WorkloadDir: in.WorkloadDir})}
	g.allowWithinMargin(v.findings)
	if documents.Workload == nil {
		documents.Workload = WorkloadOf(plan)
	}
	if err := v.solveAgain(ctx, g.in, plan, documents); err != nil {
		return nil, err
	}

	// Collect the figures of the kind, and the costs.
	t := &kind.CheckInput{
		Plan: plan, Promised: g.in.Promised, Profile: in.Profile, Cluster: in.Cluster, Workload: documents.Workload,
		BestPlan: v.bestPlan, BreaksConstraint: hasError(v.findings),
	}
	if m := methodOf(plan); m.Figures != nil {
		figures, note, err := m.Figures(ctx, t)
		if err != nil {
			return nil, err
		}
		if note != "" {
			v.notes = append(v.notes, note)
			return v, nil
		}
		v.figures = figures
	}
	v.figures = append(v.figures, recompute.CostFigures(t)...)
	for i := range v.figures {
		if metricNamed(v.figures[i].Metric) == nil {
			return nil, fmt.Errorf("the figure of %s belongs to no metric: %q", v.figures[i].Subject, v.figures[i].Metric)
		}
		if text := v.figures[i].Shortfall; text != "" {
			v.findings = append(v.findings, Finding{Severity: Warning, Constraint: "slo", Message: text})
		}
	}
	return v, nil
}

// solveAgain plans for the given documents with the options of the plan, and sets v.bestPlan, the best that can be reached today. If
// there is no plan any more, it records a finding. Without a solver, or if findings say already why the documents do not fit, it only
// adds a note.
func (v *planView) solveAgain(ctx context.Context, in *GateInput, plan *formats.Plan, documents planner.Inputs) error {
	if in.Solver == nil {
		v.notes = append(v.notes, "not planned again (--no-solve)")
		return nil
	}

	// Give the workload what the plan keeps back of its promise, where the options do not say it.
	if m := methodOf(plan); m.WithReserves != nil {
		documents.Workload = m.WithReserves(documents.Workload, plan)
	}
	res, err := planner.Solve(ctx, documents, planner.OptionsOfPlan(plan), in.Solver, in.Progress)
	var inf *planner.InfeasibleError
	switch {
	case ctx.Err() != nil: // the best plan so far does not show what is reachable
		return fmt.Errorf("planning again: %w", ctx.Err())
	case err == nil:
	case errors.As(err, &inf):
		v.findings = append(v.findings, Finding{Severity: Error, Constraint: "infeasible", Expected: inf.Nearest.String(), Message: "there is no plan any more: " + inf.Reason})
		return nil
	case document.Findings(err) != nil && hasError(v.findings):
		// The findings already say what does not fit together.
		v.notes = append(v.notes, "not planned again: "+err.Error())
		return nil
	default:
		return fmt.Errorf("planning again: %w", err)
	}
	v.bestPlan = res.Plan
	return nil
}

// addSlowBlocks adds to the result the blocks of the plan that became slower by more than the tolerance (a part of their time). If the
// gate fails and there is none, it adds the five slowest of the others, so that a failure always says what changed. blocks come by
// falling change.
func (r *Result) addSlowBlocks(blocks []BlockChange, tolerance float64) {
	for _, b := range blocks {
		if b.Change > tolerance+recompute.Rounding {
			r.Blocks = append(r.Blocks, b)
		}
	}
	if len(r.Blocks) > 0 || r.Verdict == Pass {
		return
	}
	for _, b := range blocks {
		if b.Change <= recompute.Rounding || len(r.Blocks) == 5 {
			break
		}
		r.Blocks = append(r.Blocks, b)
	}
}

// addAdvice adds to the result, for its reader, the next steps after a failure: measure again if today's profile was taken beside other
// work, or take today's best plan. A note names a figure that is worse than the tolerance by no more than chance.
func (r *Result) addAdvice(today *formats.Profile) {
	// Only figures of measured times have a noise or a P.
	if slices.ContainsFunc(r.Metrics, func(c Comparison) bool { return c.Failed && (c.Noise > 0 || c.P != nil) }) {
		if i := slices.IndexFunc(today.Notes, func(note string) bool { return strings.HasPrefix(note, formats.BusyNote) }); i >= 0 {
			r.Advice = append(r.Advice, fmt.Sprintf("today's profile was taken beside other work (%s): before you believe it, measure again with plan profile --realtime --cuts and the profile of the plan", today.Notes[i]))
		}
	}
	if r.Verdict == Fail && r.Planned != nil {
		r.Advice = append(r.Advice, fmt.Sprintf("the best plan of today reaches %s %.6g; take it with: plan solve --force", r.Planned.Name, r.Planned.Value))
	}
	if i := slices.IndexFunc(r.Metrics, func(c Comparison) bool { return c.isWithinChance() }); i >= 0 {
		c := &r.Metrics[i]
		r.Notes = append(r.Notes, fmt.Sprintf("%s of %s is %.1f %% worse, but two profiles of the same models differ by up to %.1f %%: measure again, and give each with a --profile of its own",
			c.Metric, c.Subject, 100*c.WorseBy, 100*c.Noise))
	}
}

// allowWithinMargin turns findings about a latency above the SLO from errors into warnings if the excess is within the tolerance of service times,
// or may be chance. Pipelines often fill all that the SLO leaves, and a new measurement never equals the old one.
func (g *gateRun) allowWithinMargin(findings []Finding) {
	passes := max(g.in.Tolerances.ToleranceOf(metricNamed(serviceMetric)), g.noise.minDifference()) + recompute.Rounding
	for i := range findings {
		if f := &findings[i]; f.Constraint == "slo" && f.Excess > 0 && f.Excess <= passes {
			f.Severity = Warning
		}
	}
}
