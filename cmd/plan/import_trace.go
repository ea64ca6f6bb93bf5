package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

type importTraceOptions struct {
	file     string
	counts   time.Duration
	spread   string
	column   string
	model    string
	class    string
	scale    float64
	duration time.Duration
	seed     uint64
	out      string
}

func newImportTraceCommand(g *globals) *cobra.Command {
	o := &importTraceOptions{}
	cmd := &cobra.Command{
		Use:   "trace FILE [--counts 1s|60s] [--spread uniform|gamma:CV]",
		Short: "Others' arrivals (CSV) into a request trace",
		Long: `Others' arrivals (CSV, plain or .gz) into a request trace of ours.

With --counts every row stands for an interval: a column of requests (or of requests per
second where its name ends in _rps) becomes single arrivals, drawn from --seed. Without it
every row is a request: t_us or t_s, and input_tokens and output_tokens where there are any.`,
		Example: `  plan import trace invocations.csv --counts 60s --spread gamma:2 --scale 0.1 -o trace.csv.gz
  plan import trace requests.csv -o trace.csv.gz
  plan simulate plan.json --trace trace.csv.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			if o.counts == 0 {
				for _, name := range []string{"spread", "column", "scale"} {
					if cmd.Flags().Changed(name) {
						return usageErrorf("--%s says how counts become arrivals: it needs --counts, such as --counts 60s", name)
					}
				}
			}
			return runImportTrace(newPrinter(cmd, g), o)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.counts, "counts", 0, "the rows are counts per interval of this length, such as 1s or 60s")
	f.StringVar(&o.spread, "spread", "uniform", "of the arrivals within an interval: uniform, or gamma:CV")
	f.StringVar(&o.column, "column", "", "column of the counts (default: the only one)")
	f.Float64Var(&o.scale, "scale", 1, "multiplies the counts")
	f.DurationVar(&o.duration, "duration", 0, "stop there (default: all)")
	f.StringVar(&o.model, "model", "", "model that the requests ask for")
	f.StringVar(&o.class, "class", "", "SLO class of the model that they ask for")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals")
	f.StringVarP(&o.out, "output", "o", "trace.csv.gz", "trace to write, packed where it ends in .gz")
	complete(cmd, "counts", "1s", "60s")
	complete(cmd, "spread", "uniform", "gamma:1", "gamma:2")
	return cmd
}

func runImportTrace(p *printer, o *importTraceOptions) error {
	if err := p.output("output", o.out, "trace"); err != nil {
		return err
	}
	src, columns, err := openArrivals(o)
	if err != nil {
		return withCode(exitUsage, err)
	}
	defer arrivals.Close(src)
	models := []string{o.model}
	if o.model != "" {
		columns = append(columns, "model")
	}
	if o.class != "" {
		if slices.Contains(columns, "class") {
			return usageErrorf("--class %s: %s has a column class", o.class, o.file)
		}
		columns = append(columns, "class")
		src = arrivals.OfClass(src, o.class)
	}
	if o.duration > 0 {
		src = arrivals.Until(src, o.duration)
	}
	if o.out == toStdout {
		_, err := arrivals.WriteTrace(p.out, src, models, columns...)
		return writeError(err)
	}
	n, _, err := arrivals.WriteTraceFile(o.out, src, models, columns, formats.Force(true))
	if err != nil {
		return writeError(err)
	}
	if p.json {
		return p.document(map[string]any{"output": o.out, "requests": n})
	}
	fmt.Fprintf(p.out, "wrote %s: %s\n", o.out, plural(int(n), "request"))
	return nil
}

// openArrivals opens the file as counts or as requests, and tells which columns
// its requests have.
func openArrivals(o *importTraceOptions) (arrivals.Source, []string, error) {
	if o.counts != 0 {
		cv, err := arrivals.ParseSpread(o.spread)
		if err != nil {
			return nil, nil, fmt.Errorf("--spread: %w", err)
		}
		if !(o.scale > 0) {
			return nil, nil, fmt.Errorf("--scale %v: expected more than 0", o.scale)
		}
		src, err := arrivals.OpenCounts(o.file, seeded.New(o.seed, "trace"), arrivals.CountsOptions{
			Interval: o.counts, Column: o.column, CV: cv, Scale: o.scale, Until: o.duration,
		})
		return src, nil, err
	}
	src, err := arrivals.OpenTrace(o.file, []string{o.model}, arrivals.OfModel(0), arrivals.IgnoreOther())
	if err != nil {
		return nil, nil, err
	}
	return src, src.Columns(), nil
}
