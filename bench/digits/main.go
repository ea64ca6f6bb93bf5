package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/bench/figures"
	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// measurements is everything that was measured.
type measurements struct {
	SLOMS    float64       `json:"slo_ms"`
	Seconds  int           `json:"seconds"`
	Pinned   bool          `json:"front_end_pinned"`
	Runs     []verdict     `json:"runs,omitempty"`
	Near     int           `json:"replay_p95_within_10_percent"`
	Foretold int           `json:"forecast_p95_within_10_percent"`
	Within   int           `json:"accuracy_within"`
	Pairs    []pair        `json:"pairs,omitempty"`
	PairsAll *pairsOutcome `json:"pairs_together,omitempty"`
	Spike    *spikeVerdict `json:"spike,omitempty"`

	Overload *overloadVerdict `json:"overload,omitempty"`
	Drift    *driftVerdict    `json:"drift,omitempty"`
}

type spikeVerdict struct {
	verdict
	ByGear    []int `json:"requests_by_gear"`
	FirstGear int   `json:"first_gear"`
	TopGear   int   `json:"top_gear"`
	LastGear  int   `json:"last_gear"`
}

// parts are the parts that can be made.
var parts = []string{"runs", "pairs", "spike", "overload", "drift"}

type options struct {
	family, data, out string
	figures           string
	command           func(part string) string // that measures a part alone
	peaks             []float64
	only              string
	parts             string
	seconds, paired   int
	slo               time.Duration
	pin, trace, check bool
	seed              uint64
}

// Workers are started as this program with the argument worker.
func main() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := worker.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-digits:", err)
		os.Exit(1)
	}
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("bench-digits", flag.ContinueOnError)
	f.StringVar(&o.family, "family", ".", "folder with models/, digits.csv.gz and profile.json with records")
	f.StringVar(&o.data, "data", "../shared/data", "folder that holds traces/")
	f.StringVar(&o.out, "json", "", "file for all figures")
	peaks := f.String("peaks", "400,700,1000,1300,1600", "largest rates to plan for, requests/s")
	f.StringVar(&o.only, "only", "", "runs to make, as in 400/azure,700/twitter (default: all)")
	f.StringVar(&o.figures, "figures", "", "file that figures of overload and drift are put into")
	f.StringVar(&o.parts, "parts", strings.Join(parts, ","), "what to make")
	f.IntVar(&o.seconds, "seconds", 30, "length of a run")
	f.IntVar(&o.paired, "paired-seconds", 10, "length of a run against a single model")
	f.DurationVar(&o.slo, "slo", 200*time.Millisecond, "p95 that plans hold")
	f.BoolVar(&o.pin, "pin", false, "keep clients and front end off the worker's CPU")
	f.BoolVar(&o.trace, "apart", false, "show where the decision logs of server and simulator part")
	f.BoolVar(&o.check, "check", false, "look at the flags, and stop")
	f.Uint64Var(&o.seed, "seed", 1, "of arrivals and samples")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.command = func(part string) string { return figures.Command(f, "digits", "parts", part) }
	for _, text := range strings.Split(*peaks, ",") {
		peak, err := strconv.ParseFloat(text, 64)
		if err != nil || !(peak > 0) {
			return fmt.Errorf("-peaks: found %q, expected rates such as 400,700", text)
		}
		o.peaks = append(o.peaks, peak)
	}
	for _, part := range strings.Split(o.parts, ",") {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("-parts: found %q, expected some of %s", part, strings.Join(parts, ","))
		}
	}
	if o.seconds < 1 || o.paired < 1 || o.paired > o.seconds {
		return fmt.Errorf("-seconds %d, -paired-seconds %d: expected at least 1, the second no more than the first", o.seconds, o.paired)
	}
	return nil
}

func (o *options) makes(part string) bool { return slices.Contains(strings.Split(o.parts, ","), part) }

func (o *options) wants(peak float64, trace string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), fmt.Sprintf("%g/%s", peak, trace))
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o := &options{}
	if err := o.parse(args); err != nil || o.check {
		return err
	}
	fam, err := openFamily(o.family)
	if err != nil {
		return err
	}
	cpus, err := engine.CPUs()
	if err != nil {
		return fmt.Errorf("which CPUs: %w", err)
	}
	if o.pin && len(cpus) > 1 {
		if err := keepTo(cpus[:1]); err != nil {
			return err
		}
	}
	b := &bench{options: o, family: fam, out: out, doc: measurements{SLOMS: ms(o.slo), Seconds: o.seconds, Pinned: o.pin && len(cpus) > 1}, cpus: cpus[len(cpus)-1:]}
	defer func() { err = errors.Join(err, b.write()) }()
	for _, peak := range o.peaks {
		if err := b.prepare(ctx, peak); err != nil {
			return err
		}
	}
	for i, make := range []func(context.Context) error{b.runs, b.pairs, b.spike, b.overload, b.drift} {
		if o.makes(parts[i]) {
			if err := make(ctx); err != nil {
				return fmt.Errorf("%s: %w", parts[i], err)
			}
		}
	}
	return nil
}

