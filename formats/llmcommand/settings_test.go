package llmcommand

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Commands as people write them are read with their options, in any of the spellings that the programs take, and with the
// programs' defaults where an option is absent.
func TestCommandsAreRead(t *testing.T) {
	for _, c := range []struct {
		program *Program
		command string
		device  Device
		want    Settings
	}{
		{&VLLM, "vllm serve Qwen/Qwen2.5-7B-Instruct --served-model-name chat chat-7b --tensor-parallel-size 2 --max-num-seqs=128 --max_model_len 32K --gpu-memory-utilization 0.85 --enable-lora --lora-modules sql=/lora/sql code=/lora/code --max-num-batched-tokens 8192 --scheduling-policy priority --no-enable-prefix-caching", Device{Name: "A100"},
			Settings{Model: "Qwen/Qwen2.5-7B-Instruct", Names: []string{"chat", "chat-7b"}, TensorParallel: 2, Copies: 1, Sequences: 128, TokenBudget: 8192, ContextTokens: 32768, MemoryShare: 0.85, Adapters: []Adapter{{"sql", "/lora/sql"}, {"code", "/lora/code"}}, NoPrefixCache: true, Priority: true}},
		{&VLLM, "/opt/venv/bin/python -m vllm.entrypoints.openai.api_server --model /models/m -tp 4 -dp 2 --scheduling-policy fcfs --max-model-len auto --max-num-seqs 1k", Device{Name: "NVIDIA H100", MemoryBytes: 80 << 30},
			Settings{Model: "/models/m", Names: []string{"/models/m"}, TensorParallel: 4, Copies: 2, Sequences: 1000, TokenBudget: 8192}},
		{&VLLM, "vllm serve m --lora-modules {\"name\":\"sql\",\"path\":\"/l\"} --kv-cache-memory-bytes 10G", Device{Name: "A100-80GB", MemoryBytes: 80 << 30},
			Settings{Model: "m", Names: []string{"m"}, TensorParallel: 1, Copies: 1, Sequences: 256, TokenBudget: 2048, KVBytes: 10 << 30, Adapters: []Adapter{{"sql", "/l"}}}},
		{&SGLang, "python3 -m sglang.launch_server --model-path org/m --tp 2 --max-running-requests 64 --mem-fraction-static 0.8 --max-total-tokens 100000 --disable-radix-cache --enable-priority-scheduling --lora-paths a=/a /b", Device{MemoryBytes: 24 << 30},
			Settings{Model: "org/m", Names: []string{"org/m"}, TensorParallel: 2, Copies: 1, Sequences: 64, TokenBudget: 2048, MemoryShare: 0.8, KVTokens: 100000, NoPrefixCache: true, Priority: true, Adapters: []Adapter{{"a", "/a"}, {"/b", "/b"}}}},
		{&SGLang, "python3 -m sglang.launch_server --model org/m --chunked-prefill-size -1", Device{MemoryBytes: 192 << 30},
			Settings{Model: "org/m", Names: []string{"org/m"}, TensorParallel: 1, Copies: 1, Sequences: 2048, TokenBudget: 16384}},
		{&LlamaCpp, "/app/llama-server -m /models/m.gguf -a small -np 8 -c 65536 --lora /l/sql.gguf,/l/code.gguf", Device{},
			Settings{Model: "/models/m.gguf", Names: []string{"small"}, Copies: 1, Sequences: 8, TokenBudget: 2048, ContextTokens: 8192, KVTokens: 65536, Adapters: []Adapter{{"sql", "/l/sql.gguf"}, {"code", "/l/code.gguf"}}}},
		{&LlamaCpp, "llama-server -m m.gguf -c 0 -np 4 -b 512", Device{}, Settings{Model: "m.gguf", Names: []string{"m.gguf"}, Copies: 1, Sequences: 4, TokenBudget: 512}},
		{&SGLang, "sglang serve --model-path m --tp 2", Device{MemoryBytes: 24 << 30}, Settings{Model: "m", Names: []string{"m"}, TensorParallel: 2, Copies: 1, Sequences: 2048, TokenBudget: 2048}},
		{&VLLM, `vllm serve m --no-enable-prefix-caching --enable-prefix-caching --lora-modules [{"name":"a","path":"/a"},{"name":"b","path":"/b"}]`, Device{},
			Settings{Model: "m", Names: []string{"m"}, TensorParallel: 1, Copies: 1, Sequences: 256, TokenBudget: 2048, Adapters: []Adapter{{"a", "/a"}, {"b", "/b"}}}},
		{&LlamaCpp, "llama-server --hf-repo org/m-GGUF:Q8_0 --ctx-size 16384 --kv-unified --parallel 4 --batch-size 512", Device{},
			Settings{Model: "org/m-GGUF:Q8_0", Names: []string{"org/m-GGUF:Q8_0"}, Copies: 1, Sequences: 4, TokenBudget: 512, ContextTokens: 16384, KVTokens: 16384}},
	} {
		got, err := c.program.Read(strings.Fields(c.command), c.device)
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		got.Assumed = nil
		if d := cmp.Diff(&c.want, got); d != "" {
			t.Errorf("%s: %s", c.command, d)
		}
	}
}

