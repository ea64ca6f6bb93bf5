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
	// Any asks only whether there is a plan: for any plan, and not for what would make
	// an infeasible problem feasible.
	Any bool
	// Progress hears of every range that is done; nil: nobody.
	Progress func(done, ranges int)

	// startLatency is the latency of a plan of less accuracy. A search for the least latency looks
	// for no plan below it. If it is 0, the search begins at the bound.
	startLatency time.Duration
}

// Outcome is a plan of gears.
type Outcome struct {
	Problem  *Problem // as it was solved: with the least SLO or the fewest devices
	Configs  []Config
	Chains   []PlacedChain
	Gears    []Planned
	Accuracy float64 // weighted over the ranges
	Bound    float64 // of the accuracy, also where ranges mix cascades
	// GearBound is what no plan over the same thresholds exceeds whose ranges have one
	// cascade each, on any placement; 0: not known. Batches take no longer than the SLO.
	GearBound float64
	// TriedBound is what the value of no plan is better than that trials accept: of one
	// cascade per range, on placements of whole models; 0: not known.
	TriedBound float64
	// Value is what the goal came to: accuracy, milliseconds or the price of the devices. Nothing
	// is better than ValueBound, of an accuracy GearBound where that is known; Proved: nor
	// than the value.
	Goal              string
	Value, ValueBound float64
	Proved            bool
	// MoreOf is what Bound would be with one more device, by kind.
	MoreOf []float64
	// Cascades and Front are the numbers of cascades enumerated and on the front
	// of the chosen placement, Runs that of simulations.
	Cascades, Front, Runs int
	// Tail is the latency at the percentile of all requests, as simulated on the
	// measured rates; 0: that was not asked for.
	Tail time.Duration

	shown  float64 // accuracy on the measured rates; 0: not known
	design *design // that it was made on
}

// Planned is the gear of a range.
type Planned struct {
	Cascade  Cascade
	MinQueue int
	Shares   [][]float64 // by model, over Replicas kind after kind and then the chains'
	Load     float64     // of the busiest device at the upper edge
	Trial    Trial
	Late     float64 // share of the requests past the SLO, at the upper edge
	Accuracy float64
	Bound    float64
}

// Infeasible says which range cannot be served and what would change that.
type Infeasible struct {
	Range      int
	Edge       float64 // rate of the range's upper edge
	Model      string  // first model of the cheapest cascade
	Devices    int     // that its work alone would need at the highest rate of all ranges
	MaxQPS     float64 // that its work alone leaves the devices room for
	LatencyMS  float64 // of the last gear tried; 0: none was
	Unstable   bool
	OnHeldOut  bool // it holds on the samples planned on, and not on those held out
	TooMany    bool // requests in a trial
	NoneUsable bool
	NoneInTime bool

	SLO time.Duration // the least that some cascade keeps alone; 0: not looked for, or none fits in memory

	Target float64 // accuracy asked for, where that is what cannot be reached
	Best   float64 // what can be; of the relaxation, where Fluid is set
	Fluid  bool
	Tried  bool // no plan that trials accept does it, on any placement of whole models
	// HeldOut is the plan that came closest, where samples held out are what falls short.
	HeldOut *HeldOut
}

func (e *Infeasible) Error() string { return "infeasible: " + e.Reason() }

// Reason is the error without its first word.
func (e *Infeasible) Reason() string {
	switch {
	case e.NoneUsable && e.SLO == 0:
		return "no model of the family fits on a device: give the devices more memory"
	case e.NoneUsable, e.NoneInTime:
		text := "every cascade takes more samples past the SLO than its percentile allows, even one by one"
		if e.NoneUsable {
			text = "no model of the family that fits on a device answers a sample within the SLO"
		}
		return text + fmt.Sprintf(": raise the SLO to at least %v", e.SLO)
	case e.HeldOut != nil:
		return fmt.Sprintf("accuracy %.4f is not reached out of sample: the plan that comes closest has %.4f on the samples held out, %.4f at the lower end of its interval: hold out more samples, add a device, raise the latency or lower the accuracy",
			e.Target, e.HeldOut.Accuracy, e.HeldOut.Low)
	case e.Target > 0 && e.Fluid:
		return fmt.Sprintf("no plan over these thresholds reaches accuracy %.4f; at most %.4f can be: add a device, raise the latency or lower the accuracy", e.Target, e.Best)
	case e.Target > 0:
		return fmt.Sprintf("accuracy %.4f is not reached: the best plan that simulation shows stable has at most %.4f: add a device, raise the latency or lower the accuracy", e.Target, e.Best)
	}
	text := fmt.Sprintf("range %d, up to %.6g requests per second: ", e.Range+1, e.Edge)
	switch {
	case e.LatencyMS == 0 && !e.Unstable:
		text += fmt.Sprintf("the work of the cheapest cascade, which starts with %s, leaves these devices room for %.6g", e.Model, e.MaxQPS)
	case e.TooMany:
		text += fmt.Sprintf("a trial of the cheapest cascade, which starts with %s, has more than the %d requests that are simulated: plan for a part of the devices and of the rate", e.Model, mostRequests)
	case e.Unstable:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its latency grows or too many requests are late", e.Model)
	default:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its tail latency is %.6g ms", e.Model, e.LatencyMS)
	}
	if e.OnHeldOut {
		text += " where requests bring the samples held out"
	}
	return text + fmt.Sprintf(": add devices, lower max to below %.6g or raise the SLO", e.MaxQPS)
}

// Solve plans: for the most accuracy, the least latency or the fewest devices,
// by what the problem asks. When ctx ends after a plan was found, it returns the best so
// far, without what one more device would bring.
func Solve(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, error) {
	return solveWith(ctx, p, solver, o, newCatalogue())
}

// solveWith is Solve with a catalogue that solves for other accuracies share.
func solveWith(ctx context.Context, p *Problem, solver milp.Solver, o Options, known *catalogue) (*Outcome, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if solver == nil {
		return nil, errors.New("planning gears: no solver for linear programs")
	}
	s := &search{p: p, o: &o, solver: solver, known: known}
	if left := provingRequests; !o.Any && p.Goal() != LeastLatency {
		s.left = &left
	}
	switch p.Goal() {
	case LeastLatency:
		return s.fastest(ctx)
	case FewestDevices:
		return s.cheapest(ctx)
	}
	out, err := s.once(ctx, p)
	if err != nil {
		return nil, err
	}
	if o.Any {
		return out, nil
	}
	if p.Either {
		if out, err = s.either(ctx, out); err != nil {
			return nil, err
		}
	}
	return kept(ctx, out, s.more(ctx, out))
}

// kept is a plan that was found, where what went on from it ended with the context.
func kept(ctx context.Context, out *Outcome, err error) (*Outcome, error) {
	if out != nil && ctx.Err() != nil {
		return out, nil
	}
	return out, err
}
