package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/recorded"
	"inferplan/bench/table"
	"inferplan/formats"
)

// bench makes the tables.
type bench struct {
	profile *formats.Profile
	seeds   int
	limit   time.Duration
	steps   bool
}

// tables are made in this order. Each returns its figures.
var tables = []struct {
	name string
	make func(*bench, context.Context, *table.Table) ([]figures.Figure, error)
}{{"many", (*bench).many}, {"replan", (*bench).replan}, {"four", (*bench).four}, {"small", (*bench).small}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var names []string
	for _, t := range tables {
		names = append(names, t.name)
	}
	f := flag.NewFlagSet("bench-scale", flag.ContinueOnError)
	data := f.String("data", "../shared/data", "folder that holds ppipe/")
	chosen := f.String("tables", strings.Join(names, ","), "tables to make")
	file := f.String("figures", "", "file for the figures as JSON")
	profile := f.String("cpuprofile", "", "file for a profile of the processor, for go tool pprof")
	b := &bench{}
	f.IntVar(&b.seeds, "seeds", 3, "instances of each kind")
	f.DurationVar(&b.limit, "limit", 3*time.Minute, "longest wall time of a solve")
	f.BoolVar(&b.steps, "steps", false, "tell what was known after how much CPU time")
	err := f.Parse(args)
	if err != nil {
		return err
	}
	if b.profile, err = recorded.Profile(*data); err != nil {
		return err
	}
	if *profile != "" {
		out, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-tables: found %q, expected some of %s", name, strings.Join(names, ","))
		}
	}
	for _, t := range tables {
		if !slices.Contains(wanted, t.name) {
			continue
		}
		to := &table.Table{}
		list, err := t.make(b, ctx, to)
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		if err := to.Markdown(os.Stdout); err != nil {
			return err
		}
		if *file != "" {
			if err := figures.Put(*file, figures.Command(f, "scale", "tables", t.name), list...); err != nil {
				return err
			}
		}
	}
	return nil
}
