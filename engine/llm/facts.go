package llm

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Facts holds the values that a server reports of itself and of a model that it has loaded. Values that it does not
// report are zero: nothing is computed from memory and weights.
type Facts struct {
	Engine      string // the engine with its version, such as vllm 0.19.0
	Context     int    // largest number of tokens of a sequence
	KVTokens    int64  // capacity in tokens
	BlockTokens int
	Sequences   int    // largest number that run at once
	Budget      int    // tokens of an iteration
	WeightBytes int64  // size of the model's file
	Doubt       string // why the reported KV capacity is ambiguous, if it is
}

// Facts asks the server for its facts. vLLM reports its KV blocks in its metrics, and its limits if it runs in
// development mode. llama-server reports its slots and their context. SGLang reports everything in one answer. Each
// question fills what its kind of server reports, and changes nothing for other servers.
func (s *Server) Facts(ctx context.Context, model string) (Facts, error) {
	var f Facts
	for _, ask := range []func(context.Context, *Server, string, *Facts) error{factsOfModel, factsOfLlama, factsOfVLLM, factsOfSGLang, factsOfOllama} {
		if err := ask(ctx, s, model, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

// factsOfModel adds the context and the size of a model to f, from the server's list of models (/v1/models).
func factsOfModel(ctx context.Context, s *Server, model string, f *Facts) error {
	var list struct {
		Data []struct {
			ID      string  `json:"id"`
			Context float64 `json:"max_model_len"` // vLLM, SGLang
			Meta    struct {
				Size    float64 `json:"size"` // llama-server
				Context float64 `json:"n_ctx_train"`
			} `json:"meta"`
		} `json:"data"`
	}
	if _, err := s.getIfPresent(ctx, s.inModel("/v1/models", model), &list); err != nil {
		return err
	}
	for _, m := range list.Data {
		if m.ID == model || len(list.Data) == 1 {
			f.Context, f.WeightBytes = count(max(m.Context, m.Meta.Context)), int64(count(m.Meta.Size))
		}
	}
	return nil
}

// factsOfLlama adds the facts of llama-server to f, from /props. Every slot (a sequence that can run) has its own
// context there, or all slots share one, which the number of KV tokens depends on. Only a router shows how a model's
// server was started. Without an explicit number of slots, they share. Doubt is a text about a capacity that may be
// wrong.
func factsOfLlama(ctx context.Context, s *Server, model string, f *Facts) error {
	var props struct {
		Slots    float64 `json:"total_slots"`
		Build    string  `json:"build_info"`
		Settings struct {
			Context float64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	ok, err := s.getIfPresent(ctx, s.inModel("/props", model), &props)
	if !ok || props.Build == "" {
		return err
	}
	f.Engine, f.Sequences = "llama-server "+props.Build, count(props.Slots)
	slotContext := count(props.Settings.Context)
	f.Context, f.KVTokens = minKnown(f.Context, slotContext), int64(slotContext)*int64(max(1, f.Sequences))

	// The slots share one context if the server was started so.
	args, err := startedWith(ctx, s, model)
	switch {
	case err != nil:
		return err
	case args == nil && f.Sequences > 1:
		f.Doubt = "counted as a context per slot: with -kvu, or without -np, llama-server has one context for all"
	case slices.Contains(args, "--kv-unified") || args != nil && !slices.Contains(args, "--parallel"):
		f.KVTokens = int64(slotContext)
	}
	return nil
}

// startedWith returns the command-line arguments with which a router (llama-server in front of servers of models)
// started a model's server, or nil if the server is no router.
func startedWith(ctx context.Context, s *Server, model string) ([]string, error) {
	if s.Abilities.Switch != Router {
		return nil, nil
	}
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			Status struct {
				Args []string `json:"args"`
			} `json:"status"`
		} `json:"data"`
	}
	_, err := s.getIfPresent(ctx, "/models", &list)
	for _, m := range list.Data {
		if m.ID == model {
			return m.Status.Args, err
		}
	}
	return nil, err
}

// factsOfVLLM adds the facts of vLLM to f, from /metrics and, in development mode, /server_info. Other servers have no
// such metrics.
func factsOfVLLM(ctx context.Context, s *Server, _ string, f *Facts) error {
	var version struct {
		Version string `json:"version"`
	}
	data, err := s.Call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		if errors.Is(err, ErrGone) || ctx.Err() != nil {
			return err
		}
		return nil
	}

	// The metrics list the KV cache's blocks.
	labels := labelsOf(string(data), "vllm:cache_config_info")
	if labels == nil {
		return nil
	}
	f.Engine = "vllm"
	if ok, err := s.getIfPresent(ctx, "/version", &version); ok && version.Version != "" {
		f.Engine += " " + version.Version
	} else if err != nil {
		return err
	}
	blocks, blockTokens := parseWhole(labels["num_gpu_blocks"]), parseWhole(labels["block_size"])
	f.KVTokens, f.BlockTokens = blocks*blockTokens, int(blockTokens)

	// The scheduler's limits are known in development mode only.
	var info struct {
		Config struct {
			Scheduler struct {
				Sequences float64 `json:"max_num_seqs"`
				Budget    float64 `json:"max_num_batched_tokens"`
			} `json:"scheduler_config"`
		} `json:"vllm_config"`
	}
	_, err = s.getIfPresent(ctx, "/server_info?config_format=json", &info)
	f.Sequences, f.Budget = count(info.Config.Scheduler.Sequences), count(info.Config.Scheduler.Budget)
	return err
}

// factsOfSGLang adds the facts of SGLang to f, from /get_server_info. Other servers do not have that path, and
// change nothing.
func factsOfSGLang(ctx context.Context, s *Server, _ string, f *Facts) error {
	var info struct {
		Path      string  `json:"model_path"`
		Version   string  `json:"version"`
		Tokens    float64 `json:"max_total_num_tokens"`
		Sequences float64 `json:"max_running_requests"`
		Chunk     float64 `json:"chunked_prefill_size"`
		Page      float64 `json:"page_size"`
	}
	ok, err := s.getIfPresent(ctx, "/get_server_info", &info)
	if ok && info.Path != "" {
		f.Engine = strings.TrimSpace("sglang " + info.Version)
		f.KVTokens, f.Sequences, f.Budget, f.BlockTokens = int64(count(info.Tokens)), count(info.Sequences), count(info.Chunk), count(info.Page)
	}
	return err
}

// factsOfOllama adds Ollama's version to f. It reports nothing else.
func factsOfOllama(ctx context.Context, s *Server, _ string, f *Facts) error {
	if s.Abilities.Switch != KeepAlive {
		return nil
	}
	var version struct {
		Version string `json:"version"`
	}
	_, err := s.getIfPresent(ctx, "/api/version", &version)
	f.Engine = strings.TrimSpace("ollama " + version.Version)
	return err
}

// labelsOf returns the labels of a metric in Prometheus's text format, or nil if it is not there. If there are
// several series of that name, as for several engines behind one address, it uses the first.
func labelsOf(text, name string) map[string]string {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		out := map[string]string{}
		for {
			key, afterEquals, ok := strings.Cut(rest, "=")
			quotedValue, err := strconv.QuotedPrefix(afterEquals)
			if !ok || err != nil {
				return out
			}
			if value, err := strconv.Unquote(quotedValue); err == nil {
				out[strings.Trim(key, ", ")] = value
			}
			rest = afterEquals[len(quotedValue):]
		}
	}
	return nil
}

// maxReported is the largest number of a server that is believed.
const maxReported = 1 << 40

// count returns a number that a server reported as a whole one, or 0 if it is not positive or beyond belief.
func count(x float64) int {
	if !(x > 0 && x <= maxReported) {
		return 0
	}
	return int(math.Round(x))
}

// parseWhole reads a whole number that a server reports as text. For texts that are none, such as None, and for
// numbers beyond belief, it returns 0.
func parseWhole(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// minKnown returns the smaller of two numbers, where 0 means unknown.
func minKnown(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
