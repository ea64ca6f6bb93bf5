package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// The part "planner": the time and the gap of plans for 64 devices of four kinds, and tiny
// problems against everything that can be tried.

// kinds make a pipeline's documents with 16 devices of each of four kinds. Each is slower
// than the last, by more for later modules, and cheaper.
func (p *pipeline) kinds(rate float64) planner.Inputs {
	in := p.inputs(rate)
	in.Profile.Devices, in.Cluster.Pools = nil, nil
	for k, name := range []string{"A", "B", "C", "D"} {
		in.Profile.Devices = append(in.Profile.Devices, formats.ProfileDevice{Device: name})
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: name, Count: 16, USDPerHour: 1 / (1 + .6*float64(k))})
	}
	for u := range in.Profile.Models {
		m := &in.Profile.Models[u]
		one := m.Measurements
		m.Measurements = nil
		for k, d := range in.Profile.Devices {
			slow := 1 + float64(k)*(.5+.1*float64(u))
			for _, x := range one {
				took := formats.Latency{WallUS: document.Micros(math.Round(slow * float64(x.WholeModel.WallUS)))}
				m.Measurements = append(m.Measurements, formats.Measurement{Device: d.Device, Share: 1, Batch: x.Batch, WholeModel: &took, Blocks: []formats.Latency{took}})
			}
		}
	}
	return in
}

// planning is CPU time and gap of some plans, the worst of each.
type planning struct {
	n        int
	cpu, gap float64
}

func (w *planning) solve(ctx context.Context, in planner.Inputs, values map[string]any) (*formats.Plan, error) {
	before := cputime.Used()
	plan, err := solved(ctx, in, values)
	if err != nil {
		return nil, err
	}
	w.n, w.cpu = w.n+1, max(w.cpu, (cputime.Used()-before).Seconds())
	if plan.Objective.Gap != nil {
		w.gap = max(w.gap, *plan.Objective.Gap)
	}
	return plan, nil
}

// planned64 measures the planner and adds the figures.
func planned64(ctx context.Context, s *sheet, b *bench) error {
	var alone, judged planning
	for _, p := range b.pipes {
		top, err := alone.solve(ctx, p.kinds(0), map[string]any{"max-batch": 32})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, part := range []float64{.5, .9} {
			for _, objective := range []string{"gpus", "cost"} {
				in := p.kinds(part * top.Objective.Value)
				if _, err := alone.solve(ctx, in, map[string]any{"max-batch": 32, "objective": objective}); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if part > .5 {
					continue
				}
				if _, err := judged.solve(ctx, in, map[string]any{"max-batch": 32, "objective": objective, "margin": "auto"}); err != nil {
					return fmt.Errorf("%s by simulation: %w", p.name, err)
				}
			}
		}
	}
	equal, some, n, err := tiny(ctx)
	if err != nil {
		return err
	}
	s.of("planner")
	const source = "tm, lv, ga and da on devices each slower than the last"
	s.add(figures.Figure{Claim: fmt.Sprintf("planner, 64 devices of four kinds: CPU time, most of %d plans for throughput, devices and cost", alone.n), Source: source, Asked: "<= 2", Measured: alone.cpu, Unit: "s", Holds: figures.If(alone.cpu <= 2)})
	s.add(figures.Figure{Claim: fmt.Sprintf("planner, 64 devices of four kinds: proven gap, largest of %d plans", alone.n), Source: source, Asked: figures.AskedShown, Measured: alone.gap, Unit: "share"})
	s.add(figures.Figure{Claim: fmt.Sprintf("planner, 64 devices of four kinds: CPU time with devices and batches searched and certified by simulation, most of %d plans", judged.n), Source: source, Asked: "<= 2 (asked of the planner; simulation included here)", Measured: judged.cpu, Unit: "s", Holds: figures.If(judged.cpu <= 2)})
	s.add(figures.Figure{Claim: fmt.Sprintf("planner: tiny problems whose cost is the least of all plans, or that have none, of %d", n), Source: fmt.Sprintf("everything tried; %d have a plan", some), Asked: "all", Measured: float64(equal) / float64(n), Unit: "share", Holds: figures.If(equal == n)})
	return nil
}

// small is a problem that is small enough to try everything.
type small struct {
	slo   time.Duration
	rate  float64
	fork  bool       // the second and third module both follow the first
	count [2]int     // devices by kind
	price [2]float64 // likewise
	took  [][2][]time.Duration
}

var smallBatches = []int{1, 2, 4}

