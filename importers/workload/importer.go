package workload

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/importers/requestlog"
)

type workloadImport struct {
	Options
	Target
	requests requestlog.Flags
	slo      string
}

// Importer describes the verb import workload, which turns a trace of requests to language models into a
// workload.
func Importer() *importers.Importer {
	o := &workloadImport{}
	return &importers.Importer{
		Usage:   "workload TRACE... --slo 30s",
		Summary: "A trace of requests, an access log or rates into a workload",
		Description: `A trace of requests to language models (plain or .gz) into a workload: rate, variation of
the gaps, lengths of prompts and answers, sessions and what they share, per model and class.
A file without tokens becomes a workload of models, whose weights are their rates.

Columns: t_us or t_s, prompt_tokens or input_tokens, output_tokens; where there are, model,
class, session, and cached_tokens or prefix_hit_tokens_infinite_cache: tokens of a prompt that
were sent before. Others are skipped. Without times the rate stays open.

These files of other tools are recognised:
` + requestlog.List() + `
Of an access log, requests count whose path names a model as in the Open Inference Protocol,
TensorFlow Serving, TorchServe, SageMaker and Azure OpenAI, or as --path says; with --model all
are for that model. Several files of one tool, such as the parts of a rotated log, are read
together.`,
		Example: `  plan import workload azure_llm.csv.gz --model m7 --slo 30s -o workload.json
  plan import workload access.log --slo 200ms -o workload.json
  plan import workload sharegpt.csv.gz --consecutive --model m7 --slo 500ms --of ttft`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "workload.json", Kind: formats.KindWorkload, RequiredFlags: []string{"slo"},
		FlagWords: map[string][]string{"of": {formats.FigureE2E, formats.FigureTTFT, formats.FigureTPOT}},
		Recognize: requestlog.Recognize,
		DefineFlags: func(f *pflag.FlagSet) {
			o.requests.Define(f)
			f.StringVar(&o.slo, "slo", "", "SLO of every class, such as 30s (required)")
			f.StringVar(&o.Figure, "of", "", "what the SLO is of: e2e (default), ttft or tpot")
			f.StringVar(&o.Percentile, "percentile", "", "percentile of the SLO (default p99)")
			f.BoolVar(&o.Consecutive, "consecutive", false, "the rows of a conversation follow each other; one whose prompt is shorter than the one before begins another")
		},
		Import: o.importWorkload,
	}
}

// importWorkload reads the trace, writes the workload of its classes, and prints them.
func (o *workloadImport) importWorkload(r *importers.Run) (err error) {
	path := r.Args[0]
	if o.SLO, err = document.ParseSLO(o.slo); err != nil {
		return usage.Errorf("--slo %s: %w", o.slo, err)
	}
	trace, log, err := o.readTrace(r.Flags, r.Args)
	if err != nil {
		return usage.Mark(err)
	}
	if log != nil {
		for _, note := range log.Notes {
			r.PrintNote("note: %s: %s", log.Format, note)
		}
		if !log.HasTokens {
			return o.saveModels(r, log)
		}
	}
	classes := trace.Classes()
	if o.requests.Model == "" && slices.ContainsFunc(classes, func(c Class) bool { return c.Model == "" }) {
		return usage.Errorf("--model: name the model that the requests of %s ask for", path)
	}
	doc, err := Workload(classes, o.requests.Model, o.Target)
	if err != nil {
		return usage.Mark(fmt.Errorf("the workload of %s: %w", path, err))
	}
	if err := r.SaveDocument(r.Path, doc); err != nil {
		return err
	}
	return printTraceClasses(r, trace, classes)
}

// readTrace reads the files. log is what was read of files of another tool, and nil for others.
func (o *workloadImport) readTrace(flags *pflag.FlagSet, paths []string) (trace *Trace, log *requestlog.Log, err error) {
	options, err := o.requests.Options()
	if err != nil {
		return nil, nil, err
	}
	log, err = requestlog.ReadFiles(paths, options)
	switch {
	case err != nil:
		return nil, nil, err
	case log != nil && o.Consecutive:
		return nil, nil, usage.Errorf("--consecutive: %s is %s, which tells its sessions", paths[0], log.Format)
	case log != nil:
		return traceOf(log), log, nil
	case len(paths) > 1:
		return nil, nil, usage.Errorf("found %d files, expected one of our own layout: %s", len(paths), paths[0])
	}
	if err := requestlog.CheckOwnLayout(flags); err != nil {
		return nil, nil, err
	}
	f, err := csvfile.Open(paths[0])
	if err != nil {
		return nil, nil, fmt.Errorf("opening the trace: %w", err)
	}
	trace, err = Read(f, o.Options)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, err
	}
	for i := range trace.Rows {
		trace.Rows[i].Model = options.NameOf(trace.Rows[i].Model)
	}
	return trace, nil, nil
}

// printTraceClasses prints the classes that were made from a trace.
func printTraceClasses(r *importers.Run, trace *Trace, classes []Class) error {
	if r.JSON {
		list := make([]formats.LLMClass, len(classes))
		for i := range classes {
			list[i] = classes[i].LLMClass
		}
		return r.PrintResult(map[string]any{"requests": len(trace.Rows), "classes": list}, "")
	}
	if !trace.HasTimes {
		r.PrintNote("note: the trace has no times: set the rate (rps) of its classes")
	}
	var rows [][]string
	for i := range classes {
		c := &classes[i]
		cv, turns := "1", "-"
		if c.Arrivals != nil {
			cv = fmt.Sprint(c.Arrivals.CV)
		}
		if s := c.Sessions; s != nil {
			turns = fmt.Sprintf("%.3g turns, %d tokens shared", s.Turns, s.SharedTokens)
		}
		rows = append(rows, []string{c.Model, c.Class, fmt.Sprint(c.Rows), fmt.Sprint(c.RPS), cv, fmt.Sprint(c.Prompt.Tokens[len(c.Prompt.Tokens)/2]), fmt.Sprint(c.Output.Tokens[len(c.Output.Tokens)/2]), turns})
	}
	if err := r.PrintTable("llrrrrrl", []string{"model", "class", "requests", "rps", "cv of gaps", "median new prompt", "median answer", "sessions"}, rows); err != nil {
		return err
	}
	return r.PrintResult(nil, "wrote %s", r.Path)
}
