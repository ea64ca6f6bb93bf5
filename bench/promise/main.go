package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats"
)

// bench holds the flags.
type bench struct {
	program, llama   string
	loads            []float64
	runs             int
	duration, warmup time.Duration
}

func main() {
	b := &bench{}
	loads := ""
	i := &instrument.Instrument{Name: "promise"}
	for _, d := range deployments() {
		i.Parts = append(i.Parts, instrument.Part{Name: d.kind, Title: d.title, Measure: func(r *instrument.Run, t *instrument.Table) error { return b.measure(r, t, &d) },
			Columns: []string{"load", "requests", "in time: promised, replayed, served", "p50 ms", "p99 ms", "p50, p99 against promised", "against replayed"}})
	}
	i.Flags = func(f *flag.FlagSet) {
		f.StringVar(&b.program, "plan", "bin/plan", "the program")
		f.StringVar(&b.llama, "llama", "third_party/llama", "folder of llama-server and its models")
		f.IntVar(&b.runs, "runs", 3, "runs of each load; the tables have medians")
		f.DurationVar(&b.duration, "duration", 20*time.Second, "arrivals of a run")
		f.DurationVar(&b.warmup, "warmup", 2*time.Second, "time at the start that is not counted")
		f.StringVar(&loads, "loads", ".1,.5,.8,1,1.2,2", "loads")
	}
	i.Begin = func(r *instrument.Run) error {
		for text := range strings.SplitSeq(loads, ",") {
			load, err := strconv.ParseFloat(text, 64)
			if err != nil || !(load > 0) {
				return instrument.Usagef("-loads: found %q, expected loads such as .5,1", text)
			}
			b.loads = append(b.loads, load)
		}
		fmt.Fprintf(r.Out, "Load average before the start: %s.\n", served.LoadAverage())
		return nil
	}
	instrument.Main(i)
}

// measure prepares a deployment, and adds a row for each load and the figures of all.
func (b *bench) measure(r *instrument.Run, t *instrument.Table, d *deployment) error {
	program, err := filepath.Abs(b.program)
	if err != nil {
		return err
	}
	p := served.Program{Path: program, Folder: filepath.Join(r.Folder, d.kind)}
	stop, err := b.prepare(r.Ctx, p, d)
	defer stop()
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	var rows []row
	for _, load := range b.loads {
		var rounds []*round
		for seed := range b.runs {
			x, err := b.round(r.Ctx, p, d, load, seed+1)
			if err != nil {
				return fmt.Errorf("load %g: %w", load, err)
			}
			rounds = append(rounds, x)
		}
		rows = append(rows, summary(load, rounds))
		d.add(t, &rows[len(rows)-1])
		fmt.Fprintf(r.Log, "%s: load %g done\n", d.kind, load)
	}
	d.figures(r, rows)
	return nil
}

// round holds the reports of one load with one seed: simulated with the times of the profile, simulated with the times recorded while
// serving (as promised if none were recorded), and served.
type round struct{ promised, replayed, served *formats.Report }

// round serves a plan at a load, and simulates the same arrivals.
func (b *bench) round(ctx context.Context, p served.Program, d *deployment, load float64, seed int) (x *round, err error) {
	arrivals := []string{"--load", fmt.Sprint(load), "--duration", cmp.Or(d.duration, b.duration).String(), "--warmup", b.warmup.String(), "--seed", strconv.Itoa(seed)}
	serve, ready := d.serve, "/v2/health/ready"
	if d.records {
		serve = append([]string{"--grpc", "off", "--record", "service.json"}, serve...)
	}
	if d.text {
		ready = "/health"
	}
	x = &round{}
	if x.served, err = p.Drive(ctx, ready, serve, slices.Concat(d.load, arrivals)); err != nil {
		return nil, err
	}
	if x.promised, err = p.Simulate(ctx, arrivals...); err != nil {
		return nil, err
	}
	if x.replayed = x.promised; d.records {
		x.replayed, err = p.Simulate(ctx, slices.Concat(arrivals, []string{"--service", "service.json"})...)
	}
	return x, err
}
