package cascades

import (
	"errors"
	"fmt"
	"time"
)

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

// Reason returns in words, for the user, why there is no plan and what would help: first the reasons that concern the
// whole plan, then those of the range of rates that has no gear (no cascade that holds its upper edge).
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
		return fmt.Sprintf("accuracy %.4g is asked for, but with these samples only %.4f is certain: the plan that comes closest has %.4f on the samples held out, and that is the lower end of its interval: hold out more samples, add a device, raise the latency or lower the accuracy",
			e.TargetAccuracy, e.ClosestHeldOut.Low, e.ClosestHeldOut.Accuracy)
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
		text += fmt.Sprintf("a trial of the cheapest cascade, which starts with %s, has more than the %d requests that are simulated: plan for a part of the devices and of the rate", e.Model, MaxTrialRequests)
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

// MaxTrialRequests limits the requests of a trial.
const MaxTrialRequests = 2_000_000

// IsInfeasible reports whether an error says that there is no plan.
func IsInfeasible(err error) bool {
	_, ok := errors.AsType[*InfeasibleError](err)
	return ok
}

// TargetError returns the error of a target that the relaxation does not reach.
func (p *Problem) TargetError(bestAccuracy float64) *InfeasibleError {
	return &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: max(0, bestAccuracy), ByRelaxation: true}
}

// HeldOutAccuracy is the accuracy of a plan on the held-out samples, weighted over the ranges, with the ends of
// its confidence interval.
type HeldOutAccuracy struct{ Accuracy, Low, High float64 }
