package main

import (
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats"
)

// bench holds the flags, the family and its plans.
type bench struct {
	program string
	peaks   []float64
	seconds int
	slo     time.Duration
	seed    uint64

	data   string
	family *family
	plans  []*formats.Plan // by peak
}

func main() {
	served.Worker()
	b := &bench{}
	peaks := ""
	instrument.Main(&instrument.Instrument{
		Name: "digits",
		Parts: []instrument.Part{
			{Name: "runs", Title: "Served on held-out samples, against plan and simulator", Measure: b.runs,
				Columns: []string{"plan", "trace", "requests", "lost", "switches", "accuracy", "planned, difference's interval", "p95 served, ms", "p95 replayed, the run's own times", "off", "p95 forecast, the plan's times", "off"}},
			{Name: "pairs", Title: "Device time against the cheapest model that is as accurate", Measure: b.pairs,
				Columns: []string{"plan", "trace", "requests", "lost", "model", "gears, device s", "model, device s", "ratio", "accuracy, gears less model", "p95 gears, ms", "p95 model, ms"}},
			{Name: "overload", Title: "Above the largest rate, and after", Measure: b.overload,
				Columns: []string{"plan", "requests", "refused", "goodput of the largest rate", "refusals p99, ms", "requests after", "in time"}},
			{Name: "drift", Title: "Samples that grow harder", Measure: b.drift,
				Columns: []string{"plan", "samples", "requests", "seconds", "alarm"}},
		},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.program, "plan", "bin/plan", "the program")
			f.StringVar(&peaks, "peaks", "400,700,1000,1300,1600", "largest rates to plan for, requests/s")
			f.IntVar(&b.seconds, "seconds", 30, "length of a run; runs against a single model have a third of it")
			f.DurationVar(&b.slo, "slo", 200*time.Millisecond, "p95 that plans hold")
			f.Uint64Var(&b.seed, "seed", 1, "of arrivals and samples")
		},
		Begin: func(r *instrument.Run) error {
			for text := range strings.SplitSeq(peaks, ",") {
				peak, err := strconv.ParseFloat(text, 64)
				if err != nil || !(peak > 0) {
					return instrument.Usagef("-peaks: found %q, expected rates such as 400,700", text)
				}
				b.peaks = append(b.peaks, peak)
			}
			if b.seconds < 3 {
				return instrument.Usagef("-seconds: found %d, expected at least 3", b.seconds)
			}
			return b.prepare(r)
		},
	})
}

// prepare makes the family and its plans.
func (b *bench) prepare(r *instrument.Run) error {
	program, err := filepath.Abs(b.program)
	if err != nil {
		return err
	}
	b.data = r.Data
	if b.family, err = openFamily(r.Ctx, served.Program{Path: program, Folder: r.Folder}); err != nil {
		return err
	}
	for _, peak := range b.peaks {
		plan, err := b.family.plan(r.Ctx, peak, b.slo)
		if err != nil {
			return err
		}
		b.plans = append(b.plans, plan)
	}
	return nil
}
