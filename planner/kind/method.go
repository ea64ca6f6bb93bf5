package kind

import (
	"context"
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
)

// Version is the version of this tool, as plans state it.
var Version = "0.1.0"

// Method is how plans of one kind are made and judged. A nil func means that the
// kind cannot: the driver says so before any work.
type Method struct {
	Kind string
	// About says in a few words what such plans deploy, for help.
	About string
	// Workload is the workload that is assumed where none is given, with the
	// assumptions made; nil: there is none for this kind.
	Workload func(profile *formats.Profile, slo document.SLO) (*formats.Workload, []string)
	// Solve plans. When ctx ends after a plan was found, it returns that plan.
	Solve func(ctx context.Context, p *Problem, run *Run) (*Outcome, error)
	// From checks whether the new plan can start from Problem.Running.
	From func(p *Problem) error
	// Loosened is what a workload asks for, with less asked. What is not asked less
	// of is shared. Nil: what is nearest to a problem without a plan is not looked for.
	Loosened func(asked formats.WorkloadSection, l *Looser) formats.WorkloadSection
	// OneSLO says that a workload has one SLO, whichever of its models is named with it.
	OneSLO bool
	// Simulated says that simulation decides whether there is a plan. Where a little
	// more is asked there may be one again.
	Simulated bool
	// Tune solves several times and returns the best plan. It is used where an
	// option is given as the word "auto".
	Tune func(ctx context.Context, p *Problem, asked Asked, solve Solver) (*Result, error)
	// Hold solves until other random numbers confirm that the plan holds in simulation. It is used
	// where the search simulates by itself; nil: it does not.
	Hold func(ctx context.Context, p *Problem, asked Asked, solve Solver) (*Result, error)
	// Certify stores in the plan what simulation shows it to sustain.
	Certify func(ctx context.Context, plan *formats.Plan, asked Asked) error
	// Promise lets a plan promise a part of its rates, of what its devices carry without queueing; nil: other
	// parts of it would have to change.
	Promise func(plan *formats.Plan, part float64)
	// Check validates a plan against today's documents from first principles.
	Check func(t *Today) []Finding
	// Figures are what the gate compares: promised before against what holds
	// today. Where the plan fits the documents too little, note says so instead.
	Figures func(ctx context.Context, t *Today) (list []Sample, note string, err error)
	// WorkloadOf is the workload that a plan was made for, with its targets as
	// times.
	WorkloadOf func(plan *formats.Plan) *formats.Workload
	// Reserved is a workload with what a plan keeps back of what it promises, where that
	// is not in the plan's options; nil: all of it is.
	Reserved func(asked *formats.Workload, plan *formats.Plan) *formats.Workload
	// Bucketed puts the length buckets of the profile in the place of the models that the
	// workload asks for, and returns what was assumed.
	Bucketed func(d *Documents) (assumed []string, err error)
	// Explain tells what the kind adds to the story of a plan, line by line.
	Explain func(plan *formats.Plan) []string
	// Diff adds what moved between the sections of two plans.
	Diff func(a, b *formats.Plan, r *diff.Recorder)
}

// Options are the options of the method's plans.
func (m *Method) Options() []document.Option { return formats.PlanOptions(m.Kind) }

// Solver plans once, a problem with other values or another workload.
type Solver func(ctx context.Context, p *Problem, progress func(Progress)) (*Result, error)

// Cannot is the error of something that a kind does not do. others lists the
// kinds that do.
func Cannot(flag, kind string, others []string, hint string) error {
	expected := "no such option"
	if len(others) > 0 {
		expected = "it with the method " + strings.Join(others, " or ") + " only"
	}
	return &document.Error{Path: "--" + flag, Found: fmt.Sprintf("an option that the method %s does not have", kind), Expected: expected, Hint: hint}
}
