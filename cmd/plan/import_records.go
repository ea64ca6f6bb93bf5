package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/engine/certainty"
	"inferplan/formats"
	"inferplan/formats/importer/records"
	"inferplan/profiler"
)

type importRecordsOptions struct {
	file      string
	models    []string
	heldOut   float64
	seed      uint64
	noShuffle bool
	calibrate bool
	score     string
	profile   string
	out       string
}

func newImportRecordsCommand(g *globals) *cobra.Command {
	o := &importRecordsOptions{}
	cmd := &cobra.Command{
		Use:   "records FILE [--models a,b] [--profile F]",
		Short: "Per-sample answers of a family of models (CSV) into the records of a profile",
		Long: `Per-sample answers of a family of models (CSV, plain or .gz) into the records of a profile:
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
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.models, "models", nil, "models to take, in this order, or NEW=OLD (default all, as they appear)")
	f.Float64Var(&o.heldOut, "held-out", 0.25, "share of the samples to keep apart, from 0 to below 1")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the shuffle")
	f.BoolVar(&o.noShuffle, "no-shuffle", false, "keep the samples in order of their ids")
	f.BoolVar(&o.calibrate, "calibrate", false, "replace certainties by the share of right answers at them")
	f.StringVar(&o.score, "score", "", "what the certainty in the file is, such as top1-top2, for the profile")
	f.StringVar(&o.profile, "profile", "", "profile that the records are added to (default: the output file, if it exists)")
	complete(cmd, "score", certainty.Names()...)
	return importing(g, cmd, &o.out, "profile.json", formats.KindProfile, func(p *printer, args []string) error {
		o.file = args[0]
		return runImportRecords(p, o)
	})
}

func runImportRecords(p *printer, o *importRecordsOptions) error {
	if !(o.heldOut >= 0 && o.heldOut < 1) {
		return usageErrorf("--held-out %v: expected a share from 0 to below 1, such as 0.25", o.heldOut)
	}
	names, rows, err := o.names()
	if err != nil {
		return err
	}
	var rec *formats.Records
	if err := readFile(o.file, "records", func(f *os.File) (err error) {
		rec, err = records.Read(f, o.file, records.Options{
			Models: rows, Seed: o.seed, NoShuffle: o.noShuffle, HeldOut: o.heldOut, Calibrate: o.calibrate, Source: filepath.Base(o.file),
		})
		return err
	}); err != nil {
		return err
	}
	for i, n := range names {
		rec.Models[i].Model = n
	}
	rec.Score = o.score
	replaced := false
	profile, err := p.extend(o.profile, o.out, func(profile *formats.Profile) error {
		replaced = addRecords(profile, rec)
		if err := profile.Validate(); err != nil {
			return withCode(exitUsage, fmt.Errorf("the records do not fit the profile; --models NEW=OLD gives a model the profile's name: %w", err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(profile.Models) == 0 {
		p.note("note: %s holds records alone; a plan needs latencies too: plan profile, or plan import, with the same -o", o.out)
	}
	return printRecords(p, rec, o.out, replaced)
}

// names splits --models into the profile's names and those of the rows; both
// are nil where all are taken.
func (o *importRecordsOptions) names() (names, rows []string, err error) {
	for _, m := range o.models {
		as, of, both := strings.Cut(m, "=")
		if !both {
			of = as
		}
		if as == "" || of == "" {
			return nil, nil, usageErrorf("--models %q: expected NAME or NEW=OLD", m)
		}
		if slices.Contains(names, as) || slices.Contains(rows, of) {
			return nil, nil, usageErrorf("--models %q: expected each model once", m)
		}
		names, rows = append(names, as), append(rows, of)
	}
	return names, rows, nil
}

// profileToExtend is the profile that numbers or records are added to: the one
// named, else the output where it exists, else a new one.
func profileToExtend(path, out string) (*formats.Profile, error) {
	named := path != ""
	if !named {
		path = out
	}
	profile, err := formats.ReadProfile(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return emptyProfile(), nil
	}
	return profile, withCode(exitUsage, err)
}

// extend adds to a profile, the one named or else the output, and writes the output.
// Where they are the same no other process writes there meanwhile.
func (p *printer) extend(path, out string, add func(*formats.Profile) error) (*formats.Profile, error) {
	if info, err := os.Stat(out); out != toStdout && path == "" && (err != nil || info.Mode().IsRegular()) {
		return profiler.Update(out, emptyProfile(), add)
	}
	profile, err := profileToExtend(path, out)
	if err != nil {
		return nil, err
	}
	if err := add(profile); err != nil {
		return nil, err
	}
	return profile, p.save(out, profile, true)
}

func emptyProfile() *formats.Profile {
	return &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
}

// addRecords puts records into a profile, in the place of those of the same
// models.
func addRecords(p *formats.Profile, rec *formats.Records) (replaced bool) {
	same := func(r formats.Records) bool {
		return slices.EqualFunc(r.Models, rec.Models, func(a, b formats.ModelRecords) bool { return a.Model == b.Model })
	}
	if at := slices.IndexFunc(p.Records, same); at >= 0 {
		p.Records[at] = *rec
		return true
	}
	p.Records = append(p.Records, *rec)
	return false
}

type recordsModelJSON struct {
	Model           string   `json:"model"`
	Accuracy        float64  `json:"accuracy"`
	AccuracyHeldOut *float64 `json:"accuracy_held_out,omitempty"`
	Levels          int      `json:"distinct_certainties"`
}

func recordsJSON(rec *formats.Records) []recordsModelJSON {
	var out []recordsModelJSON
	for i := range rec.Models {
		m := &rec.Models[i]
		right := func(s string) float64 { return float64(strings.Count(s, "1")) / float64(len(s)) }
		j := recordsModelJSON{Model: m.Model, Accuracy: right(m.Correct[:rec.Planning])}
		if rec.Planning < rec.Samples {
			v := right(m.Correct[rec.Planning:])
			j.AccuracyHeldOut = &v
		}
		distinct := slices.Clone(m.Certainty)
		slices.Sort(distinct)
		j.Levels = len(slices.Compact(distinct))
		out = append(out, j)
	}
	return out
}

// printRecords shows records that were put into the profile at a path.
func printRecords(p *printer, rec *formats.Records, path string, replaced bool) error {
	if p.json {
		return p.document(map[string]any{"output": path, "samples": rec.Samples, "planning": rec.Planning, "models": recordsJSON(rec), "replaced": replaced})
	}
	var rows [][]string
	for _, m := range recordsJSON(rec) {
		held := "-"
		if m.AccuracyHeldOut != nil {
			held = fmt.Sprintf("%.4f", *m.AccuracyHeldOut)
		}
		rows = append(rows, []string{m.Model, fmt.Sprintf("%.4f", m.Accuracy), held, fmt.Sprint(m.Levels)})
	}
	if err := p.table("lrrr", []string{"model", "accuracy", "held out", "distinct certainties"}, rows); err != nil {
		return err
	}
	verb := "added to"
	if replaced {
		verb = "replaced in"
	}
	fmt.Fprintf(p.out, "%s %s: %s, %d to plan on, %d held out\n", verb, path, plural(rec.Samples, "sample"), rec.Planning, rec.Samples-rec.Planning)
	return nil
}
