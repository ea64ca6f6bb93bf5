package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/kept"
	"inferplan/bench/table"
)

type options struct {
	n, workers int
	first      uint64
	kind       string
	results    string
	fresh      bool
	figures    string
	profile    string
	command    string
	refusals   int
}

func main() {
	o := &options{}
	f := flag.NewFlagSet("bench-infeasible", flag.ContinueOnError)
	f.IntVar(&o.n, "n", 1000, "instances")
	f.IntVar(&o.workers, "workers", max(1, runtime.NumCPU()/2), "instances at a time")
	f.Uint64Var(&o.first, "first", 1, "seed of the first instance")
	f.StringVar(&o.kind, "kind", "", "only of this kind: pool, flow, gear, queue")
	f.StringVar(&o.results, "results", "", "file that keeps every verdict: a second start goes on there, and judges again what was wrong")
	f.BoolVar(&o.fresh, "fresh", false, "forget what -results holds")
	f.StringVar(&o.figures, "figures", "", "file for the figures as JSON")
	f.IntVar(&o.refusals, "refusals", 0, "measure instead what the answers to so many queue problems without a plan take")
	f.StringVar(&o.profile, "cpuprofile", "", "file for a profile of the processor, for go tool pprof")
	err := f.Parse(os.Args[1:])
	o.command = figures.Command(f, "infeasible")
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	Seed uint64 `json:"seed"`
	Name string `json:"name"`
	verdict
}

// judged judges instances that are infeasible, by rising seed, until there are n. What
// is known already is taken; heard gets what is new.
func judged(ctx context.Context, o *options, known map[uint64]result, heard func(*result)) []result {
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
				r, old := known[seed]
				mu.Unlock()
				if !more {
					return
				}
				if !old {
					x := drawn(seed, o.kind)
					r = result{seed, x.name, *judge(ctx, x)}
				}
				mu.Lock()
				if ctx.Err() == nil && !old {
					heard(&r)
				}
				if r.Feasible {
					left++
				} else if ctx.Err() == nil {
					list = append(list, r)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	slices.SortFunc(list, func(a, b result) int { return cmp.Compare(a.Seed, b.Seed) })
	return list
}

func run(ctx context.Context, o *options) error {
	if o.profile != "" {
		out, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if o.refusals > 0 {
		return refusals(ctx, o)
	}
	known := map[uint64]result{}
	var lines *kept.Lines
	if o.results != "" {
		var err error
		lines, err = kept.Open(o.results, o.fresh, func(line []byte) error {
			var r result
			if err := json.Unmarshal(line, &r); err != nil {
				return err
			}
			if known[r.Seed] = r; len(r.Wrong) > 0 {
				delete(known, r.Seed)
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer lines.Close()
	}
	var failed error
	list := judged(ctx, o, known, func(r *result) {
		failed = errors.Join(failed, lines.Add(r))
		for _, w := range r.Wrong {
			fmt.Fprintf(os.Stderr, "seed %d (%s): %s\n", r.Seed, r.Name, w)
		}
	})
	if failed != nil || ctx.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	if err := report(list); err != nil || o.figures == "" {
		return err
	}
	return figures.Put(o.figures, o.command, measuredOf(list)...)
}

// report prints what became of the instances, by what was broken.
func report(list []result) error {
	t := &table.Table{Columns: []string{"instances", "of", "bad input, named", "called nearest", "wrong", "slowest answer"}}
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		n, bad, near, wrong, slowest := 0, 0, 0, 0, time.Duration(0)
		for _, r := range list {
			if r.Name != name {
				continue
			}
			n, near = n+1, near+r.Near
			if r.Bad {
				bad++
			}
			if len(r.Wrong) > 0 {
				wrong++
			}
			slowest = max(slowest, r.Took)
		}
		t.Add(n, name, bad, near, wrong, slowest.Round(10*time.Millisecond))
	}
	return t.Markdown(os.Stdout)
}

// measuredOf are the figures.
func measuredOf(list []result) []figures.Figure {
	wrong, near := 0, 0
	for _, r := range list {
		if near += r.Near; len(r.Wrong) > 0 {
			wrong++
		}
	}
	return []figures.Figure{{
		Claim: "infeasible problems without a verdict, with a wrong cause, or with a nearest value that is not feasible or not within 1 % of the best", Source: "asked of this project",
		Asked: "0 of 1000", Measured: float64(wrong), Unit: fmt.Sprintf("of %d", len(list)), Holds: figures.If(wrong == 0 && len(list) >= 1000),
		Note: fmt.Sprintf("%d nearest values were solved, each and what is 1 %% nearer", near),
	}}
}
