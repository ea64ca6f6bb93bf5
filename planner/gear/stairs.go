package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// mostFilled is the part of the time that a split leaves over in which another one
// may work, so as to have samples in shorter batches.
const mostFilled = .7

// staircase gives every range the most accurate cascade that passes: down the
// front of accuracy over the load of the busiest device, which is found on the
// way.
func (l *layout) staircase(ctx context.Context, o *Options) (*Outcome, error) {
	x, p := l.x, l.x.p
	tables, of := l.tables()
	b := &bench{p: p, seed: o.Seed, tables: tables, pipelines: of}
	out := &Outcome{Problem: p, Configs: l.configs, Chains: l.chains}
	order := upTo(len(x.list))
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(x.list[b].Correct, x.list[a].Correct), cmp.Compare(a, b))
	})
	at, below := 0, math.Inf(1) // what failed had this load: only less is tried
	for r, edge := range p.Edges {
		var last *Trial
		for ; ; at++ {
			if at == len(order) {
				return nil, l.infeasible(ctx, r, last)
			}
			i, most := order[at], min(below, 1/edge)
			if l.atLeast(i) >= most {
				continue
			}
			s, err := l.split(ctx, i)
			if err != nil {
				return nil, err
			}
			if s.taken >= most {
				continue
			}
			shares := l.shares(s)
			trial, err := b.try(ctx, &x.list[i], 1, shares, edge)
			if err != nil {
				return nil, err
			}
			if !trial.Passed {
				if s, err = l.divide(ctx, i, s.taken+mostFilled*(1/edge-s.taken)); err != nil {
					return nil, err
				}
				if other := s.shares != nil && s.taken < 1/edge; other && !same(shares, l.shares(s)) {
					shares = l.shares(s)
					if trial, err = b.try(ctx, &x.list[i], 1, shares, edge); err != nil {
						return nil, err
					}
				}
			}
			out.Front++
			if last = &trial; trial.Passed {
				out.Gears = append(out.Gears, Planned{Cascade: x.list[i], MinQueue: 1, Shares: shares, Load: s.load * edge, Trial: trial,
					Accuracy: float64(x.list[i].Correct) / float64(p.Planned.N)})
				out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
				below = math.Inf(1)
				break
			}
			below = l.loads[i].taken
		}
		if !p.Overall { // else the ranges are not done
			if best := out.Accuracy + sum(p.Weights[r+1:])*out.Gears[r].Accuracy; p.misses(best) {
				return nil, &Infeasible{Target: p.Target, Best: best} // ranges above are not more accurate
			}
		}
		if o.Progress != nil {
			o.Progress(r+1, len(p.Edges))
		}
	}
	out.Runs, b.runs = b.runs, 0
	out.stairs = &stairs{bench: b, above: func(ctx context.Context, r int) ([]stair, error) { return l.above(ctx, out, r) }}
	return out, nil
}

// same tells whether two splits are.
func same(a, b [][]float64) bool { return slices.EqualFunc(a, b, slices.Equal[[]float64]) }

// above are the stairs over the gear of a range that its devices and NICs have the
// time for.
func (l *layout) above(ctx context.Context, out *Outcome, r int) ([]stair, error) {
	front, err := l.front(ctx, out.Gears[r].Cascade.Correct)
	if err != nil {
		return nil, err
	}
	var list []stair
	for _, i := range front {
		s := l.loads[i]
		if s.taken*l.x.p.Edges[r] > 1 || len(list) == stepsUp {
			break
		}
		list = append(list, stair{&l.x.list[i], s.load, l.shares(s)})
	}
	return list, nil
}

// front are the cascades with more right answers than a number that no other one
// beats with less load, by rising load. What programs said of other cascades bounds
// the loads from below; once those that are on the front by these bounds are loads
// themselves, so is the front: whatever a bound leaves out, its load does.
func (l *layout) front(ctx context.Context, above int32) ([]int, error) {
	x := l.x
	least := make([]float64, len(x.list))
	for {
		for i := range x.list {
			least[i] = math.Inf(1)
			if s, ok := l.loads[i]; x.list[i].Correct > above && ok {
				least[i] = s.taken
			} else if x.list[i].Correct > above {
				least[i] = l.atLeast(i)
			}
		}
		front, news := Pareto(least, x.list), false
		for _, i := range front {
			if _, ok := l.loads[i]; ok {
				continue
			}
			news = true
			if _, err := l.split(ctx, i); err != nil {
				return nil, err
			}
		}
		if !news {
			return front, nil
		}
	}
}

// infeasible says why a range has no gear, by the lightest cascade.
func (l *layout) infeasible(ctx context.Context, r int, last *Trial) error {
	x := l.x
	i := x.lightest()
	s, err := l.split(ctx, i)
	if err != nil {
		return err
	}
	load := s.taken
	inf := &Infeasible{Range: r, Edge: x.p.Edges[r], Model: x.p.Models[x.list[i].Models[0]].Name, MaxQPS: 1 / load}
	if last != nil {
		inf.LatencyMS, inf.Unstable = max(0, float64(last.Latency)/1e6), !last.Stable
	} else {
		top, n := x.p.Edges[len(x.p.Edges)-1], 0
		for k := range x.p.Kinds {
			n += x.p.Kinds[k].Devices
		}
		inf.Devices = int(math.Ceil(float64(n) * top * load))
	}
	return inf
}
