package search

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/cputime"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// Column generation and the program over every template agree.
func TestColumnsMatchEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 6, Shares: 3, Blocks: 6, Batches: 3, Partitions: 3, Memory: true, Floors: true})
		ctx := context.Background()
		every, err := templates.ListAll(p)
		if err != nil {
			if _, _, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil); err == nil {
				t.Fatal("column generation finds pipelines where there are none")
			}
			return
		}
		want, wantErr := relaxation.Solve(ctx, every, highs.Solver{}, nil, every.AllTemplates())
		c, got, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil)
		if (wantErr != nil) != (err != nil) {
			t.Fatalf("errors %v and %v", wantErr, err)
		}
		if err != nil {
			return
		}
		a, b := want.Value*every.Units.Throughput, got.Value*c.Catalogue.Units.Throughput
		if math.Abs(a-b) > 1e-6*a {
			t.Fatalf("column generation has %v, enumeration %v", b, a)
		}
		if bound := got.Bound * c.Catalogue.Units.Throughput; bound < a*(1-1e-9) || bound > a*(1+1e-5) {
			t.Fatalf("bound %v of an optimum of %v", bound, a)
		}
	})
}

// The same for the least price of given rates.
func TestPricedColumnsMatchEnumeration(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 6, Shares: 3, Blocks: 6, Batches: 3, Partitions: 3, Memory: true})
		for d := range p.Models {
			p.Models[d].MinRPS = float64(rapid.IntRange(1, 400).Draw(t, "min rps"))
		}
		var prices []float64
		for range p.Pools {
			prices = append(prices, float64(rapid.IntRange(1, 20).Draw(t, "price"))/4)
		}
		ctx, g := context.Background(), incumbent.NewMinPrice(p, prices)
		every, err := templates.ListAll(p)
		if err != nil {
			return
		}
		want, wantErr := relaxation.Solve(ctx, every, highs.Solver{}, g.PoolCosts(), every.AllTemplates())
		_, got, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, g.PoolCosts(), nil)
		if (wantErr != nil) != (err != nil) {
			t.Fatalf("errors %v and %v", wantErr, err)
		}
		if err != nil {
			return
		}
		compared++
		if a, b := -want.Value, -got.Value; math.Abs(a-b) > 1e-6*a {
			t.Fatalf("column generation has %v, enumeration %v", b, a)
		}
		if a, b := -want.Value, -got.Bound; b > a*(1+1e-9) || b < a*(1-1e-5) {
			t.Fatalf("bound %v of an optimum of %v", b, a)
		}
	})
	if compared == 0 {
		t.Error("no problem was feasible")
	}
}

