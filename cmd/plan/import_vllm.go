package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/profiler"
	"inferplan/profiler/llmrun"
)

type importVLLMOptions struct {
	steps, meta, requests string
	cpu, cpuSequence      time.Duration
	profile, out, trace   string
	kvTokens              int64
	exchange              exchangeOptions
}

func newImportVLLMCommand(g *globals) *cobra.Command {
	o := &importVLLMOptions{}
	cmd := &cobra.Command{
		Use:   "vllm-run --steps F --meta F --requests F",
		Short: "A run of a vLLM server into a profile, with the model of it beside",
		Long: `A run of a vLLM server into a profile, with the model of it beside.

steps:    what an iteration takes, as plan import llm reads it
meta:     meta.json of the server; the KV capacity is taken from there
requests: request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s,
          or JSON lines

The run is simulated with the fitted iteration and what the server's CPU adds to it:
--cpu per iteration and --cpu-sequence per sequence in it. Without them they are fitted to
this run, which is then no test of them.`,
		Example: `  plan import vllm-run --steps steps.csv --meta meta.json --requests requests.jsonl --cpu 706us --cpu-sequence 20us -o profile.json`,
		Args:    noArguments,
	}
	f := cmd.Flags()
	f.StringVar(&o.steps, "steps", "", "measured iterations (required)")
	f.StringVar(&o.meta, "meta", "", "what the server says of itself (required)")
	f.StringVar(&o.requests, "requests", "", "requests of the run (required)")
	f.DurationVar(&o.cpu, "cpu", 0, "time that the server's CPU adds to an iteration (default: fitted to the run)")
	f.DurationVar(&o.cpuSequence, "cpu-sequence", 0, "time that it adds for each sequence in it")
	f.Int64Var(&o.kvTokens, "kv-tokens", 0, "KV capacity as the server reports it (vllm:cache_config_info: blocks times their size), instead of what meta.json says")
	o.exchange.flags(f)
	f.StringVar(&o.trace, "trace", "", "request trace to write as well")
	f.StringVar(&o.profile, "profile", "", "profile that the numbers are added to (default: the output file, if it exists)")
	for _, name := range []string{"steps", "meta", "requests"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return importing(g, cmd, &o.out, "profile.json", formats.KindProfile, func(p *printer, _ []string) error {
		x, err := o.exchange.read(f)
		if err != nil {
			return err
		}
		return runImportVLLM(p, o, x, f.Changed("cpu") || f.Changed("cpu-sequence"))
	})
}

func runImportVLLM(p *printer, o *importVLLMOptions, exchange *llmrun.Exchange, given bool) error {
	if o.cpu < 0 || o.cpuSequence < 0 || o.cpu > time.Second || o.cpuSequence > time.Second {
		return usageErrorf("--cpu %v --cpu-sequence %v: expected 0 to 1s", o.cpu, o.cpuSequence)
	}
	if o.kvTokens < 0 || o.kvTokens > 1<<30 {
		return usageErrorf("--kv-tokens %d: expected 0 to %d", o.kvTokens, 1<<30)
	}
	run, err := llmrun.Open(o.steps, o.meta, o.requests, o.kvTokens, exchange)
	if err != nil {
		if _, env := errors.AsType[*os.PathError](err); env || errors.Is(err, profiler.ErrInput) || len(formats.Findings(err)) > 0 {
			return withCode(exitUsage, err)
		}
		return err
	}
	cpu := llmrun.CPU{Iteration: o.cpu, Sequence: o.cpuSequence}
	if !given {
		if cpu, err = llmrun.Calibrate(run); err != nil {
			return err
		}
	}
	x, err := run.Compare(cpu)
	if err != nil {
		return err
	}
	into, err := profileToExtend(o.profile, o.out)
	if err != nil {
		return err
	}
	if err := profiler.Merge(into, run.Profile(cpu, given, x)); err != nil {
		return withCode(exitUsage, err)
	}
	if err := p.save(o.out, into, true); err != nil {
		return err
	}
	if o.trace != "" {
		if err := writeRunTrace(o.trace, run); err != nil {
			return err
		}
	}
	return printComparison(p, o, run, cpu, given, x)
}

func writeRunTrace(path string, run *llmrun.Run) error {
	f, err := os.Create(path)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("writing the trace: %w", err))
	}
	list := make([]arrivals.Request, len(run.Requests))
	for i, r := range run.Requests {
		list[i] = arrivals.Request{At: time.Duration(r.Queued * 1e9), ID: r.ID, PromptTokens: int32(r.Prompt), OutputTokens: int32(r.Output)}
	}
	_, err = arrivals.WriteTrace(f, arrivals.Slice(list), []string{run.Meta.Model}, "id", "prompt_tokens", "output_tokens")
	return errors.Join(err, f.Close())
}

// printComparison shows a run beside the model of it.
func printComparison(p *printer, o *importVLLMOptions, run *llmrun.Run, cpu llmrun.CPU, given bool, x *llmrun.Comparison) error {
	if p.json {
		return p.document(map[string]any{"output": o.out, "run": run.Name, "fit": run.Fit, "cpu_us": formats.Micros(cpu.Iteration), "cpu_sequence_us": formats.Micros(cpu.Sequence), "cpu_fitted": !given, "comparison": x, "warnings": run.Doubts(cpu, given, x)})
	}
	if !given {
		p.note("assumed: --cpu %v --cpu-sequence %v, fitted to this run", cpu.Iteration, cpu.Sequence)
	}
	row := func(what, unit string, f llmrun.Figure, scale float64) []string {
		return []string{what, fmt.Sprintf("%.3f", f.Real*scale), fmt.Sprintf("%.3f", f.Model*scale), unit, fmt.Sprintf("%+.2f %%", 100*f.Off())}
	}
	rows := [][]string{
		row("end to end, mean", "s", x.E2E, 1), row("end to end, p99", "s", x.E2EP99, 1), row("time to first token, mean", "s", x.TTFT, 1), row("time to first token, p99", "s", x.TTFTP99, 1),
		row("time per token, mean", "ms", x.TPOT, 1e3), row("time per token, p99", "ms", x.TPOTP99, 1e3), row("until scheduled, mean", "s", x.Queued, 1), row("makespan", "s", x.Makespan, 1),
	}
	if err := p.table("lrrlr", []string{run.Name, "real", "model", "", "off"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "end to end, request by request: R2 %.4f, mean error %.2f %%; until scheduled: R2 %.4f; %s, %s pre-empted by the model\n", x.R2, 100*x.MAPE, x.QueuedR2, plural(x.Requests, "request"), plural(int(x.Preempted), "sequence"))
	fmt.Fprintf(p.out, "wrote %s\n", o.out)
	for _, doubt := range run.Doubts(cpu, given, x) {
		p.note("warning: %s", doubt)
	}
	return nil
}
