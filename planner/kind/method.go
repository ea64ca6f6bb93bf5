package kind

import (
	"context"
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
)

// Version is the version of this tool. Plans contain it.
var Version = "0.1.0"

// Method says how plans of one kind are made and judged. A nil func means that the kind cannot
// do it; the driver then returns an error before any work.
type Method struct {
	Kind string
	// Summary says in a few words what such plans deploy, for help.
	Summary string
	// Workload returns the workload that is assumed if none is given, with the assumptions
	// made. It is nil if the kind has none.
	Workload func(profile *formats.Profile, slo document.SLO) (*formats.Workload, []string)
	// Solve makes a plan. If ctx ends after a plan was found, it returns that plan.
	Solve func(ctx context.Context, p *Problem, run *SolveRun) (*Outcome, error)
	// Adopt returns the outcome of a deployment that runs and was not planned, as an importer read it. It is nil if the
	// kind has no such plans.
	Adopt func(ctx context.Context, p *Problem, run *SolveRun, observed *Observed) (*Outcome, error)
	// CheckRunning returns an error if the new plan cannot start from Problem.RunningPlan.
	CheckRunning func(p *Problem) error
	// WithTraffic returns a workload section with the rates at which a served plan was asked for, and a line for each
	// that says what it was planned for. Parts that stay the same are shared with the old one.
	WithTraffic func(section formats.WorkloadSection, t *Traffic) (formats.WorkloadSection, []string)
	// Tuned are the options that Tune chooses by simulation where they are not set.
	Tuned []string
	// WithoutWaits are values of tuned options with which a plan leaves requests no time to wait. What is nearest to a problem
	// without a plan is looked for with them, unless the user chose others.
	WithoutWaits map[string]any
	// RelaxWorkload returns a workload section with less asked. Parts that stay the same are
	// shared with the old one. If it is nil, the nearest feasible problem is not searched.
	RelaxWorkload func(section formats.WorkloadSection, l *Relaxation) formats.WorkloadSection
	// SingleSLO says that a workload has one SLO, for all of its models.
	SingleSLO bool
	// SimulationDecides says that simulation decides whether there is a plan. A problem that
	// asks for a little more than an infeasible one may then be feasible.
	SimulationDecides bool
	// Tune solves several times and returns the best plan. It is used if an option has the
	// value "auto".
	Tune func(ctx context.Context, p *Problem, settings TestSettings, solve SolveFunc) (*Result, error)
	// SolveUntilConfirmed solves until other random numbers confirm that the plan holds in
	// simulation. Kinds whose search simulates have it.
	SolveUntilConfirmed func(ctx context.Context, p *Problem, settings TestSettings, solve SolveFunc) (*Result, error)
	// Certify stores in the plan what simulation shows it to sustain.
	Certify func(ctx context.Context, plan *formats.Plan, settings TestSettings) error
	// ScalePromise makes a plan promise a part of its rates, of what its devices carry without
	// queueing. It is nil if other parts of the plan would have to change.
	ScalePromise func(plan *formats.Plan, part float64)
	// Check validates a plan against today's documents from first principles.
	Check func(t *CheckInput) []Finding
	// Figures returns the figures that the gate compares: promised before, and found today. If
	// the plan does not fit the documents, note says so instead.
	Figures func(ctx context.Context, t *CheckInput) (list []FigurePair, note string, err error)
	// WorkloadOf returns the workload for which a plan was made, with its targets as times.
	WorkloadOf func(plan *formats.Plan) *formats.Workload
	// WithReserves returns a workload with what a plan keeps back of its promise, if the
	// plan's options do not say it. It is nil if they do.
	WithReserves func(requested *formats.Workload, plan *formats.Plan) *formats.Workload
	// WithoutReserves returns a workload without what WorkloadOf has of that, so that it is chosen anew. It is nil if
	// there is nothing of it.
	WithoutReserves func(stated *formats.Workload) *formats.Workload
	// UseLengthBuckets replaces the models of the workload by their length buckets in the
	// profile, and returns the assumptions made.
	UseLengthBuckets func(d *Documents) (assumptions []string, err error)
	// Explain returns the lines that the kind adds to the description of a plan.
	Explain func(plan *formats.Plan) []string
	// Diff adds what changed between the sections of two plans.
	Diff func(a, b *formats.Plan, r *diff.Recorder)
}

// Options returns the options of the method's plans.
func (m *Method) Options() []document.Option { return formats.PlanOptions(m.Kind) }

// SolveFunc makes one plan, of a problem with other values or another workload.
type SolveFunc func(ctx context.Context, p *Problem, progress func(Progress)) (*Result, error)

// UnsupportedOption returns the error for an option (flag, without dashes) that a user set although the kind of plans does
// not have it. otherKinds lists the kinds that have it, which the error names, with the hint.
func UnsupportedOption(flag, kind string, otherKinds []string, hint string) error {
	expected := "no such option"
	if len(otherKinds) > 0 {
		expected = "it with the method " + strings.Join(otherKinds, " or ") + " only"
	}
	return &document.Error{Path: "--" + flag, Found: fmt.Sprintf("an option that the method %s does not have", kind), Expected: expected, Hint: hint}
}
