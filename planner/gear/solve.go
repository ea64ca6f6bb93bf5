package gear

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// Algorithms.
const (
	Exact = "exact"
	EM    = "em" // Algorithm 1 of the paper, with the meaning that em.go gives it
)

// Options steer a solve.
type Options struct {
	Algorithm string // Exact where empty
	Seed      uint64
	// MinQueues are the least queue lengths tried for every gear, in order; nil:
	// 1, 4 and 16.
	MinQueues []int
	// Progress hears of every range that is done; nil: nobody.
	Progress func(done, ranges int)
}

// placementsTried is how many of the best placements are simulated before a
// problem is called infeasible.
const placementsTried = 5

// Outcome is a plan of gears.
type Outcome struct {
	Problem   *Problem // as it was solved: with the least SLO or the fewest devices
	Placement *Placement
	Gears     []Planned
	Accuracy  float64 // weighted over the ranges
	Bound     float64 // of the accuracy
	// Value is what the goal came to: accuracy, milliseconds or devices. Nothing
	// is better than ValueBound; Proved: nor than the value.
	Goal              string
	Value, ValueBound float64
	Proved            bool
	// MoreDevices is the bound of the accuracy with one more device; 0: not known.
	MoreDevices float64
	// Cascades and Front are the numbers of cascades enumerated and on the front
	// of the chosen placement, Runs that of simulations.
	Cascades, Front, Runs int
	// Steps are the accuracies of the plans that held on the way, in order.
	Steps []float64
}

// Planned is the gear of a range.
type Planned struct {
	Cascade  Cascade
	MinQueue int
	Shares   [][]float64 // by model, over Placement.DevicesOf
	Load     float64     // of the busiest device at the upper edge
	Trial    Trial
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

	Target float64 // accuracy asked for, where that is what cannot be reached
	Best   float64 // what can be; of the relaxation, where Fluid is set
	Fluid  bool
}

func (e *Infeasible) Error() string { return "infeasible: " + e.Reason() }

// Reason is the error without its first word.
func (e *Infeasible) Reason() string {
	switch {
	case e.NoneUsable:
		return "no model of the family fits on a device and answers a sample within the SLO: raise the SLO or the memory"
	case e.Target > 0 && e.Fluid:
		return fmt.Sprintf("no plan over these thresholds reaches accuracy %.4f; at most %.4f can be: add a device, raise the latency or lower the accuracy", e.Target, e.Best)
	case e.Target > 0:
		return fmt.Sprintf("accuracy %.4f is not reached: the best plan that simulation shows stable has at most %.4f: add a device, raise the latency or lower the accuracy", e.Target, e.Best)
	case e.NoneInTime:
		return "every cascade takes more samples past the SLO than its percentile allows, even one by one: raise the SLO"
	}
	text := fmt.Sprintf("range %d, up to %.6g requests per second: ", e.Range+1, e.Edge)
	if e.Devices > 0 && e.LatencyMS == 0 && !e.Unstable {
		return text + fmt.Sprintf("these devices hold %.6g requests per second of the cheapest cascade, which starts with %s; the highest range takes %d devices", e.MaxQPS, e.Model, e.Devices)
	}
	why := "at that rate its latency grows or too many requests are late"
	if !e.Unstable {
		why = fmt.Sprintf("its tail latency is %.6g ms", e.LatencyMS)
	}
	return text + fmt.Sprintf("the cheapest cascade, which starts with %s, has room, but %s: add a device, lower max to below %.6g or raise the SLO", e.Model, why, e.MaxQPS)
}

// Solve plans: for the most accuracy, the least latency or the fewest devices,
// by what the problem asks.
func Solve(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if len(o.MinQueues) == 0 {
		o.MinQueues = []int{1, 4, 16}
	}
	s := &search{p: p, o: &o}
	switch p.Goal() {
	case LeastLatency:
		return s.fastest(ctx)
	case FewestDevices:
		return s.fewest(ctx)
	}
	out, err := s.once(ctx, p)
	if err != nil {
		return nil, err
	}
	if out.MoreDevices, err = s.more(p); err != nil {
		return nil, err
	}
	return out, nil
}