// What is assumed is said, with the option that is absent.
func TestDefaultsAreSaid(t *testing.T) {
	s, err := VLLM.Read(strings.Fields("vllm serve m --max-num-batched-tokens 4096"), Device{Name: "L4", MemoryBytes: 24 << 30})
	if err != nil || len(s.Assumed) != 1 || s.Assumed[0] != "--max-num-seqs is absent: up to 256 sequences at once, the default of vLLM's EngineArgs" {
		t.Errorf("%v, %v", s, err)
	}
}

// An iteration without a limit, as SGLang has it with -1, is not said to be an absent option.
func TestUndividedPromptsAreSaid(t *testing.T) {
	s, err := SGLang.Read(strings.Fields("sglang serve --model-path m --max-running-requests 8 --chunked-prefill-size -1"), Device{MemoryBytes: 24 << 30})
	if err != nil || len(s.Assumed) != 1 || !strings.HasPrefix(s.Assumed[0], "--chunked-prefill-size is -1: the server does not divide prompts") {
		t.Errorf("%v, %v", s, err)
	}
}

// Options with values that no server takes, and those that change what a profile's times mean, are errors.
func TestWrongOptionsAreRefused(t *testing.T) {
	for command, want := range map[string]string{
		"vllm serve m --max-num-seqs many":              `--max-num-seqs: found "many", expected a whole number of at least 1`,
		"vllm serve m --max-num-seqs $(SEQS)":           `--max-num-seqs: found "$(SEQS)"`,
		"vllm serve m --max-num-seqs 0":                 `--max-num-seqs: found "0"`,
		"vllm serve m --max-num-seqs 1e3":               `--max-num-seqs: found "1e3"`,
		"vllm serve m --gpu-memory-utilization 1.5":     `--gpu-memory-utilization: found "1.5", expected a number above 0, up to 1`,
		"vllm serve m --max-num-batched-tokens 1T":      "--max-num-batched-tokens: found 1099511627776, expected at most 1073741824",
		"vllm serve m -pp 2":                            "--pipeline-parallel-size: found 2, expected 1",
		"vllm serve m --tensor-parallel-size --port=1":  "--tensor-parallel-size: found nothing, expected a value",
		"vllm serve m --lora-modules":                   "--lora-modules: found nothing, expected adapters",
		"vllm serve m --lora-modules [{\"name\":\"\"}]": `--lora-modules: found "[{\"name\":\"\"}]", expected NAME=PATH`,
		"vllm serve m --lora-modules {x":                "--lora-modules: found \"{x\", expected NAME=PATH",
		"vllm serve --port 8000":                        "--model: found nothing, expected the model that is loaded, first behind the command",
	} {
		_, err := VLLM.Read(strings.Fields(command), Device{})
		if _, ok := errors.AsType[*OptionError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
}

// Any words are read, or refused with an option.
func FuzzRead(f *testing.F) {
	f.Add("vllm serve m -tp 2 --lora-modules a=b {\"name\":1}", int64(80<<30))
	f.Add("llama-server -m a,b --lora , -np -1 --ctx-size 1K", int64(0))
	f.Fuzz(func(t *testing.T, command string, memory int64) {
		for _, p := range Programs() {
			s, err := p.Read(strings.Fields(command), Device{Name: "x", MemoryBytes: memory})
			if err != nil {
				if _, ok := errors.AsType[*OptionError](err); !ok {
					t.Fatalf("%s: %v", p.Name, err)
				}
				continue
			}
			if s.Model == "" || len(s.Names) == 0 || s.Sequences < 1 || s.TokenBudget < 1 || s.Copies < 1 || p.TensorParallel != nil && s.TensorParallel < 1 || s.ContextTokens < 0 || s.KVTokens < 0 {
				t.Fatalf("%s of %q: %+v", p.Name, command, s)
			}
		}
	})
}