// The least price where the pipelines are too many to list: a fifth of what a
// cluster carries, by column generation.
func TestCheapestAtScale(t *testing.T) {
	for i, z := range scaleCases {
		if i == 1 && os.Getenv("INFERPLAN_LONG") == "" {
			continue // half a minute of CPU
		}
		if i > 1 {
			break
		}
		t.Run(z.name, func(t *testing.T) {
			p := z.Problem()
			_, r, err := relaxation.GenerateColumns(context.Background(), p, highs.Solver{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			c, _, err := relaxation.GenerateColumns(context.Background(), p, highs.Solver{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			prices := make([]float64, len(p.Pools))
			for k := range prices {
				prices[k] = 1 / (1 + float64(k)) // the slower the cheaper
			}
			for d := range p.Models {
				p.Models[d].MinRPS = r.Bound / 5 * c.Catalogue.Units.ModelRPS[d]
			}
			begin := cputime.Used()
			o, err := Cheapest(context.Background(), p, prices, highs.Solver{}, problem.Options{Gap: 1e-3})
			if err != nil {
				t.Fatal(err)
			}
			gap := (o.Value - o.Bound) / o.Value
			t.Logf("price %.1f, bound %.1f, gap %.3f %%, %.2f s of CPU, %d pipelines, %s", o.Value, o.Bound, 100*gap, (cputime.Used() - begin).Seconds(), o.Templates, o.StoppedBy)
			for _, ph := range o.Phases {
				t.Logf("  %-14s %5d pipelines %6d nodes %8d iterations  value %.3f bound %.3f", ph.Name, ph.Pipelines, ph.Nodes, ph.Iterations, ph.Value, ph.Bound)
			}
			if most := []float64{1e-3, 0.15}[i]; gap > most {
				t.Errorf("gap %.3f %%, expected at most %.3f %%", 100*gap, 100*most)
			}
			for d := range p.Models {
				if o.RPS[d] < p.Models[d].MinRPS*(1-1e-6) {
					t.Errorf("%s: %v requests/s of %v", p.Models[d].Name, o.RPS[d], p.Models[d].MinRPS)
				}
			}
		})
	}
}

// Instances of the size that the planner must plan for: the time is CPU time of
// one thread, the gap that of whole replicas to the bound over all templates.
var scaleCases = []struct {
	name string
	pooldraw.Synthetic
	gap float64
	max time.Duration
}{
	{"100k GPUs, 4 kinds, 3 models, 3 partitions", pooldraw.Synthetic{Models: 3, Classes: 1, Kinds: 4, GPUs: 100_000, Layers: 10, Partitions: 3, Shares: 4, Batches: 8}, 2e-4, time.Second},
	{"1k GPUs, 8 kinds, 30 models in 3 classes each, 2 partitions", pooldraw.Synthetic{Models: 30, Classes: 3, Kinds: 8, GPUs: 1000, Layers: 10, Partitions: 2, Shares: 4, Batches: 8, Rounding: problem.Fractional}, 3e-2, time.Minute},
	{"2500 layers, 2 kinds, 3 models, 2 partitions", pooldraw.Synthetic{Models: 3, Classes: 1, Kinds: 2, GPUs: 1000, Layers: 2500, Partitions: 2, Shares: 4, Batches: 8}, 1e-2, 2 * time.Second},
	{"2500 layers, 2 kinds, 3 models, 3 partitions", pooldraw.Synthetic{Models: 3, Classes: 1, Kinds: 2, GPUs: 1000, Layers: 2500, Partitions: 3, Shares: 4, Batches: 8}, 1e-2, 15 * time.Second},
}

func TestSolveEndsInTimeAtScale(t *testing.T) {
	long := os.Getenv("INFERPLAN_LONG") != ""
	for i, z := range scaleCases {
		seeds := 1
		if long {
			seeds = 6
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/seed %d", z.name, seed), func(t *testing.T) {
				if !long && i > 0 {
					t.Skip("takes up to a minute of CPU: set INFERPLAN_LONG=1")
				}
				z.Seed = uint64(seed)
				p := z.Problem()
				begin := cputime.Used()
				if n := templates.LimitBlocks(p); n > 0 {
					t.Logf("limited to %d blocks", n)
				}
				o, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: z.gap, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				took := cputime.Used() - begin
				gap := 1 - o.Value/o.Bound
				t.Logf("gap %.4f %%, %.2f s of CPU, %d pipelines generated or listed, %s", 100*gap, took.Seconds(), o.Templates, o.StoppedBy)
				for _, ph := range o.Phases {
					t.Logf("  %-14s %5d pipelines %6d nodes %8d iterations  value %.3f bound %.3f", ph.Name, ph.Pipelines, ph.Nodes, ph.Iterations, ph.Value, ph.Bound)
				}
				if gap > z.gap {
					t.Errorf("gap %.4f %%, asked %.4f %%", 100*gap, 100*z.gap)
				}
				if long && took > z.max {
					t.Errorf("took %v of CPU, asked %v", took, z.max)
				}
			})
		}
	}
}

// A floor of a millionth of what the cluster carries is carried all the same,
// and by the cheaper of two pipelines.
func TestTinyFloorIsKept(t *testing.T) {
	costs := func(us time.Duration) []stages.ShareCosts {
		return []stages.ShareCosts{{Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{us * time.Microsecond}}}}}
	}
	p := &problem.Problem{Problem: stages.Problem{
		MaxPartitions: 1,
		Pools:         []stages.Pool{{Kind: "dear", Count: 1000, MaxShares: 1, PerNode: 1}, {Kind: "cheap", Count: 1000, MaxShares: 1, PerNode: 1}},
		Models:        []stages.Model{{Name: "m", Weight: 1, SLO: time.Second, Weights: []int64{1}, ShareCosts: [][]stages.ShareCosts{costs(1000), costs(1000)}, MinRPS: 0.05}},
	}}
	g := incumbent.NewMinPrice(p, []float64{3, 1})
	const price = 0.05 / 1000 // of a device of price 1 that carries 1000 requests/s
	every, err := templates.ListAll(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := relaxation.Solve(context.Background(), every, highs.Solver{}, g.PoolCosts(), every.AllTemplates())
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := relaxation.GenerateColumns(context.Background(), p, highs.Solver{}, g.PoolCosts(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []float64{-r.Value * g.TotalPrice, -r.Bound * g.TotalPrice, -c.Value * g.TotalPrice, -c.Bound * g.TotalPrice} {
		if math.Abs(got-price) > 1e-6*price {
			t.Errorf("price %v, expected %v", got, price)
		}
	}
	o, err := Cheapest(context.Background(), p, []float64{3, 1}, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Value != 1 {
		t.Errorf("the plan costs %v, expected one cheap device", o.Value)
	}
}

// Column generation from template tables agrees with the program over every template.
func TestSievesMatchEnumeration(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		ctx := context.Background()
		every, err := templates.ListAll(p)
		if err != nil {
			if _, _, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil); err == nil {
				t.Fatal("sieves hold pipelines where there are none")
			}
			return
		}
		want, wantErr := relaxation.Solve(ctx, every, highs.Solver{}, nil, every.AllTemplates())
		c, got, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil)
		if (wantErr != nil) != (err != nil) {
			t.Fatalf("errors %v and %v", wantErr, err)
		}
		if err != nil {
			return
		}
		compared++
		a, b := want.Value*every.Units.Throughput, got.Value*c.Catalogue.Units.Throughput
		if math.Abs(a-b) > 1e-6*a {
			t.Fatalf("sieves have %v, enumeration %v", b, a)
		}
		if bound := got.Bound * c.Catalogue.Units.Throughput; bound < a*(1-1e-9) || bound > a*(1+1e-5) {
			t.Fatalf("bound %v of an optimum of %v", bound, a)
		}
	})
	if compared == 0 {
		t.Error("no problem was feasible")
	}
}
