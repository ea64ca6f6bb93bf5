package fleet

import (
	"fmt"
	"path/filepath"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/bench/qlm/instance"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/sim/llm"
	"inferplan/testkit/queuetest"
)

// Classes are the SLOs of answers, end to end, with their shares of requests.
var (
	Classes = []time.Duration{30 * time.Second, 120 * time.Second, 300 * time.Second}
	Shares  = []float64{0.2, 0.4, 0.4}
)

// popularity is the share of requests by model. Models with even numbers are
// Mistral-7B, the others Vicuna-13B, those from firstBig on Llama-2-70B.
var popularity = []float64{0.5, 0.25, 0.08, 0.07, 0.06, 0.04}

const firstBig = 6

// Workload is the workload with which a fleet is measured.
type Workload struct {
	Name       string
	Models     []int
	MegaShare  float64
	MegaPrompt int32 // tokens from which on a prompt is a mega prompt

	Popularity []float64 // by place in Models; nil stands for popularity's
	Shares     []float64 // of the classes; nil stands for those of the paper's setting
	SLOScale   float64   // of all SLOs; 0 stands for 1
	Burst      float64   // coefficient of variation of gamma gaps; 0 stands for the trace's gaps
	ShareGPT   bool      // lengths are ShareGPT's
	Code       bool      // rows are those of the service for code
	Talks      string    // trace whose conversations are the requests, with prefix caches on the instances; empty for single requests
}

// WithTail is the workload with this share of requests for all models but the first
// two.
func (w Workload) WithTail(share float64) Workload {
	w.Popularity = nil
	for i, p := range popularity {
		if i < 2 {
			w.Popularity = append(w.Popularity, p*(1-share)/0.75)
		} else {
			w.Popularity = append(w.Popularity, p*share/0.25)
		}
	}
	return w
}

func (w *Workload) popularity() []float64 {
	if w.Popularity != nil {
		return w.Popularity
	}
	return popularity
}

func (w *Workload) shares() []float64 {
	if w.Shares != nil {
		return w.Shares
	}
	return Shares
}

// slo is that of a class.
func (w *Workload) slo(class int) time.Duration {
	if w.SLOScale == 0 {
		return Classes[class]
	}
	return time.Duration(w.SLOScale * float64(Classes[class]))
}

// Workloads are the paper's: several models, one model, several with mega prompts.
var Workloads = []Workload{
	{Name: "W_A", Models: []int{0, 1, 2, 3, 4, 5}},
	{Name: "W_B", Models: []int{1}},
	{Name: "W_C", Models: []int{0, 1, 2, 3, 4, 5}, MegaShare: 0.02, MegaPrompt: 16000},
}

// Data is the traces.
type Data struct {
	Conversations []llm.Request     // Azure's of 2023
	Mega          []llm.Request     // Mooncake's with prompts of 16,000 to 32,000 tokens
	Chats         []llm.Request     // ShareGPT's lengths
	Code          []llm.Request     // Azure's requests for code of 2023
	Mooncake      []llm.Request     // Mooncake's with a prompt and an answer that fit Longest tokens
	Talks         map[string][]Talk // by trace
}

// Open reads the traces below a folder.
func Open(data string) (*Data, error) {
	d := &Data{}
	var err error
	if d.Conversations, err = instance.ReadRows(filepath.Join(data, "traces/azure_llm_2023_conv.csv.gz"), 8000); err != nil {
		return nil, err
	}
	all, err := instance.ReadRows(filepath.Join(data, "traces/mooncake_fast25_conversation.csv.gz"), 1<<30)
	if err != nil {
		return nil, err
	}
	if d.Chats, err = instance.ReadRows(filepath.Join(data, "lengths/sharegpt_llama2tok_part1.csv.gz"), 8000); err != nil {
		return nil, err
	}
	if d.Code, err = instance.ReadRows(filepath.Join(data, "traces/azure_llm_2023_code_first30min.csv.gz"), 8000); err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Prompt >= 16000 && r.Prompt <= 32000 {
			r.ArrivedAt = 0
			d.Mega = append(d.Mega, r)
		}
	}
	if d.Talks, err = readTalks(data); err != nil {
		return nil, err
	}
	for _, talk := range d.Talks[mooncake] {
		for _, turn := range talk {
			d.Mooncake = append(d.Mooncake, llm.Request{Prompt: turn.Prompt, Output: turn.Output})
		}
	}
	return d, nil
}

