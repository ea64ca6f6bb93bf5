package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/planner/check"
)

type options struct {
	profiles, figures string
	command           string
	add               bool
	world             world
}

func main() {
	o := &options{world: world{devices: 4, slo: 500 * time.Millisecond}}
	f := flag.NewFlagSet("bench-gate", flag.ContinueOnError)
	f.StringVar(&o.profiles, "profiles", "bench/gate/testdata/profiles.json.gz", "profiles that were taken")
	f.BoolVar(&o.add, "add", false, "put the profiles that are named into the file, and do no more")
	f.BoolVar(&o.world.told, "v", false, "say why the gate fails")
	f.StringVar(&o.figures, "figures", "", "file for the figures as JSON")
	err := f.Parse(os.Args[1:])
	o.command = figures.Command(f, "gate")
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && o.add:
		err = add(o.profiles, f.Args())
	case err == nil:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-gate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	list, err := read(o.profiles)
	if err != nil {
		return err
	}
	if len(list) < 6 {
		return fmt.Errorf("%s has %d profiles, expected 6 or more", o.profiles, len(list))
	}
	measured, err := o.measured(ctx, list)
	if err != nil {
		return err
	}
	for _, m := range measured {
		fmt.Printf("%-100s %8.4g %s (asked: %s)\n", m.Claim, m.Measured, m.Unit, m.Asked)
	}
	if o.figures == "" {
		return nil
	}
	return figures.Put(o.figures, o.command, measured...)
}

const (
	sides  = 3 // profiles a side
	drawsN = 100
)

// measured are the figures.
func (o *options) measured(ctx context.Context, list []*formats.Profile) ([]figures.Figure, error) {
	alarms, pairs, err := o.world.pairs(ctx, list, 1)
	if err != nil {
		return nil, err
	}
	found, _, err := o.world.pairs(ctx, list, 1.05)
	if err != nil {
		return nil, err
	}
	three, err := o.world.draws(ctx, list, sides, drawsN, 1.03, 1)
	if err != nil {
		return nil, err
	}
	same, err := o.world.draws(ctx, list, sides, drawsN, 1, 2)
	if err != nil {
		return nil, err
	}
	apart := spread(list)
	of := func(n int) string { return fmt.Sprintf("of %d", n) }
	out := []figures.Figure{
		{Claim: "unchanged models fail the gate, one profile a side, taken at different times", Asked: "at most 1 of 30", Measured: float64(alarms), Unit: of(pairs), Holds: figures.If(alarms*30 <= pairs && pairs >= 30)},
		{Claim: "one model 5 % slower fails the gate, one profile a side", Asked: "at least 28 of 30", Measured: float64(found), Unit: of(pairs), Holds: figures.If(found*30 >= 28*pairs && pairs >= 30)},
		{Claim: "3 % slower fails the gate, three profiles a side", Asked: "at least 95 of 100", Measured: float64(three), Unit: of(drawsN), Holds: figures.If(three >= 95)},
		{Claim: "unchanged models fail the gate, three profiles a side", Measured: float64(same), Unit: of(drawsN)},
		{Claim: "standard deviation between profiles, of a model in one piece", Measured: 100 * apart, Unit: "%", Note: fmt.Sprintf("%d profiles; the gate takes %g %% of a model and %g %% of all together, beside the reference", len(list), 100*check.SteadyBetweenRuns, 100*check.CommonBetweenRuns)},
	}
	for i := range out {
		out[i].Source = "asked of this project"
	}
	return out, nil
}
