package search

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// Every plan keeps the rules, whatever the problem.
func TestPlansKeepTheRules(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 6, Shares: 4, Blocks: 4, Batches: 3, Partitions: 3, TimePools: true, Memory: true, Floors: true})
		pooldraw.AsClasses(t, p)
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: 0.02})
		var inf *kind.InfeasibleError
		if errors.As(err, &inf) {
			if inf.Reason == "" || inf.Constraint == "" {
				t.Errorf("an explanation without a reason: %+v", inf)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		solved++
		if !(outcome.Value > 0) || outcome.Value > outcome.Bound*(1+1e-9) {
			t.Errorf("value %v, bound %v", outcome.Value, outcome.Bound)
		}
		holds(t, p, outcome)
	})
	t.Logf("%d problems solved", solved)
	if solved == 0 {
		t.Error("no problem was feasible")
	}
}

// holds recomputes a plan from its pipelines and placements.
func holds(t *rapid.T, p *problem.Problem, outcome *problem.Outcome) {
	rps := make([]float64, len(p.Models))
	taken := make([]map[int]float64, len(p.Pools))
	memory := make([]map[int]int64, len(p.Pools))
	shared := make([]float64, len(p.Pools))
	for k := range taken {
		taken[k], memory[k] = map[int]float64{}, map[int]int64{}
	}
	var list []stages.Template
	for i := range outcome.Pipelines {
		list = append(list, outcome.Pipelines[i].Template)
	}
	everywhere := inMemory(p, list)
	for i := range outcome.Pipelines {
		pl := &outcome.Pipelines[i]
		m := &p.Models[pl.Model]
		rps[pl.Model] += pl.RPS
		at := 0
		latency := time.Duration(0)
		for si := range pl.Stages {
			s := &pl.Stages[si]
			if s.FirstBlock != at || s.EndBlock <= s.FirstBlock {
				t.Errorf("blocks [%d, %d) after %d", s.FirstBlock, s.EndBlock, at)
			}
			at = s.EndBlock
			latency += s.MaxTime + s.TransferTime
			placed := 0
			for _, r := range pl.Placement[si] {
				for j := range r.Replicas {
					d := r.FirstDevice + j/r.PerDevice
					if d < 0 || d >= p.Pools[s.Pool].Count {
						t.Errorf("device %d of %d", d, p.Pools[s.Pool].Count)
					}
					taken[s.Pool][d] += 1 / float64(s.Share)
					memory[s.Pool][d] += s.Memory
				}
				placed += r.Replicas
			}
			if placed != pl.Replicas[si] || placed < 1 {
				t.Errorf("%d replicas placed of %d", placed, pl.Replicas[si])
			}
			if p.Pools[s.Pool].TimeShared {
				shared[s.Pool] += pl.RPS / s.Rate
			} else if pl.RPS > s.Rate*float64(pl.Replicas[si])*(1+1e-9) {
				t.Errorf("%v requests/s through %d replicas of %v", pl.RPS, pl.Replicas[si], s.Rate)
			}
		}
		if at != m.NumBlocks() || latency != pl.Latency || m.Margin+m.BatchWait(pl.Batch)+latency > m.SLO {
			t.Errorf("%d of %d blocks in %v (%v), SLO %v less %v", at, m.NumBlocks(), latency, pl.Latency, m.SLO, m.Margin)
		}
	}
	value := math.Inf(1)
	for d := range p.Models {
		value = min(value, rps[d]/p.Models[d].Weight)
		if math.Abs(rps[d]-outcome.RPS[d]) > 1e-9*rps[d] || rps[d] < p.Models[d].MinRPS*(1-1e-6) {
			t.Errorf("%s: pipelines carry %v, the plan says %v, floor %v", p.Models[d].Name, rps[d], outcome.RPS[d], p.Models[d].MinRPS)
		}
	}
	if math.Abs(value-outcome.Value) > 1e-9*value {
		t.Errorf("value %v, recomputed %v", outcome.Value, value)
	}
	for k := range p.Pools {
		if shared[k] > float64(p.Pools[k].Count)*(1+1e-9) {
			t.Errorf("%v of %d time-shared devices", shared[k], p.Pools[k].Count)
		}
		for d := range p.Pools[k].Count {
			if taken[k][d] > 1+1e-9 && !p.Pools[k].TimeShared {
				t.Errorf("%v of device %d of %s", taken[k][d], d, p.Pools[k].Kind)
			}
			held := memory[k][d]
			if p.Pools[k].TimeShared {
				held = everywhere[k]
			}
			if p.Pools[k].Memory > 0 && held > p.Pools[k].Memory {
				t.Errorf("%d bytes on device %d of %s, which has %d", held, d, p.Pools[k].Kind, p.Pools[k].Memory)
			}
		}
	}
}
