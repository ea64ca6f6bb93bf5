package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

// bench holds everything that the tables are made from.
type bench struct {
	output
	runs
	families []*published.Family
	data     string
	trials   int
	draws    int
	traces   *regexp.Regexp // of table switching
	flags    *flag.FlagSet
	figures  []figures.Figure
	heldOut  heldOut
	judged   judgedPlans
	adding   sync.Mutex // of figures: families are measured at the same time
}

// figure notes what a table shows of a family.
func (b *bench) figure(f figures.Figure, table string, of *published.Family) {
	f.Command = figures.Command(b.flags, "gear", "tables", table, "families", strings.Fields(strings.ReplaceAll(of.Name, ",", ""))[0])
	b.adding.Lock()
	defer b.adding.Unlock()
	b.figures = append(b.figures, f)
}

// output takes what is made: tables, and files of it.
type output struct {
	out io.Writer // tables
	dir string    // results, CSV, SVG
}

// makers are the tables in order; each is made family by family.
var makers = []struct {
	name, title string
	columns     []string
	make        func(*bench, *published.Family, *table.Table) error
	timed       bool // it takes CPU time of this process: nothing runs beside
}{
	{"gpus", "GPUs at equal accuracy and p95", []string{"workload", "arrivals", "accuracy", "planner", "planner, all requests", "no switching", "no cascade", "Cascadia-like", "Cascadia-like, re-deployed", "MS+", "DynBa", "planner: times fewer than the better of MS+ and DynBa", "all requests: times fewer"}, (*bench).gpus, false},
	{"methods", "Accuracy and p95 by devices", []string{"workload", "method", "devices", "accuracy, even", "p95 ms", "accuracy, Poisson", "p95 ms, mean (worst)", "planned", "bound"}, (*bench).methods, false},
	{"map", "GPUs over accuracy and p95 target (figure 7), even arrivals", []string{"workload", "p95 target", "accuracy", "planner", "planner, all requests", "Cascadia-like", "Cascadia-like, re-deployed", "MS+", "DynBa", "times fewer"}, (*bench).gpuMap, false},
	{"out-of-sample", "Devices at equal accuracy, on the samples planned on and on others", []string{"workload", "accuracy", "samples", "planner", "planner, all requests", "no switching", "Cascadia-like", "Cascadia-like, re-deployed", "MS+", "Cascadia-like, chosen on the samples planned on", "DynBa", "Cocktail+, mean", "planner: times fewer", "all requests: times fewer"}, (*bench).outOfSample, false},
	{"switching", "Plans against one cascade for all rates, on typical traces and bursts", []string{"workload", "trace", "peak/mean", "devices", "planner", "worst p95 ms", "streams late", "planner, all requests", "worst p95 ms", "streams late", "no switching", "worst p95 ms", "points above, evenly and at random: planner", "all requests"}, (*bench).switching, false},
	{"cocktail", "Cocktail+ with oracle rates: mean devices", []string{"workload", "accuracy", "members at least", "models", "mean devices", "planner", "period", "utilisation", "p95 ms"}, (*bench).cocktail, false},
	{"spike", "A spike under a latency SLO (figure 8)", timelineColumns, (*bench).spike, false},
	{"accuracy-slo", "A spike under an accuracy SLO (figure 9)", timelineColumns, (*bench).accuracySLO, false},
	{"quality", "Plans in a space small enough to try all (figure 10)", []string{"workload", "p95 target ms", "every plan", "planner", "its p95 ms", "CPU s", "planner, all requests", "its p95 ms", "CPU s", "random, twice the CPU", "plans drawn", "ours below the best, points"}, (*bench).quality, true},
	{"time", "Planning time (figure 11)", []string{"workload", "ranges", "CPU s", "simulations", "accuracy"}, (*bench).planningTime, true},
	{"goals", "Planning time and gap by goal", []string{"workload", "devices", "goal", "SLO over", "value (accuracy, ms, devices)", "bound", "by trials", "gap, points", "CPU s", "simulations"}, (*bench).goals, true},
	{"fresh", "Gears in fresh trials, ten times as long", []string{"workload", "devices", "planned", "gears", "trials failed", "most of a gear", "of them late", "worst p95, SLOs"}, (*bench).fresh, false},
	{"heldout", "Planned accuracy against samples not planned on", []string{"workload", "plans", "samples planned on, held out", "planned less held out, points", "within the held-out interval", "within the difference's interval", "planned above"}, (*bench).heldout, false},
	{"thirds", "Plans near their SLO on samples of a third part", []string{"workload", "plans", "near the SLO and past it", "without samples held out", "accuracy less, points"}, (*bench).thirds, false},
	{"ablations", "Without one part (figure 12)", []string{"workload", "devices", "without", "accuracy, even", "p95 ms", "accuracy, Poisson", "p95 ms, mean (worst)"}, (*bench).ablations, false},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-gear:", err)
		os.Exit(1)
	}
}

// proofs are tables of what plans promise. They take long and are made when asked for.
var proofs = []string{"fresh", "heldout", "thirds"}

