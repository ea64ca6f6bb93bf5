package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
	"inferplan/formats/importer/reference"
)

// bench is what the tables are made from.
type bench struct {
	profile *formats.Profile
	plans   []reference.Plan
	peers   []peer
	cases   *regexp.Regexp

	runs      int
	duration  time.Duration
	cv        float64
	timeLimit time.Duration
	out       io.Writer
}

// peer is what the artifact's simulator counted in one run.
type peer struct {
	group, cluster, model, algorithm string
	load, rps, attainment            float64
}

// table is one of the tables, in the order in which they are made.
type table struct {
	name, title string
	make        func(*bench, context.Context, *tabwriter.Writer) error
}

var tables = []table{
	{"recompute", "Recorded plans recomputed from the measurements (1 us, 1e-5)", (*bench).recompute},
	{"objective", "Objective against the recorded PPipe plans", (*bench).objective},
	{"load", "Highest load factor at 99 % (0.05 grid up to 1, mean over DNNs) and use of high and low class there", (*bench).loads},
	{"transfer", "Reservation against reaction: highest load, and transfer times at 0.9 of the recorded rate", (*bench).transfers},
	{"headline", "Certified rps at 99 %: our plan and policy against what the artifact's plan sustains in its simulator", (*bench).headline},
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
	data := f.String("data", "../shared/data", "folder that holds ppipe/")
	cases := f.String("cases", "^maf19/", "regular expression of the cases, as in maf19/G4/HC2/w0.3-0.33-0.37; transfer takes those of the ablation family that it names")
	chosen := f.String("tables", strings.Join(names, ","), "tables to make")
	b := &bench{out: out}
	f.IntVar(&b.runs, "runs", 5, "replications of every simulated point")
	f.DurationVar(&b.duration, "duration", 30*time.Second, "virtual time of a replication")
	f.Float64Var(&b.cv, "cv", 2, "coefficient of variation of the gaps of bursty (gamma) arrivals")
	f.DurationVar(&b.timeLimit, "time-limit", 30*time.Second, "limit of one solve")
	if err := f.Parse(args); err != nil {
		return err
	}
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-tables: found %q, expected some of %s", name, strings.Join(names, ","))
		}
	}
	var err error
	if b.cases, err = regexp.Compile(*cases); err != nil {
		return fmt.Errorf("-cases: %w", err)
	}
	if b.runs < 1 || b.duration <= 0 || b.cv <= 0 {
		return fmt.Errorf("-runs %d, -duration %v and -cv %v: expected at least 1, and more than 0", b.runs, b.duration, b.cv)
	}
	if err := b.open(filepath.Join(*data, "ppipe")); err != nil {
		return err
	}
	for _, t := range tables {
		if !slices.Contains(wanted, t.name) {
			continue
		}
		fmt.Fprintf(out, "\n%s\n(cases %s", t.title, *cases)
		if t.name != "recompute" && t.name != "objective" {
			fmt.Fprintf(out, "; %d runs of %v", b.runs, b.duration)
		}
		fmt.Fprintln(out, ")")
		w := tabwriter.NewWriter(out, 12, 4, 2, ' ', 0) // rows come one by one
		err := t.make(b, ctx, w)
		w.Flush() // what was found so far
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return nil
}

// open reads the reference data.
func (b *bench) open(dir string) error {
	read := func(name string, into func(io.Reader) error) error {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("opening the reference data (-data or INFERPLAN_DATA): %w", err)
		}
		defer f.Close()
		if err := into(f); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return nil
	}
	const plans = "reference_plans_dev.json"
	return firstError(
		func() error {
			return read("block_latency.csv", func(latency io.Reader) error {
				return read("cut_sizes.csv", func(cuts io.Reader) (err error) {
					b.profile, err = blocks.Read(latency, "block_latency.csv", cuts, "cut_sizes.csv", nil, "block_latency.csv")
					return err
				})
			})
		},
		func() error {
			return read(plans, func(r io.Reader) (err error) { b.plans, err = reference.Read(r, plans); return err })
		},
		func() error {
			return read("peer_results_dev.csv", func(r io.Reader) (err error) { b.peers, err = readPeers(r); return err })
		},
	)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func readPeers(r io.Reader) ([]peer, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("found no header")
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, name := range []string{"group", "cluster", "model", "algorithm", "load_factor", "ppipe_plan_rps", "attainment"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("found the columns %v, expected one called %s", rows[0], name)
		}
	}
	var out []peer
	for i, row := range rows[1:] {
		p := peer{group: row[column["group"]], cluster: row[column["cluster"]], model: row[column["model"]], algorithm: row[column["algorithm"]]}
		for name, to := range map[string]*float64{"load_factor": &p.load, "ppipe_plan_rps": &p.rps, "attainment": &p.attainment} {
			if *to, err = strconv.ParseFloat(row[column[name]], 64); err != nil {
				return nil, fmt.Errorf("line %d, %s: %w", i+2, name, err)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// selected are the recorded plans of the chosen cases, of one algorithm.
func (b *bench) selected(algorithm string) []*reference.Plan {
	var out []*reference.Plan
	for i := range b.plans {
		if p := &b.plans[i]; p.Algorithm == algorithm && !p.Empty && b.cases.MatchString(p.Case) {
			out = append(out, p)
		}
	}
	return out
}
