package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/formats/usage"
)

// arrivalOptions are the flags of simulate and load about arrivals.
type arrivalOptions struct {
	load    float64
	poisson float64
	trace   string
	model   string
	class   string
	mix     string
	gaps    string
	seed    uint64
}

// flags defines the flags of plan load and plan simulate that choose the arrivals of requests.
func (s *arrivalOptions) flags(f *pflag.FlagSet) {
	f.Float64Var(&s.load, "load", 1, "factor of the rate that the plan promises each model")
	f.Float64Var(&s.poisson, "poisson", 0, "Poisson arrivals at this rate, for --model or for every model; its classes share it as planned, or by --mix")
	f.StringVar(&s.trace, "trace", "", "request trace (CSV, .gz) instead of a process")
	f.StringVar(&s.model, "model", "", "only this model")
	f.StringVar(&s.class, "class", "", "only this SLO class")
	f.StringVar(&s.mix, "mix", "", "how each model's requests divide among its SLO classes, such as interactive=0.8,batch=0.2 (default as planned)")
	f.StringVar(&s.gaps, "arrivals-gaps-us", "", "arrivals of --model from a file of integer gaps in microseconds (.gz)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the arrivals")
}

// hasArrivalFlags reports whether any flag that chooses arrivals or their rates is not at its default.
func (s *arrivalOptions) hasArrivalFlags() bool {
	return s.load != 1 || s.poisson != 0 || s.trace != "" || s.gaps != "" || s.mix != ""
}

// chosenEntries returns which entries of the plan --model and --class select. An entry is a model with one of its SLO
// classes, in the order of Plan.ServedModels.
func (s *arrivalOptions) chosenEntries(plan *formats.Plan) ([]bool, error) {
	served := plan.ServedModels()
	out := make([]bool, len(served))
	var models, classes []string
	for i := range served {
		m := &served[i]
		if !slices.Contains(models, m.Model) {
			models = append(models, m.Model)
		}
		if s.model != "" && m.Model != s.model {
			continue
		}
		if m.Class != "" && !slices.Contains(classes, m.Class) {
			classes = append(classes, m.Class)
		}
		out[i] = s.class == "" || m.Class == s.class
	}
	switch {
	case slices.Contains(out, true):
		return out, nil
	case s.model != "" && !slices.Contains(models, s.model):
		return nil, usageErrorf("--model %q: the plan has %s", s.model, joinList(models))
	case len(classes) == 0:
		return nil, usageErrorf("--class %q: the plan has no classes there", s.class)
	}
	return nil, usageErrorf("--class %q: the plan has %s", s.class, joinList(classes))
}

// entryRates returns the requests per second of each model, and of each of its classes, at load 1. An entry that the
// flags exclude has rate 0.
func (s *arrivalOptions) entryRates(plan *formats.Plan) ([]float64, error) {
	chosen, err := s.chosenEntries(plan)
	if err != nil {
		return nil, err
	}
	if err := firstError(checkPositive("load", s.load), usage.CheckRange("poisson", s.poisson, 0, math.MaxFloat64)); err != nil {
		return nil, err
	}
	served := plan.ServedModels()
	out := make([]float64, len(served))
	for i := range served {
		if chosen[i] {
			out[i] = served[i].RPS
		}
	}
	if err := s.divideRates(served, chosen, out); err != nil {
		return nil, err
	}
	return out, nil
}

// maxRequests bounds the number of requests of one run. Sending them at a million a second would take days.
const maxRequests = 1e12

// checkRequestCount refuses rates at which a run would never end.
func (s *arrivalOptions) checkRequestCount(rates []float64, d time.Duration) error {
	sum := 0.0
	for _, r := range rates {
		sum += r * s.load
	}
	if n := sum * d.Seconds(); !(n <= maxRequests) {
		return usageErrorf("--load %g, --poisson %g: %.3g requests in %s, expected at most %g", s.load, s.poisson, n, d, float64(maxRequests))
	}
	return nil
}

