package trace

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/formats/usage"
	"inferplan/importers"
)

type traceImport struct {
	arrivals.CountsOptions
	spreadWithin string
	model, class string
	seed         uint64
}

// Importer describes the verb import trace, which turns others' arrivals into a request trace.
func Importer() *importers.Importer {
	o := &traceImport{}
	return &importers.Importer{
		Usage:   "trace FILE [--counts 1s|60s] [--spread uniform|gamma:CV]",
		Summary: "Others' arrivals (CSV) into a request trace",
		Description: `Others' arrivals (CSV, plain or .gz) into a request trace of ours, packed where its name
ends in .gz.

With --counts every row stands for an interval: a column of requests (or of requests per
second where its name ends in _rps) becomes single arrivals, drawn from --seed. Without it
every row is a request: t_us or t_s, and input_tokens and output_tokens where there are any.`,
		Example: `  plan import trace invocations.csv --counts 60s --spread gamma:2 --scale 0.1 -o trace.csv.gz
  plan import trace requests.csv -o trace.csv.gz
  plan simulate plan.json --trace trace.csv.gz`,
		MinArguments: 1, MaxArguments: 1, DefaultOutput: "trace.csv.gz", Kind: "trace",
		FlagWords: map[string][]string{"counts": {"1s", "60s"}, "spread": {"uniform", "gamma:1", "gamma:2"}},
		DefineFlags: func(f *pflag.FlagSet) {
			f.DurationVar(&o.Interval, "counts", 0, "the rows are counts per interval of this length, such as 1s or 60s")
			f.StringVar(&o.spreadWithin, "spread", "uniform", "of the arrivals within an interval: uniform, or gamma:CV")
			f.StringVar(&o.Column, "column", "", "column of the counts (default: the only one)")
			f.Float64Var(&o.Scale, "scale", 1, "multiplies the counts")
			f.DurationVar(&o.End, "duration", 0, "stop there (default: all)")
			f.StringVar(&o.model, "model", "", "model that the requests ask for")
			f.StringVar(&o.class, "class", "", "SLO class of the model that they ask for")
			f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals")
		},
		Import: o.importTrace,
	}
}

// importTrace reads counts or requests from the file, and writes them as a request trace to a file or to stdout.
func (o *traceImport) importTrace(r *importers.Run) error {
	for _, name := range []string{"spread", "column", "scale"} {
		if o.Interval == 0 && r.Flags.Changed(name) {
			return usage.Errorf("--%s says how counts become arrivals: it needs --counts, such as --counts 60s", name)
		}
	}

	// Open the source, and add the columns and limits that the flags give.
	src, columns, err := o.open(r.Args[0])
	if err != nil {
		return usage.Mark(err)
	}
	defer arrivals.Close(src)
	models := []string{o.model}
	if o.model != "" {
		columns = append(columns, "model")
	}
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

// open opens the file as counts or as requests. It also returns the columns that its requests have.
func (o *traceImport) open(file string) (arrivals.Source, []string, error) {
	if o.Interval != 0 {
		var err error
		if o.CV, err = arrivals.ParseSpread(o.spreadWithin); err != nil {
			return nil, nil, fmt.Errorf("--spread: %w", err)
		}
		if !(o.Scale > 0) {
			return nil, nil, fmt.Errorf("--scale %v: expected more than 0", o.Scale)
		}
		src, err := arrivals.OpenCounts(file, seeded.New(o.seed, "trace"), o.CountsOptions)
		return src, nil, err
	}
	src, err := arrivals.OpenTrace(file, []string{o.model}, arrivals.OfModel(0), arrivals.IgnoreOther())
	if err != nil {
		return nil, nil, err
	}
	return src, src.Columns(), nil
}
