package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/kept"
	_ "inferplan/bench/pard/readings" // which tables compare with
	"inferplan/engine/worker"
	"inferplan/formats/document"
	"inferplan/policy/drop"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "worker" { // executor starts it
		if err := worker.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench-pard: worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-pard:", err)
		stop()
		os.Exit(1)
	}
}

// flags are the flags of a start.
type flags struct {
	data, dir, parts, only, policies, plans, engine string
	seeds                                           int
	seconds, budget                                 time.Duration
	fresh, held                                     bool
	command                                         func(parts string) string // that measures some parts
}

func parse(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("bench-pard", flag.ContinueOnError)
	set.StringVar(&f.data, "data", cmp.Or(os.Getenv("INFERPLAN_DATA"), "../shared/data"), "folder that holds traces/ and dnn-profiles/")
	set.StringVar(&f.dir, "dir", "bench/pard", "folder of figures.json and of results/")
	set.StringVar(&f.parts, "parts", "S0,S1,other,stress,trouble,paths,skew,speed", "of S0, S1, other, stress, trouble, paths, skew, ablations, sensitivity, hours, plans, planner, overheads, rag, bounds, speed; alone, on this machine: ocr, a real pipeline; hopeless, how soon requests are refused")
	set.StringVar(&f.only, "only", "", "cases whose names hold this text")
	set.StringVar(&f.policies, "policies", "", "these policies alone, separated by commas; with parameters: feas+token+lambda=.3")
	set.StringVar(&f.plans, "plans", "", "write the plans of the pipelines into this folder, for plan simulate, and end")
	set.StringVar(&f.engine, "engine", "onnx", "part ocr: onnx, or replay, where batches last as long as their CPU time and models are not run")
	set.DurationVar(&f.seconds, "seconds", 5*time.Minute, "part ocr: length of a run")
	set.DurationVar(&f.budget, "budget", 2*time.Minute, "part ocr: time for measuring the models")
	set.IntVar(&f.seeds, "seeds", 5, "runs per cell")
	set.BoolVar(&f.held, "held", false, "part hours: on slices that the rules were not tuned on; their figures are of seed 1")
	set.BoolVar(&f.fresh, "fresh", false, "forget earlier results")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if f.engine != "onnx" && f.engine != "replay" {
		return f, fmt.Errorf("engine %q, expected onnx or replay", f.engine)
	}
	if set.NArg() > 0 || f.seeds < 1 {
		return f, fmt.Errorf("arguments %v and %d seeds, expected none and at least one", set.Args(), f.seeds)
	}
	f.command = func(parts string) string { return figures.Command(set, "pard", "parts", parts) }
	return f, nil
}

// more are the policies that were asked for and that no part has.
func (f *flags) more() []string {
	var out []string
	for p := range strings.SplitSeq(f.policies, ",") {
		if p != "" && !slices.Contains(plain, p) && !slices.Contains(ablations, p) {
			out = append(out, p)
		}
	}
	return out
}

// own are the parts that are no list of cells.
var own = []string{"speed", "bounds", "hours", "plans", "rag", "planner", "overheads"}

// results are the cells measured so far.
type results map[string]outcome

func key(c *cell) string { return fmt.Sprintf("%s/%s/%d", c.Case, c.Policy, c.Seed) }

func run(ctx context.Context, args []string) (err error) {
	f, err := parse(args)
	if err != nil {
		return err
	}
	switch f.parts {
	case "ocr":
		return measureOCR(ctx, &f)
	case "hopeless":
		return measureHopeless(ctx, &f)
	}
	b, err := open(f.data)
	if err != nil {
		return err
	}
	if f.plans != "" {
		return b.writePlans(f.plans)
	}
	have := results{}
	lines, err := kept.Open(filepath.Join(f.dir, "results", "cells.jsonl"), f.fresh, func(line []byte) error {
		var c cell
		err := json.Unmarshal(line, &c)
		have[key(&c)] = c.outcome
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lines.Close()) }()
	parts := strings.Split(f.parts, ",")
	for seed := range uint64(f.seeds) {
		for _, part := range parts {
			if slices.Contains(own, part) {
				continue
			}
			list, err := b.cells(part, seed+1, f.more())
			if err != nil {
				return err
			}
			for i := range list {
				if err := b.one(ctx, &list[i], f, have, lines); err != nil {
					return err
				}
			}
		}
	}
	if slices.Contains(parts, "hours") {
		if err := b.hours(ctx, f, have, lines); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "plans") {
		if err := b.plans(ctx, have, lines); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "rag") {
		if err := b.ragCells(f.seeds, have, lines); err != nil {
			return err
		}
	}
	s := &sheet{have: have, seeds: f.seeds, asked: parts, command: f.command}
	s.tables(os.Stdout)
	s.sensitivity(os.Stdout)
	s.hours(os.Stdout, b, f.held)
	s.plans(os.Stdout)
	s.rag(os.Stdout)
	if err := makeParts(s, []maker{{"speed", func() error { return s.speed(ctx, b) }}, {"bounds", func() error { return bounds(ctx, s, os.Stdout, b, f.only) }},
		{"planner", func() error { return planned64(ctx, s, b) }}, {"overheads", func() error { return decisions(s) }}}); err != nil {
		return err
	}
	s.print(os.Stdout)
	return figures.Put(filepath.Join(f.dir, "figures.json"), "", s.figures...)
}

// writePlans writes a plan of every pipeline, sized for what 64 workers carry.
func (b *bench) writePlans(dir string) error {
	for _, p := range b.pipes {
		rule := notesRule(p, false)
		plan := p.deploy(drop.Default, nil, rule, p.want(p.capacity(64), &scaling{headroom: 1, workers: 64}), 1.5*p.capacity(64))
		if _, err := document.WriteFile(filepath.Join(dir, p.name+".json"), plan); err != nil {
			return fmt.Errorf("writing the plan of %s: %w", p.name, err)
		}
	}
	return nil
}

// open reads the data.
func open(dir string) (*bench, error) {
	from, err := readProfiles(dir)
	if err != nil {
		return nil, err
	}
	pipes, err := pipelinesOf(from)
	if err != nil {
		return nil, err
	}
	traces, err := readTraces(dir)
	if err != nil {
		return nil, err
	}
	return &bench{from: from, pipes: pipes, traces: traces[:3], others: traces[3:6], held: []*trace{traces[3], traces[4], traces[6]}}, nil
}

// one measures a cell, unless it was measured before.
func (b *bench) one(ctx context.Context, w *work, f flags, have results, lines *kept.Lines) error {
	if _, done := have[key(&w.cell)]; done || !strings.Contains(w.Case, f.only) || f.policies != "" && !slices.Contains(strings.Split(f.policies, ","), w.Policy) {
		return nil
	}
	out, err := w.job.measure(ctx, spec(w.Policy, w.trace), w.Seed)
	if err != nil {
		return fmt.Errorf("%s under %s: %w", w.Case, w.Policy, err)
	}
	w.outcome = out
	have[key(&w.cell)] = out
	fmt.Fprintf(os.Stderr, "%s %s seed %d: dropped %.3f %%, %.2f s of CPU\n", w.Case, w.Policy, w.Seed, 100*out.drop(), out.CPU)
	return lines.Add(&w.cell)
}
