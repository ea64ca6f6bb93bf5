package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/started"
)

type bench struct {
	plan, llama, scratch, figures, doc, only string
	dir                                      string // of the deployment
	loads                                    []float64
	runs                                     int
	duration, warmup                         time.Duration
	call                                     func(kind string) string // of make, that measures a kind alone
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-promise:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	b := &bench{}
	f := flag.NewFlagSet("bench-promise", flag.ContinueOnError)
	f.StringVar(&b.plan, "plan", "bin/plan", "the program")
	f.StringVar(&b.llama, "llama", "third_party/llama", "folder of llama-server and its models")
	f.StringVar(&b.scratch, "scratch", "", "folder for models, profiles and plans, which stay; default: one that is removed")
	f.StringVar(&b.figures, "figures", "", "file that the figures are put into")
	f.StringVar(&b.doc, "doc", "", "document that shows the figures, and with all kinds the tables")
	f.StringVar(&b.only, "only", "", "kinds, as in pool,gear; default: all")
	f.IntVar(&b.runs, "runs", 3, "runs of each load; the tables have medians")
	f.DurationVar(&b.duration, "duration", 20*time.Second, "arrivals of a run")
	f.DurationVar(&b.warmup, "warmup", 2*time.Second, "time at the start that is not counted")
	loads := f.String("loads", ".1,.5,.8,1,1.2,2", "loads")
	if err := f.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*loads, ",") {
		load, err := strconv.ParseFloat(text, 64)
		if err != nil || !(load > 0) {
			return fmt.Errorf("-loads: found %q, expected loads such as .5,1", text)
		}
		b.loads = append(b.loads, load)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	b.plan, b.llama = filepath.Join(root, b.plan), filepath.Join(root, b.llama)
	if b.scratch == "" {
		if b.scratch, err = os.MkdirTemp("", "promise-"); err != nil {
			return err
		}
		defer os.RemoveAll(b.scratch)
	}
	b.call = func(kind string) string { return figures.Command(f, "promise", "only", kind) }
	return b.all(ctx, root)
}

// all makes the tables of all deployments.
func (b *bench) all(ctx context.Context, root string) error {
	var list []figures.Figure
	text := fmt.Sprintf("Load average before the start: %s.\n", started.LoadAverage())
	for _, d := range deployments(root) {
		if b.only != "" && !strings.Contains(","+b.only+",", ","+d.kind+",") {
			continue
		}
		rows, err := b.measure(ctx, &d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.kind, err)
		}
		part := fmt.Sprintf("\nKind `%s`: %s.\n\n%s", d.kind, d.title, d.table(rows))
		fmt.Print(part)
		measured := d.figures(rows)
		text, list = text+part, append(list, measured...)
		if b.figures != "" {
			if err := figures.Put(b.figures, b.call(d.kind), measured...); err != nil {
				return err
			}
		}
	}
	fmt.Print("\n", figures.Table(list))
	if b.doc == "" {
		return nil
	}
	list, err := figures.Read(b.figures)
	if err == nil && b.only == "" {
		err = figures.Replace(b.doc, begin, end, text)
	}
	return errors.Join(err, figures.Show(b.doc, "promise", list))
}

// measure prepares a deployment and returns a row for each load.
func (b *bench) measure(ctx context.Context, d *deployment) ([]row, error) {
	b.dir = filepath.Join(b.scratch, d.kind)
	stop, err := b.prepare(ctx, d)
	defer stop()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, load := range b.loads {
		var rounds []*round
		for seed := range b.runs {
			x, err := b.round(ctx, d, load, seed+1)
			if err != nil {
				return nil, fmt.Errorf("load %g: %w", load, err)
			}
			rounds = append(rounds, x)
		}
		rows = append(rows, summary(load, rounds))
		fmt.Fprintf(os.Stderr, "%s: load %g done\n", d.kind, load)
	}
	return rows, nil
}

// The tables stand between these lines of the document.
const begin, end = "<!-- tables of bench/promise -->\n", "<!-- end of tables -->\n"
