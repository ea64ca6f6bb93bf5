package kind

import "inferplan/formats"

// Plan is the document of an outcome: the header that every kind has in common,
// beside what the method found.
func Plan(p *Problem, run *Run, out *Outcome, kind, solver string) *formats.Plan {
	plan := &formats.Plan{
		Format: formats.FormatPlan, Kind: kind,
		Tool: formats.Tool{Version: Version, Solver: solver}, Seed: p.Seed, Algorithm: out.Algorithm,
		Objective: out.Objective, StoppedBy: string(out.StoppedBy), Inputs: p.Files, Options: out.Values.Kept(), Pools: out.Pools,
		Deployment: out.Deployment, Section: out.Section, Policy: out.Policy, Execution: p.Profile.Execution(out.Pools),
		Arrivals: p.Workload.Arrivals, Replan: out.Replan, Limits: out.Limits, Assumptions: run.Assumptions, Warnings: run.Warnings,
	}
	if plan.Arrivals == nil {
		plan.Arrivals = &formats.Arrivals{Process: "poisson"}
	}
	if plan.Inputs == nil {
		plan.Inputs = []formats.Input{}
	}
	if plan.Deployment == nil {
		plan.Deployment = []formats.Deployed{}
	}
	return plan
}
