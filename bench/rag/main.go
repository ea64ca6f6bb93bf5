package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"inferplan/bench/figures"
	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/planner"
	"inferplan/testkit/workflows"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-rag:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench-rag", flag.ContinueOnError)
	first := f.Uint64("first", 1, "first drawn application; choices of the search were made on applications 1 to 5")
	last := f.Uint64("last", 10, "last drawn application")
	file := f.String("figures", "", "file for the figures as JSON")
	if err := f.Parse(args); err != nil {
		return err
	}
	t := &table.Table{Columns: []string{"application", "devices", "CPU s", "stated rps", "attained", "dedicated", "best by hand, rps", "dedicated", "splits", "share"}}
	b := &bench{ctx: ctx, out: t}
	if err := b.example(); err != nil {
		return err
	}
	for seed := *first; seed <= *last; seed++ {
		if err := b.drawn(seed); err != nil {
			return fmt.Errorf("application %d: %w", seed, err)
		}
	}
	if err := t.Markdown(os.Stdout); err != nil || *file == "" {
		return err
	}
	return figures.Put(*file, figures.Command(f, "rag-splits"), b.figures()...)
}

// bench holds the measurements.
type bench struct {
	ctx   context.Context
	out   *table.Table
	rows  []row
	first row // the example
}

// row is an application.
type row struct {
	seed                  uint64 // 0 stands for the example
	stated, attained, cpu float64
	dedicated             string
	hand                  float64 // rate of the best split
}

// plan plans an application as a user does who says nothing.
func (b *bench) plan(seed uint64, a *workflows.RAG) (row, error) {
	begun := cputime.Used()
	plan, err := solve(b.ctx, a, planner.Auto, planner.Auto)
	if err != nil {
		return row{}, err
	}
	r := row{seed: seed, cpu: (cputime.Used() - begun).Seconds(), dedicated: plan.Options.Word("dedicated")}
	if plan.Certificate != nil {
		r.stated = plan.Objective.Value
	}
	r.attained, err = held(b.ctx, plan)
	return r, err
}

// example plans the example.
func (b *bench) example() error {
	a := workflows.ExampleRAG()
	r, err := b.plan(0, a)
	if err != nil {
		return err
	}
	b.first = r
	return b.compare("example", a, r)
}

// drawn plans a drawn application.
func (b *bench) drawn(seed uint64) error {
	a := workflows.DrawRAG(seed)
	r, err := b.plan(seed, a)
	if err != nil {
		return err
	}
	return b.compare(fmt.Sprint(seed), a, r)
}

// compare compares a plan with the best split by hand.
func (b *bench) compare(name string, a *workflows.RAG, r row) error {
	dedicated, rate, looked, err := best(b.ctx, a)
	if err != nil {
		return err
	}
	r.hand = rate
	b.out.Add(name, a.Devices, fmt.Sprintf("%.0f", r.cpu), fmt.Sprintf("%.3g", r.stated), fmt.Sprintf("%.4f", r.attained), r.dedicated, fmt.Sprintf("%.3g", rate), dedicated, looked, fmt.Sprintf("%.3f", r.stated/rate))
	fmt.Fprintln(os.Stderr, strings.Join(b.out.Rows[len(b.out.Rows)-1], " | "))
	if b.rows = append(b.rows, r); r.seed == 0 {
		b.first = r
	}
	return nil
}

// tunedOn is the last application that choices of the search were made on.
const tunedOn = 5

// figures are the claims with what was measured.
func (b *bench) figures() (list []figures.Figure) {
	add := func(claim, asked string, measured float64, unit string, holds bool) {
		list = append(list, figures.Figure{Claim: claim, Source: "own", Asked: asked, Measured: measured, Unit: unit, Holds: figures.If(holds)})
	}
	const example = "the example of language models in a workflow: "
	add(example+"stated rate", "at least 13", b.first.stated, "requests/s", b.first.stated >= 13)
	add(example+"requests in time at that rate in runs with fresh seeds", "at least 0.99", b.first.attained, "share", b.first.attained >= .99)
	add(example+"CPU time of its plan with the test", "at most 60", b.first.cpu, "s", b.first.cpu <= 60)
	for _, half := range []struct {
		name        string
		first, last uint64
	}{{"applications that choices were made on", 1, tunedOn}, {"other applications", tunedOn + 1, math.MaxUint64}} {
		share, attained, n := math.Inf(1), math.Inf(1), 0
		for _, r := range b.rows {
			if r.seed >= half.first && r.seed <= half.last {
				share, attained, n = min(share, r.stated/r.hand), min(attained, r.attained), n+1
			}
		}
		if n == 0 {
			continue
		}
		add("certified rate over that of the best split of the devices by hand, least, "+half.name, "at least 0.95", share, "share", share >= .95)
		add("requests in time at the stated rate in runs with fresh seeds, least, "+half.name, "at least 0.99", attained, "share", attained >= .99)
	}
	return list
}
