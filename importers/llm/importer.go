package llm

import (
	"cmp"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/importer/llmruns"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/importers/llm/exchange"
	"inferplan/profiler/llmfit"
)

type llmImport struct {
	llmfit.Options
	exchange exchange.Flags
}

// Importer describes the verb import llm, which fits the time of an iteration of language models to others'
// measurements.
func Importer() *importers.Importer {
	o := &llmImport{}
	return &importers.Importer{
		Usage:   "llm FILE...",
		Summary: "Others' measurements of language models into a profile",
		Description: `Others' measurements of language models into a profile.

What a file is follows from its columns: iterations of an engine, prompt phase and time
per token (Splitwise), batches from start to end (LLM-Inference-Bench), servers under closed
loops (aiconfigurator), coefficients (DistServe), iterations without attention (Vidur), KV
capacities, sizes, load times. JSON files are results of benchmarks with a fixed number of
clients: vllm bench serve --save-result --max-concurrency N; sglang.bench_serving
--max-concurrency N (with --name); AIPerf and genai-perf --concurrency N (profile_export);
GuideLLM --rate-type concurrent or synchronous. Folders and patterns name several.

The coefficients of an iteration are fitted per model, device kind and tensor parallelism.
The profile says how far they are from what was measured. Iterations and Vidur's files are sums
of kernels of one GPU: --link-gbps, --link-us and --model-config add two ring all-reduces a layer
for several. Without them plans warn. A KV capacity that is computed is too large by what the
engine keeps for itself: --kv-tokens has the server's. The numbers are added to
--profile (default: the output file, where it exists).`,
		Example: `  plan import llm splitwise_measured.csv model_sizes.csv --model llama2-70b --kv-tokens 433000
  plan import llm steps.csv --model Qwen3-32B --link-gbps 16 --link-us 20 --model-config config.json
  plan import llm 'bench/*/profile_export_aiperf.json' --device L40S --kv-tokens 41408
  plan import llm c1.json c8.json c64.json --device L40S --kv-tokens 41408 -o profile.json`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true,
		Recognize: func(head []byte) string {
			if bench := benchOf(head); bench != "" {
				return "a result of " + bench
			}
			return ""
		},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.Models, "model", nil, "models to take (default all)")
			f.StringVar(&o.Rename, "name", "", "name of the one model that is taken")
			f.StringVar(&o.Engine, "engine", "", "engine to take, where a file has several")
			f.StringVar(&o.Device, "device", "", "device kind of measurements that do not name one")
			f.IntVar(&o.TensorParallel, "tensor-parallel", 1, "devices of an instance, for measurements that do not name their number")
			f.Int64Var(&o.KVTokens, "kv-tokens", 0, "KV capacity as the server reports it (vllm:cache_config_info: blocks times their size)")
			f.Float64Var(&o.SwapGBps, "swap-gbps", 0, "1e9 bytes a second between host and device, for warm loads and KV")
			f.IntVar(&o.Batch, "one-batch", 0, "sequences of the one-batch profile; 0: none")
			f.Float64Var(&o.Prompt, "prompt", 1000, "mean prompt of the one-batch profile")
			f.Float64Var(&o.Output, "answer", 200, "mean answer of the one-batch profile")
			o.exchange.Define(f)
		},
		Import: o.importLLMs,
	}
}

// importLLMs reads the files of measurements, fits the language models in them, adds them to the profile and prints
// them.
func (o *llmImport) importLLMs(r *importers.Run) error {
	x, err := o.exchange.Exchange(r.Flags)
	if err != nil {
		return err
	}
	if x != nil {
		if len(o.Models) != 1 {
			return usage.Errorf("--model-config is of one model: found --model %s, expected one", strings.Join(o.Models, ", "))
		}
		o.Links, o.Layers = &x.Links, &x.Layers
	}
	const most = 1e15
	if err := cmp.Or(usage.CheckRange("kv-tokens", float64(o.KVTokens), 0, most), usage.CheckRange("swap-gbps", o.SwapGBps, 0, most), usage.CheckWhole("one-batch", o.Batch, 0, most), usage.CheckWhole("tensor-parallel", o.TensorParallel, 1, 1024),
		usage.CheckRange("prompt", o.Prompt, 1, most), usage.CheckRange("answer", o.Output, 1, most)); err != nil {
		return err
	}
	files, err := importers.FilesOf(r.Args, ".json", ".jsonl", ".csv")
	if err != nil {
		return err
	}
	var set llmruns.Set
	for _, name := range files {
		if err := importers.ReadFile(name, "measurements", func(f io.Reader) error { return readMeasurements(&set, f, name) }); err != nil {
			return err
		}
	}
	profile, err := llmfit.Import(&set, o.Options)
	if err != nil {
		return importers.MarkInput(err)
	}
	if err := r.MergeProfile(profile); err != nil {
		return err
	}
	return importers.PrintLLMs(r, r.JSON, r.Path, profile)
}

// readMeasurements adds the measurements in a file to s: the result of a benchmark if it is JSON, or else a table.
func readMeasurements(s *llmruns.Set, in io.Reader, name string) error {
	f, err := csvfile.New(in, name)
	if err != nil {
		return err
	}
	if head, _ := f.Peek(1); len(head) == 1 && head[0] == '{' {
		return readBenches(s, f, name)
	}
	return s.Read(f, name)
}