func usual(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(proofs, name) })
}

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	f := flag.NewFlagSet("bench-gear", flag.ContinueOnError)
	f.SetOutput(log)
	data := f.String("data", published.Dir(), "folder that holds traces/ and cascade/")
	tables := f.String("tables", strings.Join(usual(names), ","), "tables to make, of "+strings.Join(names, ","))
	families := f.String("families", strings.Join(published.Names, ","), "families to measure; tables fresh, heldout and thirds also of "+strings.Join(published.Real, ","))
	dir := f.String("o", "bench/gear/results", "folder for results.jsonl, CSV and SVG; what it holds is not measured again")
	fresh := f.Bool("fresh", false, "measure all again")
	cost := f.Bool("cost", false, "say what there is to measure, and stop")
	into := f.String("figures", "", "file that the figures are put into")
	b := &bench{output: output{out: out}, runs: runs{ctx: ctx}, flags: f}
	f.IntVar(&b.trials, "trials", 100, "fresh trials of a gear")
	f.IntVar(&b.draws, "draws", 5, "draws of samples")
	traces := f.String("traces", "", "regular expression of the traces of table switching; empty: all")
	f.IntVar(&b.seeds, "seeds", 5, "Poisson streams beside the even one")
	f.IntVar(&b.jobs, "jobs", runtime.GOMAXPROCS(0), "runs at the same time")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("found %q, expected only flags", f.Arg(0))
	}
	if b.seeds < 2 || b.jobs < 1 {
		return fmt.Errorf("-seeds %d and -jobs %d: expected at least 2 and 1", b.seeds, b.jobs)
	}
	if b.traces, err = regexp.Compile(*traces); err != nil {
		return fmt.Errorf("-traces: %w", err)
	}
	wanted := strings.Split(*tables, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-tables: found %q, expected some of %s", name, strings.Join(names, ","))
		}
	}
	for _, name := range strings.Split(*families, ",") {
		fam, err := published.Load(name, *data)
		if err != nil {
			return fmt.Errorf("-families, with -data %s (or INFERPLAN_DATA): %w", *data, err)
		}
		if extra := slices.DeleteFunc(slices.Clone(wanted), func(t string) bool { return slices.Contains(proofs, t) }); len(extra) > 0 && !slices.Contains(published.Names, name) {
			return fmt.Errorf("-families: found %s for table %s, expected some of %v", name, extra[0], published.Names)
		}
		b.families = append(b.families, fam)
	}
	b.dir, b.data = *dir, *data
	path := filepath.Join(*dir, "results.jsonl")
	if b.store, err = openStore(path, *fresh); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.store.close()) }()
	if now := revision(); b.store.revision != now {
		fmt.Fprintf(log, "%s was begun by revision %s, this is %s: -fresh measures all again\n", path, b.store.revision, now)
	}
	b.progress = &progress{out: log, every: 5 * time.Second}
	b.counting = map[string]bool{}
	for _, m := range makers {
		if slices.Contains(wanted, m.name) {
			for _, fam := range b.families {
				if err := m.make(b, fam, &table.Table{}); err != nil {
					return fmt.Errorf("table %s, %s: %w", m.name, fam.Name, err)
				}
			}
		}
	}
	b.counting = nil
	b.progress.begin(len(b.store.values), path)
	if *cost {
		return nil
	}
	if err := b.make(wanted); err != nil || *into == "" || len(b.figures) == 0 && b.judged.with.near == 0 {
		return err
	}
	if b.heldOut.plans > 0 {
		all := b.heldOut.figure(b.draws)
		all.Command = figures.Command(f, "gear", "tables", "heldout")
		b.figures = append(b.figures, all)
	}
	if b.judged.with.near > 0 {
		all := b.judged.figure(b.draws)
		all.Command = figures.Command(f, "gear", "tables", "thirds")
		b.figures = append(b.figures, all)
	}
	slices.SortStableFunc(b.figures, func(a, b figures.Figure) int { return cmp.Compare(a.Command, b.Command) })
	return figures.Put(*into, "", b.figures...)
}

// make makes tables and prints them.
func (b *bench) make(wanted []string) error {
	for _, m := range makers {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		t, failed := b.together(m.make, m.timed)
		t.Columns = m.columns
		if failed != nil {
			failed = fmt.Errorf("table %s, %w", m.name, failed)
		}
		// What was found so far is printed, too.
		if err := errors.Join(failed, b.print(m.name, m.title, t)); err != nil {
			return err
		}
	}
	return nil
}

// together makes a table: its families at the same time, or one after the other
// where CPU time is taken. A family that fails keeps the rows that it has.
func (b *bench) together(fill func(*bench, *published.Family, *table.Table) error, timed bool) (*table.Table, error) {
	parts, errs := make([]table.Table, len(b.families)), make([]error, len(b.families))
	var wg sync.WaitGroup
	for i, fam := range b.families {
		wg.Go(func() {
			if err := fill(b, fam, &parts[i]); err != nil {
				errs[i] = fmt.Errorf("%s: %w", fam.Name, err)
			}
		})
		if timed || b.jobs == 1 {
			wg.Wait()
		}
	}
	wg.Wait()
	all := &table.Table{}
	for i := range parts {
		all.Rows, all.Notes = append(all.Rows, parts[i].Rows...), append(all.Notes, parts[i].Notes...)
	}
	return all, errors.Join(errs...)
}

// print writes a table as Markdown, and as CSV beside.
func (o *output) print(name, title string, t *table.Table) error {
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintf(o.out, "\n**%s** (`-tables %s`)\n\n", title, name)
	if err := t.Markdown(o.out); err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	return o.csv(name, t.Columns, t.Rows)
}

// csv writes rows into a file of the output folder, whole or not at all.
func (o *output) csv(name string, columns []string, rows [][]string) error {
	return o.file(name+".csv", func(w io.Writer) error {
		c := csv.NewWriter(w)
		if err := c.Write(columns); err != nil {
			return err
		}
		return c.WriteAll(rows)
	})
}

func (o *output) file(name string, fill func(io.Writer) error) error {
	var text strings.Builder
	if err := fill(&text); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
