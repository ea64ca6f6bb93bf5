package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/table"
)

type options struct {
	n, workers int
	first      uint64
	kind       string
	figures    string
}

func main() {
	o := &options{}
	f := flag.NewFlagSet("bench-infeasible", flag.ContinueOnError)
	f.IntVar(&o.n, "n", 1000, "instances")
	f.IntVar(&o.workers, "workers", max(1, runtime.NumCPU()/2), "instances at a time")
	f.Uint64Var(&o.first, "first", 1, "seed of the first instance")
	f.StringVar(&o.kind, "kind", "", "only of this kind: pool, flow, gear, queue")
	f.StringVar(&o.figures, "figures", "", "file for the figures as JSON")
	err := f.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-infeasible:", err)
		os.Exit(1)
	}
}

// kinds draw problems, each so often.
var kinds = []struct {
	name string
	draw func(*rand.Rand) *instance
	part int
}{{"pool", pool, 80}, {"flow", flow, 15}, {"gear", gear, 3}, {"queue", queue, 2}}

// drawn is the instance of a seed.
func drawn(seed uint64, only string) *instance {
	r := rand.New(rand.NewPCG(seed, 17))
	at := r.IntN(100)
	for _, k := range kinds {
		if at -= k.part; only == k.name || only == "" && at < 0 {
			return k.draw(r)
		}
	}
	return pool(r)
}

// result is a verdict with its instance.
type result struct {
	seed uint64
	name string
	*verdict
}

// judged judges instances that are infeasible, by rising seed, until there are n.
func judged(ctx context.Context, o *options, heard func(*result)) []result {
	var (
		mu   sync.Mutex
		wait sync.WaitGroup
		list []result
		next = o.first
		left = o.n
	)
	for range o.workers {
		wait.Go(func() {
			for {
				mu.Lock()
				seed, more := next, left > 0 && ctx.Err() == nil
				next++
				left--
				mu.Unlock()
				if !more {
					return
				}
				x := drawn(seed, o.kind)
				v := judge(ctx, x)
				mu.Lock()
				if v.feasible {
					left++
				} else if ctx.Err() == nil {
					r := result{seed, x.name, v}
					list = append(list, r)
					heard(&r)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	slices.SortFunc(list, func(a, b result) int { return int(a.seed) - int(b.seed) })
	return list
}

func run(ctx context.Context, o *options) error {
	list := judged(ctx, o, func(r *result) {
		for _, w := range r.wrong {
			fmt.Fprintf(os.Stderr, "seed %d (%s): %s\n", r.seed, r.name, w)
		}
	})
	if err := report(list); err != nil || o.figures == "" {
		return err
	}
	return figures.Put(o.figures, measuredOf(list)...)
}

// report prints what became of the instances, by what was broken.
func report(list []result) error {
	t := &table.Table{Columns: []string{"instances", "of", "bad input, named", "called nearest", "wrong", "slowest answer"}}
	var names []string
	for _, r := range list {
		names = append(names, r.name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		n, bad, near, wrong, slowest := 0, 0, 0, 0, time.Duration(0)
		for _, r := range list {
			if r.name != name {
				continue
			}
			n, near = n+1, near+r.near
			if r.bad {
				bad++
			}
			if len(r.wrong) > 0 {
				wrong++
			}
			slowest = max(slowest, r.took)
		}
		t.Add(n, name, bad, near, wrong, slowest.Round(10*time.Millisecond))
	}
	return t.Markdown(os.Stdout)
}

// measuredOf are the figures.
func measuredOf(list []result) []figures.Figure {
	wrong, near := 0, 0
	for _, r := range list {
		if near += r.near; len(r.wrong) > 0 {
			wrong++
		}
	}
	return []figures.Figure{{
		Claim: "infeasible problems without a verdict, with a wrong cause, or with a nearest value that is not feasible or not within 1 % of the best", Source: "asked of this project",
		Asked: "0 of 1000", Measured: float64(wrong), Unit: fmt.Sprintf("of %d", len(list)), Holds: figures.If(wrong == 0 && len(list) >= 1000),
		Note: fmt.Sprintf("%d nearest values were solved, each and what is 1 %% nearer", near), Command: "make bench-infeasible",
	}}
}
