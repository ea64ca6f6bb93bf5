package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/solver/highs"
)

// Space is a planning problem small enough to try every plan (CascadeServe,
// figure 10): every model on every device, batches of one, few ranges, and a
// trace of seconds. A plan is a cascade for every range.
type Space struct {
	Problem  *cascades.Problem
	Cascades []cascades.Cascade

	rates published.Rates
	place *Placement
	gears [][]policygear.Gear // by range and cascade
}

// Point holds the results of a plan on the trace.
type Point struct {
	P95      time.Duration
	Accuracy float64
}

// NewSpace restricts a family to batches of one without memory limits, on a
// trace with this peak. Cascades are all over the family's grid.
func NewSpace(f *published.Family, devices, ranges int, rates published.Rates) (*Space, error) {
	small := *f
	small.Memory, small.Rates, small.Models = 0, rates, slices.Clone(f.Models)
	for m := range small.Models {
		small.Models[m].Times = small.Models[m].Times[:1]
	}
	p, err := Problem(&small, devices, ranges, f.SLO)
	if err != nil {
		return nil, err
	}
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = true
	}
	s := &Space{Problem: p, Cascades: cascades.Enumerate(p.PlanningSamples, p.Grid, usable), rates: rates}
	if s.place, _, err = fluid(p); err != nil {
		return nil, err
	}
	for _, edge := range p.RangeEdges {
		var row []policygear.Gear
		for i := range s.Cascades {
			row = append(row, gearOn(p, s.place, &s.Cascades[i], edge))
		}
		s.gears = append(s.gears, row)
	}
	return s, nil
}

// Size is the number of plans.
func (s *Space) Size() int {
	n := 1
	for range s.Problem.RangeEdges {
		n *= len(s.Cascades)
	}
	return n
}

// Try runs a plan, a cascade for every range, through the trace.
func (s *Space) Try(ctx context.Context, plan []int) (Point, error) {
	gears := make([]policygear.Gear, len(plan))
	for r, i := range plan {
		gears[r] = s.gears[r][i]
	}
	return s.show(ctx, tablesOn(s.Problem, s.place, gears))
}

func (s *Space) show(ctx context.Context, t *policy.Tables) (Point, error) {
	r, err := Execute(ctx, t, s.rates.Even(), Watch{})
	if err != nil {
		return Point{}, err
	}
	return Point{r.P95, r.Accuracy}, nil
}

// Exhaustive tries every plan, with some workers.
func (s *Space) Exhaustive(ctx context.Context, workers int) ([]Point, error) {
	out := make([]Point, s.Size())
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			plan := make([]int, len(s.Problem.RangeEdges))
			for n := w; n < len(out) && errs[w] == nil; n += workers {
				rest := n
				for r := range plan {
					plan[r] = rest % len(s.Cascades)
					rest /= len(s.Cascades)
				}
				out[n], errs[w] = s.Try(ctx, plan)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// Random tries plans drawn evenly until time is up.
func (s *Space) Random(ctx context.Context, rng *rand.Rand, up func() bool) ([]Point, error) {
	var out []Point
	plan := make([]int, len(s.Problem.RangeEdges))
	for !up() {
		for r := range plan {
			plan[r] = rng.IntN(len(s.Cascades))
		}
		one, err := s.Try(ctx, plan)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// Planned is the plan of our planner for an SLO on latency, that every range
// keeps at its upper edge for ever, or, overall, that all requests of the trace
// keep together; ok is false where there is none.
func (s *Space) Planned(ctx context.Context, slo time.Duration, overall bool, seed uint64) (plan *trials.Plan, ok bool, err error) {
	p := *s.Problem
	if p.SLO = slo; overall {
		p.OverRequests, p.MeasuredRates = true, s.rates
	}
	out, err := search.Solve(ctx, &p, highs.Solver{}, search.Options{Seed: seed})
	if _, inf := errors.AsType[*cascades.InfeasibleError](err); inf {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("planning in the small space: %w", err)
	}
	return out, true, nil
}

// Show runs a plan of our planner through the trace.
func (s *Space) Show(ctx context.Context, plan *trials.Plan) (Point, error) {
	return s.show(ctx, plan.Tables())
}

// ParetoFront are the points that no other one beats, by rising latency.
func ParetoFront(list []Point) []Point {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.P95, b.P95), cmp.Compare(b.Accuracy, a.Accuracy))
	})
	var out []Point
	for _, p := range sorted {
		if len(out) == 0 || p.Accuracy > out[len(out)-1].Accuracy {
			out = append(out, p)
		}
	}
	return out
}

// Best is the highest accuracy of points within a latency; 0 where none is.
func Best(list []Point, within time.Duration) float64 {
	best := 0.0
	for _, p := range list {
		if p.P95 <= within {
			best = max(best, p.Accuracy)
		}
	}
	return best
}
