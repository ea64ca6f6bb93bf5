package trace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/importers/requestlog"
)

type traceImport struct {
	arrivals.CountsOptions
	requests     requestlog.Flags
	spreadWithin string
	class        string
}

// Importer describes the verb import trace, which turns others' arrivals into a request trace.
func Importer() *importers.Importer {
	o := &traceImport{}
	return &importers.Importer{
		Usage:   "trace FILE... [--counts 1s|60s] [--spread uniform|gamma:CV]",
		Summary: "Others' traces, access logs and rates into a request trace",
		Description: `Others' arrivals (plain or .gz) into a request trace of ours, packed where its name ends
in .gz.

With --counts every row stands for an interval: a column of requests (or of requests per
second where its name ends in _rps) becomes single arrivals, drawn from --seed. Without it
every row is a request: t_us or t_s, and input_tokens and output_tokens where there are any.

These files of other tools are recognised:
` + requestlog.List() + `
Of an access log, requests count whose path names a model as in the Open Inference Protocol,
TensorFlow Serving, TorchServe, SageMaker and Azure OpenAI, or as --path says; with --model all
are for that model; answers 4xx except 408, 429, 460 and 499 do not. Times in whole seconds are
spread by --seed. The rates of a range query become requests as counts do. Several files
of one tool, such as the parts of a rotated log, are read together.`,
		Example: `  plan import trace invocations.csv --counts 60s --spread gamma:2 --scale 0.1 -o trace.csv.gz
  plan import trace requests.csv -o trace.csv.gz
  plan import trace access.log --path '/api/(resnet|bert)' -o trace.csv.gz
  plan simulate plan.json --trace trace.csv.gz`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "trace.csv.gz", Kind: "trace",
		FlagWords: map[string][]string{"counts": {"1s", "60s"}, "spread": {"uniform", "gamma:1", "gamma:2"}},
		Recognize: requestlog.Recognize,
		DefineFlags: func(f *pflag.FlagSet) {
			f.DurationVar(&o.Interval, "counts", 0, "the rows are counts per interval of this length, such as 1s or 60s")
			f.StringVar(&o.spreadWithin, "spread", "uniform", "of the arrivals within an interval: uniform, or gamma:CV")
			f.StringVar(&o.Column, "column", "", "column of the counts (default: the only one)")
			f.Float64Var(&o.Scale, "scale", 1, "multiplies the counts")
			f.DurationVar(&o.End, "duration", 0, "stop there (default: all)")
			o.requests.Define(f)
			f.StringVar(&o.class, "class", "", "SLO class of the model that they ask for")
		},
		Import: o.importTrace,
	}
}

// importTrace reads counts or requests from the file, and writes them as a request trace to a file or to stdout.
func (o *traceImport) importTrace(r *importers.Run) error {
	// Open the source, and add the columns and limits that the flags give.
	src, columns, models, err := o.open(r)
	if err != nil {
		return usage.Mark(err)
	}
	defer arrivals.Close(src)
	if o.class != "" {
		if slices.Contains(columns, "class") {
			return usage.Errorf("--class %s: %s has a column class", o.class, r.Args[0])
		}
		columns = append(columns, "class")
		src = arrivals.OfClass(src, o.class)
	}
	if o.End > 0 {
		src = arrivals.EndAt(src, o.End)
	}

	// Write the trace.
	if r.Path == importers.ToStdout {
		_, err := arrivals.WriteTrace(r, src, models, columns...)
		return usage.MarkWriting(err)
	}
	n, _, err := arrivals.WriteTraceFile(r.Path, src, models, columns, document.Force(true))
	if err != nil {
		return usage.MarkWriting(err)
	}
	return r.PrintResult(map[string]any{"requests": n}, "wrote %s: %s", r.Path, document.CountOf(int(n), "request"))
}