type bench struct {
	*options
	family *family
	out    io.Writer
	doc    measurements
	cpus   []int
	plans  []planned
}

type planned struct {
	peak   float64
	plan   *formats.Plan
	tables *policy.Tables
}

func (b *bench) write() error {
	if b.options.out == "" {
		return nil
	}
	data, err := json.MarshalIndent(b.doc, "", "  ")
	if err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	_, err = document.WriteBytes(b.options.out, append(data, '\n'), document.Force(true))
	return err
}

func (b *bench) prepare(ctx context.Context, peak float64) error {
	plan, err := b.family.plan(ctx, peak, b.slo)
	if err != nil {
		return err
	}
	tables, err := policies.Compile(plan)
	if err != nil {
		return err
	}
	b.plans = append(b.plans, planned{peak, plan, tables})
	fmt.Fprintf(b.out, "plan for %g requests/s:", peak)
	for _, g := range formats.GearOf(plan).Gears {
		var names []string
		for _, s := range g.Stages {
			names = append(names, fmt.Sprintf("%s %.2f", strings.TrimPrefix(s.Model, "digits-"), s.Fraction))
		}
		fmt.Fprintf(b.out, " [%s] %.4f", strings.Join(names, " > "), g.Accuracy)
	}
	fmt.Fprintln(b.out)
	return writePlan(filepath.Join(b.options.family, "plans", fmt.Sprintf("%g.json", peak)), plan)
}

