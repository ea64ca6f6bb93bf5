package llmruns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		var s Set
		if err := s.Read(strings.NewReader(string(data)), file); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var steps []string
		for _, m := range s.Steps {
			if m.Phase == Prefill {
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
		if bench := BenchOf(data); bench != s.Steps[0].Engine {
			t.Errorf("%s is recognised as %q", file, bench)
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
		var s Set
		if err := s.Read(strings.NewReader(text), "x.json"); err != nil {
			return
		}
		for _, m := range s.Steps {
			if m.Batch < 1 || m.Elapsed <= 0 || m.Context < 0 || m.Tokens < 0 {
				t.Fatalf("%+v", m)
			}
		}
	})
}
