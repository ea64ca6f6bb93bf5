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
	"inferplan/planner/gear/verify"
	"inferplan/planner/kind"
	"inferplan/planner/stages"
	policygear "inferplan/policy/gear"
	"inferplan/solver/milp"
)

// Method plans cascades of a family of models. The driver of package planner calls it.
var Method = kind.Method{
	Kind: formats.PlanGear, About: "cascades of models", Solve: plan, Hold: hold, Certify: certify.Plan, Loosened: loosened, OneSLO: true, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf,
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

// solveOptions are the values of the method's options.
type choices struct {
	Objective     string
	MaxPartitions int
	MaxBatch      int
	Blocks        int
	BlocksBy      string
	Gap           float64
	SLO           document.SLO
	CutDType      string
}

// solveOptionsOf returns the options' values.
func choicesOf(v document.Values) choices {
	return choices{
		Objective: v.Word("objective"), MaxPartitions: v.Whole("max-partitions"), MaxBatch: v.Whole("max-batch"),
		Blocks: v.Whole("blocks"), BlocksBy: v.Word("blocks-by"), Gap: v.Number("gap"), SLO: v.SLO("slo"), CutDType: v.Word("cut-dtype"),
	}
}

// resolvedWorkload is a cascade workload with what was read from the documents for it.
type resolved struct {
	in          *kind.Problem
	run         *kind.Run
	opt         choices
	cascade     *formats.Cascade
	problem     *Problem                       // the workload as numbers
	pools       []formats.Pool                 // those with devices, defaults filled in
	profile     []*formats.ProfileModel        // by model of the family
	cuts        [][]stages.Cut                 // by model: cuts between its blocks
	weights     string                         // where the ranges' weights come from, as the plan states it
	requestCPU  time.Duration                  // CPU time of a request at the front end
	score       string                         // certainty score of the records
	calibration map[string]formats.Calibration // by model
}

// planCascades plans the workload's cascade. If ctx ends after a plan was found, it returns that plan.
func plan(ctx context.Context, in *kind.Problem, run *kind.Run) (*kind.Outcome, error) {
	if err := in.Complete(); err != nil {
		return nil, err
	}
	f := &resolved{in: in, run: run, opt: choicesOf(in.Values), cascade: formats.CascadeOf(in.Workload), problem: &Problem{Surplus: in.Surplus, Drift: kind.Drift(in.Profile, in.Cluster)}}

	// Resolve the documents.
	if f.cascade == nil {
		return nil, in.Fail("workload", "cascade", "nothing", "a cascade, for the method gear", "")
	}
	if err := f.resolve(); err != nil {
		return nil, err
	}
	if err := f.objective(); err != nil {
		return nil, err
	}
	run.StaleModels(&in.Documents, f.profile)
	f.requests()

	// Search for a plan.
	out, planned, err := SolveHeldOut(ctx, f.problem, run.Solver, Options{Seed: trialSeed, Any: in.Trial, Progress: func(done, ranges int) {
		run.Progress(kind.Progress{Phase: "gears", Fraction: float64(done) / float64(ranges), Value: math.NaN(), Bound: math.NaN()})
	}})
	if inf, ok := errors.AsType[*Infeasible](err); ok {
		return nil, f.noGears(inf)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("before there was a plan: %w", err)
		}
		return nil, err
	}

	// A trial of the driver only asks whether there is a plan.
	if in.Trial {
		return f.outcome(out), nil
	}

	// State assumptions and warnings, and make the plan's parts.
	f.outOfSample(out, planned)
	if out, err = kept(ctx, out, f.overRequests(ctx, out)); err != nil {
		return nil, err
	}
	o := f.outcome(out)
	if ctx.Err() != nil { // the search was cut short, whatever was proved before
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}

// reportHeldOut states how held-out samples changed the target, and warns if the planned accuracy is outside of
// their interval.
func (f *resolved) outOfSample(out *Outcome, planned float64) {
	h, ok := out.HeldOut()
	if !ok {
		return
	}
	if asked := f.problem.Target; asked > 0 {
		f.run.Assume("accuracy %g is met by the lower end of the interval of the %d samples held out (%.4f); planned for %.4f", asked, f.problem.HeldOut.N, h.Low, planned)
	}
	if out.Accuracy < h.Low || out.Accuracy > h.High {
		f.run.Warn("the planned accuracy %.4f is outside the interval of the samples held out, %.4f to %.4f: believe these, and plan on more samples", out.Accuracy, h.Low, h.High)
	}
}

// adviseOverRequests warns if one cascade for all measured rates would be more accurate with an SLO over all
// requests together. If the plan is such a cascade, it states that as an assumption.
func (f *resolved) overRequests(ctx context.Context, out *Outcome) error {
	if p := out.Problem; p.Either && p.Overall {
		f.run.Assume("slo over requests: one cascade for all rates keeps the SLO over all of the measured requests together and is more accurate than a plan whose every range keeps it; `slo: {over: ranges}` plans for that")
	}
	accuracy, err := out.OverRequests(ctx, trialSeed)
	if err == nil && accuracy > 0 {
		f.run.Warn("on the measured rates one cascade for all rates would be more accurate: it is right in %.4f and keeps the SLO over all of the measured requests together, not in every range as this plan does (%.4f): `slo: {over: requests}` plans for that", accuracy, out.Accuracy)
	}
	return err
}

// maxMissingDevices is the number of missing devices, beside three times the present ones, up to which more
// devices are proposed for an infeasible problem. Beyond it a lower rate is proposed: safeRateShare of the rate
// that the work of the cheapest cascade allows.
const (
	mostMore   = 64
	partOfRoom = 0.8
)

// infeasibleError returns the driver's error for an infeasible problem, with the nearest feasible devices, rate or
// SLO. If there are several kinds of devices, it names no nearest problem, because it does not know which kind to
// add.
func (r *resolved) noGears(inf *Infeasible) *kind.InfeasibleError {
	out := &kind.InfeasibleError{Model: inf.Model, Constraint: "slo", Reason: inf.Reason()}
	if inf.Target > 0 {
		out.Constraint = "accuracy"
	}
	if len(r.pools) > 1 {
		return out // with several kinds it is not known which one is short
	}
	devices := r.pools[0].Count
	if more := inf.Devices - devices; more > mostMore+3*devices && inf.Target == 0 {
		out.Constraint = "devices"
		out.Nearest.LoadFactor = partOfRoom * min(1, inf.MaxQPS/inf.Edge)
	} else if more > 0 && inf.Target == 0 {
		out.Constraint = "devices"
		out.Nearest.Devices = []kind.MissingCount{{Device: r.pools[0].Device, Count: more}}
	} else {
		out.Nearest.SLOUS = float64(inf.SLO) / 1e3
	}
	return out
}

// checkObjective checks the option --objective against what the workload's SLO leaves to be optimised, and sets
// the prices of devices. It fails if a price is missing.
func (f *resolved) objective() error {
	goal, asked := f.problem.Goal(), f.opt.Objective
	fewest := asked == FewestDevices || asked == LeastCost || asked == LeastPower
	switch {
	case asked == "" || asked == goal:
		f.opt.Objective = goal
	case fewest && goal == FewestDevices:
	default:
		hint := "leave it out: a latency SLO leaves accuracy to be optimised, an accuracy SLO latency, both together the devices"
		return &document.Error{Path: "--objective", Found: fmt.Sprintf("%q", asked), Expected: goal + " for this workload's cascade.slo", Hint: hint}
	}
	for i := range f.pools {
		pool, price := &f.pools[i], f.price(i)
		switch {
		case price > 0:
		case f.opt.Objective == LeastCost:
			return f.in.Fail("cluster", "pools", "no usd_per_hour of "+pool.Device, "its price, for --objective cost", "")
		default:
			return f.in.Fail("cluster", "pools", "no watts of "+pool.Device, "its power, for --objective power", "")
		}
	}
	for k := range f.problem.Kinds {
		f.problem.Kinds[k].Price = f.price(k)
	}
	return nil
}

// devicePrice returns the price of a device of a pool under the objective. It is 1 if devices are counted.
func (f *resolved) price(pool int) float64 {
	switch f.opt.Objective {
	case LeastCost:
		return f.pools[pool].USDPerHour
	case LeastPower:
		return f.pools[pool].Watts
	}
	return 1
}

// objectiveSense returns whether the objective is maximised or minimised.
func (f *resolved) sense() milp.Sense {
	if f.opt.Objective == MostAccurate {
		return milp.Maximize
	}
	return milp.Minimize
}

// objectiveOf returns the plan's objective with its bound and gap.
func (f *resolved) value(out *Outcome) formats.Objective {
	value, bound := out.Value, out.ValueBound
	gap := max(0, milp.RelativeGap(f.sense(), value, bound))
	return formats.Objective{Name: f.opt.Objective, Value: value, Bound: &bound, Gap: &gap}
}

// planOutcome returns the parts of the plan for the driver.
func (f *resolved) outcome(out *Outcome) *kind.Outcome {
	f.problem = out.Problem // with the SLO or the devices that the search found
	o := &kind.Outcome{
		Algorithm: f.in.Values.Word("algorithm"), Values: f.in.Values, Objective: f.value(out), Sense: f.sense(), StoppedBy: milp.StoppedByWork,
		Pools: f.pools, Considered: out.Cascades,
	}

	// Why the search stopped.
	switch {
	case out.Proved:
		o.StoppedBy = milp.StoppedByProof
	case *o.Objective.Gap <= f.opt.Gap:
		o.StoppedBy = milp.StoppedByGap
	case out.settled():
		o.StoppedBy = kind.StoppedByTrials
	}

	// What one more device of each kind would bring.
	for k, more := range out.MoreOf {
		if more >= out.Bound {
			o.Limits = append(o.Limits, formats.Limit{What: "device " + f.pools[k].Device, Change: "+1 device", Value: more, Gain: (more - out.Bound) / out.Bound})
		}
	}

	// The section, the deployment and the policy.
	g := out.Write(f.problem, f.weights)
	g.Score, g.TriedBound = f.score, out.TriedBound
	g.RequestUS, g.RequestCPUUS = document.Micros(f.problem.Beside), document.Micros(f.requestCPU)
	for i := range g.Models {
		g.Models[i].Calibration = f.calibration[g.Models[i].Model]
	}
	o.Section = g
	f.deploy(o, out)
	window, hysteresis := policygear.WindowFor(f.problem.Edges[0])
	parameters := policygear.Options{Window: window, Hysteresis: hysteresis, Alpha: 8, Flush: f.problem.SLO / 4, Shed: true}
	o.Policy = formats.PolicySpec{Name: policygear.Name, Params: parameters.Params()}
	return o
}
