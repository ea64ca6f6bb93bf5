package gear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
}

// Outcome is a plan of gears.
type Outcome struct {
	Problem   *Problem   // as it was solved: with the least SLO or the fewest devices
	Placement *Placement // on identical devices
	Configs   []Config   // on several kinds
	Chains    []PlacedChain
	Gears     []Planned
	Accuracy  float64 // weighted over the ranges
	Bound     float64 // of the accuracy, also where ranges mix cascades
	// GearBound is what no plan over the same thresholds exceeds whose ranges have one
	// cascade each, on any placement; 0: not known. Batches take no longer than the SLO.
	GearBound float64
	// Value is what the goal came to: accuracy, milliseconds or devices. Nothing
	// is better than ValueBound, of an accuracy GearBound where that is known; Proved: nor
	// than the value.
	Goal              string
	Value, ValueBound float64
	Proved            bool
	Priced            bool // devices are counted by the price of their kind
	// MoreOf is what Bound would be with one more device, by kind; NaN: not known.
	MoreOf []float64
	// Cascades and Front are the numbers of cascades enumerated and on the front
	// of the chosen placement, Runs that of simulations.
	Cascades, Front, Runs int
	// Tail is the latency at the percentile of all requests, as simulated on the
	// measured rates; 0: that was not asked for.
	Tail time.Duration

	shown  float64 // accuracy on the measured rates; 0: not known
	stairs *stairs
}

// Planned is the gear of a range.
type Planned struct {
	Cascade  Cascade
	MinQueue int
	Shares   [][]float64 // by model, over Placement.DevicesOf, or Replicas kind after kind and then the chains'
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
	NoneUsable bool
	NoneInTime bool

	// Enough devices, a highest rate that these hold, and an SLO: each by itself
	// would do, as simulated; 0: none was found.
	Enough int
	Holds  float64
	SLO    time.Duration

	Target float64 // accuracy asked for, where that is what cannot be reached
	Best   float64 // what can be; of the relaxation, where Fluid is set
	Fluid  bool
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
	case e.Unstable:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its latency grows or too many requests are late", e.Model)
	default:
		text += fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but at that rate its tail latency is %.6g ms", e.Model, e.LatencyMS)
	}
	var cures []string
	if e.Enough > 0 {
		cures = append(cures, fmt.Sprintf("%d devices", e.Enough))
	}
	if e.Holds > 0 {
		cures = append(cures, fmt.Sprintf("a max of %.6g requests per second", e.Holds))
	}
	if e.SLO > 0 {
		cures = append(cures, fmt.Sprintf("an SLO of %v", e.SLO))
	}
	if len(cures) == 0 {
		return text + fmt.Sprintf(": add devices, lower max to below %.6g or raise the SLO", e.MaxQPS)
	}
	return text + ": enough would be " + strings.Join(cures, ", or ")
}

// Solve plans: for the most accuracy, the least latency or the fewest devices,
// by what the problem asks. When ctx ends after a plan was found, it returns the best so
// far, without what one more device would bring.
func Solve(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if len(p.Kinds) == 1 && solver == nil { // one kind needs no solver, but for stages
		q := *p
		q.Kinds, p = nil, &q
	}
	if p.Mixed() && solver == nil {
		return nil, errors.New("planning gears: several kinds of devices need a solver for linear programs")
	}
	s := &search{p: p, o: &o, solver: solver, known: catalogue{}}
	switch p.Goal() {
	case LeastLatency:
		return s.fastest(ctx)
	case FewestDevices:
		out, err := s.fewest(ctx)
		return out, s.suggestChanges(ctx, err)
	}
	out, err := s.once(ctx, p)
	if err != nil {
		return nil, s.suggestChanges(ctx, err)
	}
	if o.Any {
		return out, nil
	}
	if p.Either {
		if out, err = s.either(ctx, out); err != nil {
			return nil, err
		}
	}
	if p.Mixed() {
		err = s.moreOfKinds(ctx, out)
	} else {
		err = s.more(ctx, out)
	}
	return kept(ctx, out, err)
}

// kept is a plan that was found, where what went on from it ended with the context.
func kept(ctx context.Context, out *Outcome, err error) (*Outcome, error) {
	if out != nil && ctx.Err() != nil {
		return out, nil
	}
	return out, err
}

