package instance

import (
	"fmt"
	"os"
	"path/filepath"

	"inferplan/formats/importer/llmruns"
	"inferplan/profiler/llmrun"
)

// bundled are the runs that the data has, of LLMServingSim's bench/examples: 300
// ShareGPT requests each on vLLM 0.19. What the servers were is in the runs' own
// meta.json; the KV capacity is the one that they reported (blocks times 16 tokens). That of
// the RTX PRO 6000 is of a later run of the same; it never binds there.
var bundled = []struct {
	file string
	meta llmruns.Meta
}{
	{"vllm_run_rtx4090_llama-3.1-8b.csv", llmruns.Meta{Model: "Llama-3.1-8B", Version: "0.19", Device: "RTX4090", TensorParallel: 1, DataParallel: 1, Sequences: 256, Budget: 2048, Block: 16, KVTokens: 2588 * 16, Prefix: true}},
	{"vllm_run_rtxpro6000_llama-3.1-8b.csv", llmruns.Meta{Model: "Llama-3.1-8B", Version: "0.19", Device: "RTXPRO6000", TensorParallel: 1, DataParallel: 1, Sequences: 128, Budget: 2048, Block: 16, KVTokens: 35913 * 16, Prefix: true}},
}

// Bundled reads the runs that the data has, the RTX 4090's first. A third one, of
// Qwen3-30B-A3B, has no profile and ran as two copies: it is left out.
func Bundled(data string) ([]*llmrun.Run, error) {
	dir := filepath.Join(data, "llm-profiles")
	var set llmruns.Set
	steps := filepath.Join(dir, "llmservingsim_composed.csv")
	if err := readFile(steps, func(f *os.File) error { return set.Read(f, steps) }); err != nil {
		return nil, fmt.Errorf("reading the steps: %w", err)
	}
	var out []*llmrun.Run
	for _, b := range bundled {
		path := filepath.Join(dir, b.file)
		var list []llmruns.ServedRequest
		if err := readFile(path, func(f *os.File) (err error) { list, err = llmruns.ReadRequests(f, path); return err }); err != nil {
			return nil, fmt.Errorf("reading a run: %w", err)
		}
		r, err := llmrun.New(b.meta.Model+" on "+b.meta.Device, set.Steps, &b.meta, list)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// readFile calls read with a file that it opens and closes.
func readFile(path string, read func(f *os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}
