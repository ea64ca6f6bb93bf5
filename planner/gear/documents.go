package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
	"inferplan/planner/certify"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/ranges"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/planner/gear/verify"
	"inferplan/planner/kind"
	"inferplan/planner/stages"
	policygear "inferplan/policy/gear"
	"inferplan/sim"
	"inferplan/solver/milp"
)

// Method plans cascades of a family of models. The driver of package planner calls it.
var Method = kind.Method{
	Kind: formats.PlanGear, Summary: "cascades of models", Solve: planCascades, CheckRunning: checkRunning, SolveUntilConfirmed: planAndConfirm, Certify: certify.CertifyPlan, RelaxWorkload: loosenCascade, WithTraffic: withTraffic, SingleSLO: true, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf,
	Explain: explain, Diff: diff.Gears,
}

// Objectives that the user may choose in place of FewestDevices: the sum of the devices' prices.
const (
	LeastCost  = "cost"  // USD per hour
	LeastPower = "power" // watts
)

// trialSeed is the seed of all streams that plans are tried on. The user's seed does not change a plan. It is the
// seed of the test that confirms the plan.
const trialSeed = 1

// resolvedWorkload is a cascade workload with what was read from the documents for it.
type resolvedWorkload struct {
	input         *kind.Problem
	run           *kind.SolveRun
	objective     string // what is optimised
	cascade       *formats.Cascade
	problem       *cascades.Problem              // the workload as numbers
	pools         []formats.Pool                 // those with devices, defaults filled in
	modelProfiles []*formats.ProfileModel        // by model of the family
	blockCuts     [][]stages.Cut                 // by model: cuts between its blocks
	weightsSource string                         // where the ranges' weights come from, as the plan states it
	requestCPU    time.Duration                  // CPU time of a request at the front end
	recordScore   string                         // certainty score of the records
	calibration   map[string]formats.Calibration // by model
}

// planCascades plans a workload's cascade, as the Solve of Method: it reads the problem from the documents, searches
// for a plan, and returns the parts of its document. It adds assumptions and warnings to run. If ctx ends after a plan
// was found, it returns that plan, marked as stopped by an interrupt. If the problem has no plan, the error is a
// kind.InfeasibleError.
func planCascades(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if err := in.CheckPresent(); err != nil {
		return nil, err
	}
	workload := &resolvedWorkload{input: in, run: run, cascade: formats.CascadeOf(in.Workload), problem: &cascades.Problem{Surplus: in.ReservedMisses, Drift: kind.Drift(in.Profile, in.Cluster)}}

	// Resolve the documents.
	if workload.cascade == nil {
		return nil, in.FieldError("workload", "cascade", "nothing", "a cascade, for the method gear", "")
	}
	if err := workload.resolveDocuments(); err != nil {
		return nil, err
	}
	if err := workload.checkObjective(); err != nil {
		return nil, err
	}
	run.WarnStaleModels(&in.Documents, workload.modelProfiles)
	workload.setRequestTimes()

	if in.RunningPlan != nil && !in.FeasibilityOnly {
		return workload.replan(ctx)
	}

	// Search for a plan. A trial of the driver only asks whether there is one.
	found, err := workload.search(ctx, workload.problem)
	if err != nil {
		return nil, err
	}
	if in.FeasibilityOnly {
		return workload.planOutcome(found.plan), nil
	}
	return workload.completeOutcome(ctx, found)
}

// foundPlan is a plan that a search found, with the accuracy that it was planned for: the requested one, or more to keep it
// on held-out samples.
type foundPlan struct {
	plan          *trials.Plan
	plannedTarget float64
}