// exact plans on identical devices, each step solved as far as it can be.
type exact struct {
	p    *Problem
	list []Cascade
	work [][]float64 // of the cascades
	o    *Options
}

// solve takes the best placements, with batches as long as the SLO and half as long,
// until simulation shows that a plan holds, and then those that could be considerably
// better. What the fluid model allows a placement at most tells which these are.
func (x *exact) solve(ctx context.Context) (*Outcome, error) {
	p := x.p
	var first error
	var best *Outcome
	bound := 0.0
	for n, q := range batchLimits(p) {
		if best != nil && ctx.Err() != nil {
			break
		}
		y := &exact{q, x.list, q.works(x.list), x.o}
		ranked := placing{q}.ranked(y.list, y.work, placementsTried)
		if top := ranked[0]; n == 0 && !p.Overall && (placing{q}).allTried() {
			served := top.feasible == len(p.Edges)
			if p.Target > 0 && (!served || p.misses(top.accuracy)) {
				return nil, p.short(top.accuracy)
			}
			if served {
				bound = top.accuracy
			}
		}
		for k, c := range ranked {
			above := 0.0
			if best != nil {
				above = best.Accuracy + worthFurther(k) - worthFurther(0)
			}
			if best != nil && (ctx.Err() != nil || p.Target > 0 || x.o.Any || c.accuracy <= best.Accuracy+worthFurther(k)) || first != nil && c.feasible < len(p.Edges) {
				break
			}
			if c.feasible == len(p.Edges) && p.misses(c.accuracy) && first != nil {
				break // nor do those that are worse
			}
			out, err := y.design(c).plan(ctx, above, x.o)
			if _, none := errors.AsType[*Infeasible](err); none {
				first = cmp.Or(first, err)
				continue
			}
			if _, err := kept(ctx, best, err); err != nil {
				return nil, err
			}
			if out != nil && (best == nil || out.Accuracy > best.Accuracy) {
				best = out
			}
		}
	}
	if best == nil {
		return nil, first
	}
	best.GearBound = bound
	if !p.Overall {
		return best, nil
	}
	err := best.allowLateRanges(ctx, relaxation{best.Problem}.bounds(x.list, best.Problem.works(x.list)))
	best.Runs += best.stairs.bench.runs
	return kept(ctx, best, err)
}

// Of plans: placementsTried is how many of the best placements are simulated before a
// problem is called infeasible, worthwhile the least weighted accuracy that is worth
// simulations, considerable that which is worth those of one more placement.
const (
	placementsTried = 400
	worthwhile      = 5e-5
	considerable    = 1e-3
)

// worthFurther is by how much a placement has to be able to exceed a plan for it to be
// tried after some others.
func worthFurther(others int) float64 {
	if others > 0 {
		return considerable
	}
	return worthwhile
}

// design is a placement to try cascades on.
func (x *exact) design(c *candidate) *design {
	p, list, work := x.p, x.list, x.work
	load := c.pl.loads(work)
	front := Pareto(load, list)
	at := func(_ context.Context, i int) (*stair, error) { return c.pl.stair(&list[i], work[i]), nil }
	d := &design{p: p, list: list, bench: newBench(p, c.pl, x.o.Seed), out: Outcome{Placement: c.pl}, least: func(i int) float64 { return load[i] }, at: at, ranges: c.ranges,
		order: slices.Clone(front), spare: lighter(list, load, totals(work))}
	slices.Reverse(d.order)
	d.fails = func(_ context.Context, r int, last *Trial) error {
		if len(front) == 0 {
			return &Infeasible{Range: r, Edge: p.Edges[r], NoneUsable: true}
		}
		i := front[0]
		inf := noGear(p, r, &list[i], load[i], last)
		inf.Devices = int(math.Ceil(sum(work[i]) * p.Edges[len(p.Edges)-1]))
		return inf
	}
	d.above = func(ctx context.Context, r int, than *Cascade) (above []stair, err error) {
		for _, i := range front {
			if load[i]*p.Edges[r] > 1 {
				break
			}
			if list[i].Correct > than.Correct {
				above = append(above, *c.pl.stair(&list[i], work[i]))
			}
		}
		return above, nil
	}
	return d
}

// stair is a cascade, which works so much, with the split that loads the busiest device
// least.
func (pl *Placement) stair(c *Cascade, work []float64) *stair {
	load := pl.Load(work)
	shares, _ := pl.Split(work)
	return &stair{c, load, load, shares}
}
