package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/engine/worker"
)

// options are the options of a start.
type options struct {
	workload string
	figures  string
	rates    []float64
	length   time.Duration
	budget   time.Duration
	policy   string
	command  string
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "worker" { // executor starts it
		if err := worker.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench-workflows: worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-workflows:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := &options{}
	f := flag.NewFlagSet("bench-workflows", flag.ContinueOnError)
	f.StringVar(&o.workload, "workload", "examples/ocr/pages.yaml", "the two applications")
	f.StringVar(&o.figures, "figures", "", "file that the figures are put into")
	f.DurationVar(&o.length, "length", time.Minute, "of a run")
	f.DurationVar(&o.budget, "budget", time.Minute, "for measuring the models")
	f.StringVar(&o.policy, "policy", "dyorc", "policy")
	rates := f.String("rps", "2,4,8", "requests per second, a run for each")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.command = figures.Command(f, "workflows")
	if f.NArg() > 0 {
		return fmt.Errorf("found %q, expected flags alone", f.Args())
	}
	for text := range strings.SplitSeq(*rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate > 0) {
			return fmt.Errorf("-rps: found %q, expected rates above 0", text)
		}
		o.rates = append(o.rates, rate)
	}
	dir, err := os.MkdirTemp("", "bench-workflows-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newOCR(ctx, dir, o)
	if err != nil {
		return err
	}
	var runs []*served
	for _, rate := range o.rates {
		r, err := b.serve(ctx, rate, o.length)
		if err != nil {
			return err
		}
		if err := b.again(ctx, r); err != nil {
			return err
		}
		runs = append(runs, r)
		fmt.Print(r.row())
	}
	return put(o, runs)
}
