package vllmrun

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/importers/llm/exchange"
	"inferplan/profiler/llmrun"
)

type vllmImport struct {
	steps, meta, requests, trace string
	cpu                          llmrun.CPUCost
	kvTokens                     int64
	exchange                     exchange.Flags
}

// Importer describes the verb import vllm-run, which turns a recorded run of a vLLM server into a profile and
// compares the run with its simulation.
func Importer() *importers.Importer {
	o := &vllmImport{}
	return &importers.Importer{
		Usage:   "vllm-run --steps F --meta F --requests F",
		Summary: "A run of a vLLM server into a profile, with the model of it beside",
		Description: `A run of a vLLM server into a profile, with the model of it beside.

steps:    what an iteration takes, as plan import llm reads it:
          model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms (phase: decode,
          prefill)
meta:     meta.json of the server: model, engine_kwargs {tensor_parallel_size, max_num_seqs,
          max_num_batched_tokens}, kv_cache {num_gpu_blocks, block_size, enable_prefix_caching
          (true if absent)}; hardware.device_name chooses among kinds in the steps
requests: request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s,
          or JSON lines: request_id, input_toks, output_toks, queued_ts, scheduled_ts,
          first_token_ts, last_token_ts

The run is simulated with the fitted iteration and what the server's CPU adds to it:
--cpu per iteration and --cpu-sequence per sequence in it. Without them they are fitted to
this run, which is then no test of them. If that fit is at its edge, or R2 of the latencies is
below 0.9, the profile says so in doubts, which plans repeat.`,
		Example:       `  plan import vllm-run --steps steps.csv --meta meta.json --requests requests.jsonl --cpu 706us --cpu-sequence 20us -o profile.json`,
		DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true, RequiredFlags: []string{"steps", "meta", "requests"},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.steps, "steps", "", "measured iterations (required)")
			f.StringVar(&o.meta, "meta", "", "meta.json of the server (required)")
			f.StringVar(&o.requests, "requests", "", "requests of the run (required)")
			f.DurationVar(&o.cpu.Iteration, "cpu", 0, "time that the server's CPU adds to an iteration (default: fitted to the run)")
			f.DurationVar(&o.cpu.Sequence, "cpu-sequence", 0, "time that it adds for each sequence in it")
			f.Int64Var(&o.kvTokens, "kv-tokens", 0, "KV capacity as the server reports it (vllm:cache_config_info: blocks times their size), instead of what meta.json says")
			o.exchange.Define(f)
			f.StringVar(&o.trace, "trace", "", "request trace to write as well")
		},
		Import: o.importVLLM,
	}
}

// importVLLM reads the recorded run, adds the server's figures to the profile, and prints the comparison with the
// simulation.
func (o *vllmImport) importVLLM(r *importers.Run) error {
	// Check the flags.
	exchange, err := o.exchange.Exchange(r.Flags)
	if err != nil {
		return err
	}
	cpu, cpuGiven := o.cpu, r.Flags.Changed("cpu") || r.Flags.Changed("cpu-sequence")
	if min(cpu.Iteration, cpu.Sequence) < 0 || max(cpu.Iteration, cpu.Sequence) > time.Second {
		return usage.Errorf("--cpu %v --cpu-sequence %v: expected 0 to 1s", cpu.Iteration, cpu.Sequence)
	}
	if o.trace == importers.ToStdout {
		return usage.Errorf("--trace -: expected a file: standard output has the comparison")
	}
	if err := usage.CheckWhole("kv-tokens", int(o.kvTokens), 0, 1<<30); err != nil {
		return err
	}

	// Read the recorded run, fit the CPU's times if they are not given, and compare the simulation with the run.
	run, err := llmrun.Open(o.steps, o.meta, o.requests, o.kvTokens, exchange)
	if err != nil {
		return importers.MarkInput(err)
	}
	if !cpuGiven {
		if cpu, err = llmrun.Calibrate(run); err != nil {
			return err
		}
	}
	x, err := run.Compare(cpu)
	if err != nil {
		return err
	}

	// Write the profile and the trace.
	if err := r.MergeProfile(run.Profile(cpu, cpuGiven, x)); err != nil {
		return err
	}
	if o.trace != "" {
		if err := writeRunTrace(o.trace, run); err != nil {
			return err
		}
	}
	return printComparison(r, run, cpu, cpuGiven, x)
}

// writeRunTrace writes the requests of a recorded run of a server as a request trace. Times of the run are in
// seconds.
func writeRunTrace(path string, run *llmrun.Run) error {
	list := make([]arrivals.Request, len(run.Requests))
	for i, q := range run.Requests {
		list[i] = arrivals.Request{ArrivedAt: time.Duration(q.QueuedAt * 1e9), ID: q.ID, PromptTokens: int32(q.Prompt), OutputTokens: int32(q.Output)}
	}
	_, _, err := arrivals.WriteTraceFile(path, arrivals.Slice(list), []string{run.Meta.Model}, []string{"id", "prompt_tokens", "output_tokens"}, document.Force(true))
	return usage.MarkWriting(err)
}

// printComparison prints the times of a run beside those of its model. cpu are the server's CPU times in the
// simulation, and cpuGiven says that flags gave them; otherwise they were fitted.
func printComparison(r *importers.Run, run *llmrun.Run, cpu llmrun.CPUCost, cpuGiven bool, x *llmrun.Comparison) error {
	if r.JSON {
		return r.PrintResult(map[string]any{"run": run.Name, "fit": run.Fit, "cpu_us": document.Micros(cpu.Iteration), "cpu_sequence_us": document.Micros(cpu.Sequence), "cpu_fitted": !cpuGiven, "comparison": x, "warnings": run.Doubts(cpu, cpuGiven, x)}, "")
	}
	if !cpuGiven {
		r.PrintNote("assumed: --cpu %v --cpu-sequence %v, fitted to this run", cpu.Iteration, cpu.Sequence)
	}
	row := func(label, unit string, f llmrun.Figure, scale float64) []string {
		return []string{label, fmt.Sprintf("%.3f", f.Measured*scale), fmt.Sprintf("%.3f", f.Model*scale), unit, fmt.Sprintf("%+.2f %%", 100*f.RelativeError())}
	}
	rows := [][]string{
		row("end to end, mean", "s", x.E2E, 1), row("end to end, p99", "s", x.E2EP99, 1), row("time to first token, mean", "s", x.TTFT, 1), row("time to first token, p99", "s", x.TTFTP99, 1),
		row("time per token, mean", "ms", x.TPOT, 1e3), row("time per token, p99", "ms", x.TPOTP99, 1e3), row("until scheduled, mean", "s", x.QueueTime, 1), row("makespan", "s", x.Makespan, 1),
	}
	if err := r.PrintTable("lrrlr", []string{run.Name, "real", "model", "", "off"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(r, "end to end, request by request: R2 %.4f, mean error %.2f %%; until scheduled: R2 %.4f; %s, %s pre-empted by the model\n", x.R2, 100*x.MAPE, x.QueuedR2, document.CountOf(x.Requests, "request"), document.CountOf(int(x.Preemptions), "sequence"))
	fmt.Fprintf(r, "wrote %s\n", r.Path)
	for _, doubt := range run.Doubts(cpu, cpuGiven, x) {
		r.PrintNote("warning: %s", doubt)
	}
	return nil
}
