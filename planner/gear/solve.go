package gear

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/solver/milp"
)

// Options steer a solve.
type Options struct {
	Seed uint64
	// AnyPlan accepts the first plan, and does not compute what would make an infeasible problem feasible.
	AnyPlan bool
	// Progress is called after every range that is done. It may be nil.
	Progress func(done, ranges int)

	// startLatency is the latency of a plan of less accuracy. A search for the least latency looks for no plan
	// below it. If it is 0, the search begins at the bound.
	startLatency time.Duration
}

// Outcome is a plan of gears.
type Outcome struct {
	Problem  *Problem // as it was solved, with the least SLO or the fewest devices
	Configs  []Config
	Chains   []PlacedChain
	Gears    []PlannedGear
	Accuracy float64 // weighted over the ranges
	Bound    float64 // accuracy that no plan exceeds, even with mixtures of cascades
	// SingleCascadeBound is the accuracy that no plan over the same thresholds exceeds whose ranges have one
	// cascade each, on any placement, with batches of at most the SLO. It is 0 if it is not known.
	SingleCascadeBound float64
	// TrialBound bounds the value of plans that pass trials, of one cascade per range on placements of whole
	// models. It is 0 if it is not known.
	TrialBound float64
	// Value is the goal's value: accuracy, milliseconds, or price of the devices. No plan has a better value than
	// ValueBound. For an accuracy that is SingleCascadeBound, if it is known. IsProved says that the value is
	// optimal.
	Goal              string
	Value, ValueBound float64
	IsProved          bool
	// OneMoreBounds is, by kind, Bound with one more device.
	OneMoreBounds []float64
	// CascadeCount is the number of enumerated cascades, FrontSize that of the cascades on the front of the
	// placement, and RunCount that of simulated runs.
	CascadeCount, FrontSize, RunCount int
	// TailLatency is the latency at the percentile over all requests, simulated on the measured rates. It is 0 if
	// it was not simulated.
	TailLatency time.Duration

	measuredAccuracy float64         // accuracy simulated on the measured rates; 0 if not known
	placement        *trialPlacement // on which the plan was made
}

// PlannedGear is the gear of a range.
type PlannedGear struct {
	Cascade     Cascade
	MinQueue    int         // queue length at which the first model starts a batch
	Shares      [][]float64 // by model: over the replicas of the whole model, kind by kind, and then those of its chains
	BusiestLoad float64     // share of the time that the busiest device is busy at the upper edge
	Trial       Trial
	LateShare   float64 // share of late requests at the upper edge
	Accuracy    float64
	Bound       float64 // accuracy that no plan exceeds in the range
}

// InfeasibleError says which range cannot be served and what would change that.
type InfeasibleError struct {
	Range           int     // index of the range
	RangeEdge       float64 // its upper edge, in requests per second
	Model           string  // first model of the cheapest cascade
	Devices         int     // that the cascade's work would need at the highest rate of all ranges
	MaxQPS          float64 // rate that the devices have time for with this cascade
	LatencyMS       float64 // tail latency of the last trial; 0 if there was none
	Unstable        bool    // the latency grew in the last trial, or too many requests were late
	FailsHeldOut    bool    // the cascade passes with the planning samples but not with the held-out ones
	TooManyRequests bool    // a trial would have too many requests
	NoneUsable      bool    // no model fits on a device and answers in time
	NoneInTime      bool    // no cascade keeps the SLO even at batch 1

	SLO time.Duration // least SLO that some cascade keeps; 0 if not computed, or if no model fits into memory

	TargetAccuracy float64 // accuracy that cannot be reached; 0 if that is not the reason
	BestAccuracy   float64 // accuracy that can be reached, by the relaxation if ByRelaxation is set
	ByRelaxation   bool    // even the relaxation misses the target
	ByTrials       bool    // trials show that no plan on any placement of whole models reaches the target
	// ClosestHeldOut is the held-out accuracy of the closest plan, if only the held-out samples miss the target.
	// Else it is nil.
	ClosestHeldOut *HeldOutAccuracy
}

// Error implements error.
func (e *InfeasibleError) Error() string { return "infeasible: " + e.Reason() }