func drawSmall(rng *rand.Rand) *small {
	x := &small{slo: time.Duration(40+rng.IntN(200)) * time.Millisecond, rate: 20 + 380*rng.Float64(), count: [2]int{1 + rng.IntN(3), rng.IntN(4)}, price: [2]float64{1 + rng.Float64(), 1}}
	x.took = make([][2][]time.Duration, 1+rng.IntN(3))
	x.fork = len(x.took) == 3 && rng.IntN(2) == 0
	for m := range x.took {
		for k := range 2 {
			took := time.Duration(2+rng.IntN(8)) * time.Millisecond
			for range smallBatches {
				x.took[m][k] = append(x.took[m][k], took)
				took += time.Duration(rng.IntN(8)) * time.Millisecond
			}
		}
	}
	return x
}

// inputs are its documents.
func (x *small) inputs() planner.Inputs {
	in := planner.Inputs{Profile: &formats.Profile{Format: formats.FormatProfile}, Cluster: &formats.Cluster{Format: formats.FormatCluster}}
	for k, name := range []string{"A", "B"} {
		in.Profile.Devices = append(in.Profile.Devices, formats.ProfileDevice{Device: name})
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: name, Count: x.count[k], USDPerHour: x.price[k]})
	}
	app := formats.Application{Name: "small", SLO: document.SLO{Duration: x.slo}, RPS: x.rate}
	for m := range x.took {
		one := formats.ProfileModel{Model: fmt.Sprint("m", m), Blocks: []formats.Block{{Name: "all"}}}
		for k := range 2 {
			for i, b := range smallBatches {
				took := formats.Latency{WallUS: document.Micros(x.took[m][k][i])}
				one.Measurements = append(one.Measurements, formats.Measurement{Device: in.Profile.Devices[k].Device, Share: 1, Batch: b, WholeModel: &took, Blocks: []formats.Latency{took}})
			}
		}
		in.Profile.Models = append(in.Profile.Models, one)
		module := formats.Module{Name: one.Model}
		if m > 0 {
			module.Predecessors = []string{fmt.Sprint("m", m-1)}
		}
		if x.fork {
			module.Predecessors = module.Predecessors[:min(m, 1)]
			if m == 2 {
				module.Predecessors = []string{"m0"}
			}
		}
		app.Modules = append(app.Modules, module)
	}
	in.Workload = &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}
	return in
}

// option is a way to run a module: devices of both kinds and the longest batch.
type option struct {
	devices [2]int
	took    time.Duration
	cost    float64
}

// options are all that carry the rate.
func (x *small) options(m int) []option {
	var out []option
	for a := range len(smallBatches) * (x.count[0] + 1) {
		for b := range len(smallBatches) * (x.count[1] + 1) {
			o, carried := option{}, 0.
			for k, at := range []int{a, b} {
				n, batch := at/len(smallBatches), at%len(smallBatches)
				if o.devices[k] = n; n == 0 {
					continue
				}
				took := x.took[m][k][batch]
				o.took, o.cost = max(o.took, took), o.cost+float64(n)*x.price[k]
				carried += float64(n*smallBatches[batch]) / took.Seconds()
			}
			if carried >= x.rate {
				out = append(out, o)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b option) int { return int(math.Copysign(1, a.cost-b.cost)) })
	return out
}

// cheapest tries everything; infinite: there is no plan. A module takes a batch to wait
// for and its own, and the SLO less a tenth holds along every path.
func (x *small) cheapest() float64 {
	best, chosen := math.Inf(1), make([]option, len(x.took))
	list := make([][]option, len(x.took))
	for m := range list {
		list[m] = x.options(m)
	}
	var try func(m int, cost float64, left [2]int)
	try = func(m int, cost float64, left [2]int) {
		if m == len(chosen) {
			sum := time.Duration(0)
			for _, o := range chosen {
				sum += 2 * o.took
			}
			if x.fork {
				sum -= 2 * min(chosen[1].took, chosen[2].took)
			}
			if sum <= x.slo-x.slo/10 {
				best = cost
			}
			return
		}
		for _, o := range list[m] {
			if cost+o.cost >= best {
				return
			}
			if o.devices[0] > left[0] || o.devices[1] > left[1] {
				continue
			}
			chosen[m] = o
			try(m+1, cost+o.cost, [2]int{left[0] - o.devices[0], left[1] - o.devices[1]})
		}
	}
	try(0, 0, x.count)
	return best
}

// tiny counts the small problems that the planner solves as trying everything does, and
// those that have a plan.
func tiny(ctx context.Context) (equal, some, n int, err error) {
	rng := seeded.New(1, "tiny problems")
	for n = range 300 {
		x := drawSmall(rng)
		want, got := x.cheapest(), math.Inf(1)
		plan, err := solved(ctx, x.inputs(), map[string]any{"objective": "cost", "gap": 0.})
		var none *kind.InfeasibleError
		switch {
		case err == nil:
			got, some = plan.Objective.Value, some+1
		case !errors.As(err, &none):
			return 0, 0, 0, err
		}
		if got == want || math.Abs(got-want) <= 1e-9*want {
			equal++
		}
	}
	return equal, some, n + 1, nil
}
