package llmruns

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Meta describes a server of vLLM.
type Meta struct {
	Model          string
	Version        string
	Device         string
	TensorParallel int
	DataParallel   int
	Sequences      int // running at once
	Budget         int // tokens of an iteration
	Block          int // tokens of a KV block
	KVTokens       int64
	Prefix         bool
}

// metaFile is the part of a meta.json that is read.
type metaFile struct {
	Model   string `json:"model"`
	Version string `json:"vllm_version"`
	Engine  struct {
		TensorParallel int `json:"tensor_parallel_size"`
		DataParallel   int `json:"data_parallel_size"`
		Sequences      int `json:"max_num_seqs"`
		Budget         int `json:"max_num_batched_tokens"`
	} `json:"engine_kwargs"`
	KV struct {
		Blocks int64 `json:"num_gpu_blocks"`
		Block  int   `json:"block_size"`
		Prefix *bool `json:"enable_prefix_caching"`
		Tokens int64 `json:"num_kv_tokens"`
	} `json:"kv_cache"`
	Hardware struct {
		Device string `json:"device_name"`
	} `json:"hardware"`
}

// defaultBlock is the number of tokens in a KV block of vLLM by default.
const defaultBlock = 16

// ReadMeta reads a meta.json, the settings of a server that was measured. The capacity of the KV cache must be in
// it, or be given as the server reported it (kvTokens above 0). A computed capacity would spoil the results.
func ReadMeta(in io.Reader, name string, kvTokens int64) (*Meta, error) {
	var f metaFile
	if err := json.NewDecoder(io.LimitReader(in, 1<<24)).Decode(&f); err != nil {
		return nil, &document.Error{File: name, Found: document.FaultOfJSON(err), Expected: "the meta.json of a server, a JSON object with engine_kwargs and kv_cache"}
	}
	m := &Meta{
		Model: f.Model[strings.LastIndex(f.Model, "/")+1:], Version: f.Version, Device: device(f.Hardware.Device),
		TensorParallel: max(1, f.Engine.TensorParallel), DataParallel: max(1, f.Engine.DataParallel), Sequences: f.Engine.Sequences, Budget: f.Engine.Budget,
		Block: f.KV.Block, KVTokens: f.KV.Tokens, Prefix: f.KV.Prefix == nil || *f.KV.Prefix,
	}

	// Take the KV capacity as given, or as blocks of tokens.
	if kvTokens > 0 {
		m.KVTokens = kvTokens
		m.Block = cmp.Or(m.Block, defaultBlock)
	}
	m.KVTokens = cmp.Or(m.KVTokens, f.KV.Blocks*int64(f.KV.Block))
	for _, c := range []struct {
		path  string
		value int64
	}{{"kv_cache.num_gpu_blocks", m.KVTokens}, {"kv_cache.block_size", int64(m.Block)}, {"engine_kwargs.max_num_seqs", int64(m.Sequences)}, {"engine_kwargs.max_num_batched_tokens", int64(m.Budget)}} {
		if c.value < 1 || c.value > MaxTokens {
			return nil, &document.Error{File: name, Path: c.path, Found: fmt.Sprintf("the number %d", c.value), Expected: "a positive number, as the server reported it"}
		}
	}
	return m, nil
}

// ServedRequest is a request of a run. Times are in seconds from an arbitrary instant of the run.
type ServedRequest struct {
	ID           string  `json:"request_id"`
	Prompt       int     `json:"input_toks"`
	Output       int     `json:"output_toks"`
	QueuedAt     float64 `json:"queued_ts"`
	ScheduledAt  float64 `json:"scheduled_ts"`
	FirstTokenAt float64 `json:"first_token_ts"`
	LastTokenAt  float64 `json:"last_token_ts"`
}

// ReadRequests reads the requests of a run: CSV
// (request,input_tokens,output_tokens,…,queued_s,scheduled_s,first_token_s,last_token_s) or JSON lines
// (request_id, input_toks, output_toks, queued_ts, scheduled_ts, first_token_ts, last_token_ts). It returns them
// in the order in which they were queued, with times relative to the first.
func ReadRequests(in io.Reader, name string) ([]ServedRequest, error) {
	f, err := csvfile.New(in, name)
	if err != nil {
		return nil, err
	}
	var out []ServedRequest
	if head, _ := f.Peek(1); len(head) == 1 && head[0] == '{' {
		out, err = requestLines(f, name)
	} else {
		out, err = requestRows(f)
	}
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &document.Error{File: name, Found: "no request", Expected: "at least one"}
	}
	slices.SortStableFunc(out, func(a, b ServedRequest) int { return cmp.Compare(a.QueuedAt, b.QueuedAt) })
	zero := out[0].QueuedAt
	for i := range out {
		r := &out[i]
		r.QueuedAt, r.ScheduledAt, r.FirstTokenAt, r.LastTokenAt = r.QueuedAt-zero, r.ScheduledAt-zero, r.FirstTokenAt-zero, r.LastTokenAt-zero
	}
	return out, nil
}

// check returns what is wrong with a request's tokens or times, as text, or "".
func (r *ServedRequest) check() string {
	for _, x := range []float64{r.QueuedAt, r.ScheduledAt, r.FirstTokenAt, r.LastTokenAt} {
		if math.IsNaN(x) || math.Abs(x) > 1e12 {
			return fmt.Sprintf("the time %v", x)
		}
	}
	switch {
	case r.Prompt < 1 || r.Output < 1 || r.Prompt > MaxTokens || r.Output > MaxTokens:
		return fmt.Sprintf("%d tokens in, %d out", r.Prompt, r.Output)
	case r.FirstTokenAt < r.QueuedAt || r.LastTokenAt < r.FirstTokenAt:
		return fmt.Sprintf("queued at %g, first token at %g, last at %g", r.QueuedAt, r.FirstTokenAt, r.LastTokenAt)
	}
	return ""
}

const goodRequest = "at least a token each way, queued before the first token and that before the last"

// requestLines reads the requests that a server served, one JSON object a line. Empty lines are skipped.
func requestLines(f io.Reader, name string) ([]ServedRequest, error) {
	var out []ServedRequest
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r ServedRequest
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, &document.Error{File: name, Line: n, Column: 1, Found: document.FaultOfJSON(err), Expected: goodRequest}
		}
		if problem := r.check(); problem != "" {
			return nil, &document.Error{File: name, Line: n, Column: 1, Found: problem, Expected: goodRequest}
		}
		out = append(out, r)
	}
	if err := lines.Err(); err != nil {
		return nil, &document.Error{File: name, Found: "lines that cannot be read: " + err.Error()}
	}
	return out, nil
}

// requestRows reads the requests that a server served from a CSV file, one a row. Its times are seconds.
func requestRows(f *csvfile.File) ([]ServedRequest, error) {
	t, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	var out []ServedRequest
	err = t.EachRow(func() error {
		second := func(column string) float64 { return t.Number(column, -1e12, 1e12) }
		s := ServedRequest{
			ID: t.Text("request"), Prompt: t.WholeNumber("input_tokens", 1, MaxTokens), Output: t.WholeNumber("output_tokens", 1, MaxTokens),
			QueuedAt: second("queued_s"), ScheduledAt: second("scheduled_s"), FirstTokenAt: second("first_token_s"), LastTokenAt: second("last_token_s"),
		}
		if problem := s.check(); problem != "" {
			return t.Fail(0, "", problem, goodRequest)
		}
		out = append(out, s)
		return nil
	})
	return out, err
}
