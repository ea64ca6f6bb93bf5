package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
)

// onFourKinds returns a pipeline's documents with 16 devices of each of four kinds. Each is slower than the last, by more for later modules, and cheaper.
func (p *pipeline) onFourKinds(rate float64) planner.Inputs {
	in := p.inputs(rate)
	in.Profile.Devices, in.Cluster.Pools = nil, nil
	for k, name := range []string{"A", "B", "C", "D"} {
		in.Profile.Devices = append(in.Profile.Devices, formats.ProfileDevice{Device: name})
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: name, Count: 16, USDPerHour: 1 / (1 + .6*float64(k))})
	}
	for u := range in.Profile.Models {
		m := &in.Profile.Models[u]
		fastest := m.Measurements
		m.Measurements = nil
		for k, d := range in.Profile.Devices {
			slowdown := 1 + float64(k)*(.5+.1*float64(u))
			for _, x := range fastest {
				m.Measurements = append(m.Measurements, measurement(d.Device, x.Batch, document.Micros(math.Round(slowdown*float64(x.WholeModel.WallUS)))))
			}
		}
	}
	return in
}

// solveTimed plans and adds the CPU seconds that it took to a list.
func solveTimed(ctx context.Context, in planner.Inputs, values map[string]any, spent *[]float64) (*formats.Plan, error) {
	before := cputime.Used()
	plan, err := solved(ctx, in, values)
	*spent = append(*spent, (cputime.Used() - before).Seconds())
	return plan, err
}

// measurePlanner measures the time of plans for 64 devices of four kinds, and holds plans of tiny problems against everything that can be tried.
func (b *bench) measurePlanner(r *instrument.Run, _ *table.Table) error {
	var alone, certified []float64 // CPU seconds
	for _, p := range b.pipes {
		largest, err := solveTimed(r.Ctx, p.onFourKinds(0), map[string]any{"max-batch": 32}, &alone)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, part := range []float64{.5, .9} {
			for _, objective := range []string{"gpus", "cost"} {
				in := p.onFourKinds(part * largest.Objective.Value)
				if _, err := solveTimed(r.Ctx, in, map[string]any{"max-batch": 32, "objective": objective}, &alone); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if part > .5 {
					continue
				}
				if _, err := solveTimed(r.Ctx, in, map[string]any{"max-batch": 32, "objective": objective, "margin": "auto"}, &certified); err != nil {
					return fmt.Errorf("%s by simulation: %w", p.name, err)
				}
			}
		}
	}
	equal, plans, err := solveTiny(r.Ctx)
	if err != nil {
		return err
	}
	const source = "tm, lv, ga and da on devices each slower than the last"
	r.AtMost(fmt.Sprintf("planner, 64 devices of four kinds: CPU time, most of %d plans for throughput, devices and cost", len(alone)), source, 2, "s", slices.Max(alone))
	f := instrument.Limited(fmt.Sprintf("planner, 64 devices of four kinds: CPU time with devices and batches searched and certified by simulation, most of %d plans", len(certified)), source, "at most", 2, "s",
		[]float64{slices.Max(certified)})
	f.Note = "asked of the planner; simulation is included here"
	r.Figure(f)
	r.Exactly(fmt.Sprintf("planner: tiny problems whose cost is the least of all plans, or that have none, of %d", tinyProblems), fmt.Sprintf("everything tried; %d have a plan", plans), 1, "share", float64(equal)/tinyProblems)
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

// inputs returns its documents.
func (x *small) inputs() planner.Inputs {
	app := formats.Application{Name: "small", SLO: document.SLO{Duration: x.slo}, RPS: x.rate}
	var models []formats.ProfileModel
	kinds := []string{"A", "B"}
	for m := range x.took {
		model := formats.ProfileModel{Model: fmt.Sprint("m", m), Blocks: []formats.Block{{Name: "all"}}}
		for k, kind := range kinds {
			for i, batch := range smallBatches {
				model.Measurements = append(model.Measurements, measurement(kind, batch, document.Micros(x.took[m][k][i])))
			}
		}
		models = append(models, model)
		module := formats.Module{Name: model.Model}
		switch {
		case m > 0 && x.fork:
			module.Predecessors = []string{"m0"}
		case m > 0:
			module.Predecessors = []string{fmt.Sprint("m", m-1)}
		}
		app.Modules = append(app.Modules, module)
	}
	in := documents(app, 0, models...)
	in.Profile.Devices, in.Cluster.Pools = nil, nil
	for k, kind := range kinds {
		in.Profile.Devices = append(in.Profile.Devices, formats.ProfileDevice{Device: kind})
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: kind, Count: x.count[k], USDPerHour: x.price[k]})
	}
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
	slices.SortStableFunc(out, func(a, b option) int { return cmp.Compare(a.cost, b.cost) })
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

// tinyProblems says how many are solved.
const tinyProblems = 300

// solveTiny counts the small problems that the planner solves as trying everything does, and those that have a plan.
func solveTiny(ctx context.Context) (equal, plans int, err error) {
	rng := seeded.New(1, "tiny problems")
	for range tinyProblems {
		x := drawSmall(rng)
		want, got := x.cheapest(), math.Inf(1)
		plan, err := solved(ctx, x.inputs(), map[string]any{"objective": "cost", "gap": 0.})
		switch {
		case err == nil:
			got, plans = plan.Objective.Value, plans+1
		case !isInfeasible(err):
			return 0, 0, err
		}
		if got == want || math.Abs(got-want) <= 1e-9*want {
			equal++
		}
	}
	return equal, plans, nil
}
