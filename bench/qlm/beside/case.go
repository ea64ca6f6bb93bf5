package beside

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// Case is a fleet with its requests.
type Case struct {
	Name  string
	GPUs  int
	RPS   float64 // of interactive requests
	Lines int     // of the batch
}

// window is the time that a batch has, and how long interactive requests come.
const window = 10 * time.Minute

// full is how many of the trace's requests an A100 does a second at most, each with the
// model of this package.
const full = 2.27

// Cases load the fleet to .4 by interactive requests, and further by the batch.
var Cases = []Case{
	loaded(4, 0.4, 0.6), loaded(8, 0.4, 0.6), loaded(32, 0.4, 0.6),
	loaded(8, 0.4, 0.7), loaded(32, 0.4, 0.7), loaded(8, 0.4, 0.8),
}

// loaded is a case by its load without and with the batch.
func loaded(gpus int, alone, all float64) Case {
	rate := full * float64(gpus)
	return Case{
		Name: fmt.Sprintf("%d A100, load %g alone, %g in all", gpus, alone, all), GPUs: gpus,
		RPS: alone * rate, Lines: int((all - alone) * rate * window.Seconds()),
	}
}

// Runs are the stretches of the trace that are measured; the planner chooses on another.
const Runs = 3

// Data is the trace.
type Data struct{ rows []llm.Request }

// Open reads the trace below a folder.
func Open(data string) (*Data, error) {
	rows, err := instance.ReadRows(filepath.Join(data, "traces/azure_llm_2023_conv.csv.gz"), 1<<30)
	return &Data{rows}, err
}

// Of a request: its class, which is an item of the problem, too.
const (
	interactive = iota
	batch
)

// streams is how many parts of the trace come at once. Each is at most what eight A100s
// get, at which the trace has several stretches.
func (c *Case) streams() int { return max(1, c.GPUs/8) }

// requests are those of a stretch: 0 is the planner's. The lines of the batch have the
// lengths of other rows.
func (c *Case) requests(d *Data, stretch int, lines int) ([]arrivals.Request, error) {
	streams := c.streams()
	n := int(c.RPS * window.Seconds() / float64(streams))
	if 2*n > len(d.rows) || streams == 1 && (stretch+1)*n > len(d.rows) {
		return nil, fmt.Errorf("%s: stretch %d needs %d rows, the trace has %d", c.Name, stretch, (stretch+1)*n, len(d.rows))
	}
	rng := seeded.New(uint64(stretch), "beside/lines")
	var out []arrivals.Request
	for range lines {
		r := d.rows[rng.Uint64()%uint64(len(d.rows))]
		out = append(out, arrivals.Request{Model: batch, PromptTokens: r.Prompt, OutputTokens: r.Output})
	}
	for k := range streams {
		from := (stretch*n + k*len(d.rows)) / streams % (len(d.rows) - n)
		own := d.rows[from : from+n]
		span := (own[n-1].ArrivedAt - own[0].ArrivedAt).Seconds()
		for _, r := range own {
			at := (r.ArrivedAt - own[0].ArrivedAt).Seconds() / span * window.Seconds()
			out = append(out, arrivals.Request{ArrivedAt: time.Duration(at*1e9) + 1, Model: interactive, PromptTokens: r.Prompt, OutputTokens: r.Output})
		}
	}
	slices.SortStableFunc(out, func(a, b arrivals.Request) int { return cmp.Compare(a.ArrivedAt, b.ArrivedAt) })
	return out, nil
}

// perPosition is the time of a re-plan per position that it looks at, searchWork
// bounds it.
const (
	perPosition = time.Microsecond
	searchWork  = 1000
)

// problem returns the problem of the planner: interactive answers within slo, and all of the
// batch within its window.
func (c *Case) problem(d *Data, slo time.Duration) (*deploy.Problem, error) {
	planned, err := c.requests(d, 0, c.Lines)
	if err != nil {
		return nil, err
	}
	var sample []llm.Request
	for i := 0; i < len(d.rows) && len(sample) < 1200; i += 11 {
		r := d.rows[i]
		r.ArrivedAt = 0
		sample = append(sample, r)
	}
	m := instance.Vicuna13B
	profile := &formats.LLMProfile{Model: "vicuna", WeightBytes: 26e9, KVBytesPerToken: m.TokenBytes, Instances: []formats.LLMInstance{{
		Device: "A100", TensorParallel: 1, Iteration: m.Iteration, KVTokens: m.KVTokens, KVSource: formats.KVMeasured, BlockTokens: 16, TokenBudget: 2048, SwapGBps: 23.6,
	}}}
	class := deploy.Class{Figure: formats.FigureE2E, Percentile: "p99", RequiredShare: 0.99, Sample: sample}
	quick, slow := class, class
	quick.Name, quick.SLO = "interactive", slo
	slow.Name, slow.SLO, slow.RequiredShare, slow.JudgeGroup = "batch", window, 1, 1
	return &deploy.Problem{
		Models:  []deploy.Model{{Name: profile.Model, Profile: profile, ByKind: []*formats.LLMInstance{&profile.Instances[0]}}},
		Classes: []deploy.Class{interactive: quick, batch: slow},
		Items:   []deploy.Item{interactive: {Class: interactive, RPS: c.RPS, Weight: 1}, batch: {Class: batch, RPS: float64(c.Lines) / window.Seconds(), Weight: 1}},
		Kinds:   []deploy.Kind{{Device: "A100", TP: 1, MaxInstances: c.GPUs, Price: 1}},
		Pools:   []formats.Pool{{Device: "A100", Count: c.GPUs, MaxShares: 1, PerNode: 1}},
		Caps:    caps, Seed: 1, Runs: 1, Effort: 1, SearchWork: searchWork,
		SearchTime: func(worked int64) time.Duration { return time.Duration(worked) * perPosition },
		Replay:     func(int) []arrivals.Request { return planned },
	}, nil
}

// caps are the numbers of sequences at once that instances choose among; most is the
// number that they have where nobody chooses.
var caps = []int{1, 2, 4, 6, 8, 12, 16, 24, most}

const most = 32