// search returns the best plan of a problem. If it has none, the error is a kind.InfeasibleError.
func (f *resolvedWorkload) search(ctx context.Context, p *cascades.Problem) (*foundPlan, error) {
	plan, plannedTarget, err := search.SolveHeldOut(ctx, p, f.run.Solver, search.Options{Seed: trialSeed, AnyPlan: f.input.FeasibilityOnly, Progress: func(done, ranges int) {
		f.run.Progress(kind.Progress{Phase: "gears", Fraction: float64(done) / float64(ranges), Value: math.NaN(), Bound: math.NaN()})
	}})
	if cause, ok := errors.AsType[*cascades.InfeasibleError](err); ok {
		return nil, f.infeasibleError(cause)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("before there was a plan: %w", err)
		}
		return nil, err
	}
	return &foundPlan{plan, plannedTarget}, nil
}

// completeOutcome states assumptions and warnings of a plan that was found, and returns its parts.
func (f *resolvedWorkload) completeOutcome(ctx context.Context, found *foundPlan) (*kind.Outcome, error) {
	f.reportHeldOut(found.plan, found.plannedTarget)
	var err error
	if plan := found.plan; plan.Placement != nil { // that of a plan that runs is not known, and its scope stands
		err = f.adviseOverRequests(ctx, plan)
	}
	plan, err := trials.PlanOrError(ctx, found.plan, err)
	if err != nil {
		return nil, err
	}
	o := f.planOutcome(plan)
	if ctx.Err() != nil { // the search was cut short, whatever was proved before
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}

// reportHeldOut tells the user what the samples showed that were held out of planning. The search may have planned for
// more accuracy (plannedTarget) than the user requested, so that the requested accuracy is also reached on these
// samples. If the plan's accuracy is outside of the confidence interval of these samples, it warns. Without held-out
// samples it does nothing.
func (f *resolvedWorkload) reportHeldOut(plan *trials.Plan, plannedTarget float64) {
	h, ok := plan.HeldOutAccuracy()
	if !ok {
		return
	}
	if requested := f.problem.TargetAccuracy; requested > 0 {
		f.run.Assume("accuracy %g is met by the lower end of the interval of the %d samples held out (%.4f); planned for %.4f", requested, f.problem.HeldOutSamples.N, h.Low, plannedTarget)
	}
	if plan.Accuracy < h.Low || plan.Accuracy > h.High {
		f.run.Warn("the planned accuracy %.4f is outside the interval of the samples held out, %.4f to %.4f: believe these, and plan on more samples", plan.Accuracy, h.Low, h.High)
	}
}

// adviseOverRequests tells the user of the other scope that the SLO may have: all requests together in place of every
// range of rates. It warns if one cascade for all measured rates keeps the SLO over all requests together and is more
// accurate than the plan. If the planner chose that scope itself, because the workload names none, it states that as an
// assumption. It returns an error if the simulated runs fail.
func (f *resolvedWorkload) adviseOverRequests(ctx context.Context, plan *trials.Plan) error {
	if p := plan.Problem; p.ScopeUnspecified && p.OverRequests {
		f.run.Assume("slo over requests: one cascade for all rates keeps the SLO over all of the measured requests together and is more accurate than a plan whose every range keeps it; `slo: {over: ranges}` plans for that")
	}
	accuracy, err := ranges.SingleCascadeAccuracy(ctx, plan, trialSeed)
	if err == nil && accuracy > 0 { // 0 means that no such cascade is more accurate
		f.run.Warn("on the measured rates one cascade for all rates would be more accurate: it is right in %.4f and keeps the SLO over all of the measured requests together, not in every range as this plan does (%.4f): `slo: {over: requests}` plans for that", accuracy, plan.Accuracy)
	}
	return err
}

// maxMissingDevices is the number of missing devices, beside three times the present ones, up to which more
// devices are proposed for an infeasible problem. Beyond it a lower rate is proposed: safeRateShare of the rate
// that the work of the cheapest cascade allows.
const (
	maxMissingDevices = 64
	safeRateShare     = 0.8
)

// infeasibleError returns the driver's error for an infeasible problem, with the nearest change that makes it feasible:
// more devices if few are missing, a lower rate if very many are, and a longer SLO otherwise. If there are several
// kinds of devices, it names no change, because it does not know which kind to add.
func (r *resolvedWorkload) infeasibleError(cause *cascades.InfeasibleError) *kind.InfeasibleError {
	infeasible := &kind.InfeasibleError{Model: cause.Model, Constraint: "slo", Reason: cause.Reason()}
	if cause.TargetAccuracy > 0 {
		infeasible.Constraint = "accuracy"
	}
	if len(r.pools) > 1 {
		return infeasible // with several kinds it is not known which one is short
	}

	// cause has the devices that the cheapest cascade needs, and the rate (MaxQPS) that the present ones carry, of the rate
	// RangeEdge that is asked for. Dividing nanoseconds by 1e3 gives the microseconds of SLOUS.
	devices := r.pools[0].Count
	if missingDevices := cause.Devices - devices; missingDevices > maxMissingDevices+3*devices && cause.TargetAccuracy == 0 {
		infeasible.Constraint = "devices"
		infeasible.Nearest.LoadFactor = safeRateShare * min(1, cause.MaxQPS/cause.RangeEdge)
	} else if missingDevices > 0 && cause.TargetAccuracy == 0 {
		infeasible.Constraint = "devices"
		infeasible.Nearest.Devices = []kind.MissingCount{{Device: r.pools[0].Device, Count: missingDevices}}
	} else {
		infeasible.Nearest.SLOUS = float64(cause.SLO) / 1e3
	}
	return infeasible
}

// checkObjective sets the objective and the price of a device of each kind under it (USD per hour, watts, or 1 if
// devices are counted). It returns an error if the option --objective does not go with the workload's SLO, which leaves
// accuracy, latency or devices to be optimised, or if a pool has no price.
func (f *resolvedWorkload) checkObjective() error {
	goal, requested := f.problem.Goal(), f.input.Values.Word("objective")
	minimisesDevices := requested == cascades.FewestDevices || requested == LeastCost || requested == LeastPower
	switch {
	case requested == "":
		requested = goal
	case requested == goal || minimisesDevices && goal == cascades.FewestDevices:
		// The option goes with the SLO.
	default:
		hint := "leave it out: a latency SLO leaves accuracy to be optimised, an accuracy SLO latency, both together the devices"
		return &document.Error{Path: "--objective", Found: fmt.Sprintf("%q", requested), Expected: goal + " for this workload's cascade.slo", Hint: hint}
	}
	f.objective = requested
	for i := range f.pools {
		pool := &f.pools[i]
		price, _ := kind.DevicePrice(f.objective, pool)
		switch {
		case price > 0:
			f.problem.Kinds[i].Price = price
		case f.objective == LeastCost:
			return f.input.FieldError("cluster", "pools", "no usd_per_hour of "+pool.Device, "its price, for --objective cost", "")
		default:
			return f.input.FieldError("cluster", "pools", "no watts of "+pool.Device, "its power, for --objective power", "")
		}
	}
	return nil
}

// planOutcome returns a plan as the parts of a plan document: objective with bound and gap, why the search stopped,
// what one more device would bring, the gear section, the deployment and the policy. They are about the problem of the
// plan, which has the SLO and the devices that the search found.
func (f *resolvedWorkload) planOutcome(plan *trials.Plan) *kind.Outcome {
	p := plan.Problem
	o := &kind.Outcome{
		Algorithm: f.input.Values.Word("algorithm"), Values: f.input.Values, Objective: kind.BoundedObjective(f.objective, plan.Value, plan.ValueBound), Sense: kind.SenseOf(f.objective), StoppedBy: milp.StoppedByWork,
		Pools: f.pools, Candidates: plan.CascadeCount,
	}

	// Why the search stopped. The strongest reason is named.
	switch {
	case plan.IsProved:
		o.StoppedBy = milp.StoppedByProof
	case *o.Objective.Gap <= f.input.Values.Number("gap"):
		o.StoppedBy = milp.StoppedByGap
	case plan.SettledByTrials():
		o.StoppedBy = kind.StoppedByTrials
	}

	// What one more device of each kind would bring: the bound on the accuracy with it, and its relative gain. A bound that
	// is not known (NaN) fails the comparison and is left out.
	for k, bound := range plan.OneMoreBounds {
		if bound >= plan.Bound {
			o.Limits = append(o.Limits, formats.Limit{Constraint: "device " + f.pools[k].Device, Change: "+1 device", Value: bound, Gain: (bound - plan.Bound) / plan.Bound})
		}
	}

	// The section, the deployment and the policy. The policy measures the rate over a window that is long enough for the
	// lowest range, whose upper edge is RangeEdges[0].
	section := writeSection(plan, f.weightsSource)
	section.Score, section.TriedBound = f.recordScore, plan.TrialBound // the document calls the bound by trials so
	section.RequestUS, section.RequestCPUUS = document.Micros(p.RequestOverhead), document.Micros(f.requestCPU)
	for i := range section.Models {
		section.Models[i].Calibration = f.calibration[section.Models[i].Model]
	}
	o.Section = section
	f.addDeployment(o, plan)
	window, hysteresis := policygear.WindowFor(p.RangeEdges[0])
	// The other parameters are the policy's own defaults (policygear.DefaultOptions).
	parameters := policygear.Options{Window: window, Hysteresis: hysteresis, Alpha: 8, Flush: p.SLO / 4, RefuseLate: true}
	o.Policy = formats.PolicySpec{Name: policygear.Name, Params: parameters.Parameters()}
	return o
}

// A run of the confirming test has confirmRequests requests, but takes at most maxConfirmTime of simulated time.
// Near the highest rate a rare burst causes long queues, which short runs seldom show.
const (
	confirmRequests = 100_000
	maxConfirmTime  = 5 * time.Minute
)

// planAndConfirm plans a cascade and confirms the plan by a simulated test at the highest rate of its ranges, with
// random numbers that the search has not seen. It is the SolveUntilConfirmed of Method: solve makes a plan of a
// problem, and if the test fails, it is called again with a reserve. requested has the user's settings of the test. If
// the SLO is over all requests together, the plan is not tested, because a single range may miss such an SLO.
func planAndConfirm(ctx context.Context, p *kind.Problem, requested kind.TestSettings, solve kind.SolveFunc) (*kind.Result, error) {
	return certify.SolveUntilConfirmed(ctx, p, solve, func(plan *formats.Plan) (*certify.Test, string, error) {
		if formats.GearOf(plan).SLOScope == formats.ScopeRequests {
			return nil, "the SLO is one over all of the measured requests, and a range may miss it", nil
		}
		sc, err := sim.NewScenario(plan)
		if err != nil {
			return nil, "", err
		}
		freshTest, err := certify.WithFreshSeed(requested).WithDefaults(plan, confirmRequests/sim.RequestDivisor(sc.Tables), certify.MinDuration(plan), maxConfirmTime)
		if err != nil {
			return nil, "", err
		}
		test, err := certify.NewTestWith(plan, freshTest)
		return test, "", err
	})
}

// loosenCascade returns the requested workload with the longer SLO or the lower rate that looser names, as the
// RelaxWorkload of Method: the driver calls it to plan the nearest feasible problem. An SLO by accuracy alone has no
// latency to be made longer.
func loosenCascade(requested formats.WorkloadSection, looser *kind.Relaxation) formats.WorkloadSection {
	looserCascade := *requested.(*formats.Cascade)
	if !looserCascade.SLO.Latency.IsZero() {
		looserCascade.SLO.Latency = looser.LongestSLO(looserCascade.SLO.Latency)
	}
	looserCascade.QPS.Max = looser.ScaledRate(looserCascade.QPS.Max)
	return &looserCascade
}
