package pool

import (
	"context"
	"fmt"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/solver/highs"
)

// Column generation and the program over every template agree.
func TestColumnsMatchEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, size{models: 3, pools: 3, count: 6, shares: 3, blocks: 6, batches: 3, partitions: 3, memory: true, floors: true})
		ctx := context.Background()
		templates, err := p.list()
		if err != nil {
			if _, _, err := p.generate(ctx, highs.Solver{}, nil); err == nil {
				t.Fatal("column generation finds pipelines where there are none")
			}
			return
		}
		u := p.units(templates)
		want, wantErr := p.relax(ctx, highs.Solver{}, u, templates, all(len(templates)), -1)
		c, got, err := p.generate(ctx, highs.Solver{}, nil)
		if (wantErr != nil) != (err != nil) {
			t.Fatalf("errors %v and %v", wantErr, err)
		}
		if err != nil {
			return
		}
		a, b := want.value*u.theta, got.value*c.u.theta
		if math.Abs(a-b) > 1e-6*a {
			t.Fatalf("column generation has %v, enumeration %v", b, a)
		}
		if bound := got.bound * c.u.theta; bound < a*(1-1e-9) || bound > a*(1+1e-5) {
			t.Fatalf("bound %v of an optimum of %v", bound, a)
		}
	})
}

// Instances of the size that the planner must plan for: the time is CPU time of
// one thread, the gap that of whole replicas to the bound over all templates.
var scaleCases = []struct {
	name string
	synthetic
	gap float64
	max time.Duration
}{
	{"100k GPUs, 4 kinds, 3 models, 3 partitions", synthetic{models: 3, classes: 1, kinds: 4, gpus: 100_000, layers: 10, partitions: 3, shares: 4, batches: 8}, 2e-4, time.Second},
	{"1k GPUs, 8 kinds, 30 models in 3 classes each, 2 partitions", synthetic{models: 30, classes: 3, kinds: 8, gpus: 1000, layers: 10, partitions: 2, shares: 4, batches: 8, rounding: Fractional}, 3e-2, time.Minute},
	{"2500 layers, 2 kinds, 3 models, 2 partitions", synthetic{models: 3, classes: 1, kinds: 2, gpus: 1000, layers: 2500, partitions: 2, shares: 4, batches: 8}, 1e-2, 2 * time.Second},
	{"2500 layers, 2 kinds, 3 models, 3 partitions", synthetic{models: 3, classes: 1, kinds: 2, gpus: 1000, layers: 2500, partitions: 3, shares: 4, batches: 8}, 1e-2, 15 * time.Second},
}

func TestScale(t *testing.T) {
	long := os.Getenv("INFERPLAN_LONG") != ""
	for i, z := range scaleCases {
		seeds := 1
		if long {
			seeds = 2
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/seed %d", z.name, seed), func(t *testing.T) {
				if !long && i > 0 {
					t.Skip("takes up to a minute of CPU: set INFERPLAN_LONG=1")
				}
				z.seed = uint64(seed)
				p := z.problem()
				begin := processCPU()
				o, err := Solve(context.Background(), p, highs.Solver{}, Options{Gap: z.gap, Effort: 1, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				took := processCPU() - begin
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

func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
