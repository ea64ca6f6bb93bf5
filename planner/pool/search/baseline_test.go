package search

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// Devices that the objective leaves idle carry what they can; the rates at which
// batches fill are those of the fewest devices all the same.
func TestNPUsesIdleDevices(t *testing.T) {
	p := &problem.Problem{Problem: stages.Problem{MaxPartitions: 1, Pools: []stages.Pool{{Kind: "H", Count: 2, MaxShares: 1}, {Kind: "L", Count: 10, MaxShares: 1}}}}
	p.Models = []stages.Model{pooldraw.OneBlock("slow", 50*time.Millisecond, 0.5, 10, 60), pooldraw.OneBlock("quick", 50*time.Millisecond, 0.5, 5, 20)}
	np, err := NP(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	least, err := FewestDevicesNP(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("NP %v, with the fewest devices %v", np.RPS, least.RPS)
	if np.Value != 400 || least.Value != 400 {
		t.Errorf("objectives %v and %v, expected 400", np.Value, least.Value)
	}
	if np.RPS[0] != 200 || np.RPS[1] != 500 {
		t.Errorf("rates %v, expected 200 and 500 on all ten L", np.RPS)
	}
	if least.RPS[1] != 200 {
		t.Errorf("rates %v of the fewest devices, expected 200 and 200", least.RPS)
	}
}

// Without partitioning the plan is the first by objective, then by weighted sum,
// then by devices, of all divisions of the devices.
func TestNPIsLexicographic(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 2, Count: 4, Shares: 1, Blocks: 2, Batches: 2, Partitions: 1})
		np, err := NP(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		compared++
		value, sum, devices := divideAll(t, p)
		gotSum, gotDevices := 0.0, 0.0
		for d, rps := range np.RPS {
			gotSum += rps * p.Models[d].Weight
		}
		for i := range np.Pipelines {
			gotDevices += np.Pipelines[i].Devices[0]
		}
		if math.Abs(np.Value-value) > 1e-6*value || math.Abs(gotSum-sum) > 1e-6*sum || gotDevices != devices {
			t.Errorf("objective %v, weighted sum %v on %v devices, expected %v, %v on %v", np.Value, gotSum, gotDevices, value, sum, devices)
		}
	})
	t.Logf("%d problems", compared)
	if compared == 0 {
		t.Error("no problem had a plan")
	}
}

// divideAll looks at every division of the devices among the models.
func divideAll(t *rapid.T, p *problem.Problem) (value, sum, devices float64) {
	rate := make([][]float64, len(p.Models)) // of one whole device
	for d := range p.Models {
		rate[d] = make([]float64, len(p.Pools))
		list, _, err := p.ListTemplates(d)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if s := &list[i].Stages[0]; s.Share == 1 {
				rate[d][s.Pool] = max(rate[d][s.Pool], s.Rate)
			}
		}
	}
	value, sum = -1, -1
	rps := make([]float64, len(p.Models))
	left := make([]int, len(p.Pools))
	for k := range left {
		left[k] = p.Pools[k].Count
	}
	var try func(at, used int)
	try = func(at, used int) {
		if at == len(p.Models)*len(p.Pools) {
			v, s := math.Inf(1), 0.0
			for d := range rps {
				v = min(v, rps[d]/p.Models[d].Weight)
				s += rps[d] * p.Models[d].Weight
			}
			const same = 1e-9
			if v > value*(1+same) || v >= value*(1-same) && (s > sum*(1+same) || s >= sum*(1-same) && float64(used) < devices) {
				value, sum, devices = v, s, float64(used)
			}
			return
		}
		d, k := at/len(p.Pools), at%len(p.Pools)
		before, most := rps[d], left[k]
		for n := range most + 1 {
			rps[d], left[k] = before+float64(n)*rate[d][k], most-n
			try(at+1, used+n)
		}
		rps[d], left[k] = before, most
	}
	try(0, 0)
	return value, sum, devices
}
