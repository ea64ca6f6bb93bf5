package baseline

import (
	"context"
	"fmt"
	"math"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
)

// Cascadia chooses thresholds and deployment together (arXiv:2506.04203): for a latency
// the deployment and every level's cascade, for the most accuracy. A Chebyshev
// scalarisation of latency and accuracy picks among latencies.
type Cascadia struct {
	Problem *cascades.Problem
	// Rates are the requests that a device of one model answers per second within the latency, by
	// CascadiaLatencies and model.
	Rates [][]float64
	// Redeployed gives every level of load a deployment of its own. Else all share one.
	Redeployed bool
}

// CascadiaPoint is a plan on the front of latency and accuracy. Sets are the
// configurations of models that devices may hold.
type CascadiaPoint struct {
	Latency  time.Duration
	Accuracy float64
	Sets     []uint32
	Levels   []CascadiaLevel
}

// CascadiaLevel is the deployment at a level of load: a cascade, and how many devices hold
// which configuration of models.
type CascadiaLevel struct {
	Counts  []int
	Cascade cascades.Cascade
}

// CascadiaLatencies are the latencies that are looked at. Those above the SLO
// are for levels at their upper edge for ever; a trace that stays below may be in time.
// The last one stands for any: devices are then busy all the time.
func CascadiaLatencies(slo time.Duration) []time.Duration {
	var out []time.Duration
	for _, share := range []float64{.125, .25, .5, .75, 1, 1.5, 2, anyLatency} {
		out = append(out, time.Duration(share*float64(slo)))
	}
	return out
}

// Of latencies: anyLatency is the share of the SLO that stands for
// any, rateSteps how often a rate is halved in, rateRequests how many requests show it.
const (
	anyLatency   = 4
	rateSteps    = 8
	rateRequests = 4000
)

// CascadiaRates are the rates of one device by latency and model: the highest one at
// which the model alone has its tail within the latency. It is simulated, as the paper
// takes the latency of a model on its devices.
func CascadiaRates(ctx context.Context, p *cascades.Problem) ([][]float64, error) {
	one := onDevices(p, 1, p.Kinds[0].Memory)
	latencies := CascadiaLatencies(p.SLO)
	out := make([][]float64, len(latencies))
	for k := range out {
		out[k] = make([]float64, len(p.Models))
	}
	for m := range p.Models {
		t := DynBa(one, m)
		most := 0.0
		for b, took := range t.Stages[0].Infer { // the only one
			most = max(most, float64(b+1)/took.Seconds())
		}
		if most == 0 { // not one sample is within the SLO
			continue
		}
		out[len(out)-1][m] = most
		for k, limit := range latencies[:len(out)-1] {
			rate, err := highestRate(ctx, t, most, limit)
			if err != nil {
				return nil, fmt.Errorf("rates of %s: %w", p.Models[m].Name, err)
			}
			out[k][m] = rate
		}
	}
	return out, nil
}