// Reason returns in words why there is no plan, and what would help: the error's text without its first word.
func (e *InfeasibleError) Reason() string {
	switch {
	case e.NoneUsable && e.SLO == 0:
		return "no model of the family fits on a device: give the devices more memory"
	case e.NoneUsable, e.NoneInTime:
		text := "every cascade takes more samples past the SLO than its percentile allows, even one by one"
		if e.NoneUsable {
			text = "no model of the family that fits on a device answers a sample within the SLO"
		}
		return text + fmt.Sprintf(": raise the SLO to at least %v", e.SLO)
	case e.ClosestHeldOut != nil:
		return fmt.Sprintf("accuracy %.4f is not reached out of sample: the plan that comes closest has %.4f on the samples held out, %.4f at the lower end of its interval: hold out more samples, add a device, raise the latency or lower the accuracy",
			e.TargetAccuracy, e.ClosestHeldOut.Accuracy, e.ClosestHeldOut.Low)
	case e.TargetAccuracy > 0 && e.ByRelaxation:
		return fmt.Sprintf("no plan over these thresholds reaches accuracy %.4f; at most %.4f can be: add a device, raise the latency or lower the accuracy", e.TargetAccuracy, e.BestAccuracy)
	case e.TargetAccuracy > 0:
		return fmt.Sprintf("accuracy %.4f is not reached: the best plan that simulation shows stable has at most %.4f: add a device, raise the latency or lower the accuracy", e.TargetAccuracy, e.BestAccuracy)
	}

	// A range without a gear.
	text := fmt.Sprintf("range %d, up to %.6g requests per second: ", e.Range+1, e.RangeEdge)
	switch {
	case e.LatencyMS == 0 && !e.Unstable:
		text += fmt.Sprintf("the work of the cheapest cascade, which starts with %s, leaves these devices room for %.6g", e.Model, e.MaxQPS)
	case e.TooManyRequests:
		text += fmt.Sprintf("a trial of the cheapest cascade, which starts with %s, has more than the %d requests that are simulated: plan for a part of the devices and of the rate", e.Model, maxTrialRequests)
	case e.Unstable:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its latency grows or too many requests are late", e.Model)
	default:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its tail latency is %.6g ms", e.Model, e.LatencyMS)
	}
	if e.FailsHeldOut {
		text += " where requests bring the samples held out"
	}
	return text + fmt.Sprintf(": add devices, lower max to below %.6g or raise the SLO", e.MaxQPS)
}

// Solve plans for the most accuracy, the least latency or the fewest devices, by what the problem asks for. If ctx
// ends after a plan was found, it returns the best so far, without the bounds for one more device.
func Solve(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, error) {
	return solveWithCache(ctx, p, solver, o, cascadeCache{}, newTrialHistory(o.Seed))
}

// solveWithCache searches for the best plan of a problem by its goal, as Solve does. Solves for different accuracies
// share the cascades in the cache and the history of trials.
func solveWithCache(ctx context.Context, p *Problem, solver milp.Solver, o Options, cache cascadeCache, history *trialHistory) (*Outcome, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if solver == nil {
		return nil, errors.New("planning gears: no solver for linear programs")
	}

	// A proof by trials needs a budget of requests.
	s := &planSearch{problem: p, options: &o, solver: solver, cache: cache, history: history}
	if budget := maxProofRequests; !o.AnyPlan && p.Goal() != LeastLatency {
		s.proofBudget = &budget
	}

	// Search by the goal.
	switch p.Goal() {
	case LeastLatency:
		return s.planFastest(ctx)
	case FewestDevices:
		return s.planCheapest(ctx)
	}
	plan, err := s.planMostAccurate(ctx, p)
	if err != nil {
		return nil, err
	}
	if o.AnyPlan {
		return plan, nil
	}

	// The other scope of the SLO, and the bounds for one more device.
	if p.ScopeUnspecified {
		if plan, err = s.tryOverRequests(ctx, plan); err != nil {
			return nil, err
		}
	}
	return planOrError(ctx, plan, s.boundOneMoreDevice(ctx, plan))
}

// planOrError returns a plan together with the error of what came after it. If the context has ended, the
// search was interrupted: then the plan that was found stands, without the error.
func planOrError(ctx context.Context, plan *Outcome, err error) (*Outcome, error) {
	if plan != nil && ctx.Err() != nil {
		return plan, nil
	}
	return plan, err
}
