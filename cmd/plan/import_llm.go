package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler/llmfit"
	"inferplan/profiler/llmrun"
)

// exchangeOptions describe the exchange between the GPUs of an instance, if its iterations are sums of the kernels
// of one GPU.
type exchangeOptions struct {
	gbps   float64
	step   float64 // microseconds
	config string
}

func (o *exchangeOptions) flags(f *pflag.FlagSet) {
	f.Float64Var(&o.gbps, "link-gbps", 0, "1e9 bytes a second from one GPU of an instance to the next: adds all-reduces to iterations that are sums of kernels")
	f.Float64Var(&o.step, "link-us", 0, "microseconds of latency from one GPU of an instance to the next")
	f.StringVar(&o.config, "model-config", "", "config.json of the model, for its layers and what crosses between GPUs for a token")
}

// exchange returns the exchange that the flags describe, or nil if none was given. An exchange is how GPUs combine
// their results in every layer (all-reduce): the rate and latency of their links, and the sizes of the model's
// layers.
func (o *exchangeOptions) exchange(f *pflag.FlagSet) (*llmrun.Exchange, error) {
	if !f.Changed("link-gbps") && !f.Changed("link-us") && o.config == "" {
		return nil, nil
	}
	if !(o.gbps >= 1e-3 && o.gbps < 1e6) || !(o.step >= 0 && o.step <= 1e6) || o.config == "" {
		return nil, usageErrorf("--link-gbps %g --link-us %g --model-config %q: expected --link-gbps from .001 to 1e6, --link-us from 0 to 1e6, and a file: all-reduces take the three together", o.gbps, o.step, o.config)
	}
	x := &llmrun.Exchange{Links: llmruns.LinkSpecs{GBps: o.gbps, Latency: time.Duration(o.step * 1e3)}}
	err := readFile(o.config, "the model's config", func(f *os.File) (err error) { x.Layers, err = llmruns.ReadLayers(f, o.config); return err })
	return x, err
}

type llmImport struct {
	llmfit.Options
	exchange exchangeOptions
}

// importLLM describes the verb import llm, which fits the time of an iteration of language models to others'
// measurements.
func importLLM() importer {
	o := &llmImport{}
	return importer{
		use:     "llm FILE...",
		summary: "Others' measurements of language models into a profile",
		description: `Others' measurements of language models into a profile.

What a file is follows from its columns: iterations of an engine, prompt phase and time
per token (Splitwise), batches from start to end (LLM-Inference-Bench), servers under closed
loops (aiconfigurator), coefficients (DistServe), iterations without attention (Vidur), KV
capacities, sizes, load times. JSON files are results of vllm bench serve --save-result with
--max-concurrency.

The coefficients of an iteration are fitted per model, device kind and tensor parallelism.
The profile says how far they are from what was measured. The numbers are added to
--profile (default: the output file, where it exists).`,
		example: `  plan import llm splitwise_measured.csv model_sizes.csv --model llama2-70b --kv-tokens 433000
  plan import llm steps.csv --model Qwen3-32B --link-gbps 16 --link-us 20 --model-config config.json
  plan import llm c1.json c8.json c64.json --device L40S --kv-tokens 41408 -o profile.json`,
		args: cobra.MinimumNArgs(1), defaultOutput: "profile.json", kind: formats.KindProfile, extends: true,
		flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.Models, "model", nil, "models to take (default all)")
			f.StringVar(&o.Rename, "name", "", "name of the one model that is taken")
			f.StringVar(&o.Engine, "engine", "", "engine to take, where a file has several")
			f.StringVar(&o.Device, "device", "", "device kind of measurements that do not say theirs")
			f.Int64Var(&o.KVTokens, "kv-tokens", 0, "KV capacity as the server reports it (vllm:cache_config_info: blocks times their size)")
			f.Float64Var(&o.SwapGBps, "swap-gbps", 0, "1e9 bytes a second between host and device, for warm loads and KV")
			f.IntVar(&o.Batch, "one-batch", 0, "sequences of the one-batch profile; 0: none")
			f.Float64Var(&o.Prompt, "prompt", 1000, "mean prompt of the one-batch profile")
			f.Float64Var(&o.Output, "answer", 200, "mean answer of the one-batch profile")
			o.exchange.flags(f)
		},
		runImport: o.importLLMs,
	}
}

// importLLMs reads the files of measurements, fits the language models in them, adds them to the profile and prints
// them.
func (o *llmImport) importLLMs(r *importRun) error {
	x, err := o.exchange.exchange(r.flagSet)
	if err != nil {
		return err
	}
	if x != nil {
		if len(o.Models) != 1 {
			return usageErrorf("--model-config is of one model: found --model %s, expected one", joinList(o.Models))
		}
		o.Links, o.Layers = &x.Links, &x.Layers
	}
	const most = 1e15
	if err := firstError(checkRange("kv-tokens", float64(o.KVTokens), 0, most), checkRange("swap-gbps", o.SwapGBps, 0, most), checkWhole("one-batch", o.Batch, 0, most),
		checkRange("prompt", o.Prompt, 1, most), checkRange("answer", o.Output, 1, most)); err != nil {
		return err
	}
	var set llmruns.Set
	for _, name := range r.args {
		if err := readFile(name, "measurements", func(f *os.File) error { return set.Read(f, name) }); err != nil {
			return err
		}
	}
	profile, err := llmfit.Import(&set, o.Options)
	if err != nil {
		return badInput(err)
	}
	if err := r.mergeProfile(profile); err != nil {
		return err
	}
	return printLLMs(r.printer, r.path, profile)
}

// printLLMs prints the language models that were imported.
func printLLMs(p *printer, out string, profile *formats.Profile) error {
	if p.json {
		return p.printJSON(map[string]any{"output": out, "models": len(profile.LLMs), "llms": profile.LLMs, "notes": profile.Notes})
	}
	for _, n := range profile.Notes {
		p.printNote("note: %s", n)
	}
	var rows [][]string
	for i := range profile.LLMs {
		m := &profile.LLMs[i]
		for k := range m.Instances {
			in := &m.Instances[k]
			it := &in.Iteration
			// Columns 7 and 8 have the errors of the fit, if it is one.
			row := []string{m.Model, fmt.Sprintf("%d x %s", in.TensorParallel, in.Device), formatNanosAsMillis(it.BaseNS + it.CPUNS), formatNanosAsMillis(it.SequenceNS + it.CPUSequenceNS), formatNanosAsMillis(it.ContextNS * 1000), formatNanosAsMillis(it.PromptNS), fmt.Sprint(it.HingeTokens), "", "", fmt.Sprint(in.KVTokens)}
			if f := in.Fit; f != nil {
				row[7] = fmt.Sprintf("%.1f %% (%.0f %%)", 100*f.DecodeMAPE, 100*f.DecodeMax)
				if f.PrefillMax > 0 {
					row[8] = fmt.Sprintf("%.1f %% (%.0f %%)", 100*f.PrefillMAPE, 100*f.PrefillMax)
				}
			}
			rows = append(rows, row)
		}
	}
	if err := p.printTable("llrrrrrrrr", []string{"model", "devices", "base ms", "+ sequence", "+ 1000 context", "+ prompt token", "hinge", "decode off (max)", "prefill off (max)", "KV tokens"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "wrote %s\n", out)
	return nil
}

// formatNanosAsMillis writes nanoseconds as milliseconds with four digits.
func formatNanosAsMillis(ns float64) string { return fmt.Sprintf("%.4g", ns/1e6) }
