package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/bench/figures"
	"inferplan/cputime"
	"inferplan/testkit/reference"
)

// bench makes the tables.
type bench struct {
	planning
	pictures
	cases    string // regular expression, or empty
	runs     int
	duration time.Duration
	arrivals string
	byDNN    bool
	figures  string                      // file; none if empty
	command  func(part ...string) string // that measures a part of this run
	measured []figures.Figure            // of the table that is made
	near     map[string]int              // highest points found last, by case, algorithm and model
	out      io.Writer
}

// table is one of the tables, in the order in which they are made.
type table struct {
	name, title string
	make        func(*bench, context.Context, *tabwriter.Writer) error
}

var tables = []table{
	{"recompute", "Recorded plans recomputed from the measurements (1 us, 1e-5)", (*bench).recompute},
	{"objective", "Objective against the recorded PPipe plans", (*bench).objective},
	{"load", "Highest load factor at 99 % (0.05 grid up to 1, mean over DNNs; figure 6), and use of high and low class there (figure 8)", (*bench).loads},
	{"curve", "Attainment by load factor, mean over the DNNs of a case (figure 7)", (*bench).curves},
	{"small", "Highest load factor of the 18 DNNs one at a time on 16 devices, simulated (figure 9)", (*bench).smalls},
	{"sensitivity", "Sensitivity to the SLO, the ratio of devices and the margin, 18 DNNs one at a time on HC1-S, simulated (figure 13)", (*bench).sensitivity},
	{"transfer", "Reservation against reaction: highest load, and transfer times at 0.9 of the recorded rate", (*bench).transfers},
	{"baselines", "Our NP and DART-r plans of recorded cases against the recorded ones: highest load factor at 99 %", (*bench).baselines},
	{"headline", "Certified rps at 99 %: our plan and policy against what the artifact's plan sustains in its simulator", (*bench).headline},
	{"gaps", "Default plans and their bounds: what keeps them apart, of the bound", (*bench).gaps},
	{"links", "Shared NICs: highest load of every model beside the others, at the same plans", (*bench).links},
	{"latency", "Latency over load under reserve: what waits goes at once, or waits for a fuller batch", (*bench).latency},
	{"blocks", "Few blocks against cuts after any layer, for the three DNNs with measured layers", (*bench).blocks},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-ppipe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.name
	}
	f := flag.NewFlagSet("bench-ppipe", flag.ContinueOnError)
	data := f.String("data", "../shared/data", "folder that holds ppipe/ and traces/")
	chosen := f.String("tables", strings.Join(names, ","), "tables to make")
	keep := f.String("keep", "", "folder that keeps what was simulated and solved, so that an interrupted bench goes on")
	keptBy := f.String("kept-by", "", "go on from what another build solved, by the hash that it told; for builds that plan the same")
	b := &bench{out: out, pictures: pictures{notes: os.Stderr}, near: map[string]int{}}
	f.StringVar(&b.cases, "cases", "", "regular expression of the cases, such as ^maf19/G4/HC2 or ^ours21/; empty: each table's own")
	f.IntVar(&b.runs, "runs", 5, "replications of every simulated point")
	f.DurationVar(&b.duration, "duration", 30*time.Second, "virtual time of a replication")
	f.StringVar(&b.arrivals, "arrivals", "", "arrivals of the load table: some of poisson, gamma:CV, azure, azure-minutes, twitter; empty: poisson for the cases weighted as maf19, "+bursty+" for the recorded ones as maf21, some of these for the others")
	f.DurationVar(&b.timeLimit, "time-limit", 0, "limit of one solve; 0: only the solver's own, on its work, which gives the same plans on a machine of any load")
	f.BoolVar(&b.byDNN, "by-dnn", false, "small table: a row per DNN too, with what each plan promises beside what was sustained")
	f.BoolVar(&b.evenNIC, "even-nic", false, "our PPipe plans give the devices of a node like parts of its NIC, as the artifact's do")
	f.StringVar(&b.figures, "figures", "", "file that the figures of the load, baselines, headline, links and latency tables are put into")
	f.StringVar(&b.plots, "plots", "", "folder for plots of the curve, sensitivity and latency tables, as SVG")
	if err := f.Parse(args); err != nil {
		return err
	}
	b.command = func(part ...string) string { return figures.Command(f, "ppipe", part...) }
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-tables: found %q, expected some of %s", name, strings.Join(names, ","))
		}
	}
	if _, err := regexp.Compile(b.cases); err != nil {
		return fmt.Errorf("-cases: %w", err)
	}
	if b.runs < 1 || b.duration < time.Second {
		return fmt.Errorf("-runs %d and -duration %v: expected at least 1, and at least 1s", b.runs, b.duration)
	}
	err := b.open(*data)
	if err != nil {
		return err
	}
	if b.store, err = openStore(*keep, *keptBy); err != nil {
		return err
	}
	if *keep != "" {
		fmt.Fprintf(b.notes, "results are kept in %s, what is solved by this program as of -kept-by %s\n", *keep, b.store.program)
	}
	defer b.store.close()
	for _, t := range tables {
		if !slices.Contains(wanted, t.name) {
			continue
		}
		fmt.Fprintf(out, "\n%s\n(cases %s", t.title, cmp.Or(b.cases, "of the table"))
		if !slices.Contains([]string{"recompute", "objective", "blocks"}, t.name) {
			fmt.Fprintf(out, "; %d runs of %v", b.runs, b.duration)
		}
		fmt.Fprintln(out, ")")
		w := tabwriter.NewWriter(out, 12, 4, 2, ' ', 0) // rows come one by one
		start, cpu := time.Now(), cputime.Used()
		err := t.make(b, ctx, w)
		w.Flush() // what was found so far
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		if b.figures != "" {
			if err := figures.Put(b.figures, b.command("tables", t.name), b.measured...); err != nil {
				return err
			}
		}
		b.measured = nil
		fmt.Fprintf(b.notes, "table %s: %.0f s of CPU, %.0f s\n", t.name, (cputime.Used() - cpu).Seconds(), time.Since(start).Seconds())
	}
	return nil
}

// matcher says by a case's name whether it is chosen: by -cases, else by a
// table's own expression.
func (b *bench) matcher(own string) (func(name string) bool, error) {
	re, err := regexp.Compile(cmp.Or(b.cases, own))
	if err != nil {
		return nil, fmt.Errorf("choosing cases: %w", err)
	}
	return re.MatchString, nil
}

// selected are the recorded plans of the chosen cases, of one algorithm; own
// are those of a table.
func (b *bench) selected(algorithm, own string) ([]*reference.Plan, error) {
	matches, err := b.matcher(own)
	if err != nil {
		return nil, err
	}
	var out []*reference.Plan
	for i := range b.plans {
		if p := &b.plans[i]; p.Algorithm == algorithm && !p.Empty && matches(p.Case) {
			out = append(out, p)
		}
	}
	return out, nil
}
