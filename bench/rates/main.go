package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"inferplan/bench/figures"
	"inferplan/bench/held"
	"inferplan/bench/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-rates:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench-rates", flag.ContinueOnError)
	first := f.Uint64("first", 46, "first drawn problem; the search was tuned on problems 1 to 30, the tests of cascades and queues on 31 to 45")
	last := f.Uint64("last", 60, "last drawn problem")
	flags := f.Bool("flags", true, "compare pools and applications with explicit flags, too")
	kinds := f.String("kinds", "pools,applications,cascades,queues", "kinds of problems")
	small := f.Bool("gaps", false, "only the gap of one to four devices to the bound, by SLO")
	file := f.String("figures", "", "file for the figures as JSON")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *small {
		ignored := ""
		f.Visit(func(given *flag.Flag) {
			if given.Name != "gaps" && given.Name != "figures" {
				ignored = given.Name
			}
		})
		if ignored != "" {
			return fmt.Errorf("-gaps draws its own problems: leave out -%s", ignored)
		}
	}
	h := &tester{held.Tester{Runs: 10, Seed: 7919, Requests: 20_000}}
	t := &table.Table{}
	var list []figures.Figure
	var err error
	if *small {
		list, err = h.gaps(ctx, t)
	} else {
		list, err = h.rates(ctx, *first, *last, strings.Split(*kinds, ","), *flags, t)
	}
	if err != nil {
		return err
	}
	if err := t.Markdown(os.Stdout); err != nil || *file == "" {
		return err
	}
	return figures.Put(*file, figures.Command(f, "rates"), list...)
}
