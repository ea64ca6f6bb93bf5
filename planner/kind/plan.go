package kind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
)

// Plan returns the plan document of an outcome, which a method found for problem p: the header that all kinds of plans
// share, the parts that the method returned, and the assumptions and warnings of the run. To these it adds its own, on
// the times that rates are computed with, on estimated times and on the load of the front end. kind names the method,
// solver the solver with its version.
func Plan(p *Problem, run *SolveRun, outcome *Outcome, kind, solver string) *formats.Plan {
	plan := &formats.Plan{
		Format: formats.FormatPlan, Kind: kind,
		Tool: formats.Tool{Version: Version, Solver: solver}, Seed: p.Seed, Algorithm: outcome.Algorithm,
		Objective: outcome.Objective, StoppedBy: string(outcome.StoppedBy), Inputs: append([]formats.Input{}, p.Files...), Options: outcome.Values.PlanForm(), Pools: outcome.Pools, FrontEnd: formats.FrontEndOf(p.Cluster, p.Profile),
		Deployment: append([]formats.Deployed{}, outcome.Deployment...), Section: outcome.Section, Policy: outcome.Policy, Execution: p.Profile.ExecutionFor(outcome.Pools),
		Arrivals: cmp.Or(p.Workload.Arrivals, &formats.Arrivals{Process: "poisson"}), Replan: outcome.Replan, Limits: outcome.Limits, Assumptions: run.Assumptions,
	}
	run.noteRateTimes(plan, p.Profile)
	if plan.RatesBy == formats.RatesByMean {
		plan.Drift = Drift(p.Profile, p.Cluster)
	}
	run.warnEstimates(plan)
	run.noteFrontEnd(plan)
	plan.Assumptions = run.Assumptions
	plan.Warnings = run.Warnings
	return plan
}

// minNotedLoad is the load of the front end from which on plans mention it.
const minNotedLoad = .8

// noteFrontEnd adds an assumption on how busy the front end is (the server process whose CPUs handle every request) at
// the plan's rates, if its load is above minNotedLoad. If the load is above 1, the front end limits the rates, and the
// plan's limits, which say what more devices would bring, are dropped.
func (r *SolveRun) noteFrontEnd(plan *formats.Plan) {
	load := plan.FrontEndLoad()
	if load <= minNotedLoad {
		return
	}
	rate := 1 / plan.FrontEndTime().Seconds()
	if load <= 1 {
		r.Assume("requests take up %.0f %% of the front end, whose %d CPUs take in %.5g requests/s", 100*load, plan.FrontEnd.Cores, rate)
		return
	}
	r.Assume("the front end limits the rates, not the devices: client, loopback and front end spend %v of CPU on a request, so its %d CPUs take in %.5g requests/s of the %.5g that devices carry (front_end.cores in the cluster says how many it has)",
		plan.RequestCPU(), plan.FrontEnd.Cores, rate, load*rate)
	plan.Limits = nil // they are limits of devices
}

// warnEstimates adds a warning that lists the stages of a plan whose times are estimates, because their blocks were not
// measured in one run on that device kind, and says how to measure them. Without such stages it adds none.
func (r *SolveRun) warnEstimates(plan *formats.Plan) {
	var ranges []string
	for s := range plan.Stages() {
		text := fmt.Sprintf("[%d,%d) of %s on %s", s.Blocks[0], s.Blocks[1], s.Deployed.Model, s.Device)
		if s.Estimated && !slices.Contains(ranges, text) {
			ranges = append(ranges, text)
		}
	}
	if len(ranges) > 0 {
		r.Warn("estimated, not measured in one piece: blocks %s; measure them with plan profile --ranges used --plan PLAN and solve again, or let plan solve --measure do both",
			strings.Join(ranges, ", "))
	}
}
