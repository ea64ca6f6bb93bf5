package gear

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// several are the problem on two kinds of devices, of which the second is slower.
func (p *Problem) several(others int) {
	p.Kinds = append(p.Kinds, Kind{Name: "b", Devices: others, Memory: p.Kinds[0].Memory, Price: 1})
	for m := range p.Models {
		v := &p.Models[m]
		slow := make([]time.Duration, len(v.Times))
		for b := range slow {
			slow[b] = v.Times[b] * 3 / 2
		}
		v.On = append(v.On, Variant{Times: slow, Memory: v.On[0].Memory})
	}
}

// busy is what a split has the models of a cascade do: by kind, group and model, by kind and
// device, and how many parts of models there are by group.
func (l *layout) busy(cascade int, shares [][]float64) (total map[[3]int]float64, each map[[2]int]float64, parts map[int]int) {
	total, each, parts = map[[3]int]float64{}, map[[2]int]float64{}, map[int]int{}
	first := make([]int, len(shares))
	for k, group := range l.cellOf {
		at := l.replicasOn(group, first)
		for _, m := range l.x.list[cascade].Models {
			for d, g := range group {
				if n := at[m][d]; n >= 0 && shares[m][n] > 1e-9 {
					w := shares[m][n] * l.seconds(cascade, k, int(m))
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
func TestOnFewDevices(t *testing.T) {
	s, changed := solver(t), 0
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		p.Kinds[0].Devices = rapid.IntRange(1, 6).Draw(t, "more devices")
		if rapid.Bool().Draw(t, "several kinds") {
			p.several(rapid.IntRange(0, 4).Draw(t, "others"))
		}
		x, err := wholeFleet(t.Context(), p, s, newCatalogue())
		if err != nil {
			t.Skip("nothing is in time")
		}
		top, _, err := x.ranked(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		l := top[0].l
		i := rapid.IntRange(0, len(x.list)-1).Draw(t, "cascade")
		st, err := l.stair(t.Context(), i)
		if err != nil || math.IsInf(st.load, 1) {
			t.Skip("a model is nowhere")
		}
		shares := l.onFewDevices(i, st.shares)
		if shares == nil {
			return
		}
		changed++
		before, _, _ := l.busy(i, st.shares)
		after, each, parts := l.busy(i, shares)
		for key, w := range before {
			if math.Abs(after[key]-w) > 1e-6*(1+w) {
				t.Fatalf("model %d on group %d does %g, before %g", key[2], key[1], after[key], w)
			}
		}
		for k, group := range l.cellOf {
			for g := range l.configs {
				n, most, least := 0, 0.0, math.Inf(1)
				for d := range group {
					if group[d] == g {
						n++
						most, least = max(most, each[[2]int{k, d}]), min(least, each[[2]int{k, d}])
					}
				}
				if n > 1 && (most-least > 1e-6*(1+most) || parts[g] > n+len(x.list[i].Models)) {
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
	p := &Problem{Grid: 2, Kinds: []Kind{{Devices: 3}}, SLO: 40 * time.Millisecond, Percentile: .95, Edges: []float64{rate, 2 * rate}, Weights: []float64{.5, .5},
		Planned:    &Samples{N: n, Levels: [][]uint8{make([]uint8, n), make([]uint8, n)}, Correct: [][]bool{make([]bool, n), make([]bool, n)}},
		Thresholds: [][]float64{{.5}, {.5}}}
	for i := range n {
		if p.Planned.Levels[0][i] = 1; i%25 == 0 {
			p.Planned.Levels[0][i] = 0
		}
		p.Planned.Correct[0][i], p.Planned.Correct[1][i] = i%25 != 0, true
	}
	for _, per := range []time.Duration{500 * time.Microsecond, 7 * time.Millisecond} {
		var m Variant
		for b := range 8 {
			m.Times = append(m.Times, 2*time.Millisecond+time.Duration(b+1)*per)
		}
		p.Models = append(p.Models, NewModel("m", m))
	}
	x, err := wholeFleet(t.Context(), p, programs, newCatalogue())
	if err != nil {
		t.Fatal(err)
	}
	top, _, err := x.ranked(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	d := top[0].l.design(&Options{Seed: 1}, nil)
	i := slices.IndexFunc(x.list, func(c Cascade) bool { return len(c.Models) == 2 })
	s, err := d.stair(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	one := *s
	even, err := d.bench.try(t.Context(), s, rate)
	if err != nil {
		t.Fatal(err)
	}
	trial, err := d.trySplits(t.Context(), i, &one, rate)
	if err != nil {
		t.Fatal(err)
	}
	if even.Passed || !trial.Passed || one.shares[1][0] > 0 || one.shares[1][2] != 1 {
		t.Errorf("at load %.3f the even split passed: %v, another one: %v, with shares %v", s.load*rate, even.Passed, trial.Passed, one.shares)
	}
}
