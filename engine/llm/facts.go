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

// Facts are what a server says of itself and of a model that it has loaded. What it
// does not say is zero: nothing here is computed from memory and weights.
type Facts struct {
	Engine      string // and version, such as vllm 0.19.0
	Context     int    // tokens of a sequence at most
	KVTokens    int64  // capacity
	BlockTokens int
	Sequences   int    // that run at once
	Budget      int    // tokens of an iteration
	WeightBytes int64  // of the model's file
	Doubt       string // about the KV capacity, where what the server says can be read in two ways
}

// Facts asks for them. vLLM tells its KV blocks among its metrics, and its limits
// where it runs in development mode; llama-server tells its slots and their
// context; SGLang tells all in one answer.
func (s *Server) Facts(ctx context.Context, model string) (Facts, error) {
	var f Facts
	for _, ask := range []func(context.Context, *Server, string, *Facts) error{factsOfModel, factsOfLlama, factsOfVLLM, factsOfSGLang, factsOfOllama} {
		if err := ask(ctx, s, model, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

// factsOfModel reads the list of models.
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
	if _, err := s.has(ctx, s.inModel("/v1/models", model), &list); err != nil {
		return err
	}
	for _, m := range list.Data {
		if m.ID == model || len(list.Data) == 1 {
			f.Context, f.WeightBytes = count(max(m.Context, m.Meta.Context)), int64(count(m.Meta.Size))
		}
	}
	return nil
}

// factsOfLlama: every slot has a context of its own, or all share one. Only a router
// shows how a model's server was started: slots that nobody asked for share.
func factsOfLlama(ctx context.Context, s *Server, model string, f *Facts) error {
	var props struct {
		Slots    float64 `json:"total_slots"`
		Build    string  `json:"build_info"`
		Settings struct {
			Context float64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	ok, err := s.has(ctx, s.inModel("/props", model), &props)
	if !ok || props.Build == "" {
		return err
	}
	f.Engine, f.Sequences = "llama-server "+props.Build, count(props.Slots)
	slot := count(props.Settings.Context)
	f.Context, f.KVTokens = least(f.Context, slot), int64(slot)*int64(max(1, f.Sequences))
	args, err := startedWith(ctx, s, model)
	switch {
	case err != nil:
		return err
	case args == nil && f.Sequences > 1:
		f.Doubt = "counted as a context per slot: with -kvu, or without -np, llama-server has one context for all"
	case slices.Contains(args, "--kv-unified") || args != nil && !slices.Contains(args, "--parallel"):
		f.KVTokens = int64(slot)
	}
	return nil
}

// startedWith are the arguments of a model's server behind a router; nil where there
// is no router.
func startedWith(ctx context.Context, s *Server, model string) ([]string, error) {
	if s.Can.Switch != Router {
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
	_, err := s.has(ctx, "/models", &list)
	for _, m := range list.Data {
		if m.ID == model {
			return m.Status.Args, err
		}
	}
	return nil, err
}

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
	labels := labelsOf(string(data), "vllm:cache_config_info")
	if labels == nil {
		return nil
	}
	f.Engine = "vllm"
	if ok, err := s.has(ctx, "/version", &version); ok && version.Version != "" {
		f.Engine += " " + version.Version
	} else if err != nil {
		return err
	}
	blocks, block := whole(labels["num_gpu_blocks"]), whole(labels["block_size"])
	f.KVTokens, f.BlockTokens = blocks*block, int(block)
	var info struct {
		Config struct {
			Scheduler struct {
				Sequences float64 `json:"max_num_seqs"`
				Budget    float64 `json:"max_num_batched_tokens"`
			} `json:"scheduler_config"`
		} `json:"vllm_config"`
	}
	_, err = s.has(ctx, "/server_info?config_format=json", &info)
	f.Sequences, f.Budget = count(info.Config.Scheduler.Sequences), count(info.Config.Scheduler.Budget)
	return err
}

func factsOfSGLang(ctx context.Context, s *Server, _ string, f *Facts) error {
	var info struct {
		Path      string  `json:"model_path"`
		Version   string  `json:"version"`
		Tokens    float64 `json:"max_total_num_tokens"`
		Sequences float64 `json:"max_running_requests"`
		Chunk     float64 `json:"chunked_prefill_size"`
		Page      float64 `json:"page_size"`
	}
	ok, err := s.has(ctx, "/get_server_info", &info)
	if ok && info.Path != "" {
		f.Engine = strings.TrimSpace("sglang " + info.Version)
		f.KVTokens, f.Sequences, f.Budget, f.BlockTokens = int64(count(info.Tokens)), count(info.Sequences), count(info.Chunk), count(info.Page)
	}
	return err
}

func factsOfOllama(ctx context.Context, s *Server, _ string, f *Facts) error {
	if s.Can.Switch != KeepAlive {
		return nil
	}
	var version struct {
		Version string `json:"version"`
	}
	_, err := s.has(ctx, "/api/version", &version)
	f.Engine = strings.TrimSpace("ollama " + version.Version)
	return err
}

// labelsOf are the labels of a metric in the text format of Prometheus; nil where it
// is not there. Of several series of that name, as of several engines behind one
// address, the first counts.
func labelsOf(text, name string) map[string]string {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		out := map[string]string{}
		for {
			key, after, ok := strings.Cut(rest, "=")
			quoted, err := strconv.QuotedPrefix(after)
			if !ok || err != nil {
				return out
			}
			if value, err := strconv.Unquote(quoted); err == nil {
				out[strings.Trim(key, ", ")] = value
			}
			rest = after[len(quoted):]
		}
	}
	return nil
}

// mostTold bounds what is believed of a number that a server tells.
const mostTold = 1 << 40

func count(x float64) int {
	if !(x > 0 && x <= mostTold) {
		return 0
	}
	return int(math.Round(x))
}

// whole reads a number; 0 where it is none, such as None.
func whole(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// least is the smaller of two numbers of which 0 says nothing.
func least(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
