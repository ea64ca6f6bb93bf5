package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
)

// bench holds everything that the tables are made from.
type bench struct {
	ctx     context.Context
	out     io.Writer
	keep    *keep
	figures []figures.Figure
	data    string // folder of measurements and traces
	small   bool   // the small cases only
	rows    int    // of the trace, of a sweep's points
	seeds   int    // of them
	dir     string // of results and pictures
	fleet   *fleet.Data
}

// maker makes a table of a part.
type maker struct {
	part, name, title string
	make              func(*bench, *table.Table) error
}

// makers are the tables in order, by part.
var makers = append([]maker{
	{"instance", "instance", "Instance model against real vLLM runs, 300 requests each", (*bench).instances},
	{"instance", "fits", "Fit of an iteration to measured layers", (*bench).fits},
	{"instance", "rings", "All-reduces of a ring against measured ones", rings},
	{"instance", "speed", "Simulated requests per second of CPU", speeds},
	{"instance", "long", "CPU of long queues and of many instances", longQueues},
	{"instance", "waits", "Waiting and completion times of drained queues, predicted", (*bench).waits},
	{"instance", "drift", "Waits predicted while a queue is served", drifts},
	{"search", "exact", "Programs solved to the end, and the search (QLM, equations 6 to 13)", (*bench).exact},
	{"search", "orders", "Late requests of orders at mean times, and the bound", (*bench).orders},
	{"search", "chance", "Late requests under random times: mean (95th percentile) of 400 draws, and requests in groups that end late", (*bench).chance},
	{"search", "replan", "400,000 queued requests planned anew", (*bench).replan},
	{"fleet", "operations", "What operations cost (QLM, figure 4)", (*bench).operations},
	{"fleet", "ceiling", "Throughput at the lowest load", (*bench).ceiling},
	{"fleet", "fleet", "Policies on a fleet of four A100s", (*bench).fleets},
	{"fleet", "priced", "Admission where all instances have one model", admissions},
	{"fleet", "timelines", "Time of instances on W_A", timelines},
	{"beside", "beside", "Batches beside interactive requests on one fleet", besides},
	{"sizing", "sizing", "GPUs for 99 % of interactive and 99 % of batch requests in time", (*bench).sizings},
}, sweepers()...)

// sweepers make the tables of sweeps.
func sweepers() []maker {
	var out []maker
	add := func(s *sweep) {
		out = append(out, maker{"sweeps", s.name, s.source, func(b *bench, t *table.Table) error { return b.sweep(t, s) }})
	}
	add(ablation())
	add(published())
	add(deltas())
	for i := range sweeps {
		add(&sweeps[i])
	}
	return out
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-qlm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	f := flag.NewFlagSet("bench-qlm", flag.ContinueOnError)
	f.SetOutput(log)
	var parts, tables []string
	for _, m := range makers {
		tables = append(tables, m.name)
		if !slices.Contains(parts, m.part) {
			parts = append(parts, m.part)
		}
	}
	whole := strings.Join(tables, ",")
	part := f.String("parts", strings.Join(parts, ","), "parts to measure")
	names := f.String("tables", whole, "tables of these parts to make")
	dir := f.String("o", "bench/qlm/results", "folder for results.jsonl; what it holds of this build is not measured again")
	file := f.String("figures", "", "file that the figures are put into (default: none)")
	fresh := f.Bool("fresh", false, "measure all again")
	b := &bench{ctx: ctx, out: out}
	f.StringVar(&b.data, "data", "../shared/data", "folder of measurements and traces")
	f.BoolVar(&b.small, "small", false, "the small cases only")
	f.IntVar(&b.rows, "rows", 2000, "rows of the trace that the sweeps take")
	f.IntVar(&b.seeds, "seeds", 2, "seeds of each point of the sweeps")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	for _, c := range []struct {
		name, given string
		known       []string
	}{{"parts", *part, parts}, {"tables", *names, tables}} {
		for _, name := range strings.Split(c.given, ",") {
			if !slices.Contains(c.known, name) {
				return fmt.Errorf("-%s: found %q, expected some of %s", c.name, name, strings.Join(c.known, ","))
			}
		}
	}
	b.dir = *dir
	if b.keep, err = openKeep(filepath.Join(*dir, "results.jsonl"), *fresh); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.keep.lines.Close()) }()
	for _, m := range makers {
		if !slices.Contains(strings.Split(*part, ","), m.part) || !slices.Contains(strings.Split(*names, ","), m.name) {
			continue
		}
		t := &table.Table{}
		if err := m.make(b, t); err != nil {
			return fmt.Errorf("table %s: %w", m.name, err)
		}
		fmt.Fprintf(out, "\n%s\n\n", m.title)
		if err := t.Markdown(out); err != nil {
			return fmt.Errorf("table %s: %w", m.name, err)
		}
	}
	if *names == whole && *part == strings.Join(parts, ",") {
		b.atMost(fmt.Sprintf("CPU time of all tables, %d rows and %d seeds of each point of the sweeps", b.rows, b.seeds), "this instrument", 30*60, "s of CPU", b.keep.spent)
	}
	if *file == "" {
		return nil
	}
	return figures.Put(*file, figures.Command(f, "qlm"), b.figures...)
}
