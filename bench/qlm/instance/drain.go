package instance

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// Queue is an instance with lengths of real requests: a queue of them that is there
// at 0 is drained to calibrate an estimator of waiting and completion times, and
// another one to test it.
type Queue struct {
	Name    string
	Model   llm.Model
	Options llm.Options
	Lengths []llm.Request // the file's rows, in order, at 0
}

// Instances of the queues. The coefficients of Mistral-7B are fitted to
// LLM-Inference-Bench (batches from start to end) with Vidur's slope for prompts,
// those of Vicuna-13B are DistServe's for OPT-13B, which is of its size, and those
// of Llama-2-70B are fitted to Splitwise. KV capacities: computed from the memory
// for the first and the last, measured by DistServe for Vicuna-13B.
var (
	Mistral7B  = llm.Model{Iteration: formats.Iteration{BaseNS: 13.35e6, SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2}, KVTokens: 424000, MaxSequences: 128, TokenBytes: 131072}
	Vicuna13B  = llm.Model{Iteration: formats.Iteration{BaseNS: 23.475e6, SequenceNS: 60700, ContextNS: 593, PromptNS: 140500, AttentionNS: 8.08}, KVTokens: 66144, MaxSequences: 128, TokenBytes: 819200}
	Llama70BX4 = llm.Model{Iteration: formats.Iteration{BaseNS: 43.3e6, SequenceNS: 182500, ContextNS: 372, PromptNS: 242300, AttentionNS: .1}, KVTokens: 433000, MaxSequences: 128, TokenBytes: 327680}
)

// Options are those of the instances.
var Options = llm.Options{TokenBudget: 2048, BlockTokens: 16}

// Rows of the files of lengths that are used; longer prompts are cut.
const (
	mostPrompt = 8000
	mostRows   = 20000
)

// Queues reads the queues that data has lengths for: Azure's two services of 2023,
// ShareGPT and arXiv, on three instances.
func Queues(data string) ([]Queue, error) {
	files := map[string]string{
		"azure-conv": "traces/azure_llm_2023_conv.csv.gz", "azure-code": "traces/azure_llm_2023_code_first30min.csv.gz",
		"sharegpt": "lengths/sharegpt_llama2tok_part1.csv.gz", "arxiv": "lengths/arxiv_summarization_llama2tok.csv.gz",
	}
	var out []Queue
	for _, c := range []struct {
		instance, lengths string
		model             llm.Model
	}{
		{"Mistral-7B on an A100", "azure-conv", Mistral7B}, {"Mistral-7B on an A100", "sharegpt", Mistral7B}, {"Mistral-7B on an A100", "azure-code", Mistral7B},
		{"Vicuna-13B on an A100", "azure-conv", Vicuna13B}, {"Vicuna-13B on an A100", "sharegpt", Vicuna13B}, {"Vicuna-13B on an A100", "azure-code", Vicuna13B},
		{"Llama-2-70B on 4 A100", "azure-conv", Llama70BX4}, {"Llama-2-70B on 4 A100", "arxiv", Llama70BX4},
	} {
		lengths, err := ReadRows(filepath.Join(data, files[c.lengths]), mostPrompt)
		if err != nil {
			return nil, err
		}
		for i := range lengths {
			lengths[i].ArrivedAt = 0
		}
		out = append(out, Queue{Name: c.instance + ", " + c.lengths, Model: c.model, Options: Options, Lengths: lengths})
	}
	return out, nil
}

