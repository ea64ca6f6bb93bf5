package records

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine/certainty"
	"inferplan/formats"
	"inferplan/formats/importer/records"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler"
)

type recordsImport struct {
	records.Options
	models []string
	score  string
}

// Importer describes the verb import records, which adds records to a profile: which samples each model of a
// family answered correctly, and how certain it was. Cascades of the models are planned on them.
func Importer() *importers.Importer {
	o := &recordsImport{}
	return &importers.Importer{
		Usage:   "records FILE [--models a,b] [--profile F]",
		Summary: "Per-sample answers of a family of models (CSV) into the records of a profile",
		Description: `Per-sample answers of a family of models (CSV, plain or .gz) into the records of a profile:
what a cascade of these models is planned on.

  sample_id,model,correct,certainty     one row per sample and model; correct is 0 or 1,
                                        certainty from 0 to 1

Samples are shuffled by --seed, since files are often ordered by label, and the last
--held-out share of them is kept apart to judge the plan by. --calibrate replaces every
certainty by the share of right answers at it (isotonic regression on the samples planned on).

--models takes these models, in this order; NEW=OLD takes the rows of OLD under the name NEW,
for a profile that calls the model so. The records are added to --profile (default: the
output file, where it exists) and replace records of the same models there.`,
		Example: `  plan import records answers.csv.gz --models small,base,large -o profile.json
  plan import records frugalml_imdb.csv.gz --models 'small=GitHub(Vader),base=Amazon,large=Google' --held-out 0.25 --calibrate
  plan import records answers.csv --profile measured.json -o profile.json`,
		MinArguments: 1, MaxArguments: 1, DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true,
		FlagWords: map[string][]string{"score": certainty.Names()},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.models, "models", nil, "models to take, in this order, or NEW=OLD (default all, as they appear)")
			f.Float64Var(&o.HeldOut, "held-out", 0.25, "share of the samples to keep apart, from 0 to below 1")
			f.Uint64Var(&o.Seed, "seed", 1, "seed of the shuffle")
			f.BoolVar(&o.NoShuffle, "no-shuffle", false, "keep the samples in order of their ids")
			f.BoolVar(&o.Calibrate, "calibrate", false, "replace certainties by the share of right answers at them")
			f.StringVar(&o.score, "score", "", "what the certainty in the file is, such as top1-top2, for the profile")
		},
		Import: o.importRecords,
	}
}

// importRecords reads the records in the file, gives the models the names of the profile, and adds them to it.
func (o *recordsImport) importRecords(r *importers.Run) error {
	if !(o.HeldOut >= 0 && o.HeldOut < 1) {
		return usage.Errorf("--held-out %v: expected a share from 0 to below 1, such as 0.25", o.HeldOut)
	}
	names, rows, err := o.names()
	if err != nil {
		return err
	}
	file := r.Args[0]
	o.Models, o.Source = rows, filepath.Base(file)
	var rec *formats.Records
	if err := importers.ReadFile(file, "records", func(f io.Reader) (err error) { rec, err = records.Read(f, file, o.Options); return err }); err != nil {
		return err
	}
	for i, n := range names {
		rec.Models[i].Model = n
	}
	rec.Score = o.score
	replaced := false
	profile, err := r.ExtendProfile(func(profile *formats.Profile) error {
		replaced = profiler.PutRecords(profile, rec)
		if err := profile.Validate(); err != nil {
			return usage.Mark(fmt.Errorf("the records do not fit the profile; --models NEW=OLD gives a model the profile's name: %w", err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(profile.Models) == 0 {
		r.PrintNote("note: %s holds records alone; a plan needs latencies too: plan profile, or plan import, with the same -o", r.Path)
	}
	return importers.PrintRecords(r, r.JSON, rec, r.Path, replaced)
}

// names divides --models into names of the profile and names of the rows. Both are nil if all models are taken.
func (o *recordsImport) names() (names, rows []string, err error) {
	for _, m := range o.models {
		profileName, rowName, hasBoth := strings.Cut(m, "=")
		if !hasBoth {
			rowName = profileName
		}
		if profileName == "" || rowName == "" {
			return nil, nil, usage.Errorf("--models %q: expected NAME or NEW=OLD", m)
		}
		if slices.Contains(names, profileName) || slices.Contains(rows, rowName) {
			return nil, nil, usage.Errorf("--models %q: expected each model once", m)
		}
		names, rows = append(names, profileName), append(rows, rowName)
	}
	return names, rows, nil
}
