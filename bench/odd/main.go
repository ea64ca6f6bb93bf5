package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/testkit/mutant"
)

type options struct {
	n       int
	first   uint64
	plan    string
	figures string
	verbose bool
	atOnce  int
	command string
}

func main() {
	o := &options{}
	f := flag.NewFlagSet("bench-odd", flag.ContinueOnError)
	f.IntVar(&o.n, "n", 300, "instances")
	f.Uint64Var(&o.first, "first", 1, "seed of the first instance")
	f.StringVar(&o.plan, "plan", "bin/plan", "the program")
	f.StringVar(&o.figures, "figures", "", "file that the figures are put into")
	f.IntVar(&o.atOnce, "at-once", 1, "instances that are solved at once")
	f.BoolVar(&o.verbose, "v", false, "a line for each instance")
	err := f.Parse(os.Args[1:])
	o.command = figures.Command(f, "odd")
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = o.all(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-odd:", err)
		os.Exit(1)
	}
}

// all judges all instances; it is an error if one is wrong.
func (o *options) all(ctx context.Context) error {
	problems, err := mutant.Problems(".")
	if err != nil {
		return err
	}
	list, errs := make([]*outcome, o.n), make([]error, o.n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range o.atOnce {
		wg.Go(func() {
			for i := range next {
				if list[i], errs[i] = o.judge(ctx, mutant.DrawOdd(problems, o.first+uint64(i))); errs[i] == nil {
					o.say(list[i])
				}
			}
		})
	}
	for i := 0; i < o.n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	wrong := 0
	for _, out := range list {
		if len(out.wrong) > 0 {
			wrong++
		}
	}
	rows := measured(list)
	fmt.Print(figures.Table(rows))
	if o.figures != "" {
		if err := figures.Put(o.figures, o.command, rows...); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d instances are wrong", wrong, len(list))
	}
	return nil
}

// say prints a line of an instance if it is wrong, or all are asked for.
func (o *options) say(out *outcome) {
	if o.verbose || len(out.wrong) > 0 {
		fmt.Printf("seed %d, %s %s (%s): exit code %d, %.1f s of CPU, %d MiB, %v of CPU after Ctrl-C %s\n", out.Seed, out.Kind, strings.Join(out.flags, " "), strings.Join(out.What, ", "),
			out.code, out.cpu.Seconds(), out.memory>>20, out.after.Round(time.Millisecond), strings.Join(out.wrong, "; "))
	}
}

// measured returns the figures of outcomes.
func measured(list []*outcome) []figures.Figure {
	var cpu, after time.Duration
	memory, codes, interrupted, plans := int64(0), 0, 0, 0
	for _, out := range list {
		cpu, after, memory = max(cpu, out.cpu), max(after, out.after), max(memory, out.memory)
		if out.after > 0 {
			interrupted++
		}
		if out.code == 0 {
			plans++
		}
		for _, text := range out.wrong {
			if strings.HasPrefix(text, "exit code") {
				codes++
				break
			}
		}
	}
	figure := func(claim, asked string, v float64, holds bool, note string) figures.Figure {
		return figures.Figure{Claim: claim, Source: "drawn problems of all kinds that are tiny, huge, equal or one too many", Asked: asked, Measured: v, Holds: figures.If(holds), Note: note}
	}
	return []figures.Figure{
		figure("odd problems: most CPU that a search takes, s", "at most 20", cpu.Seconds(), cpu <= mostCPU, fmt.Sprintf("%d problems, %d with a plan", len(list), plans)),
		figure("odd problems: most memory, MiB", "at most 1024", float64(memory>>20), memory <= mostMemory, ""),
		figure("odd problems: most CPU from Ctrl-C to the end, s", "at most 1", after.Seconds(), after <= mostAfter, fmt.Sprintf("%d were interrupted", interrupted)),
		figure("odd problems that end with an exit code of a failure", "0", float64(codes), codes == 0, ""),
	}
}
