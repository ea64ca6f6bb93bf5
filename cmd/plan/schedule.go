package main

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// schedule is the part of simulate and load that says how requests come.
type schedule struct {
	load    float64
	poisson float64
	trace   string
	model   string
	gaps    string
	seed    uint64
}

func (s *schedule) flags(f *pflag.FlagSet) {
	f.Float64Var(&s.load, "load", 1, "factor of the rate that the plan promises each model")
	f.Float64Var(&s.poisson, "poisson", 0, "Poisson arrivals at this rate, for --model or for every model")
	f.StringVar(&s.trace, "trace", "", "request trace (CSV, .gz) instead of a process")
	f.StringVar(&s.model, "model", "", "only this model")
	f.StringVar(&s.gaps, "arrivals-gaps-us", "", "arrivals of --model from a file of integer gaps in microseconds (.gz)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the arrivals")
}

// given tells whether anything but defaults says how requests come.
func (s *schedule) given() bool {
	return s.load != 1 || s.poisson != 0 || s.trace != "" || s.gaps != ""
}

// index finds --model in the plan; -1 without one.
func (s *schedule) index(plan *formats.Plan) (int, error) {
	if s.model == "" {
		return -1, nil
	}
	var names []string
	for i := range plan.Served() {
		if plan.Served()[i].Model == s.model {
			return i, nil
		}
		names = append(names, plan.Served()[i].Model)
	}
	return 0, usageErrorf("--model %q: the plan has %s", s.model, list(names))
}

// rates are the requests per second of each model at load 1.
func (s *schedule) rates(plan *formats.Plan, reference string) ([]float64, error) {
	only, err := s.index(plan)
	if err != nil {
		return nil, err
	}
	if s.load <= 0 || s.poisson < 0 {
		return nil, usageErrorf("--load %g and --poisson %g: expected more than 0", s.load, s.poisson)
	}
	from := plan
	if reference != "" {
		if from, err = formats.ReadPlan(reference); err != nil {
			return nil, withCode(exitUsage, err)
		}
	}
	byName := map[string]float64{}
	for i := range from.Served() {
		byName[from.Served()[i].Model] = from.Served()[i].RPS
	}
	out := make([]float64, len(plan.Served()))
	for i := range plan.Served() {
		rps, ok := byName[plan.Served()[i].Model]
		if !ok {
			return nil, usageErrorf("--load-reference %s: no model %q there", reference, plan.Served()[i].Model)
		}
		if s.poisson > 0 {
			rps = s.poisson / s.load
		}
		if only < 0 || i == only {
			out[i] = rps
		}
	}
	return out, nil
}

// open returns recorded arrivals, or nil where a process draws them.
func (s *schedule) open(plan *formats.Plan) (arrivals.Source, func(), error) {
	only, err := s.index(plan)
	if err != nil {
		return nil, nil, err
	}
	trace := s.trace
	if trace == "" && s.gaps == "" && plan.Arrivals != nil && plan.Arrivals.Trace != "" && s.poisson == 0 {
		trace = plan.Arrivals.Trace
	}
	var src arrivals.Source
	switch {
	case s.trace != "" && s.gaps != "":
		return nil, nil, usageErrorf("--trace and --arrivals-gaps-us exclude each other")
	case s.gaps != "" && only < 0:
		return nil, nil, usageErrorf("--arrivals-gaps-us: say whose arrivals with --model")
	case s.gaps != "":
		src, err = arrivals.OpenGaps(s.gaps, int32(only))
	case trace != "":
		names := make([]string, len(plan.Served()))
		for i := range plan.Served() {
			names[i] = plan.Served()[i].Model
		}
		src, err = arrivals.OpenTrace(trace, names)
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	return src, func() { _ = arrivals.Close(src) }, nil // a file that was only read
}

// process draws arrivals for a real run: each model's stream is its own.
func (s *schedule) process(plan *formats.Plan, rates []float64, d formats.Duration) (arrivals.Source, error) {
	sources := make([]arrivals.Source, len(plan.Served()))
	for i := range plan.Served() {
		src, err := arrivals.Process(plan.Arrivals, seeded.New(s.seed, "arrivals/"+plan.Served()[i].Model), int32(i), rates[i]*s.load, d.D())
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		sources[i] = src
	}
	return arrivals.Merge(sources...), nil
}

func dirOf(path string) string { return filepath.Dir(path) }
