package planner

import (
	"context"
	"fmt"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// Adopt returns the plan of a deployment that runs and was not planned: an importer read where models and their stages
// run, and at which batch sizes, or which servers of language models run. Times come from the profile, and what requests
// are promised from the workload. The plan can be checked, simulated, and solved from. With opt.Certify it stores what
// simulation shows it to sustain. If the workload's method has no such plans, it returns an error.
func Adopt(ctx context.Context, in Inputs, opt Options, observed *kind.Observed) (*formats.Plan, error) {
	d, err := newDriver(in, opt, nil, nil)
	if err != nil {
		return nil, err
	}
	if d.method.Adopt == nil {
		return nil, in.FieldError("workload", "", "a workload for plans of kind "+d.method.Kind, "one for models that run by themselves (models), or for language models (llm)", "")
	}
	run := kind.NewRun(nil)
	run.Assumptions = append(run.Assumptions, d.options.Assumptions...)
	outcome, err := d.method.Adopt(ctx, d.problem, run, observed)
	if err != nil {
		return nil, err
	}
	plan := kind.Plan(d.problem, run, outcome, d.method.Kind, "")
	if opt.Certify {
		if err := d.method.Certify(ctx, plan, opt.TestSettings); err != nil {
			return nil, fmt.Errorf("certifying: %w", err)
		}
	}
	return plan, nil
}
