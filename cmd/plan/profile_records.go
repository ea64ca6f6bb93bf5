package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"inferplan/engine/certainty"
	"inferplan/formats"
	"inferplan/formats/importer/records"
	"inferplan/formats/importer/samples"
	"inferplan/importers"
	"inferplan/profiler"
)

// recordsOptions are the flags of plan profile about records.
type recordsOptions struct {
	records string
	score   string
	heldOut float64

	calibrate bool

	completions []string // language models to record, in place of files
	answers     []string
	logprobs    int
	parallel    int
}

// flags defines the flags of plan profile that record the answers of a family of models to labelled samples.
func (o *recordsOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.records, "records", "", "labelled samples (CSV): the models are a family of classifiers whose answers to them are recorded")
	f.StringVar(&o.score, "score", certainty.Default, "with --records, what the certainty of an answer is: "+strings.Join(certainty.Names(), ", "))
	f.Float64Var(&o.heldOut, "held-out", 0.25, "with --records, share of the samples to hold out, on which plans are judged")
	f.BoolVar(&o.calibrate, "calibrate", false, "with --records, replace certainties by the share of right answers at them; servers do the same")
	f.StringSliceVar(&o.completions, "completions", nil, "with --records of prompts: language models of OpenAI-compatible servers, NAME=URL or NAME=URL#MODEL, in order of size; OPENAI_API_KEY is sent where it is set")
	f.StringSliceVar(&o.answers, "answers", nil, "with --completions, the possible answers (default the labels that occur)")
	f.IntVar(&o.logprobs, "logprobs", 5, "with --completions, how many tokens' probabilities to ask for")
	f.IntVar(&o.parallel, "parallel", 4, "with --completions, requests under way at once")
}

// patience is the time for which requests to a busy server are repeated.
const patience = 2 * time.Minute

// recordCompletions sends labelled questions to language models and adds their answers to a profile. Questions,
// answers and servers come from the flags; out is the file of the profile.
func (o *recordsOptions) recordCompletions(ctx context.Context, p *printer, paths []string, out string, seed uint64) error {
	switch {
	case out == toStdout:
		return usageErrorf("--output -: records are added to the profile in a file; name a file")
	case o.records == "":
		return usageErrorf("--completions asks for answers to prompts: name their file with --records (CSV, label,prompt)")
	case len(paths) > 0:
		return usageErrorf("--completions and model files exclude each other: found %s", joinList(paths))
	case len(o.completions) < 2:
		return usageErrorf("--completions: name the models of the family in order of size, at least two")
	case o.logprobs < 2 || o.logprobs > 100:
		return usageErrorf("--logprobs %d: expected 2 to 100 (OpenAI's API gives 5 at most)", o.logprobs)
	case o.parallel < 1 || o.parallel > 1000:
		return usageErrorf("--parallel %d: expected 1 to 1000", o.parallel)
	}
	if err := p.checkOutput("output", out, formats.KindProfile); err != nil {
		return err
	}

	// Collect the servers, and read the questions.
	c := profiler.CompletionOptions{Source: filepath.Base(o.records), Options: o.answers, HeldOut: o.heldOut, Score: o.score, Seed: seed,
		Key: os.Getenv("OPENAI_API_KEY"), TopLogprobs: o.logprobs, Parallel: o.parallel, Patience: patience}
	for _, text := range o.completions {
		name, address, ok := strings.Cut(text, "=")
		base, model, isNamed := strings.Cut(address, "#")
		if !isNamed {
			model = name
		}
		if !ok || name == "" || model == "" {
			return usageErrorf("--completions %q: expected NAME=URL or NAME=URL#MODEL, such as small=http://host:8000/v1", text)
		}
		c.Models = append(c.Models, profiler.Endpoint{Name: name, Base: base, Model: model})
	}
	var err error
	if c.Prompts, err = samples.ReadPromptsFile(o.records); err != nil {
		return withCode(exitUsage, err)
	}
	profile, err := importers.ProfileToExtend("", out)
	if err != nil {
		return err
	}
	endsWellOnInterrupt(ctx)

	// Ask, with progress over all models.
	n := len(c.Prompts.Labels)
	bar := p.newProgressBar(int64(n*len(c.Models)), "asking")
	c.Progress = func(name string, done, _ int) {
		modelIndex := slices.IndexFunc(c.Models, func(m profiler.Endpoint) bool { return m.Name == name })
		bar.setProgress(int64(modelIndex*n+done), "asking "+name)
	}
	rec, err := profiler.RecordCompletions(ctx, c)
	bar.finish()
	switch {
	case errors.Is(err, context.Canceled):
		return &exitError{exitInterrupted, fmt.Errorf("interrupted before the records were complete; nothing was written")}
	case err != nil:
		return err
	}

	// Add the records to the profile.
	o.calibrateIfAsked(rec)
	replaced := false
	if _, err := profiler.Update(out, profile, func(p *formats.Profile) error {
		replaced = profiler.PutRecords(p, rec)
		if err := p.Validate(); err != nil {
			return withCode(exitUsage, fmt.Errorf("the records do not fit the profile %s: %w", out, err))
		}
		return nil
	}); err != nil {
		return err
	}
	return importers.PrintRecords(p, p.json, rec, out, replaced)
}

// readSamples reads the samples before the long work starts. Without --records it returns nil.
func (o *recordsOptions) readSamples(paths []string) (*samples.SampleSet, error) {
	if o.records == "" {
		return nil, nil
	}
	if len(paths) < 2 {
		return nil, usageErrorf("--records: name the models of the family in order of size, at least two")
	}
	if _, err := certainty.ByName(o.score); err != nil {
		return nil, usageErrorf("--score: %w", err)
	}
	if !(o.heldOut >= 0 && o.heldOut < 1) {
		return nil, usageErrorf("--held-out %v: expected a share from 0 to below 1, such as 0.25", o.heldOut)
	}
	set, err := samples.ReadFile(o.records)
	return set, withCode(exitUsage, err)
}

// recordModels runs the models over the samples, and returns for each sample how certain each model was and whether
// it was right.
func (o *recordsOptions) recordModels(ctx context.Context, p *printer, opt profiler.RecordOptions) (*formats.Records, error) {
	bar := p.newProgressBar(int64(len(opt.Models)*len(opt.Samples.Labels)), "recording")
	defer bar.finish()
	model, doneModels := "", int64(-1)
	opt.Source, opt.HeldOut, opt.Score = filepath.Base(o.records), o.heldOut, o.score
	opt.Progress = func(name string, done, samples int) {
		if name != model {
			model = name
			doneModels++
		}
		bar.setProgress(doneModels*int64(samples)+int64(done), "recording "+name)
	}
	rec, err := profiler.Record(ctx, opt)
	if errors.Is(err, context.Canceled) {
		return nil, &exitError{exitInterrupted, fmt.Errorf("interrupted before the records were complete; the latencies measured are kept")}
	}
	if err != nil {
		return nil, err
	}
	o.calibrateIfAsked(rec)
	return rec, nil
}

// calibrateIfAsked calibrates records if a flag asks for it.
func (o *recordsOptions) calibrateIfAsked(rec *formats.Records) {
	for i := range rec.Models {
		if o.calibrate {
			records.Calibrate(&rec.Models[i], rec.PlanningSamples)
		}
	}
}
