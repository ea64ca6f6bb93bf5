package llmcommand

import "cmp"

// Program is a server of language models. Of the names of an option the first is the one that exports write.
type Program struct {
	Name   string
	Images []string   // the last part of the names of its images
	Starts [][]string // beginnings of its command; behind one that NamesModel is the name of the model

	Model            []string // the model that it loads
	ServedName       []string // the names by which requests ask for it
	TensorParallel   []string // devices that run the model together
	DataParallel     []string // copies of the model, each with its own devices
	PipelineParallel []string // groups of devices that run the model's layers one after the other
	Sequences        []string // most sequences at once
	TokenBudget      []string // most tokens of one iteration
	Context          []string // most tokens of a prompt and its answer
	KVTokens         []string // KV capacity in tokens
	KVBytes          []string // KV capacity in bytes per device
	MemoryShare      []string // part of each device's memory that it takes
	Adapters         []string // LoRA adapters
	NoPrefixCache    []string // flag: KV of earlier prompts is not kept
	PrefixCache      []string // flag: it is kept; of this and NoPrefixCache the last holds
	Priority         []string // flag, or an option with the value priority or fcfs: its own queue is ordered by priority
	DividedAttention []string // flag: the copies share the devices of one, and divide only the attention
	Config           []string // a file with further options

	namesModel     bool // the model may be an argument, without an option
	commaLists     bool // a list is a word with commas, and an adapter of it a file; else it is several words, and an adapter NAME=PATH
	abbreviates    bool // it takes the beginning of an option's name for the whole
	sharedContext  bool // Context is KVTokens of all sequences together, see KVUnified
	KVUnified      []string
	NoKVUnified    []string
	flags          []string // options without a value, beside those above and those with the prefixes of flagPrefixes
	lists          []string // options with several values
	unread         []string // options that change what a server holds or how fast it is, and have no part in Settings
	variables      []variable
	defaultsOf     func(d Device) defaults
	commandSources string // where options and defaults are documented, for messages
}

// variable is an environment variable that sets an option. Of a flag, which the option negative turns off, it is on or off. Its
// name with NO_ behind the prefix turns the flag off, whatever its value.
type variable struct{ name, option, negative string }

// variablePrefix is that of the variables of options.
const variablePrefix = "LLAMA_ARG_"

// neutralVariables are the variables, or their beginnings, that change neither what a server holds nor how fast it is.
var neutralVariables = []string{"API_", "CHAT_TEMPLATE", "CORS_", "ENDPOINT_", "HOST", "JINJA", "LOG_", "OFFLINE", "PORT", "SSL_", "STATIC_PATH", "TAGS", "TEMPERATURE", "THINK", "TIMEOUT", "TOP_", "UI", "WEBUI"}

// Device is a device of a server, as far as defaults depend on it.
type Device struct {
	Name        string // of its kind
	MemoryBytes int64  // 0 if not known
}

// defaults hold where a command has no such option.
type defaults struct{ sequences, tokenBudget int }

