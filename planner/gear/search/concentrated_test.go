package search

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// addSlowerKind are the problem on two kinds of devices, of which the second is slower.
func addSlowerKind(p *cascades.Problem, others int) {
	p.Kinds = append(p.Kinds, cascades.Kind{Name: "b", Devices: others, Memory: p.Kinds[0].Memory, Price: 1})
	for m := range p.Models {
		v := &p.Models[m]
		slow := make([]time.Duration, len(v.FastestTimes))
		for b := range slow {
			slow[b] = v.FastestTimes[b] * 3 / 2
		}
		v.Variants = append(v.Variants, cascades.Variant{MedianTimes: slow, Memory: v.Variants[0].Memory})
	}
}

// groupWork is what a split has the models of a cascade do: by kind, group and model, by kind and
// device, and how many parts of models there are by group.
func groupWork(l *placement.Layout, cascade int, shares [][]float64) (total map[[3]int]float64, each map[[2]int]float64, parts map[int]int) {
	total, each, parts = map[[3]int]float64{}, map[[2]int]float64{}, map[int]int{}
	first := make([]int, len(shares))
	for k, group := range l.GroupOf {
		at := l.ReplicaIndexes(group, first)
		for _, m := range l.Space.Cascades[cascade].Models {
			for d, g := range group {
				if n := at[m][d]; n >= 0 && shares[m][n] > 1e-9 {
					w := shares[m][n] * l.SecondsPerRequest(cascade, k, int(m))
					total[[3]int{k, g, int(m)}] += w
					each[[2]int{k, d}] += w
					parts[g]++
				}
			}
		}
	}
	return total, each, parts
}

// On few devices every model does as much on each group of devices that are alike as before,
// all of these are equally busy, and few of them have more than one model.
func TestConcentratedSplitKeepsTheWork(t *testing.T) {
	s, changed := solver(t), 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		p.Kinds[0].Devices = rapid.IntRange(1, 6).Draw(t, "more devices")
		if rapid.Bool().Draw(t, "several kinds") {
			addSlowerKind(p, rapid.IntRange(0, 4).Draw(t, "others"))
		}
		space, err := planspace.WholeModelSpace(t.Context(), p, s, cascades.CascadeCache{})
		if err != nil {
			t.Skip("nothing is in time")
		}
		top, _, err := placement.RankPlacements(t.Context(), space, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := top[0].Layout
		i := rapid.IntRange(0, len(space.Cascades)-1).Draw(t, "cascade")
		st, err := l.LoadCascade(t.Context(), i)
		if err != nil || math.IsInf(st.DeviceLoad, 1) {
			t.Skip("a model is nowhere")
		}
		shares := l.ConcentratedSplit(i, st.Shares)
		if shares == nil {
			return
		}
		changed++
		before, _, _ := groupWork(l, i, st.Shares)
		after, each, parts := groupWork(l, i, shares)
		for key, w := range before {
			if math.Abs(after[key]-w) > 1e-6*(1+w) {
				t.Fatalf("model %d on group %d does %g, before %g", key[2], key[1], after[key], w)
			}
		}
		for k, group := range l.GroupOf {
			for g := range l.Configs {
				n, most, least := 0, 0.0, math.Inf(1)
				for d := range group {
					if group[d] == g {
						n++
						most, least = max(most, each[[2]int{k, d}]), min(least, each[[2]int{k, d}])
					}
				}
				if n > 1 && (most-least > 1e-6*(1+most) || parts[g] > n+len(space.Cascades[i].Models)) {
					t.Fatalf("%d devices of group %d are busy %g to %g with %d parts of models", n, g, least, most, parts[g])
				}
			}
		}
	})
	if changed == 0 {
		t.Error("no split was concentrated")
	}
}

// A cascade that waits too long where its models are on all devices passes where they are on
// few: m0 on two of three devices and a little of the third, m1 on that alone.
func TestConcentratedSplitPasses(t *testing.T) {
	const rate = 2650
	n := 2000
	p := &cascades.Problem{Grid: 2, Kinds: []cascades.Kind{{Devices: 3}}, SLO: 40 * time.Millisecond, Percentile: .95, RangeEdges: []float64{rate, 2 * rate}, RangeWeights: []float64{.5, .5},
		PlanningSamples: &cascades.Samples{N: n, Levels: [][]uint8{make([]uint8, n), make([]uint8, n)}, Correct: [][]bool{make([]bool, n), make([]bool, n)}},
		Thresholds:      [][]float64{{.5}, {.5}}}
	for i := range n {
		if p.PlanningSamples.Levels[0][i] = 1; i%25 == 0 {
			p.PlanningSamples.Levels[0][i] = 0
		}
		p.PlanningSamples.Correct[0][i], p.PlanningSamples.Correct[1][i] = i%25 != 0, true
	}
	for _, per := range []time.Duration{500 * time.Microsecond, 7 * time.Millisecond} {
		var m cascades.Variant
		for b := range 8 {
			m.MedianTimes = append(m.MedianTimes, 2*time.Millisecond+time.Duration(b+1)*per)
		}
		p.Models = append(p.Models, cascades.NewModel("m", m))
	}
	space, err := planspace.WholeModelSpace(t.Context(), p, programs, cascades.CascadeCache{})
	if err != nil {
		t.Fatal(err)
	}
	top, _, err := placement.RankPlacements(t.Context(), space, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := trials.NewPlacement(top[0].Layout, trials.NewHistory(1), nil)
	i := slices.IndexFunc(space.Cascades, func(c cascades.Cascade) bool { return len(c.Models) == 2 })
	s, err := d.Layout.LoadCascade(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	one := *s
	even, err := d.Simulator.TryCascade(t.Context(), s, rate)
	if err != nil {
		t.Fatal(err)
	}
	trial, err := d.TrySplits(t.Context(), i, &one, rate)
	if err != nil {
		t.Fatal(err)
	}
	if even.Passed || !trial.Passed || one.Shares[1][0] > 0 || one.Shares[1][2] != 1 {
		t.Errorf("at load %.3f the even split passed: %v, another one: %v, with shares %v", s.DeviceLoad*rate, even.Passed, trial.Passed, one.Shares)
	}
}