// solveExact takes the best placements in turn until one holds.
func (p *Problem) solveExact(ctx context.Context, list []Cascade, work [][]float64, o *Options) (*Outcome, error) {
	var first error
	for _, pl := range p.placements(list, work, placementsTried) {
		out, err := p.staircase(ctx, list, work, pl, o)
		if _, ok := errors.AsType[*Infeasible](err); ok {
			if first == nil {
				first = err
			}
			continue
		}
		if out != nil {
			out.Steps = []float64{out.Accuracy}
		}
		return out, err
	}
	return nil, first
}

// staircase gives every range the most accurate gear that passes on a placement.
// A gear that fails at a rate fails at a higher one, so that each range starts
// where the range below ended.
func (p *Problem) staircase(ctx context.Context, list []Cascade, work [][]float64, pl *Placement, o *Options) (*Outcome, error) {
	load := make([]float64, len(list))
	for i := range list {
		load[i] = pl.Load(work[i])
	}
	front := pareto(load, list)
	out := &Outcome{Placement: pl, Front: len(front)}
	b := newBench(p, pl, o.Seed)
	at := len(front) - 1
	for r, edge := range p.Edges {
		var last *Trial
		for ; at >= 0; at-- {
			i := front[at]
			if load[i]*edge > 1 {
				continue
			}
			shares, _ := pl.Split(work[i])
			g, trial, err := p.passes(ctx, b, &list[i], shares, edge, o.MinQueues)
			if err != nil {
				return nil, err
			}
			if last = &trial; g > 0 {
				out.Gears = append(out.Gears, Planned{Cascade: list[i], MinQueue: g, Shares: shares, Load: load[i] * edge, Trial: trial,
					Accuracy: float64(list[i].Correct) / float64(p.Planned.N)})
				out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
				break
			}
		}
		if at < 0 {
			return nil, p.infeasible(r, edge, list, front, load, work, last)
		}
		if best := out.Accuracy + sum(p.Weights[r+1:])*out.Gears[r].Accuracy; best < p.Target {
			return nil, &Infeasible{Target: p.Target, Best: best} // ranges above are not more accurate
		}
		if o.Progress != nil {
			o.Progress(r+1, len(p.Edges))
		}
	}
	out.Runs = b.runs
	return out, nil
}

// passes tries the least queue lengths in turn; it returns the first that
// passes, 0 where none does. A length that the batches of the trial before
// exceeded would change next to nothing and is left out.
func (p *Problem) passes(ctx context.Context, b *bench, c *Cascade, shares [][]float64, rate float64, minQueues []int) (int, Trial, error) {
	var last Trial
	most, _ := p.operating(int(c.Models[0]))
	for _, q := range minQueues {
		if q > most || last.batch >= float64(q) {
			continue // no batch would ever be as long, or they are longer
		}
		t, err := b.try(ctx, c, q, shares, rate)
		if err != nil || t.Passed {
			return q, t, err
		}
		last = t
	}
	return 0, last, nil
}

func (p *Problem) infeasible(r int, edge float64, list []Cascade, front []int, load []float64, work [][]float64, last *Trial) *Infeasible {
	inf := &Infeasible{Range: r, Edge: edge}
	if len(front) == 0 {
		inf.NoneUsable = true
		return inf
	}
	i := front[0]
	inf.Model = p.Models[list[i].Models[0]].Name
	inf.MaxQPS = 1 / load[i]
	inf.Devices = int(math.Ceil(sum(work[i]) * p.Edges[len(p.Edges)-1]))
	if last != nil {
		inf.LatencyMS = max(0, float64(last.Latency)/1e6)
		inf.Unstable = !last.Stable
	}
	return inf
}
