package kind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
)

// Plan returns the plan document of an outcome: the header that all kinds share, and what the
// method found.
func Plan(p *Problem, run *Run, out *Outcome, kind, solver string) *formats.Plan {
	plan := &formats.Plan{
		Format: formats.FormatPlan, Kind: kind,
		Tool: formats.Tool{Version: Version, Solver: solver}, Seed: p.Seed, Algorithm: out.Algorithm,
		Objective: out.Objective, StoppedBy: string(out.StoppedBy), Inputs: append([]formats.Input{}, p.Files...), Options: out.Values.Kept(), Pools: out.Pools, FrontEnd: formats.FrontEndOf(p.Cluster, p.Profile),
		Deployment: append([]formats.Deployed{}, out.Deployment...), Section: out.Section, Policy: out.Policy, Execution: p.Profile.Execution(out.Pools),
		Arrivals: cmp.Or(p.Workload.Arrivals, &formats.Arrivals{Process: "poisson"}), Replan: out.Replan, Limits: out.Limits, Assumptions: run.Assumptions,
	}
	run.times(plan)
	if plan.RatesBy == formats.RatesByMean {
		plan.Drift = Drift(p.Profile, p.Cluster)
	}
	run.estimates(plan)
	run.frontEnd(plan)
	plan.Assumptions = run.Assumptions
	plan.Warnings = run.Warnings
	return plan
}

// minNotedLoad is the load of the front end from which on plans mention it.
const busyFrontEnd = .8

// noteFrontEnd notes whether the front end limits the rates of a plan, or nearly does.
func (r *Run) frontEnd(plan *formats.Plan) {
	load := plan.FrontEndLoad()
	if load <= busyFrontEnd {
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

// warnEstimates warns of stages with estimated times, and says how to measure them.
func (r *Run) estimates(plan *formats.Plan) {
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
