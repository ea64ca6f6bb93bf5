package baseline

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// smallCascadia is a family of two or three configurations of models, with rates of devices that
// are made up.
func smallCascadia(t *rapid.T) *Cascadia {
	f := burst().Only("tiny", "small", "base")
	f.Grid, f.Memory = 3, rapid.SampledFrom([]int64{300, 580, 750, 0}).Draw(t, "memory")
	if f.Memory > 0 && f.Memory < 520 {
		f = f.Only("tiny", "small")
	}
	p, err := Problem(f, rapid.IntRange(1, 4).Draw(t, "devices"), rapid.IntRange(1, 3).Draw(t, "levels"), f.SLO)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cascadia{Problem: p, Redeployed: rapid.Bool().Draw(t, "re-deployed")}
	for range CascadiaLatencies(f.SLO) {
		var row []float64
		for range p.Models {
			row = append(row, float64(rapid.IntRange(0, 8).Draw(t, "rate"))*float64(rapid.SampledFrom([]int{100, 1000}).Draw(t, "unit")))
		}
		c.Rates = append(c.Rates, row)
	}
	return c
}

// byProgram is the highest weighted accuracy by an integer program, as the paper has
// it: whole numbers of devices, one cascade per level of load, and the device time of a
// model shared over the devices that hold it. Without a plan it is minus infinity.
func byProgram(t *rapid.T, c *Cascadia, sets []uint32, rates []float64) float64 {
	p := c.Problem
	levels := make([]int, len(p.RangeEdges))
	for r := range levels {
		levels[r] = r
	}
	groups := [][]int{levels}
	if c.Redeployed {
		groups = slices.Collect(slices.Chunk(levels, 1))
	}
	sum := 0.0
	for _, levels := range groups {
		s, err := highs.Solver{}.Solve(context.Background(), program(c, sets, rates, levels), milp.Options{Gap: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		if s.Status == milp.Infeasible {
			return math.Inf(-1)
		}
		sum += s.Value
	}
	return sum
}

func program(c *Cascadia, sets []uint32, rates []float64, levels []int) *milp.Model {
	p := c.Problem
	list := planspace.WholeCascades(p)
	m := milp.New("cascadia")
	m.SetSense(milp.Maximize)
	devices := m.AddRow("devices", float64(p.Kinds[0].Devices), float64(p.Kinds[0].Devices))
	var counts []milp.Var
	for i := range sets {
		counts = append(counts, m.AddInt(fmt.Sprintf("n%d", i), 0, float64(p.Kinds[0].Devices), 0))
		m.AddTerm(devices, counts[i], 1)
	}
	for _, r := range levels {
		one := m.AddRow(fmt.Sprintf("one%d", r), 1, 1)
		done := make([]milp.Row, len(rates)) // device time of each model, less what it needs
		for n := range done {
			done[n] = m.AddRow(fmt.Sprintf("model%d,%d", r, n), 0, milp.Inf)
		}
		for i := range list {
			if slices.ContainsFunc(list[i].Models, func(n uint8) bool { return rates[n] == 0 }) {
				continue
			}
			y := m.AddBool(fmt.Sprintf("y%d,%d", r, i), p.RangeWeights[r]*Accuracy(p, &list[i]))
			m.AddTerm(one, y, 1)
			for k, n := range list[i].Models {
				m.AddTerm(done[n], y, -p.RangeEdges[r]*float64(list[i].ReachCounts[k])/float64(p.PlanningSamples.N)/rates[n])
			}
		}
		for i, set := range sets {
			busy := m.AddRow(fmt.Sprintf("busy%d,%d", r, i), -milp.Inf, 0)
			m.AddTerm(busy, counts[i], -1)
			for n := range rates {
				if set&(1<<n) != 0 {
					x := m.AddVar(fmt.Sprintf("x%d,%d,%d", r, i, n), 0, float64(p.Kinds[0].Devices), 0)
					m.AddTerm(busy, x, 1)
					m.AddTerm(done[n], x, 1)
				}
			}
		}
	}
	return m
}

// Plans are as accurate as the integer program says; the front is what no latency beats,
// every weight picks the nearest point, and every point is picked.
func TestCascadiaAgainstProgram(t *testing.T) {
	points := 0
	rapid.Check(t, func(t *rapid.T) {
		c := smallCascadia(t)
		front, err := c.Points()
		if err != nil {
			t.Fatal(err)
		}
		best, at := math.Inf(-1), 0
		for k, latency := range CascadiaLatencies(c.Problem.SLO) {
			want := byProgram(t, c, configurations(c.Problem), c.Rates[k])
			if want <= best+1e-6 {
				continue
			}
			best = want
			if at == len(front) || front[at].Latency != latency || math.Abs(front[at].Accuracy-want) > 1e-6 {
				t.Fatalf("within %v accuracy %.6f by the program; the front is %+v", latency, want, front)
			}
			at++
		}
		if at != len(front) {
			t.Fatalf("%d points, %d by the program", len(front), at)
		}
		points += len(front)
		for i, weight := range CascadiaWeights(front) {
			if got := Chebyshev(front, weight); got != len(front)-1-i {
				t.Fatalf("weight %v picks point %d of %d, expected %d", weight, got, len(front), len(front)-1-i)
			}
		}
	})
	if points < 50 {
		t.Errorf("%d points in all: this tells nothing", points)
	}
}

// A weight picks the point whose larger weighted distance is least.
func TestChebyshev(t *testing.T) {
	front := []CascadiaPoint{{Latency: 10, Accuracy: .6}, {Latency: 20, Accuracy: .8}, {Latency: 40, Accuracy: .9}, {Latency: 110, Accuracy: 1}}
	for weight, want := range map[float64]int{0: 3, .1: 3, .3: 2, .6: 2, .8: 1, 1: 0} {
		if got := Chebyshev(front, weight); got != want {
			t.Errorf("weight %v: point %d, expected %d", weight, got, want)
		}
	}
}

// Rates grow with the latency, never exceed what a busy device does, and are none where
// one sample takes longer.
func TestCascadiaRates(t *testing.T) {
	f := burst()
	p := problem(t, f, 1)
	rates, err := CascadiaRates(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	last := rates[len(rates)-1]
	for k := range rates {
		for m := range p.Models {
			if k > 0 && rates[k][m] < rates[k-1][m] || rates[k][m] > last[m] || rates[k][m] <= 0 {
				t.Errorf("%s: %.0f", p.Models[m].Name, rates)
			}
		}
	}
	if base := p.Models[4].FastestTimes; math.Abs(last[4]-float64(len(base))/base[len(base)-1].Seconds()) > 1 {
		t.Errorf("base serves %.1f a second at most", last[4])
	}
	p.SLO = 8 * time.Millisecond
	if rates, err = CascadiaRates(context.Background(), p); err != nil || rates[0][4] > last[4]/100 {
		t.Errorf("base, which takes 6.4 ms, within %v: %.1f, %v", CascadiaLatencies(p.SLO)[0], rates[0], err)
	}
	p.SLO = 6 * time.Millisecond
	if rates, err = CascadiaRates(context.Background(), p); err != nil || rates[len(rates)-1][4] != 0 {
		t.Errorf("base with an SLO below its 6.4 ms: %.1f, %v", rates[0], err)
	}
}

// A plan that is deployed anew for every level runs as one that shares its deployment:
// in time, as accurate as planned but for luck, and the same again.
func TestCascadiaRuns(t *testing.T) {
	ctx, f := context.Background(), burst()
	f = f.Only("tiny", "small", "base")
	f.Memory, f.Grid = 580, 5 // tiny with any other
	p, err := Problem(f, 2, 4, f.SLO)
	if err != nil {
		t.Fatal(err)
	}
	rates, err := CascadiaRates(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	var accuracy []float64
	golden := []map[time.Duration]string{
		{50 * time.Millisecond: "0.9260", 100 * time.Millisecond: "0.9302", 200 * time.Millisecond: "0.9315"},
		{50 * time.Millisecond: "0.9265", 100 * time.Millisecond: "0.9304", 200 * time.Millisecond: "0.9315", 1600 * time.Millisecond: "0.9316"},
	}
	for i, anew := range []bool{false, true} {
		c := &Cascadia{p, rates, anew}
		front, err := c.Points()
		if err != nil || len(front) < 2 {
			t.Fatalf("%d points, %v", len(front), err)
		}
		again, err := c.Points()
		if got := accuracies(front); !reflect.DeepEqual(got, golden[i]) {
			t.Errorf("deployed anew %v: %v, expected %v", anew, got, golden[i])
		}
		if err != nil || !reflect.DeepEqual(front, again) {
			t.Errorf("again another front, %v", err)
		}
		best, err := c.Best(front, f.SLO, On(ctx, even(f)))
		if err != nil || best == nil || best.Run.P95 > f.SLO {
			t.Fatalf("%+v, %v", best, err)
		}
		accuracy = append(accuracy, best.Run.Accuracy)
		for _, set := range front[0].Sets {
			if MemoryOf(p, set) > f.Memory || bits.OnesCount32(set) == 0 {
				t.Errorf("configuration %b takes %d of %d", set, MemoryOf(p, set), f.Memory)
			}
		}
		if none, err := c.Best(front, time.Millisecond, On(ctx, even(f))); none != nil || err != nil {
			t.Errorf("within a millisecond: %+v, %v", none, err)
		}
	}
	ours, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("shared %.4f, deployed anew %.4f, ours planned %.4f", accuracy[0], accuracy[1], ours.Accuracy)
	if accuracy[1] < accuracy[0]-.002 || math.Abs(accuracy[0]-ours.Accuracy) > .02 {
		t.Errorf("shared %.4f, deployed anew %.4f, ours planned %.4f", accuracy[0], accuracy[1], ours.Accuracy)
	}
}

// accuracies are those of a front, by latency.
func accuracies(front []CascadiaPoint) map[time.Duration]string {
	out := map[time.Duration]string{}
	for i := range front {
		out[front[i].Latency] = fmt.Sprintf("%.4f", front[i].Accuracy)
	}
	return out
}
