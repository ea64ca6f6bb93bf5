package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
)

// bench holds what the flags choose.
type bench struct {
	families []*published.Family
	trials   int // fresh trials of a gear
	draws    int // of samples
}

func main() { instrument.Main((&bench{}).instrument()) }

// instrument returns the parts in the order in which they are measured.
func (b *bench) instrument() *instrument.Instrument {
	names := ""
	return &instrument.Instrument{
		Name: "gear", Keeps: true,
		Parts: []instrument.Part{
			{Name: "gpus", Title: "GPUs at equal accuracy and p95", Measure: b.each("gpus", gpus)},
			{Name: "methods", Title: "Accuracy and p95 by devices", Measure: b.each("methods", methods)},
			{Name: "map", Title: "GPUs over accuracy and p95 target (figure 7), even arrivals", Measure: b.each("map", gpuMap)},
			{Name: "out-of-sample", Title: "Devices at equal accuracy, on the samples planned on and on others", Measure: b.each("out-of-sample", outOfSample)},
			{Name: "switching", Title: "Plans against one cascade for all rates, on typical traces and bursts", Measure: b.each("switching", switching)},
			{Name: "spike", Title: "A spike under a latency SLO (figure 8)", Measure: b.each("spike", spike)},
			{Name: "accuracy-slo", Title: "A spike under an accuracy SLO (figure 9)", Measure: b.each("accuracy-slo", accuracySLO)},
			{Name: "quality", Title: "Plans in a space small enough to try all (figure 10)", Measure: b.each("quality", quality)},
			{Name: "time", Title: "Planning time (figure 11)", Measure: b.each("time", planningTime)},
			{Name: "goals", Title: "Planning time and gap by goal", Measure: b.each("goals", goals)},
			{Name: "fresh", Title: "Gears in fresh trials, ten times as long", OnRequest: true, Measure: b.fresh},
			{Name: "heldout", Title: "Planned accuracy against samples not planned on", OnRequest: true, Measure: b.heldout},
			{Name: "thirds", Title: "Plans near their SLO on samples of a third part", OnRequest: true, Measure: b.thirds},
			{Name: "ablations", Title: "Without one part (figure 12)", Measure: b.each("ablations", ablations)},
		},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&names, "families", strings.Join(published.Names, ","), "families to measure; parts fresh, heldout and thirds also of "+strings.Join(published.Real, ","))
			f.IntVar(&b.trials, "trials", 100, "part fresh: trials of a gear")
			f.IntVar(&b.draws, "draws", 5, "parts heldout and thirds: draws of samples")
		},
		Begin: func(r *instrument.Run) error {
			if b.trials < 1 || b.draws < 1 {
				return instrument.Usagef("-trials %d and -draws %d: expected at least 1", b.trials, b.draws)
			}
			for _, name := range strings.Split(names, ",") {
				f, err := published.Load(name, r.Data)
				if err != nil {
					return instrument.Usagef("-families, with -data %s (or INFERPLAN_DATA): %w", r.Data, err)
				}
				b.families = append(b.families, f)
			}
			return nil
		},
	}
}

// each measures a part family by family and writes its table as CSV, too.
func (b *bench) each(part string, measure func(*instrument.Run, *published.Family, *instrument.Table) error) func(*instrument.Run, *instrument.Table) error {
	return func(r *instrument.Run, t *instrument.Table) error {
		for _, f := range b.families {
			if !slices.Contains(published.Names, f.Name) {
				return fmt.Errorf("-families: found %s, expected some of %v", f.Name, published.Names)
			}
			if err := measure(r, f, t); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		return r.WriteCSV(part, t)
	}
}
