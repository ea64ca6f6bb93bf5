package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"inferplan/engine/models"
)

type options struct {
	models  []string
	batches []int
	ranges  int
	rounds  int
	seed    uint64
	budget  time.Duration
	out     string
}

func main() {
	var o options
	o.models = models.Names()[:11]
	f := flag.NewFlagSet("bench-ranges", flag.ExitOnError)
	only := f.String("models", strings.Join(o.models, ","), "models of the catalogue")
	batches := f.String("batches", "1,2,4,8", "batch sizes")
	f.IntVar(&o.ranges, "n", 200, "random ranges over all models")
	f.IntVar(&o.rounds, "rounds", 15, "samples of every time")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the choice and of weights")
	f.DurationVar(&o.budget, "budget", 40*time.Minute, "time for all models together")
	f.StringVar(&o.out, "profile", "ranges.json", "profile to extend")
	f.Parse(os.Args[1:])
	o.models = strings.Split(*only, ",")
	for _, b := range strings.Split(*batches, ",") {
		n, err := strconv.Atoi(b)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		o.batches = append(o.batches, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := measure(ctx, &o, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench-ranges:", err)
		os.Exit(1)
	}
}
