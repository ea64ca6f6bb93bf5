package sizing

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// BatchCase is a fleet with interactive requests and a batch.
type BatchCase struct {
	Name  string
	GPUs  int
	RPS   float64 // of interactive requests
	Lines int     // of the batch
}

// window is the time that a batch has, and how long interactive requests come.
const window = 10 * time.Minute

// full says how many of the trace's requests an A100 does a second at most, each with the
// model of this package.
const full = 2.27

// BatchCases load the fleet to .4 by interactive requests, and further by the batch.
var BatchCases = []BatchCase{
	loaded(4, 0.4, 0.6), loaded(8, 0.4, 0.6), loaded(32, 0.4, 0.6),
	loaded(8, 0.4, 0.7), loaded(32, 0.4, 0.7), loaded(8, 0.4, 0.8),
}

// loaded is a case by its load without and with the batch.
func loaded(gpus int, alone, all float64) BatchCase {
	rate := full * float64(gpus)
	return BatchCase{
		Name: fmt.Sprintf("%d A100, load %g alone, %g in all", gpus, alone, all), GPUs: gpus,
		RPS: alone * rate, Lines: int((all - alone) * rate * window.Seconds()),
	}
}

// Runs are the stretches of the trace that are measured; the planner chooses on another.
const Runs = 3

// Trace is the trace of interactive requests.
type Trace struct{ rows []llm.Request }

// OpenTrace reads it below a folder.
func OpenTrace(data string) (*Trace, error) {
	rows, err := instance.ReadRows(filepath.Join(data, "traces/azure_llm_2023_conv.csv.gz"), 1<<30)
	return &Trace{rows}, err
}

// Of a request: its class, which is an item of the problem, too.
const (
	interactive = iota
	batch
)

// streams says how many parts of the trace come at once. Each is at most what eight A100s
// get, at which the trace has several stretches.
func (c *BatchCase) streams() int { return max(1, c.GPUs/8) }

// requests are those of a stretch: 0 is the planner's. The lines of the batch have the
// lengths of other rows.
func (c *BatchCase) requests(d *Trace, stretch int, lines int) ([]arrivals.Request, error) {
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
		stream := d.rows[from : from+n]
		span := (stream[n-1].ArrivedAt - stream[0].ArrivedAt).Seconds()
		for _, r := range stream {
			at := (r.ArrivedAt - stream[0].ArrivedAt).Seconds() / span * window.Seconds()
			out = append(out, arrivals.Request{ArrivedAt: time.Duration(at*1e9) + 1, Model: interactive, PromptTokens: r.Prompt, OutputTokens: r.Output})
		}
	}
	slices.SortStableFunc(out, func(a, b arrivals.Request) int { return cmp.Compare(a.ArrivedAt, b.ArrivedAt) })
	return out, nil
}

// problem returns the problem of the planner: interactive answers within slo, and all of the
// batch within its window.
func (c *BatchCase) problem(d *Trace, slo time.Duration) (*deploy.Problem, error) {
	planned, err := c.requests(d, 0, c.Lines)
	if err != nil {
		return nil, err
	}
	p := newProblem(c.GPUs, 1)
	addModel(p, "vicuna", instance.Vicuna13B, nil)
	class := deploy.Class{Figure: formats.FigureE2E, Percentile: "p99", RequiredShare: 0.99, Sample: fleet.Sample(d.rows, 0, 11)}
	quick, slow := class, class
	quick.Name, quick.SLO = "interactive", slo
	slow.Name, slow.SLO, slow.RequiredShare, slow.JudgeGroup = "batch", window, 1, 1
	p.Classes = []deploy.Class{interactive: quick, batch: slow}
	p.Items = []deploy.Item{interactive: {Class: interactive, RPS: c.RPS, Weight: 1}, batch: {Class: batch, RPS: float64(c.Lines) / window.Seconds(), Weight: 1}}
	p.Caps, p.Replay = caps, func(int) []arrivals.Request { return planned }
	return p, nil
}

// caps are the numbers of sequences at once that instances choose among; mostSequences is the number that they have where
// nobody chooses.
var caps = []int{1, 2, 4, 6, 8, 12, 16, 24, mostSequences}

const mostSequences = 32
