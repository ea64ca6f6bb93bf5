package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/importer/llmtrace"
)

type importWorkloadOptions struct {
	llmtrace.Options
	model, slo, of, percentile string
	out                        string
}

func newImportWorkloadCommand(g *globals) *cobra.Command {
	o := &importWorkloadOptions{}
	cmd := &cobra.Command{
		Use:   "workload TRACE --slo 30s",
		Short: "A trace of requests to language models (CSV) into a workload",
		Long: `A trace of requests to language models (CSV, plain or .gz) into a workload: rate,
variation of the gaps, lengths of prompts and answers, sessions and what they share, per
model and class.

Columns: t_us or t_s, prompt_tokens or input_tokens, output_tokens; where there are, model,
class, session, and cached_tokens or prefix_hit_tokens_infinite_cache: tokens of a prompt that
were sent before. Others are skipped. Without times the rate stays open.`,
		Example: `  plan import workload azure_llm.csv.gz --model m7 --slo 30s -o workload.json
  plan import workload sharegpt.csv.gz --consecutive --model m7 --slo 500ms --of ttft`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.model, "model", "", "model that the requests ask for, where the trace has no column model")
	f.StringVar(&o.slo, "slo", "", "SLO of every class, such as 30s (required)")
	f.StringVar(&o.of, "of", "", "what the SLO is of: e2e (default), ttft or tpot")
	f.StringVar(&o.percentile, "percentile", "", "percentile of the SLO (default p99)")
	f.BoolVar(&o.Consecutive, "consecutive", false, "the rows of a conversation follow each other; one whose prompt is shorter than the one before begins another")
	_ = cmd.MarkFlagRequired("slo")
	complete(cmd, "of", formats.OfE2E, formats.OfTTFT, formats.OfTPOT)
	return importing(g, cmd, &o.out, "workload.json", formats.KindWorkload, func(p *printer, args []string) error { return runImportWorkload(p, o, args[0]) })
}

func runImportWorkload(p *printer, o *importWorkloadOptions, path string) error {
	slo, err := formats.ParseSLO(o.slo)
	if err != nil {
		return usageErrorf("--slo %s: %w", o.slo, err)
	}
	f, err := csvfile.Open(path)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening the trace: %w", err))
	}
	trace, err := llmtrace.Read(f, o.Options)
	if err = errors.Join(err, f.Close()); err != nil {
		return withCode(exitUsage, err)
	}
	classes := trace.Classes()
	if o.model == "" && slices.ContainsFunc(classes, func(c llmtrace.Class) bool { return c.Model == "" }) {
		return usageErrorf("--model: name the model that the requests of %s ask for", path)
	}
	doc, err := llmtrace.Workload(classes, o.model, llmtrace.Target{SLO: slo, Of: o.of, Percentile: o.percentile})
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("the workload of %s: %w", path, err))
	}
	if err := p.save(o.out, doc, true); err != nil {
		return err
	}
	return printTraceClasses(p, o, trace, classes)
}

// printTraceClasses shows what became of a trace.
func printTraceClasses(p *printer, o *importWorkloadOptions, trace *llmtrace.Trace, classes []llmtrace.Class) error {
	if p.json {
		list := make([]formats.LLMClass, len(classes))
		for i := range classes {
			list[i] = classes[i].LLMClass
		}
		return p.document(map[string]any{"output": o.out, "requests": len(trace.Rows), "classes": list})
	}
	if !trace.Timed {
		p.note("note: the trace has no times: set the rate (rps) of its classes")
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
	if err := p.table("llrrrrrl", []string{"model", "class", "requests", "rps", "cv of gaps", "median new prompt", "median answer", "sessions"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "wrote %s\n", o.out)
	return nil
}
