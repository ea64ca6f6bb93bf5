package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine"
	"inferplan/engine/certainty"
	"inferplan/formats"
	"inferplan/formats/importer/samples"
	"inferplan/profiler"
)

// recordsOptions are the flags of plan profile about records.
type recordsOptions struct {
	records string
	score   string
	heldOut float64
}

func (o *recordsOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.records, "records", "", "labelled samples (CSV): the models are a family of classifiers whose answers to them are recorded")
	f.StringVar(&o.score, "score", certainty.Default, "with --records, what the certainty of an answer is: "+strings.Join(certainty.Names(), ", "))
	f.Float64Var(&o.heldOut, "held-out", 0.25, "with --records, share of the samples kept apart to judge plans by")
}

// samples reads the samples before the long work starts; nil without --records.
func (o *recordsOptions) samples(paths []string) (*samples.Set, error) {
	if o.records == "" {
		return nil, nil
	}
	if len(paths) < 2 {
		return nil, usageErrorf("--records: name the models of the family in order of size, at least two")
	}
	if _, err := certainty.Named(o.score); err != nil {
		return nil, usageErrorf("--score: %w", err)
	}
	if !(o.heldOut >= 0 && o.heldOut < 1) {
		return nil, usageErrorf("--held-out %v: expected a share from 0 to below 1, such as 0.25", o.heldOut)
	}
	set, err := samples.ReadFile(o.records)
	return set, withCode(exitUsage, err)
}

func (o *recordsOptions) record(ctx context.Context, p *printer, eng engine.Engine, set *samples.Set, paths []string, seed uint64) (*formats.Records, error) {
	bar := p.meter(int64(len(paths)*len(set.Labels)), "recording")
	defer bar.finish()
	model, before := "", int64(-1)
	rec, err := profiler.Record(ctx, profiler.RecordOptions{
		Models: paths, Samples: set, Source: filepath.Base(o.records), HeldOut: o.heldOut, Score: o.score, Seed: seed, Engine: eng,
		Progress: func(name string, done, samples int) {
			if name != model {
				model = name
				before++
			}
			bar.set(before*int64(samples)+int64(done), 0, "recording "+name)
		},
	})
	if errors.Is(err, context.Canceled) {
		return nil, &exitError{exitInterrupted, fmt.Errorf("interrupted before the records were complete; the latencies measured are kept")}
	}
	return rec, err
}
