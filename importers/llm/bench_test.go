package llm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats/importer/llmruns"
)

// The results of every benchmark that is known become steps. The samples have the fields that the sources of the tools
// write, which bench.go names, and figures of our own.
func TestBenchesAreRead(t *testing.T) {
	for file, want := range map[string]string{
		"vllm.json":       "Llama-3.1-8B-Instruct vllm bench serve: 1x576 11.27ms; prompt 512 58.1ms",
		"sglang.jsonl":    " sglang.bench_serving: 1x1152 11.31ms; prompt 1024 104.2ms; 8x1152 11.94ms; 32x1152 13.9ms",
		"aiperf_c1.json":  "Qwen3-8B aiperf: 1x544 11.2ms; prompt 512 58ms",
		"aiperf_c16.json": "Qwen3-8B aiperf: 16x544 12.6ms",
		"genai_perf.json": "Qwen3-8B aiperf: 8x600 11.9ms",
		"guidellm.json":   "Llama-3.1-8B-Instruct guidellm: 1x576 11.25ms; prompt 512 58.3ms; 4x576 11.5ms; 16x576 12.4ms left out 1 result",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var s llmruns.Set
		if err := readMeasurements(&s, strings.NewReader(string(data)), file); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var steps []string
		for _, m := range s.Steps {
			if m.Phase == llmruns.Prefill {
				steps = append(steps, fmt.Sprintf("prompt %d %v", m.Tokens, m.Elapsed))
			} else {
				steps = append(steps, fmt.Sprintf("%dx%g %v", m.Batch, m.Context, m.Elapsed))
			}
		}
		got := s.Steps[0].Model + " " + s.Steps[0].Engine + ": " + strings.Join(steps, "; ")
		for _, note := range s.Notes {
			_, note, _ = strings.Cut(note, ": ")
			got += " " + strings.TrimSuffix(note, " without a fixed number of clients")
		}
		if got != want {
			t.Errorf("%s: found\n%s\nexpected\n%s", file, got, want)
		}
		if bench := benchOf(data); bench != s.Steps[0].Engine {
			t.Errorf("%s is recognised as %q", file, bench)
		}
	}
}

// A file that is no result, and a result that lacks something, are refused with what is missing and how to get it.
func TestWhatBenchesLackIsSaid(t *testing.T) {
	for text, wants := range map[string][]string{
		"{":        {"f.json", "the result of a benchmark"},
		`{"a": 1}`: {"f.json", "no known result", "guidellm"},
		`{"model_id": "m", "completed": 5, "total_input_tokens": 50, "total_output_tokens": 50, "median_itl_ms": 3}`:                                                                                                                                                                          {"max_concurrency", "--max-concurrency"},
		`{"model_id": "m", "completed": 5, "total_input_tokens": 50, "total_output_tokens": 50, "max_concurrency": 2}`:                                                                                                                                                                        {"median_itl_ms", "itl"},
		`{"model_id": "m", "completed": 5, "total_input_tokens": 50, "total_output_tokens": 50, "median_itl_ms": 3, "max_concurrency": 2, "request_rate": 4.5}`:                                                                                                                               {"request_rate: found", "4.5", "not with a rate"},
		`{"input_config": {"loadgen": {"concurrency": 2, "request_rate": 4}}, "time_to_first_token": {"p50": 3}, "inter_token_latency": {"p50": 3}, "request_count": {"avg": 5}, "input_sequence_length": {"avg": 5}, "output_sequence_length": {"avg": 5}}`:                                  {`input_config.loadgen.request_rate: found`, "4", "run it with --concurrency"},
		`{"input_config": {"phases": [{"name": "profiling", "type": "poisson", "rate": 4, "concurrency": 2}]}, "time_to_first_token": {"p50": 3}, "inter_token_latency": {"p50": 3}, "request_count": {"avg": 5}, "input_sequence_length": {"avg": 5}, "output_sequence_length": {"avg": 5}}`: {`input_config.phases[name=profiling].type: found the text "poisson"`, "run it with --concurrency"},
		`{"model_id": "m", "completed": 0, "total_input_tokens": 50, "total_output_tokens": 50, "max_concurrency": 2}`:                                                                                                                                                                        {"completed", "0 requests"},
	} {
		var s llmruns.Set
		err := readMeasurements(&s, strings.NewReader(text), "f.json")
		for _, w := range wants {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v does not say %q", text, err, w)
			}
		}
	}
}

// Words that are no JSON stay within texts, and become texts elsewhere.
func TestNonFiniteNumbersAreRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": Infinity, "b": [NaN,-Infinity]}`: `{"a": "inf", "b": [null,"-inf"]}`,
		`{"a": "NaN \" Infinity", "b": NaN}`:    `{"a": "NaN \" Infinity", "b": null}`,
		`{"a": "\\", "b": Infinity}`:            `{"a": "\\", "b": "inf"}`,
		`{"a": 1}`:                              `{"a": 1}`,
	} {
		if got := string(quoteNonFinite([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func FuzzBench(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) < 5 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(`{"benchmarks":[{"config":{"strategy":{"type_":"synchronous"}}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 || !strings.HasPrefix(text, "{") {
			return
		}
		var s llmruns.Set
		if err := readMeasurements(&s, strings.NewReader(text), "x.json"); err != nil {
			return
		}
		for _, m := range s.Steps {
			if m.Batch < 1 || m.Elapsed <= 0 || m.Context < 0 || m.Tokens < 0 {
				t.Fatalf("%+v", m)
			}
		}
	})
}
