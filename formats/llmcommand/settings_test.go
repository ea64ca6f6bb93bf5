package llmcommand

import (
	"errors"
	"fmt"
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
		{&VLLM, "vllm serve --port 8000 chat-8b --enforce-eager", Device{}, Settings{Model: "chat-8b", Names: []string{"chat-8b"}, TensorParallel: 1, Copies: 1, Sequences: 256, TokenBudget: 2048}},
		{&VLLM, "vllm serve --enable-prefix-caching --max-num-seqs 8 -tp 2 chat-8b --served-model-name a --served-model-name b c", Device{}, Settings{Model: "chat-8b", Names: []string{"b", "c"}, TensorParallel: 2, Copies: 1, Sequences: 8, TokenBudget: 2048}},
		{&VLLM, "vllm serve --lora-modules a=/a -- chat-8b", Device{}, Settings{Model: "chat-8b", Names: []string{"chat-8b"}, TensorParallel: 1, Copies: 1, Sequences: 256, TokenBudget: 2048, Adapters: []Adapter{{"a", "/a"}}}},
		{&SGLang, "sglang serve --model-path m --tp 8 --dp 4 --enable-dp-attention --max-running-requests 64 --chunked-prefill-size 16384 --max-total-tokens 1000", Device{},
			Settings{Model: "m", Names: []string{"m"}, TensorParallel: 8, Copies: 1, Sequences: 64, TokenBudget: 16384, KVTokens: 4000}},
		{&SGLang, "sglang serve --model-path m --tp 4 --enable-dp-attention --max-total-tokens 1000", Device{MemoryBytes: 24 << 30},
			Settings{Model: "m", Names: []string{"m"}, TensorParallel: 4, Copies: 1, Sequences: 2048, TokenBudget: 2048, KVTokens: 1000}},
		{&LlamaCpp, "llama-server -m m.gguf -a small,tiny -kvu --no-kv-unified -c 4096 -np 4", Device{}, Settings{Model: "m.gguf", Names: []string{"small", "tiny"}, Copies: 1, Sequences: 4, TokenBudget: 2048, ContextTokens: 1024, KVTokens: 4096}},
		{&LlamaCpp, "llama-server --hf-repo org/m-GGUF:Q8_0 --ctx-size 16384 --kv-unified --parallel 4 --batch-size 512", Device{},
			Settings{Model: "org/m-GGUF:Q8_0", Names: []string{"org/m-GGUF:Q8_0"}, Copies: 1, Sequences: 4, TokenBudget: 512, ContextTokens: 16384, KVTokens: 16384}},
	} {
		got, err := c.program.Read(strings.Fields(c.command), nil, c.device)
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
	s, err := VLLM.Read(strings.Fields("vllm serve m --max-num-batched-tokens 4096"), nil, Device{Name: "L4", MemoryBytes: 24 << 30})
	if err != nil || len(s.Assumed) != 1 || s.Assumed[0] != "--max-num-seqs is absent: up to 256 sequences at once, the default of vLLM's EngineArgs" {
		t.Errorf("%v, %v", s, err)
	}
}

