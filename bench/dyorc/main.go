package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"inferplan/bench/instrument"
)

// bench has what the parts are made from.
type bench struct {
	trace trace
	seeds []uint64
	// suffix names the seeds in claims, where they are not the usual ones.
	suffix string
}

// usualSeeds are those of claims that name none.
const usualSeeds = "1,2,3,4,5"

func main() {
	b, seeds := &bench{}, ""
	instrument.Main(&instrument.Instrument{
		Name: "dyorc", Keeps: true,
		Parts: []instrument.Part{
			{Name: "rows", Title: "Latency on 32 devices with 40 GB: mean / p99 in seconds", Measure: b.measureAmple},
			{Name: "scarce", Title: "Latency on 8 devices with 24 GB: mean / p99 in seconds", Measure: b.measureScarce},
			{Name: "prior", Title: "Cost of cold starts by what a server knows when it starts, in ms", Measure: b.measurePrior},
			{Name: "memory", Title: "Cost of cold starts over memory: MIX 3 on 8 devices, in ms", Measure: b.measureMemory},
			{Name: "shift", Title: "GILL doubles and the others halve at minute 60: mean latency of minutes 50-60 / 60-70 / 110-120, in seconds", Measure: b.measureShift},
			{Name: "deadlines", Title: "The least scale of deadlines at which 99 % of requests are in time, 32 devices at .7 of their time", Measure: b.measureDeadlines},
			{Name: "batched", Title: "The same at .7 of what batches make of their time", Measure: b.measureBatched},
			{Name: "goodput", Title: "Requests in time at loads that are too high, deadlines of 2.5 times the mean unloaded latency, 32 devices, in %", Measure: b.measureGoodput},
			{Name: "llm", Title: "Language models that run iteration by iteration, with answers of spread lengths: mean / p99 in seconds", Measure: b.measureGenerations},
			{Name: "overload", Title: "Goodput beyond the planned rate, in % of it", Measure: b.measureOverload},
			{Name: "accuracy", Title: "Accuracy of predictions", Measure: b.measureAccuracy},
		},
		Flags: func(f *flag.FlagSet) { f.StringVar(&seeds, "seeds", usualSeeds, "seeds of the runs") },
		Begin: func(r *instrument.Run) error {
			if seeds != usualSeeds {
				b.suffix = ", seeds " + seeds
			}
			for _, s := range strings.Split(seeds, ",") {
				seed, err := strconv.ParseUint(s, 10, 64)
				if err != nil {
					return instrument.Usagef("-seeds: %w", err)
				}
				b.seeds = append(b.seeds, seed)
			}
			var err error
			if b.trace, err = readTrace(r.Data); err != nil {
				return fmt.Errorf("reading the arrivals: %w", err)
			}
			return nil
		},
	})
}
