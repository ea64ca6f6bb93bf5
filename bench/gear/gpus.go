package main

import (
	"errors"
	"fmt"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

// leastSingle are the devices that the cheapest model in reach of a target
// needs, by bisection: one model alone needs no more of them for being given more.
func (b *runs) leastSingle(f *published.Family, slo time.Duration, on []stream, targets []float64, most int) ([]int, error) {
	out := make([]int, len(targets))
	prob, err := b.problem(place{f, 1, slo})
	if err != nil {
		return nil, err
	}
	for m := range prob.Models {
		if !reaches(baseline.Single(prob, m), targets[0]) || prob.Models[m].FastestTimes[0] > slo || prob.Kinds[0].Memory > 0 && prob.Models[m].Variants[0].Memory > prob.Kinds[0].Memory {
			continue
		}
		accuracy := make([]float64, most+1)
		lo, hi := 0, most+1 // in time on hi, not on lo
		for hi-lo > 1 {
			p := place{f, (lo + hi) / 2, slo}
			if prob, err = b.problem(p); err != nil {
				return nil, err
			}
			r, err := b.runner(p, on)("DynBa "+prob.Models[m].Name, baseline.DynBa(prob, m))
			switch {
			case errors.Is(err, baseline.ErrLate):
				lo = p.devices
			case err != nil:
				return nil, err
			default:
				hi, accuracy[p.devices] = p.devices, r.Expected
			}
		}
		for i, target := range targets {
			if hi <= most && reaches(accuracy[hi], target) && (out[i] == 0 || hi < out[i]) {
				out[i] = hi
			}
		}
	}
	return out, nil
}

// scan finds the least devices for every target, trying them one by one; 0 stands
// for more than most.
func scan(targets []float64, most int, at reached) ([]int, error) {
	out, left := make([]int, len(targets)), len(targets)
	for d := 1; d <= most && left > 0; d++ {
		accuracy, ok, err := at(d)
		if err != nil {
			return nil, err
		}
		for i, target := range targets {
			if out[i] == 0 && ok && reaches(accuracy, target) {
				out[i] = d
				left--
			}
		}
	}
	return out, nil
}

// gpus are the devices that each method needs, with even arrivals and with every
// Poisson stream in time.
func (b *bench) gpus(f *published.Family, t *table.Table) error {
	s := studies[f.Name]
	for _, on := range [][]stream{{even}, b.poisson()} {
		name := "even"
		methods := []reached{
			b.reachedPlan(f, f.SLO, on, b.ours),
			b.reachedPlan(f, f.SLO, on, b.overall),
			b.reachedTuned(f, f.SLO, on, alone(baseline.NoSwitching)),
			b.reachedPlan(f, f.SLO, on, b.singles),
			b.reachedTuned(f, f.SLO, on, cascadia(false)),
			b.reachedTuned(f, f.SLO, on, cascadia(true)),
			b.reachedTuned(f, f.SLO, on, alone(baseline.BestModelSwitching)),
		}
		if on[0] != even {
			name = fmt.Sprintf("Poisson, %d", len(on))
			methods[2], methods[3] = nil, nil
		}
		need, err := b.needed(s, methods)
		if err != nil {
			return err
		}
		dynba, err := b.leastSingle(f, f.SLO, on, s.targets, s.most)
		if err != nil {
			return err
		}
		var cells []cell
		for k, target := range s.targets {
			row := []any{f.Name, name, target}
			for i := range need {
				if need[i] == nil {
					row = append(row, "")
				} else {
					row = append(row, count(need[i][k], s.most))
				}
			}
			msPlus := need[6][k]
			t.Add(append(row, count(dynba[k], s.most), times(need[0][k], msPlus, dynba[k]), times(need[1][k], msPlus, dynba[k]))...)
			if fewer := fewerThan(need[0][k], msPlus, dynba[k]); b.counting == nil && fewer > 0 {
				b.figure(fewerDevices(fmt.Sprintf("devices of %s at accuracy %g, %s arrivals", f.Name, target, name), fewer,
					fmt.Sprintf("planner %s, MS+ %s, DynBa %s", count(need[0][k], s.most), count(msPlus, s.most), count(dynba[k], s.most))), "gpus", f)
			}
			c := cell{fmt.Sprint(target), [2]int{need[0][k], need[1][k]}, rivals(need[4][k], need[5][k], msPlus, dynba[k])}
			if need[2] != nil {
				c.rivals = append(c.rivals, rival{"no switching", float64(need[2][k])})
			}
			cells = append(cells, c)
		}
		b.neverMore(fmt.Sprintf("%s, %s arrivals", f.Name, name), "gpus", f, cells)
	}
	return nil
}

// needed are the devices that methods need for the targets of a study; nil methods none.
func (b *runs) needed(s study, methods []reached) ([][]int, error) {
	need := make([][]int, len(methods))
	for i, at := range methods {
		if at == nil {
			continue
		}
		var err error
		if need[i], err = scan(s.targets, s.most, at); err != nil {
			return nil, err
		}
	}
	return need, nil
}

// fewerDevices is how many times fewer devices a plan takes than the better of MS+ and
// DynBa: the paper has 2 to 3.
func fewerDevices(of string, fewer float64, note string) figures.Figure {
	holds := figures.If(fewer >= 2)
	if fewer > 1 && fewer < 2 {
		holds = figures.Partly
	}
	return figures.Figure{Claim: of + ": times fewer than the better of MS+ and DynBa", Source: "CascadeServe (arXiv:2406.14424), figure 7",
		Asked: "2 to 3", Measured: fewer, Holds: holds, Note: note}
}

// gpuMap is figure 7.
func (b *bench) gpuMap(f *published.Family, t *table.Table) error {
	s := studies[f.Name]
	on := []stream{even}
	for _, share := range []float64{.25, .5, 1, 2} {
		slo := time.Duration(share * float64(f.SLO))
		need, err := b.needed(s, []reached{
			b.reachedPlan(f, slo, on, b.ours),
			b.reachedPlan(f, slo, on, b.overall),
			b.reachedTuned(f, slo, on, cascadia(false)),
			b.reachedTuned(f, slo, on, cascadia(true)),
			b.reachedTuned(f, slo, on, alone(baseline.BestModelSwitching)),
		})
		if err != nil {
			return err
		}
		dynba, err := b.leastSingle(f, slo, on, s.targets, s.most)
		if err != nil {
			return err
		}
		need = append(need, dynba)
		var cells []cell
		for k, target := range s.targets {
			row := []any{f.Name, slo, target}
			for i := range need {
				row = append(row, count(need[i][k], s.most))
			}
			t.Add(append(row, times(need[0][k], need[4][k], need[5][k]))...)
			cells = append(cells, cell{fmt.Sprint(target), [2]int{need[0][k], need[1][k]}, rivals(need[2][k], need[3][k], need[4][k], need[5][k])})
		}
		b.neverMore(fmt.Sprintf("%s within %v", f.Name, slo), "map", f, cells)
	}
	return nil
}