// An iteration without a limit, as SGLang has it with -1, is not said to be an absent option.
func TestUndividedPromptsAreSaid(t *testing.T) {
	s, err := SGLang.Read(strings.Fields("sglang serve --model-path m --max-running-requests 8 --chunked-prefill-size -1"), nil, Device{MemoryBytes: 24 << 30})
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
		"vllm serve m --lora-modules":                   "--lora-modules: found nothing, expected a value",
		"vllm serve m --scheduling-policy":              "--scheduling-policy: found nothing, expected a value",
		"vllm serve m --scheduling-policy sjf":          `--scheduling-policy: found "sjf", expected fcfs or priority`,
		"vllm serve --config /etc/vllm.yaml":            `--config: found "/etc/vllm.yaml", expected options as arguments`,
		"vllm serve m --config=a.yaml -tp 2":            `--config: found "a.yaml", expected options as arguments`,
		"vllm serve m --tensor-parallel 2":              "--tensor-parallel: found a part of a name, expected the whole name, such as --tensor-parallel-size",
		"vllm serve m --lora-modules [{\"name\":\"\"}]": `--lora-modules: found "[{\"name\":\"\"}]", expected NAME=PATH`,
		"vllm serve m --lora-modules {x":                "--lora-modules: found \"{x\", expected NAME=PATH",
		"vllm serve --port 8000":                        "--model: found nothing, expected the model that is loaded, first behind the command",
	} {
		_, err := VLLM.Read(strings.Fields(command), nil, Device{})
		if _, ok := errors.AsType[*OptionError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
}

// Options of SGLang that no server takes together are errors, and so is its file of options.
func TestWrongOptionsOfSGLangAreRefused(t *testing.T) {
	for options, want := range map[string]string{
		"--tp 8 --dp 3 --enable-dp-attention": "--dp-size: found 3, expected a divisor of the 8 devices of --tp-size, which --enable-dp-attention divides",
		"--config server.yaml":                `--config: found "server.yaml", expected options as arguments`,
	} {
		if _, err := SGLang.Read(strings.Fields("sglang serve --model-path m "+options), nil, Device{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", options, err, want)
		}
	}
}

// Variables set the options of llama-server, and what its words say holds before them.
func TestVariablesAreRead(t *testing.T) {
	for _, c := range []struct {
		options   string
		variables map[string]string
		want      string // the settings, the assumption about what is not read, or the error
	}{
		{"", map[string]string{"LLAMA_ARG_MODEL": "/m.gguf", "LLAMA_ARG_N_PARALLEL": "8", "LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_ARG_BATCH": "512", "LLAMA_ARG_ALIAS": "a,b"}, "/m.gguf [a b] 8 512 1024 8192 false"},
		{"-m n.gguf --parallel 2", map[string]string{"LLAMA_ARG_HF_REPO": "org/m", "LLAMA_ARG_N_PARALLEL": "8", "LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_ARG_KV_UNIFIED": "on"}, "n.gguf [n.gguf] 2 2048 8192 8192 false"},
		{"-m n", map[string]string{"LLAMA_ARG_CACHE_PROMPT": "false"}, "n [n] 4 2048 0 0 true"},
		{"-m n", map[string]string{"LLAMA_ARG_NO_CACHE_PROMPT": ""}, "n [n] 4 2048 0 0 true"},
		{"-m n --cache-prompt", map[string]string{"LLAMA_ARG_NO_CACHE_PROMPT": "1", "N_PARALLEL": "3"}, "n [n] 4 2048 0 0 false"},
		{"-m n --cache-type-k q8_0", map[string]string{"LLAMA_ARG_CACHE_TYPE_V": "q8_0", "LLAMA_ARG_HOST": "::", "LLAMA_ARG_NEW": "1", "LLAMA_ARG_PORT": "1"}, "not read: LLAMA_ARG_CACHE_TYPE_V, LLAMA_ARG_NEW, --cache-type-k. The profile"},
		{"-m n", map[string]string{"LLAMA_ARG_N_PARALLEL": "many"}, `LLAMA_ARG_N_PARALLEL: found "many", expected a whole number`},
		{"-m n", map[string]string{"LLAMA_ARG_CACHE_PROMPT": "maybe"}, `LLAMA_ARG_CACHE_PROMPT: found "maybe", expected 1 or 0`},
	} {
		s, err := LlamaCpp.Read(strings.Fields("llama-server "+c.options), c.variables, Device{})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintln(s.Model, s.Names, s.Sequences, s.TokenBudget, s.ContextTokens, s.KVTokens, s.NoPrefixCache, s.Assumed)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s with %v: %s, want %s", c.options, c.variables, got, c.want)
		}
	}
	if s, err := VLLM.Read([]string{"vllm", "serve", "m"}, map[string]string{"LLAMA_ARG_N_PARALLEL": "8", "LLAMA_ARG_NEW": "1"}, Device{}); err != nil || s.Sequences != 256 || strings.Contains(fmt.Sprint(s.Assumed), "LLAMA_ARG") {
		t.Errorf("%v, %v", s, err)
	}
}

// Any words and variables are read, the same way each time, or refused with an option.
func FuzzRead(f *testing.F) {
	f.Add("vllm serve m -tp 2 --lora-modules a=b {\"name\":1}", "", int64(80<<30))
	f.Add("vllm serve --port 8000 m -- --config", "X=1", int64(80<<30))
	f.Add("sglang serve --model-path m --tp 4 --dp 2 --enable-dp-attention --max-total-tokens 1T", "", int64(80<<30))
	f.Add("llama-server -m a,b --lora , -np -1 --ctx-size 1K", "LLAMA_ARG_N_PARALLEL=4 LLAMA_ARG_NO_KV_UNIFIED=1 LLAMA_ARG_CACHE_PROMPT=off LLAMA_ARG_ALIAS=,", int64(0))
	f.Fuzz(func(t *testing.T, command, environment string, memory int64) {
		variables := map[string]string{}
		for _, field := range strings.Fields(environment) {
			name, value, _ := strings.Cut(field, "=")
			variables[name] = value
		}
		for _, p := range Programs() {
			read := func() (*Settings, error) {
				return p.Read(strings.Fields(command), variables, Device{Name: "x", MemoryBytes: memory})
			}
			s, err := read()
			again, errAgain := read()
			if d := cmp.Diff(s, again); d != "" || fmt.Sprint(err) != fmt.Sprint(errAgain) {
				t.Fatalf("%s of %q, read twice: %s, %v and %v", p.Name, command, d, err, errAgain)
			}
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
