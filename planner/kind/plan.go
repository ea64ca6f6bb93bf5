package kind

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
)

// Plan is the document of an outcome: the header that every kind has in common,
// beside what the method found.
func Plan(p *Problem, run *Run, out *Outcome, kind, solver string) *formats.Plan {
	run.estimates(out.Deployment)
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

// estimates warns where stages have estimated times, and says how to measure them.
func (r *Run) estimates(list []formats.Deployed) {
	var ranges []string
	for i := range list {
		for _, pl := range list[i].Pipelines {
			for _, s := range pl.Stages {
				text := fmt.Sprintf("[%d,%d) of %s on %s", s.Blocks[0], s.Blocks[1], list[i].Model, s.Device)
				if s.Estimated && !slices.Contains(ranges, text) {
					ranges = append(ranges, text)
				}
			}
		}
	}
	if len(ranges) > 0 {
		r.Warn("estimated, not measured in one piece: blocks %s; measure them with plan profile --ranges used --plan PLAN and solve again, or let plan solve --measure do both",
			strings.Join(ranges, ", "))
	}
}
