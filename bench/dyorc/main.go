package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"inferplan/bench/figures"
)

// bench holds everything that the tables are made from.
type bench struct {
	runner
	page
	seeds []uint64
}

// makers are the tables in order.
var makers = []struct {
	name, title string
	make        func(b *bench) error
}{
	{"rows", "Latency on 32 devices with 40 GB: mean / p99 in seconds", (*bench).ampleTable},
	{"scarce", "Latency on 8 devices with 24 GB: mean / p99 in seconds", (*bench).scarceTable},
	{"cold", "Cost of cold starts: mean latency less that with loads that take no time, in ms", (*bench).coldTable},
	{"foresight", "Cost of cold starts where the way of each request is known as it comes, in ms", (*bench).foresightTable},
	{"prior", "Cost of cold starts by what a server knows when it starts, in ms", priorTable},
	{"memory", "Cost of cold starts over memory: MIX 3 on 8 devices, in ms", (*bench).memoryTable},
	{"start", "The first ten minutes of an empty fleet: mean / p99 in seconds", (*bench).startTable},
	{"shift", "GILL doubles and the others halve at minute 60: mean latency of ten minutes, in seconds", (*bench).shiftTable},
	{"devices", "What devices do: loads per minute, mean batch, share of time running / loading / both / idle", (*bench).deviceTable},
	{"deadlines", "The least scale of deadlines at which 99 % of requests are in time, 32 devices at .7 of their time", (*bench).deadlineTable},
	{"batched", "The same at .7 of what batches make of their time", (*bench).batchedTable},
	{"goodput", "Requests in time at loads that are too high, deadlines of 2.5 times the mean unloaded latency, 32 devices, in %", (*bench).goodputTable},
	{"scale", "MIX at .375 requests per second and device over the size of the fleet, the scheduler's own CPU time charged: mean / p99 in seconds", (*bench).scaleTable},
	{"sessions", "States of sessions kept, dropped and moved by worth, all kept, and all dropped", (*bench).sessionTable},
	{"llm", "Language models that run iteration by iteration, with answers of spread lengths: mean / p99 in seconds", (*bench).generationTable},
	{"overload", "Goodput beyond the planned rate, in % of it", (*bench).overloadTable},
	{"accuracy", "Accuracy of predictions", (*bench).accuracyTable},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dyorc:", err)
		os.Exit(1)
	}
}

func run() error {
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	data := flag.String("data", "../shared/data", "folder of the measurements and traces of others")
	dir := flag.String("keep", "bench/dyorc/results", "folder of results; a second start goes on where the first was stopped")
	tables := flag.String("tables", strings.Join(names, ","), "tables to make")
	seeds := flag.String("seeds", "1,2,3,4,5", "seeds of the runs")
	file := flag.String("figures", "bench/dyorc/figures.json", "file for the claims with what was measured; empty: none")
	fresh := flag.Bool("fresh", false, "forget what is kept")
	by := flag.String("kept-by", "", "take results that were kept by this program (a hash); default: this one")
	b := &bench{page: page{out: os.Stdout}}
	flag.IntVar(&b.jobs, "jobs", runtime.GOMAXPROCS(0), "runs at the same time")
	flag.BoolVar(&b.verify, "verify", false, "check the simulator's invariants")
	flag.Parse()
	if *seeds != flag.Lookup("seeds").DefValue {
		b.of = ", seeds " + *seeds
	}
	for _, s := range strings.Split(*seeds, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("reading -seeds: %w", err)
		}
		b.seeds = append(b.seeds, seed)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b.ctx = ctx
	var err error
	if b.trace, err = readTrace(*data); err != nil {
		return fmt.Errorf("reading the trace of arrivals: %w", err)
	}
	if b.store, err = openStore(*dir, *by, *fresh); err != nil {
		return err
	}
	for _, m := range makers {
		if !slices.Contains(strings.Split(*tables, ","), m.name) {
			continue
		}
		fmt.Fprintf(b.out, "\n## %s\n\n", m.title)
		if err := m.make(b); err != nil {
			return fmt.Errorf("table %s: %w", m.name, err)
		}
		if *file != "" {
			if err := figures.Put(*file, figures.Command(flag.CommandLine, "dyorc", "tables", m.name), b.figures...); err != nil {
				return err
			}
		}
		b.figures = nil
	}
	return nil
}