// pick is the index that a uniform number falls on.
func pick(shares []float64, u float64) int {
	for i, s := range shares {
		if u -= s; u < 0 {
			return i
		}
	}
	return len(shares) - 1
}

// requests are those of a case, compressed to its rate.
func (c *Case) requests(d *Data) ([]arrivals.Request, error) {
	if c.Workload.Talks != "" {
		return c.turns(d)
	}
	list, err := c.Workload.requests(d, c.From, c.To, c.Seed)
	if err != nil {
		return nil, err
	}
	compress(list, c.RPS)
	return list, nil
}

// requests draws the requests of rows, with the rows' own distances in time. Their
// model is the index of model and class in the tables.
func (w *Workload) requests(d *Data, from, to int, seed uint64) ([]arrivals.Request, error) {
	rows := d.Conversations
	if w.Code {
		rows = d.Code
	}
	if from < 0 || to > len(rows) || from >= to {
		return nil, fmt.Errorf("rows %d to %d: the trace has %d", from, to, len(rows))
	}
	rng := queuetest.SplitMix(seed)
	out := make([]arrivals.Request, 0, to-from)
	for i, row := range rows[from:to] {
		if w.ShareGPT {
			chat := d.Chats[(from+i)%len(d.Chats)]
			row.Prompt, row.Output = chat.Prompt, chat.Output
		}
		model := 0
		if u := rng.Float64(); len(w.Models) > 1 {
			model = pick(w.popularity(), u)
		}
		class := pick(w.shares(), rng.Float64())
		if u := rng.Float64(); u < w.MegaShare {
			at := row.ArrivedAt
			row = d.Mega[int(rng.Float64()*float64(len(d.Mega)))]
			row.ArrivedAt, model, class = at, 0, len(Classes)-1
		}
		out = append(out, arrivals.Request{ArrivedAt: row.ArrivedAt - rows[from].ArrivedAt, Model: int32(model*len(Classes) + class), PromptTokens: row.Prompt, OutputTokens: row.Output})
	}
	w.burst(out, seed)
	return out, nil
}

// burst gives the requests gaps of a gamma distribution, with the trace's mean.
func (w *Workload) burst(list []arrivals.Request, seed uint64) {
	if w.Burst == 0 {
		return
	}
	shape := 1 / (w.Burst * w.Burst)
	mean := list[len(list)-1].ArrivedAt.Seconds() / float64(len(list))
	gaps := distuv.Gamma{Alpha: shape, Beta: shape / mean, Src: seeded.New(seed, "fleet/gaps")}
	at := 0.0
	for i := range list {
		at += gaps.Rand()
		list[i].ArrivedAt = time.Duration(at * 1e9)
	}
}

// compress has requests come at a mean rate.
func compress(list []arrivals.Request, rps float64) {
	last := list[len(list)-1].ArrivedAt
	factor := float64(len(list)) / rps / last.Seconds()
	for i := range list {
		list[i].ArrivedAt = time.Duration(float64(list[i].ArrivedAt) * factor)
	}
}

// Draw draws the requests of the first rows of the conversations, compressed to a
// rate: models by their popularity, classes by their shares, both with one generator.
// A request's model is the index of model and class, models first.
func (d *Data) Draw(popularity []float64, rows int, rps float64, seed uint64) ([]arrivals.Request, error) {
	if rows > len(d.Conversations) {
		return nil, fmt.Errorf("rows 0 to %d: the trace has %d", rows, len(d.Conversations))
	}
	rng := queuetest.SplitMix(seed)
	out := make([]arrivals.Request, rows)
	for i, row := range d.Conversations[:rows] {
		model := pick(popularity, rng.Float64())
		class := pick(Shares, rng.Float64())
		out[i] = arrivals.Request{ArrivedAt: row.ArrivedAt - d.Conversations[0].ArrivedAt, Model: int32(model*len(Classes) + class), PromptTokens: row.Prompt, OutputTokens: row.Output}
	}
	compress(out, rps)
	return out, nil
}