// highestRate is the rate below a limit at which a system has its tail within a latency.
func highestRate(ctx context.Context, t *policy.Tables, below float64, limit time.Duration) (float64, error) {
	low, high := 0.0, below
	for range rateSteps {
		rate := (low + high) / 2
		constant := make(published.Rates, int(math.Ceil(rateRequests/rate)))
		for i := range constant {
			constant[i] = rate
		}
		r, err := Execute(ctx, t, constant.Poisson(seeded.New(planSeed, "bench/gear/cascadia")), Watch{})
		if err != nil {
			return 0, err
		}
		if r.P95 <= limit {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}

// Points are the plans of the front, by rising latency and accuracy.
func (c *Cascadia) Points() ([]CascadiaPoint, error) {
	if len(planspace.WholeCascades(c.Problem)) == 0 {
		return nil, &cascades.InfeasibleError{NoneInTime: true}
	}
	sets := configurations(c.Problem)
	var out []CascadiaPoint
	for k, latency := range CascadiaLatencies(c.Problem.SLO) {
		d := &deployment{Cascadia: c, sets: sets, rates: c.Rates[k]}
		d.list, d.work = d.cascades()
		point := d.plan()
		if point != nil && (len(out) == 0 || point.Accuracy > out[len(out)-1].Accuracy) {
			point.Latency, point.Sets = latency, sets
			out = append(out, *point)
		}
	}
	return out, nil
}

// Chebyshev is the point that is best for a weight of latency against accuracy: the
// larger of both weighted distances to the ideal is least.
func Chebyshev(front []CascadiaPoint, weight float64) int {
	best, least := 0, math.Inf(1)
	for i := range front {
		slow, wrong := distances(front, i)
		if far := max(weight*slow, (1-weight)*wrong); far < least {
			best, least = i, far
		}
	}
	return best
}

// distances are those of a point to the least latency and the highest accuracy, in parts
// of the front's extent.
func distances(front []CascadiaPoint, i int) (slow, wrong float64) {
	first, last := &front[0], &front[len(front)-1]
	if len(front) == 1 {
		return 0, 0
	}
	return float64(front[i].Latency-first.Latency) / float64(last.Latency-first.Latency),
		(last.Accuracy - front[i].Accuracy) / (last.Accuracy - first.Accuracy)
}

// CascadiaWeights are the weights of latency at which a point is as far in latency as in
// accuracy, from accuracy alone to latency alone. At its weight no other point is as near,
// so that every point is picked.
func CascadiaWeights(front []CascadiaPoint) []float64 {
	var out []float64
	for i := len(front) - 1; i >= 0; i-- {
		slow, wrong := distances(front, i)
		if slow+wrong == 0 { // the only point
			return []float64{0}
		}
		out = append(out, wrong/(slow+wrong))
	}
	return out
}

// Best is the plan of the weight that is most accurate among those in time on the
// arrivals; nil where none is. Less weight of latency is more accurate, so that the first
// one in time is it.
func (c *Cascadia) Best(front []CascadiaPoint, target time.Duration, run Runner) (*Tuned, error) {
	for _, weight := range CascadiaWeights(front) {
		point := &front[Chebyshev(front, weight)]
		name := fmt.Sprintf("Cascadia %v", point.Latency)
		if c.Redeployed && len(point.Sets) > 1 {
			name = fmt.Sprintf("Cascadia re-deployed %v", point.Latency)
		}
		t := c.tables(point)
		if r, err := run.inTime(name, t, target); err != nil || r != nil {
			return &Tuned{name, t, r}, err
		}
	}
	return nil, nil
}

// tables are the run-time tables of a point. Where levels are deployed anew, every device
// holds all models, and a level sends requests to those that hold them in its deployment:
// a change takes no time.
func (c *Cascadia) tables(point *CascadiaPoint) *policy.Tables {
	p := c.Problem
	var pl *Placement
	var gears []policygear.Gear
	for r := range point.Levels {
		l := &point.Levels[r]
		pl = newPlacement(len(p.Models), point.Sets, l.Counts)
		g := gearOn(p, pl, &l.Cascade, p.RangeEdges[r])
		if c.Redeployed {
			for k := range g.Stages {
				g.Stages[k].ReplicaShares = spread(pl.DevicesOf(int(l.Cascade.Models[k])), g.Stages[k].ReplicaShares, p.Kinds[0].Devices)
			}
		}
		gears = append(gears, g)
	}
	if c.Redeployed {
		pl = everywhere(p)
	}
	return tablesOn(p, pl, gears)
}

// everywhere is a placement of all models on every device.
func everywhere(p *cascades.Problem) *Placement {
	return newPlacement(len(p.Models), []uint32{1<<len(p.Models) - 1}, []int{p.Kinds[0].Devices})
}

// spread is a split over some devices as one over all.
func spread(on []int, split []float64, devices int) []float64 {
	out := make([]float64, devices)
	for i, d := range on {
		out[d] = split[i]
	}
	return out
}
