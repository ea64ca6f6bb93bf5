package main

import (
	"flag"
	"slices"
	"time"

	"inferplan/bench/instrument"
	_ "inferplan/bench/pard/readings" // the policies that PARD and feas are compared with
	"inferplan/bench/served"
)

// bench has what the parts are made from.
type bench struct {
	times  profiles
	pipes  []*pipeline
	traces []*trace // wiki, tweet, azure
	others []*trace
	unseen []*trace      // of the same origins as traces; no rule of scaling was tuned on them
	seeds  int           // runs of a case under a policy
	length time.Duration // of a run of parts ocr and hopeless
}

func main() {
	served.Worker()
	instrument.Main(newInstrument())
}

// newInstrument returns the instrument with its parts.
func newInstrument() *instrument.Instrument {
	b := &bench{}
	return &instrument.Instrument{
		Name: "pard", Keeps: true,
		Parts: []instrument.Part{
			{Name: "S0", Title: "A cold start of 5 s everywhere: requests dropped or late, and invalid device time, in %", Measure: b.measureS0},
			{Name: "S1", Title: "A cold start that rises from 5 to 9 s along the pipeline, likewise", Measure: b.measureS1},
			{Name: "other", Title: "Other slices of the traces, likewise", Measure: b.measureOther},
			{Name: "stress", Title: "Constant rates of what 64 workers carry and more, likewise", Measure: b.measureStress},
			{Name: "trouble", Title: "lv on tweet with noise, a lost worker and wrong profiles, likewise", Measure: b.measureTrouble},
			{Name: "skew", Title: "lv on tweet with clocks that are off, likewise", Measure: b.measureSkew},
			{Name: "speed", Measure: b.measureSpeed},
			{Name: "ablations", Title: "PARD with one part changed, as S0", OnRequest: true, Measure: b.measureAblations},
			{Name: "sensitivity", Title: "lv over λ and the window, likewise", OnRequest: true, Measure: b.measureSensitivity},
			{Name: "hours", Title: "Device-seconds for at most 1 % dropped or late (headroom)", OnRequest: true, Measure: b.measureHours},
			{Name: "unseen", Title: "The same on slices that no rule was tuned on", OnRequest: true, Measure: b.measureUnseen},
			{Name: "plans", Title: "The fewest devices that attain 99 % in the simulator", OnRequest: true, Measure: b.measurePlans},
			{Name: "variants", Title: "Requests per second of 64 devices over the floor of accuracy", OnRequest: true, Measure: b.measureVariants},
			{Name: "planner", OnRequest: true, Measure: b.measurePlanner},
			{Name: "overheads", Title: "CPU time of the decisions for a request at the entry", OnRequest: true, Measure: measureOverheads},
			{Name: "rag", Title: "First token within 5 s, dropped or late in %", OnRequest: true, Measure: b.measureRAG},
			{Name: "ocr", Title: "A real OCR pipeline on this machine, beside the simulator", OnRequest: true, Measure: b.measureOCR},
			{Name: "hopeless", OnRequest: true, Measure: b.measureHopeless},
		},
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.seeds, "seeds", 5, "runs of a case under a policy")
			f.DurationVar(&b.length, "seconds", 5*time.Minute, "parts ocr and hopeless: length of a run")
		},
		Begin: func(r *instrument.Run) error {
			if b.seeds < 1 {
				return instrument.Usagef("-seeds: found %d, expected at least 1", b.seeds)
			}
			return b.read(r.Data)
		},
	}
}

// read reads profiles and traces.
func (b *bench) read(folder string) error {
	var err error
	if b.times, err = readProfiles(folder); err != nil {
		return err
	}
	if b.pipes, err = pipelinesOf(b.times); err != nil {
		return err
	}
	list, err := readTraces(folder)
	if err != nil {
		return err
	}
	b.traces, b.others, b.unseen = list[:3], list[3:6], []*trace{list[3], list[4], list[6]}
	return nil
}

// pipe returns a pipeline by its name.
func (b *bench) pipe(name string) *pipeline {
	return b.pipes[slices.IndexFunc(b.pipes, func(p *pipeline) bool { return p.name == name })]
}
