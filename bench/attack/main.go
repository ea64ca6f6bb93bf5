package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/testkit/natstest"
)

// source is who asks for what is measured here.
const source = "operations: no cheap client, hung worker or bad file takes the service down"

// target is the program under attack.
type target struct {
	plan string // its path
	dir  string // scratch
}

// attack is a run of the instrument.
type attack struct {
	target
	root    string // of the repository: seeds of documents
	scale   float64
	seed    uint64
	soak    time.Duration
	picture string
	out     io.Writer
}

// part is one kind of attack.
type part struct {
	name string
	run  func(*attack, context.Context) ([]figures.Figure, error)
}

var parts = []part{
	{"requests", (*attack).requests},
	{"documents", (*attack).documents},
	{"magnitudes", magnitudes},
	{"onnx", (*attack).onnx},
	{"greedy", (*attack).greedy},
	{"shares", func(a *attack, ctx context.Context) ([]figures.Figure, error) { return sharing{a}.run(ctx) }},
	{"calls", func(a *attack, ctx context.Context) ([]figures.Figure, error) { return programming{a}.run(ctx) }},
	{"faults", (*attack).faults},
	{"hang", (*attack).hang},
	{"switches", (*attack).switches},
	{"stores", stores},
	{"agents", (*attack).agents},
	{"soak", (*attack).soaking},
}

func main() {
	natstest.Main() // this program is a node of NATS, too
	if len(os.Args) > 1 && os.Args[1] == "greedy" {
		if err := beGreedy(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "greedy clients:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "valid" {
		if err := beValid(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "clients with valid requests:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-attack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	a := &attack{out: out}
	f := flag.NewFlagSet("bench-attack", flag.ContinueOnError)
	f.StringVar(&a.plan, "plan", "bin/plan", "program to attack")
	f.StringVar(&a.root, "root", ".", "the repository")
	f.Float64Var(&a.scale, "scale", 1, "share of the counts that are asked for")
	f.Uint64Var(&a.seed, "seed", 1, "of mutants and arrivals")
	f.DurationVar(&a.soak, "soak", time.Hour, "length of the soak")
	f.StringVar(&a.picture, "picture", "", "file for the picture of the soak")
	wanted := f.String("parts", "requests,documents,magnitudes,onnx,greedy,shares,calls,faults,hang,switches,stores,agents", "what to do: some of these, or soak")
	file := f.String("figures", "", "file that the figures are put into")
	doc := f.String("doc", "", "document that shows them")
	if err := f.Parse(args); err != nil {
		return err
	}
	names := strings.Split(*wanted, ",")
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("-parts: found %q", name)
		}
	}
	var err error
	if a.plan, err = filepath.Abs(a.plan); err != nil {
		return err
	}
	if a.dir, err = os.MkdirTemp("", "attack-"); err != nil {
		return err
	}
	defer os.RemoveAll(a.dir)
	var errs []error
	for _, p := range parts {
		if !slices.Contains(names, p.name) || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		list, err := p.run(a, ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
			continue
		}
		a.printf("%s\n%s took %v\n\n", figures.Table(list), p.name, time.Since(began).Round(time.Second))
		errs = append(errs, failed(list))
		if *file != "" {
			command := figures.Command(f, "attack", "parts", p.name)
			if p.name == "soak" {
				command = fmt.Sprintf("make bench NAME=soak ARGS='-soak %v'", a.soak)
			}
			errs = append(errs, figures.Put(*file, command, list...))
		}
	}
	if *file != "" && *doc != "" {
		list, err := figures.Read(*file)
		if err == nil {
			err = figures.Show(*doc, "attack", list)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// failed makes an error of what does not hold.
func failed(list []figures.Figure) error {
	var errs []error
	for _, f := range list {
		if f.Holds == figures.No {
			errs = append(errs, fmt.Errorf("%s: asked %s, measured %g %s", f.Claim, f.Asked, f.Measured, f.Unit))
		}
	}
	return errors.Join(errs...)
}

// count is a share of n, at least 20.
func (a *attack) count(n int) int { return max(int(math.Ceil(float64(n)*a.scale)), min(n, 20)) }

func (a *attack) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

func sizeOf(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