// The programs whose commands are written and read.
//
// Options of vLLM are those of commit 10c75477b of 2026-07-23 (vllm/engine/arg_utils.py, vllm/entrypoints/openai/cli_args.py;
// the parser is vllm/utils/argparse_utils.py of commit 00da11e37), of SGLang those of commit 9a6f8e599 of 2026-07-06
// (python/sglang/srt/server_args.py; server_args_config_parser.py of commit 03bd2f167), and of llama.cpp those of llama-server
// 0.7.0, build 11669 (--help; variables of common/arg.cpp and of tools/server/README.md at commit 00dc8057a).
var (
	VLLM = Program{
		Name: "vLLM", Images: []string{"vllm-openai", "vllm"}, Starts: [][]string{{"vllm", "serve"}, {"-m", "vllm.entrypoints.openai.api_server"}},
		Model: []string{"--model"}, ServedName: []string{"--served-model-name"}, TensorParallel: []string{"--tensor-parallel-size", "-tp"}, DataParallel: []string{"--data-parallel-size", "-dp"},
		PipelineParallel: []string{"--pipeline-parallel-size", "-pp"}, Sequences: []string{"--max-num-seqs"}, TokenBudget: []string{"--max-num-batched-tokens"}, Context: []string{"--max-model-len"},
		KVBytes: []string{"--kv-cache-memory-bytes"}, MemoryShare: []string{"--gpu-memory-utilization"}, Adapters: []string{"--lora-modules"},
		NoPrefixCache: []string{"--no-enable-prefix-caching"}, PrefixCache: []string{"--enable-prefix-caching"}, Priority: []string{"--scheduling-policy"}, Config: []string{"--config"},
		namesModel: true, abbreviates: true, defaultsOf: vllmDefaults, commandSources: "vLLM's EngineArgs",
		flags: []string{"--aggregate-engine-logging", "--allow-credentials", "--async-scheduling", "--calculate-kv-scales", "--data-parallel-external-lb", "--data-parallel-hybrid-lb", "-dpe", "-dph", "--enforce-eager",
			"--exclude-tools-when-tool-choice-none", "--fully-sharded-loras", "--headless", "--interleave-mm-strings", "--kv-sharing-fast-prefill", "--language-model-only", "--log-error-stack", "--ray-workers-use-nsight",
			"--return-tokens-as-token-ids", "--skip-mm-profiling", "--skip-tokenizer-init", "--tokens-only", "--trust-remote-code", "--trust-request-chat-template", "--use-tqdm-on-load"},
		lists: []string{"--api-key", "--compile-sizes", "--cudagraph-capture-sizes", "--lora-modules", "--served-model-name"},
		unread: []string{"--cpu-offload-gb", "--data-parallel-size-local", "-dpl", "--decode-context-parallel-size", "-dcp", "--dtype", "--enable-expert-parallel", "--enforce-eager", "--kv-cache-dtype", "--kv-transfer-config",
			"--max-num-partial-prefills", "--no-enable-chunked-prefill", "--num-gpu-blocks-override", "--prefill-context-parallel-size", "-pcp", "--quantization", "-q", "--speculative-config", "-sc"},
	}
	SGLang = Program{
		Name: "SGLang", Images: []string{"sglang"}, Starts: [][]string{{"-m", "sglang.launch_server"}, {"sglang", "serve"}},
		Model: []string{"--model-path", "--model"}, ServedName: []string{"--served-model-name"}, TensorParallel: []string{"--tp-size", "--tp", "--tensor-parallel-size"},
		DataParallel: []string{"--dp-size", "--dp", "--data-parallel-size"}, PipelineParallel: []string{"--pp-size", "--pipeline-parallel-size"},
		Sequences: []string{"--max-running-requests"}, TokenBudget: []string{"--chunked-prefill-size"}, Context: []string{"--context-length"}, KVTokens: []string{"--max-total-tokens"},
		MemoryShare: []string{"--mem-fraction-static"}, Adapters: []string{"--lora-paths"}, NoPrefixCache: []string{"--disable-radix-cache"}, Priority: []string{"--enable-priority-scheduling"},
		DividedAttention: []string{"--enable-dp-attention"}, Config: []string{"--config"},
		abbreviates: true, defaultsOf: sglangDefaults, commandSources: "SGLang's ServerArgs",
		lists: []string{"--lora-paths"},
		unread: []string{"--cpu-offload-gb", "--disable-cuda-graph", "--disaggregation-mode", "--dtype", "--enable-mixed-chunk", "--ep-size", "--ep", "--expert-parallel-size", "--kv-cache-dtype", "--nnodes", "--page-size", "--quantization",
			"--speculative-algorithm"},
	}
	LlamaCpp = Program{
		Name: "llama.cpp", Images: []string{"llama.cpp"}, Starts: [][]string{{"llama-server"}},
		Model: []string{"--model", "-m", "--hf-repo", "-hf", "-hfr"}, ServedName: []string{"--alias", "-a"}, Sequences: []string{"--parallel", "-np"}, TokenBudget: []string{"--batch-size", "-b"},
		Context: []string{"--ctx-size", "-c"}, Adapters: []string{"--lora"}, NoPrefixCache: []string{"--no-cache-prompt"}, PrefixCache: []string{"--cache-prompt"},
		KVUnified: []string{"--kv-unified", "-kvu"}, NoKVUnified: []string{"--no-kv-unified", "-no-kvu"},
		commaLists: true, sharedContext: true, defaultsOf: llamaDefaults, commandSources: "llama-server --help",
		unread: []string{"--cache-type-k", "-ctk", "--cache-type-v", "-ctv", "--cpu-moe", "-cmoe", "--device", "-dev", "--gpu-layers", "-ngl", "--n-gpu-layers", "--kv-unified-per-slot", "--main-gpu", "-mg", "--n-cpu-moe", "-ncmoe",
			"--no-cont-batching", "-nocb", "--no-kv-offload", "-nkvo", "--split-mode", "-sm", "--swa-full", "--tensor-split", "-ts"},
		variables: []variable{
			{"MODEL", "--model", ""}, {"HF_REPO", "--hf-repo", ""}, {"ALIAS", "--alias", ""}, {"N_PARALLEL", "--parallel", ""}, {"BATCH", "--batch-size", ""}, {"CTX_SIZE", "--ctx-size", ""},
			{"CACHE_PROMPT", "--cache-prompt", "--no-cache-prompt"}, {"KV_UNIFIED", "--kv-unified", "--no-kv-unified"},
		},
	}
)

// Programs lists the programs.
func Programs() []*Program { return []*Program{&VLLM, &SGLang, &LlamaCpp} }

// vllmDefaults returns what vLLM's API server takes on a device of CUDA: more on large ones that are no A100
// (EngineArgs._set_default_args of vllm/engine/arg_utils.py at commit 99d7eb5d6).
func vllmDefaults(d Device) defaults {
	if d.MemoryBytes >= 70<<30 && !containsFold(d.Name, "a100") {
		return defaults{sequences: 1024, tokenBudget: 8192}
	}
	return defaults{sequences: 256, tokenBudget: 2048}
}

// sglangDefaults returns what SGLang takes on a device: 2048 sequences or more, by its memory for KV, and as many tokens at
// once as its memory is large (ServerArgs._handle_gpu_memory_settings, and ModelRunner.init_memory_pool). A device whose
// memory is not known counts as one of 80 GiB.
func sglangDefaults(d Device) defaults {
	const sequences = 2048
	memory := cmp.Or(d.MemoryBytes, 80<<30)
	for _, step := range []struct {
		below  int64
		tokens int
	}{{35 << 30, 2048}, {60 << 30, 4096}, {160 << 30, 8192}} {
		if memory < step.below {
			return defaults{sequences, step.tokens}
		}
	}
	return defaults{sequences, 16384}
}

// llamaDefaults returns what llama-server takes: four sequences, which share the memory (tools/server/server.cpp of builds
// from 2025-12 on; before them, one).
func llamaDefaults(Device) defaults { return defaults{sequences: 4, tokenBudget: 2048} }
