package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/engine/certainty"
	"inferplan/formats"
	"inferplan/formats/importer/records"
	"inferplan/profiler"
)

type recordsImport struct {
	records.Options
	models []string
	score  string
}

// importRecords describes the verb import records, which adds records to a profile: which samples each model of a
// family answered correctly, and how certain it was. Cascades of the models are planned on them.
func importRecords() importer {
	o := &recordsImport{}
	return importer{
		use:     "records FILE [--models a,b] [--profile F]",
		summary: "Per-sample answers of a family of models (CSV) into the records of a profile",
		description: `Per-sample answers of a family of models (CSV, plain or .gz) into the records of a profile:
what a cascade of these models is planned on.

  sample_id,model,correct,certainty     one row per sample and model; correct is 0 or 1,
                                        certainty from 0 to 1

Samples are shuffled by --seed, since files are often ordered by label, and the last
--held-out share of them is kept apart to judge the plan by. --calibrate replaces every
certainty by the share of right answers at it (isotonic regression on the samples planned on).

--models takes these models, in this order; NEW=OLD takes the rows of OLD under the name NEW,
for a profile that calls the model so. The records are added to --profile (default: the
output file, where it exists) and replace records of the same models there.`,
		example: `  plan import records answers.csv.gz --models small,base,large -o profile.json
  plan import records frugalml_imdb.csv.gz --models 'small=GitHub(Vader),base=Amazon,large=Google' --held-out 0.25 --calibrate
  plan import records answers.csv --profile measured.json -o profile.json`,
		args: cobra.ExactArgs(1), defaultOutput: "profile.json", kind: formats.KindProfile, extends: true,
		flagWords: map[string][]string{"score": certainty.Names()},
		flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.models, "models", nil, "models to take, in this order, or NEW=OLD (default all, as they appear)")
			f.Float64Var(&o.HeldOut, "held-out", 0.25, "share of the samples to keep apart, from 0 to below 1")
			f.Uint64Var(&o.Seed, "seed", 1, "seed of the shuffle")
			f.BoolVar(&o.NoShuffle, "no-shuffle", false, "keep the samples in order of their ids")
			f.BoolVar(&o.Calibrate, "calibrate", false, "replace certainties by the share of right answers at them")
			f.StringVar(&o.score, "score", "", "what the certainty in the file is, such as top1-top2, for the profile")
		},
		runImport: o.importRecords,
	}
}

// importRecords reads the records in the file, gives the models the names of the profile, and adds them to it.
func (o *recordsImport) importRecords(r *importRun) error {
	if !(o.HeldOut >= 0 && o.HeldOut < 1) {
		return usageErrorf("--held-out %v: expected a share from 0 to below 1, such as 0.25", o.HeldOut)
	}
	names, rows, err := o.names()
	if err != nil {
		return err
	}
	file := r.args[0]
	o.Models, o.Source = rows, filepath.Base(file)
	var rec *formats.Records
	if err := readFile(file, "records", func(f *os.File) (err error) { rec, err = records.Read(f, file, o.Options); return err }); err != nil {
		return err
	}
	for i, n := range names {
		rec.Models[i].Model = n
	}
	rec.Score = o.score
	replaced := false
	profile, err := r.extendProfile(r.profilePath, r.path, func(profile *formats.Profile) error {
		replaced = profiler.PutRecords(profile, rec)
		if err := profile.Validate(); err != nil {
			return withCode(exitUsage, fmt.Errorf("the records do not fit the profile; --models NEW=OLD gives a model the profile's name: %w", err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(profile.Models) == 0 {
		r.printNote("note: %s holds records alone; a plan needs latencies too: plan profile, or plan import, with the same -o", r.path)
	}
	return printRecords(r.printer, rec, r.path, replaced)
}

// names divides --models into names of the profile and names of the rows. Both are nil if all models are taken.
func (o *recordsImport) names() (names, rows []string, err error) {
	for _, m := range o.models {
		profileName, rowName, hasBoth := strings.Cut(m, "=")
		if !hasBoth {
			rowName = profileName
		}
		if profileName == "" || rowName == "" {
			return nil, nil, usageErrorf("--models %q: expected NAME or NEW=OLD", m)
		}
		if slices.Contains(names, profileName) || slices.Contains(rows, rowName) {
			return nil, nil, usageErrorf("--models %q: expected each model once", m)
		}
		names, rows = append(names, profileName), append(rows, rowName)
	}
	return names, rows, nil
}

type recordsModelJSON struct {
	Model           string   `json:"model"`
	Accuracy        float64  `json:"accuracy"`
	AccuracyHeldOut *float64 `json:"accuracy_held_out,omitempty"`
	Levels          int      `json:"distinct_certainties"`
}

// recordsJSON returns for each model its accuracy on the samples that are planned on and, if there are any, on those
// held out, and the number of distinct certainties (levels). Correct has '1' for each right answer.
func recordsJSON(rec *formats.Records) []recordsModelJSON {
	var out []recordsModelJSON
	for i := range rec.Models {
		m := &rec.Models[i]
		correctShare := func(s string) float64 { return float64(strings.Count(s, "1")) / float64(len(s)) }
		j := recordsModelJSON{Model: m.Model, Accuracy: correctShare(m.Correct[:rec.PlanningSamples])}
		if rec.PlanningSamples < rec.Samples {
			v := correctShare(m.Correct[rec.PlanningSamples:])
			j.AccuracyHeldOut = &v
		}
		distinct := slices.Clone(m.Certainty)
		slices.Sort(distinct)
		j.Levels = len(slices.Compact(distinct))
		out = append(out, j)
	}
	return out
}

// printRecords shows records that were put into the profile at a path. replaced says that the profile had records of
// the same models.
func printRecords(p *printer, rec *formats.Records, path string, replaced bool) error {
	if p.json {
		return p.printJSON(map[string]any{"output": path, "samples": rec.Samples, "planning": rec.PlanningSamples, "models": recordsJSON(rec), "replaced": replaced})
	}
	var rows [][]string
	for _, m := range recordsJSON(rec) {
		heldOut := "-"
		if m.AccuracyHeldOut != nil {
			heldOut = fmt.Sprintf("%.4f", *m.AccuracyHeldOut)
		}
		rows = append(rows, []string{m.Model, fmt.Sprintf("%.4f", m.Accuracy), heldOut, fmt.Sprint(m.Levels)})
	}
	if err := p.printTable("lrrr", []string{"model", "accuracy", "held out", "distinct certainties"}, rows); err != nil {
		return err
	}
	verb := "added to"
	if replaced {
		verb = "replaced in"
	}
	fmt.Fprintf(p.out, "%s %s: %s, %d to plan on, %d held out\n", verb, path, countOf(rec.Samples, "sample"), rec.PlanningSamples, rec.Samples-rec.PlanningSamples)
	return nil
}
