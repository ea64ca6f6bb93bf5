package main

import (
	"context"
	"encoding/json"
	"errors"
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
	models       []string
	batches      []int
	ranges       int
	rounds       int
	seed         uint64
	budget       time.Duration
	out, figures string
}

// pictures are the models of the catalogue that are measured: the nine CNNs and
// OCR's detector and recogniser stand first in it.
const pictures = 11

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-ranges:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench-ranges", flag.ContinueOnError)
	only := f.String("models", strings.Join(models.Names()[:pictures], ","), "models of the catalogue")
	batches := f.String("batches", "1,2,4", "batch sizes")
	f.IntVar(&o.ranges, "n", 200, "random ranges over all models")
	f.IntVar(&o.rounds, "rounds", 11, "samples of every time")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the choice and of weights")
	f.DurationVar(&o.budget, "budget", time.Hour, "time for all models together")
	f.StringVar(&o.out, "profile", "ranges.json", "profile to write or to extend")
	f.StringVar(&o.figures, "figures", "", "file for the figures as JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.models = strings.Split(*only, ",")
	if o.ranges < 1 || o.rounds < 3 {
		return nil, errors.New("-n wants 1 or more, -rounds 3 or more")
	}
	for _, b := range strings.Split(*batches, ",") {
		n, err := strconv.Atoi(b)
		if err != nil {
			return nil, fmt.Errorf("-batches: %w", err)
		}
		o.batches = append(o.batches, n)
	}
	return o, nil
}

func run(ctx context.Context, o *options) error {
	p, err := measure(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	list, err := compare(p)
	if err != nil {
		return err
	}
	figures := report(os.Stdout, list, "make bench NAME=ranges")
	if o.figures == "" {
		return nil
	}
	data, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.figures, append(data, '\n'), 0o644)
}