// ReadRows takes the columns input_tokens, output_tokens and, where there is one, t_s of a CSV: its first 20000 rows with tokens.
// Longer prompts than most are cut.
func ReadRows(path string, most int) ([]llm.Request, error) {
	t, err := csvfile.OpenTable(path)
	if err != nil {
		return nil, fmt.Errorf("reading lengths: %w", err)
	}
	defer t.Close()
	if err := t.Require("input_tokens", "output_tokens"); err != nil {
		return nil, err
	}
	_, timed := t.Column("t_s")
	var out []llm.Request
	err = t.EachRow(func() error {
		r := llm.Request{Prompt: int32(min(t.WholeNumber("input_tokens", 0, math.MaxInt32), most)), Output: int32(t.WholeNumber("output_tokens", 0, math.MaxInt32))}
		if timed >= 0 {
			r.ArrivedAt = time.Duration(t.Number("t_s", 0, 1e9) * 1e9)
		}
		if r.Prompt > 0 && r.Output > 0 {
			out = append(out, r)
		}
		if len(out) == mostRows {
			return io.EOF
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// Draw shuffles the rows and takes disjoint queues of so many requests from them:
// one to calibrate on, the others to test on.
func (q *Queue) Draw(seed uint64, sizes ...int) ([][]llm.Request, error) {
	total := 0
	for _, n := range sizes {
		total += n
	}
	if total > len(q.Lengths) {
		return nil, fmt.Errorf("%s: %d requests are wanted, there are %d", q.Name, total, len(q.Lengths))
	}
	order := seeded.New(seed, "queue/"+q.Name).Perm(len(q.Lengths))
	var out [][]llm.Request
	for _, n := range sizes {
		list := make([]llm.Request, n)
		for i := range list {
			list[i] = q.Lengths[order[i]]
		}
		order = order[n:]
		out = append(out, list)
	}
	return out, nil
}

// Halves are the queue with the first half of the rows, and with the second.
func (q *Queue) Halves() [2]*Queue {
	first, second, n := *q, *q, len(q.Lengths)/2
	first.Lengths, second.Lengths = q.Lengths[:n], q.Lengths[n:]
	return [2]*Queue{&first, &second}
}

// Interleaved are the queue with every other block of so many rows, from the first on, and with those between.
func (q *Queue) Interleaved(block int) [2]*Queue {
	parts := [2]Queue{*q, *q}
	parts[0].Lengths, parts[1].Lengths = nil, nil
	n := 0
	for rows := range slices.Chunk(q.Lengths, block) {
		parts[n%2].Lengths = append(parts[n%2].Lengths, rows...)
		n++
	}
	return [2]*Queue{&parts[0], &parts[1]}
}

// Backwards is the queue with its rows from the last to the first: what drifted up drifts down.
func (q *Queue) Backwards() *Queue {
	out := *q
	out.Lengths = slices.Clone(q.Lengths)
	slices.Reverse(out.Lengths)
	return &out
}

// Drain has the instance serve a queue that is there at 0, and returns when each
// request began, had its first token and ended.
func (q *Queue) Drain(list []llm.Request) ([]llm.Outcome, llm.Counts, error) {
	return llm.ServeAll(q.Options, q.Model, list)
}

// Calibrate fits an estimator to a queue that the instance drains.
func (q *Queue) Calibrate(list []llm.Request) (*vqueue.RCT, error) {
	out, _, err := q.Drain(list)
	if err != nil {
		return nil, fmt.Errorf("draining a queue: %w", err)
	}
	return vqueue.Calibrate(Timed(list, out), batch(out))
}

// Timed is a drained queue as an estimator is calibrated on it: in order of start.
func Timed(list []llm.Request, out []llm.Outcome) []vqueue.CalibrationRequest {
	served := make([]vqueue.CalibrationRequest, len(list))
	for i, r := range list {
		served[i] = vqueue.CalibrationRequest{Prompt: float64(r.Prompt), Output: float64(r.Output), Start: out[i].FirstIteration.Seconds(), End: out[i].LastToken.Seconds()}
	}
	slices.SortStableFunc(served, func(a, b vqueue.CalibrationRequest) int { return cmp.Compare(a.Start, b.Start) })
	return served
}

// batch is the mean number of requests that ran at once while others waited.
func batch(out []llm.Outcome) float64 {
	var last, sum time.Duration
	for _, o := range out {
		last = max(last, o.FirstIteration)
	}
	for _, o := range out {
		sum += min(o.LastToken, last) - o.FirstIteration
	}
	return float64(sum) / float64(max(last, 1))
}