// divideRates gives each model the rate of --poisson, and divides its rate among its classes by --mix. rates holds
// the planned rate of each entry (a model with one class) and is changed in place. chosen says which entries take
// part. Rates of --poisson are divided by the load, which multiplies them later. Without --mix classes share as
// planned.
func (s *arrivalOptions) divideRates(served []formats.Served, chosen []bool, rates []float64) error {
	shares, err := parseMix(s.mix)
	if err != nil {
		return err
	}
	unknown := make(map[string]bool, len(shares))
	for class := range shares {
		unknown[class] = true
	}

	// For each model, divide its rate among its classes.
	for entry := range served {
		entries := entriesOf(served, chosen, entry)
		if len(entries) == 0 || entries[0] != entry {
			continue
		}
		total, mixSum := 0.0, 0.0
		for _, i := range entries {
			total += rates[i]
			mixSum += shares[served[i].Class]
			delete(unknown, served[i].Class)
		}
		for _, i := range entries {
			entryShare := rates[i] / total
			switch {
			case mixSum > 0:
				entryShare = shares[served[i].Class] / mixSum
			case len(entries) == 1 || total == 0:
				entryShare = 1 / float64(len(entries))
			}
			if s.poisson > 0 {
				rates[i] = s.poisson / s.load * entryShare
			} else if mixSum > 0 {
				rates[i] = total * entryShare
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(unknown)) {
		return usageErrorf("--mix: no model asked for has a class %q", class)
	}
	return nil
}

// entriesOf returns the chosen entries of the same model as an entry.
func entriesOf(served []formats.Served, chosen []bool, entry int) []int {
	var out []int
	for i := range served {
		if chosen[i] && served[i].Model == served[entry].Model {
			out = append(out, i)
		}
	}
	return out
}

// parseMix reads class=share,…. The shares need not sum to 1.
func parseMix(text string) (map[string]float64, error) {
	out := map[string]float64{}
	if text == "" {
		return out, nil
	}
	sum := 0.0
	for part := range strings.SplitSeq(text, ",") {
		class, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		share, err := document.ParseShare(number)
		if _, isDuplicate := out[class]; !ok || err != nil || class == "" || isDuplicate || !(share >= 0 && share < 1e12) {
			return nil, usageErrorf("--mix %q: expected CLASS=SHARE, each class once, such as interactive=0.8,batch=0.2; found %q", text, part)
		}
		out[class] = share
		sum += share
	}
	if sum == 0 {
		return nil, usageErrorf("--mix %q: expected a share of more than 0", text)
	}
	return out, nil
}

// openRecorded opens recorded arrivals. It returns nil if a process draws them. The sources are --trace,
// --arrivals-gaps-us or the trace that the plan names. The caller calls the returned function to close the source.
func (s *arrivalOptions) openRecorded(plan *formats.Plan) (arrivals.Source, func(), error) {
	chosen, err := s.chosenEntries(plan)
	if err != nil {
		return nil, nil, err
	}
	onlyEntry := slices.Index(chosen, true)
	trace := s.trace
	if trace == "" && s.gaps == "" && plan.Arrivals != nil && plan.Arrivals.Trace != "" && s.poisson == 0 {
		trace = plan.Arrivals.Trace
	}
	var src arrivals.Source
	switch {
	case s.trace != "" && s.gaps != "":
		return nil, nil, usageErrorf("--trace and --arrivals-gaps-us exclude each other")
	case s.mix != "" && (trace != "" || s.gaps != ""):
		return nil, nil, usageErrorf("--mix divides drawn arrivals; recorded ones name their class in the column class")
	case s.gaps != "" && s.model == "" && len(chosen) > 1:
		return nil, nil, usageErrorf("--arrivals-gaps-us: say whose arrivals with --model")
	case s.gaps != "" && slices.Contains(chosen[onlyEntry+1:], true):
		return nil, nil, usageErrorf("--arrivals-gaps-us: %s has several classes; say whose arrivals with --class", s.model)
	case s.gaps != "":
		src, err = arrivals.OpenGaps(s.gaps, int32(onlyEntry))
	case trace != "":
		src, err = s.openTrace(trace, plan.ServedModels(), chosen)
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	return src, func() { _ = arrivals.Close(src) }, nil // the file was only read, so errors of closing do not matter
}

// openTrace opens a trace of the plan's models, without the requests that --model and --class exclude.
func (s *arrivalOptions) openTrace(path string, served []formats.Served, chosen []bool) (arrivals.Source, error) {
	names, classes := make([]string, len(served)), make([]string, len(served))
	for i := range served {
		names[i], classes[i] = served[i].Model, served[i].Class
	}
	options := []arrivals.TraceOption{arrivals.OfClasses(classes)}
	if s.model != "" {
		options = append(options, arrivals.OfModel(int32(slices.Index(chosen, true))))
	}
	src, err := arrivals.OpenTrace(path, names, options...)
	if err != nil || !slices.Contains(chosen, false) {
		return src, err
	}
	return arrivals.OnlyModels(src, chosen), nil
}

// drawArrivals draws arrivals for a real run, each model's in a stream of its own.
func (s *arrivalOptions) drawArrivals(plan *formats.Plan, rates []float64, d document.Duration) (arrivals.Source, error) {
	served := plan.ServedModels()
	sources := make([]arrivals.Source, len(served))
	for i := range served {
		src, err := arrivals.Process(plan.Arrivals, seeded.New(s.seed, "arrivals/"+served[i].Key().String()), int32(i), rates[i]*s.load, d.D())
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		sources[i] = src
	}
	return arrivals.Merge(sources...), nil
}