// open opens the file as counts, as requests in the layout of another tool, or as requests in ours. It also returns the
// columns that its requests have, and their models.
func (o *traceImport) open(r *importers.Run) (src arrivals.Source, columns, models []string, err error) {
	if o.CV, err = arrivals.ParseSpread(o.spreadWithin); err != nil {
		return nil, nil, nil, fmt.Errorf("--spread: %w", err)
	}
	if !(o.Scale > 0) {
		return nil, nil, nil, fmt.Errorf("--scale %v: expected more than 0", o.Scale)
	}
	if o.End < 0 {
		return nil, nil, nil, usage.Errorf("--duration %v: expected more than 0", o.End)
	}
	options, err := o.requests.Options()
	if err != nil {
		return nil, nil, nil, err
	}
	models = []string{options.NameOf("")}
	if o.requests.Model != "" {
		columns = []string{"model"}
	}
	if o.Interval != 0 && len(r.Args) > 1 {
		return nil, nil, nil, usage.Errorf("--counts: found %d files, expected one", len(r.Args))
	}
	if o.Interval != 0 {
		if r.Flags.Changed("rename") && o.requests.Model == "" {
			return nil, nil, nil, usage.Errorf("--rename: counts name no model: name it with --model")
		}
		if err := requestlog.CheckOwnLayout(r.Flags); err != nil {
			return nil, nil, nil, err
		}
		src, err := arrivals.OpenCounts(r.Args[0], seeded.New(o.requests.Seed, "trace"), o.CountsOptions)
		return src, columns, models, err
	}
	options.CV, options.Scale = o.CV, o.Scale
	log, err := requestlog.ReadFiles(r.Args, options)
	if log != nil || err != nil {
		if err != nil {
			return nil, nil, nil, err
		}
		if err := o.checkCountsFlags(r, log.IsDrawn); err != nil {
			return nil, nil, nil, err
		}
		for _, note := range log.Notes {
			r.PrintNote("note: %s: %s", log.Format, note)
		}
		src, columns, models := sourceOf(log)
		return src, columns, models, nil
	}
	if err := o.checkCountsFlags(r, false); err != nil {
		return nil, nil, nil, err
	}
	if len(r.Args) > 1 {
		return nil, nil, nil, usage.Errorf("found %d files, expected one of our own layout: %s", len(r.Args), r.Args[0])
	}
	if err := requestlog.CheckOwnLayout(r.Flags); err != nil {
		return nil, nil, nil, err
	}
	names, err := modelsIn(r.Args[0])
	if err != nil {
		return nil, nil, nil, err
	}
	if len(names) == 0 {
		names = []string{""}
	}
	trace, err := arrivals.OpenTrace(r.Args[0], names, arrivals.OfModel(0), arrivals.IgnoreOther())
	if err != nil {
		return nil, nil, nil, err
	}
	models = document.Map(names, func(name *string) string { return options.NameOf(*name) })
	return trace, append(trace.Columns(), columns...), models, nil
}

// checkCountsFlags returns an error if a flag about counts was typed although the file has none. areRates says that it
// has rates.
func (o *traceImport) checkCountsFlags(r *importers.Run, areRates bool) error {
	for _, name := range []string{"spread", "column", "scale"} {
		if r.Flags.Changed(name) && !(areRates && name != "column") {
			return usage.Errorf("--%s says how counts become arrivals: it needs --counts, such as --counts 60s", name)
		}
	}
	return nil
}

// modelsIn returns the names in the column model of a trace of ours, each once. Without the column there are none.
func modelsIn(path string) (names []string, err error) {
	tab, err := csvfile.OpenTable(path)
	if err != nil {
		return nil, err
	}
	_, column := tab.Column("model")
	seen := map[string]bool{}
	for column >= 0 && err == nil {
		if err = tab.Next(); err == nil && !seen[tab.Row[column]] {
			name := strings.Clone(tab.Row[column])
			seen[name], names = true, append(names, name)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, errors.Join(err, tab.Close())
}

// sourceOf returns the requests of a log with the columns that they have, and their models.
func sourceOf(log *requestlog.Log) (src arrivals.Source, columns, models []string) {
	models = log.Models()
	indices := map[string]int32{}
	for i, name := range models {
		indices[name] = int32(i)
	}
	list := make([]arrivals.Request, len(log.Requests))
	hasClasses := false
	for i, q := range log.Requests {
		list[i] = arrivals.Request{ArrivedAt: q.ArrivedAt, Model: indices[q.Model], Class: q.Class, PromptTokens: int32(q.Prompt), OutputTokens: int32(q.Output)}
		hasClasses = hasClasses || q.Class != ""
	}
	if len(models) > 1 || models[0] != "" {
		columns = append(columns, "model")
	}
	if hasClasses {
		columns = append(columns, "class")
	}
	if log.HasTokens {
		columns = append(columns, "prompt_tokens", "output_tokens")
	}
	return arrivals.Slice(list), columns, models
}