// each goes through the plans and traces that are wanted.
func (b *bench) each(do func(p planned, t *trace, rates []float64, seed uint64) error) error {
	for i, p := range b.plans {
		for k := range traces {
			t := &traces[k]
			if !b.wants(p.peak, t.name) {
				continue
			}
			rates, err := t.rates(filepath.Join(b.data, "traces"), b.seconds)
			if err != nil {
				return err
			}
			if err := do(p, t, rates, b.seed+uint64(i*len(traces)+k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// runs are the fifteen served plans.
func (b *bench) runs(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nServed for %d s each on held-out samples, p95 SLO %v\n", b.seconds, b.slo)
	w := tabwriter.NewWriter(b.out, 6, 4, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "peak\ttrace\trequests\tlost\tswitches\taccuracy\tplanned\t±\tas recorded\tp50 ms\treplay\tp95 ms\treplay\toff\tforecast\toff\tdrawn off\tbatches\treplay\tsame\tagain\tlate ms\t")
	err := b.each(func(p planned, t *trace, rates []float64, seed uint64) error {
		v, _, err := b.one(ctx, p, t.name, rates, seed)
		if err != nil {
			return err
		}
		b.doc.Runs = append(b.doc.Runs, *v)
		if math.Abs(v.Off) <= .1 {
			b.doc.Near++
		}
		if math.Abs(v.PlanOff) <= .1 {
			b.doc.Foretold++
		}
		if v.Within {
			b.doc.Within++
		}
		fmt.Fprintf(w, "%g\t%s\t%d\t%d\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%.2f\t%.2f\t%.2f\t%.2f\t%+.1f %%\t%.2f\t%+.1f %%\t%+.1f %%\t%d\t%d\t%d\t%.2f\t%.2f\t\n", v.PeakRPS, v.Trace, v.Requests, v.Lost, v.Switches,
			v.Accuracy, v.Planned, v.HalfWidth, v.AsRecorded, v.P50MS, v.SimP50MS, v.P95MS, v.SimP95MS, 100*v.Off, v.PlanP95MS, 100*v.PlanOff, 100*(v.DrawnP95MS/v.P95MS-1), v.Batches, v.SimBatches, v.Same, v.Again, v.LateMS)
		return w.Flush()
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "accuracy within its interval in %d of %d runs; p95 within 10 %% in %d where the run's own times are replayed, in %d as forecast from the plan's times\n", b.doc.Within, len(b.doc.Runs), b.doc.Near, b.doc.Foretold)
	return nil
}

func (b *bench) one(ctx context.Context, p planned, name string, rates []float64, seed uint64) (*verdict, *served, error) {
	run, err := b.family.serve(ctx, p.plan, arrive(rates, .95*p.peak, seed), b.family.held, b.cpus, seed)
	if err != nil {
		return nil, nil, err
	}
	v := b.family.judge(p.plan, p.tables, run)
	v.PeakRPS, v.Trace = p.peak, name
	var at [3]*shown
	for how := range at {
		if at[how], err = b.family.simulate(ctx, p.plan, run, replay(how)); err != nil {
			return nil, nil, err
		}
	}
	v.SimP50MS, v.SimP95MS, v.DrawnP95MS, v.PlanP95MS, v.SimSwitches = ms(at[exactly].p50), ms(at[exactly].p95), ms(at[drawn].p95), ms(at[promised].p95), at[exactly].switches
	really := run.log()
	v.Batches, v.SimBatches = len(really), len(at[exactly].log)
	v.Same, v.Again = apart(really, at[exactly].log)
	if b.trace {
		b.printApart(run, really, at[exactly].log, v.Same)
	}
	v.Off, v.PlanOff = v.SimP95MS/v.P95MS-1, v.PlanP95MS/v.P95MS-1
	return &v, run, nil
}

// printApart shows the decision logs around the place where they part.
func (b *bench) printApart(run *served, really, shown []started, at int) {
	for stage, runs := range run.service.Runs {
		for size, list := range runs {
			if len(list) > 5 {
				s := slices.Sorted(slices.Values(list))
				fmt.Fprintf(b.out, "stage %d batch %2d: %5d held a device %.3f ms (median), %.3f (p95)\n", stage, size+1, len(s), ms(report.Percentile(s, .5)), ms(report.Percentile(s, .95)))
			}
		}
		fmt.Fprintf(b.out, "stage %d ran %.3f ms in the mean\n", stage, run.ran[stage])
	}
	fmt.Fprintf(b.out, "\nthe logs part at batch %d (served | simulated: ms, model, size)\n", at)
	for i := max(0, at-4); i < min(at+8, len(really), len(shown)); i++ {
		r, s := really[i], shown[i]
		fmt.Fprintf(b.out, "%6d  %10.3f %d %2d | %10.3f %d %2d\n", i, ms(r.at), r.stage, r.size, ms(s.at), s.stage, s.size)
	}
}

// pairs serve the same requests with gears and with the cheapest model that is
// as accurate.
func (b *bench) pairs(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nDevice-seconds against the best single model at the same accuracy, %d s each\n", b.paired)
	w := tabwriter.NewWriter(b.out, 6, 4, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "peak\ttrace\trequests\tlost\tsingle model\tgears s\tsingle s\tratio\tCPU s\tsingle\taccuracy\t±\tp95 ms\tsingle\t")
	err := b.each(func(p planned, t *trace, rates []float64, seed uint64) error {
		list := arrive(rates[:b.paired], .95*p.peak, seed)
		gears, err := b.family.serve(ctx, p.plan, list, b.family.held, b.cpus, seed)
		if err != nil {
			return err
		}
		v := b.family.judge(p.plan, p.tables, gears)
		model := b.family.cheapest(p.plan, v.Accuracy)
		if model == "" { // no member is as accurate as the cascade
			model = b.family.names()[len(b.family.names())-1]
		}
		plan, err := b.family.single(p.plan, model)
		if err != nil {
			return err
		}
		single, err := b.family.serve(ctx, plan, list, b.family.held, b.cpus, seed)
		if err != nil {
			return err
		}
		c := comparePair(gears, single)
		c.PeakRPS, c.Trace, c.Model = p.peak, t.name, model
		b.doc.Pairs = append(b.doc.Pairs, c)
		fmt.Fprintf(w, "%g\t%s\t%d\t%d\t%s\t%.2f\t%.2f\t%.3f\t%.2f\t%.2f\t%+.4f\t%.4f\t%.1f\t%.1f\t\n", c.PeakRPS, c.Trace, c.Requests, c.Lost, c.Model, c.GearS, c.SingleS, c.Ratio,
			c.GearCPU, c.SingleCPU, c.Difference, c.HalfWidth, c.GearP95, c.SingleP95)
		return w.Flush()
	})
	if err != nil {
		return err
	}
	all := judgePairs(b.doc.Pairs)
	b.doc.PairsAll = &all
	fmt.Fprintf(b.out, "device-seconds %.3f of the single model's (95 %%: %.3f to %.3f), CPU time %.3f (%.3f to %.3f), accuracy %+.4f ± %.4f, %d pairs\n",
		all.Ratio, all.Interval[0], all.Interval[1], all.CPURatio, all.CPUBetween[0], all.CPUBetween[1], all.Difference, all.HalfWidth, all.Pairs)
	return nil
}

// spike serves the crowd that comes and goes with the plan for the largest rate.
func (b *bench) spike(ctx context.Context) error {
	p := b.plans[len(b.plans)-1]
	rates, err := spike.rates(filepath.Join(b.data, "traces"), 15)
	if err != nil {
		return err
	}
	v, run, err := b.one(ctx, p, spike.name, rates, b.seed)
	if err != nil {
		return err
	}
	s := &spikeVerdict{verdict: *v, ByGear: make([]int, len(formats.GearOf(p.plan).Gears)), FirstGear: run.answers[run.lead].gear, LastGear: run.answers[len(run.answers)-1].gear}
	for _, a := range run.answers[run.lead:] {
		s.ByGear[a.gear]++
		s.TopGear = max(s.TopGear, a.gear)
	}
	b.doc.Spike = s
	fmt.Fprintf(b.out, "\nSpike (%d s, plan for %g requests/s): %d requests, %d lost, %d switches, gear %d to %d and back to %d, by gear %v; accuracy %.4f (planned %.4f ± %.4f), p95 %.1f ms (simulated %.1f)\n",
		len(rates), p.peak, s.Requests, s.Lost, s.Switches, s.FirstGear, s.TopGear, s.LastGear, s.ByGear, s.Accuracy, s.Planned, s.HalfWidth, s.P95MS, s.SimP95MS)
	return nil
}
