package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"slices"
	"sync"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/served"
	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/document"
)

const (
	besideSlots = 4
	besideBatch = 1 // of them, for batches
	window      = 10 * time.Minute
)

// besidePlan is a plan of one model with two classes, of which batch has few slots.
func besidePlan() *formats.Plan {
	const model = "tiny-a"
	q := &formats.QueuePlan{
		Models: []formats.LLMProfile{{Model: model, WeightBytes: 5 << 20, KVBytesPerToken: 1024, Instances: []formats.LLMInstance{
			{Device: device, TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 2e6, SequenceNS: 5e5}, KVTokens: 1 << 14, KVSource: "measured", Loads: &formats.ModelLoads{ColdUS: 250_000, WarmUS: 250_000}}}}},
		Estimates: []formats.QueueEstimate{{Model: model, Device: device, PromptNS: 1e5, OutputNS: 1e6, PrefillNS: 5e6, DecodeNS: 4e6, Batch: besideSlots, PromptMean: 20, OutputMean: 40, OutputSD: 20}},
		Instances: []formats.QueueInstance{{Device: device, TensorParallel: 1, Model: model, Models: []string{model}, Sequences: []int{besideSlots}, TokenBudget: 512, Caps: []formats.ClassCap{{Class: "batch", Sequences: besideBatch}}}},
	}
	p := &formats.Plan{Kind: formats.PlanQueue, Section: q, Format: formats.FormatPlan, Algorithm: "search", StoppedBy: "work", Objective: formats.Objective{Name: "goodput", Value: 1},
		Policy: formats.PolicySpec{Name: "vqueue"}, Pools: []formats.Pool{{Device: device, Count: 1, MaxShares: 1}}, Inputs: []formats.Input{}}
	p.Tool.Version = "0"
	for i, c := range []struct {
		class, of string
		slo       time.Duration
	}{{"interactive", formats.FigureTTFT, time.Second}, {"batch", formats.FigureE2E, window}} {
		p.Deployment = append(p.Deployment, formats.Deployed{Model: model, Class: c.class, NumBlocks: 1, Pipelines: []formats.Pipeline{}})
		q.Classes = append(q.Classes, formats.QueueClass{Served: formats.Served{Model: model, Class: c.class, SLOUS: document.Micros(c.slo), Percentile: "p99", Weight: 1, RPS: 2}, Figure: c.of, Priority: i})
	}
	return p
}

// beside serves interactive requests alone and beside a batch, in turns.
func (b *bench) beside(ctx context.Context) ([]figures.Figure, error) {
	url, stop, err := served.Llama(ctx, b.llama, b.dir, besideSlots, nil, names...)
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := document.WriteFile(b.path("beside.json"), besidePlan(), document.Force(true)); err != nil {
		return nil, err
	}
	var alone, with []time.Duration
	var ratios []float64
	if b.turns < 1 {
		return nil, errors.New("-turns: expected at least one")
	}
	done, lines := 0, 0
	for turn := range b.turns {
		err := b.serving(ctx, b.path("beside.json"), url, func(address string) error {
			a, err := interactive(ctx, address, b.phase, uint64(turn))
			if err != nil {
				return err
			}
			w := &work{address: address}
			if err := w.begin(ctx, b.lines); err != nil {
				return err
			}
			c, err := interactive(ctx, address, b.phase, uint64(turn))
			if err != nil {
				return err
			}
			n, err := w.end(ctx)
			ratios = append(ratios, float64(p99(c))/float64(p99(a)))
			alone, with, done, lines = append(alone, a...), append(with, c...), done+n, lines+b.lines
			fmt.Fprintf(b.out, "turn %d: first token p99 %v alone, %v beside the batch; %d of %d lines\n", turn, p99(a), p99(c), n, b.lines)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(ratios)
	ratio := median(ratios)
	return []figures.Figure{
		{Claim: "first token of interactive requests, p99 beside a batch over p99 alone, median of the turns", Source: "batch beside interactive on one server", Asked: "at most 1.5", Measured: ratio, Interval: &[2]float64{ratios[0], ratios[len(ratios)-1]}, Unit: "times", Holds: figures.If(ratio <= 1.5),
			Note: fmt.Sprintf("all turns together: p99 %v alone, %v beside; p50 %v and %v; %d and %d requests in %d turns; %d of %d slots for batches", p99(alone), p99(with), share(alone, .5), share(with, .5), len(alone), len(with), b.turns, besideBatch, besideSlots)},
		{Claim: "lines of batches that were completed within their window", Source: "batch beside interactive on one server", Asked: "all", Measured: float64(done), Unit: fmt.Sprint("of ", lines), Holds: figures.If(done == lines)},
	}, nil
}

// median is that of a sorted list.
func median(list []float64) float64 {
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

func p99(list []time.Duration) time.Duration { return share(list, .99) }

// share is the smallest time that a share of a list does not exceed.
func share(list []time.Duration, p float64) time.Duration {
	s := slices.Sorted(slices.Values(list))
	return s[min(len(s)-1, int(p*float64(len(s))))].Round(100 * time.Microsecond)
}

// interactive sends requests at exponential gaps, three a second, and gives the times to
// their first tokens, from when they were due.
func interactive(ctx context.Context, address string, phase time.Duration, seed uint64) ([]time.Duration, error) {
	c, err := llm.New(address)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	var out []time.Duration
	var errs []error
	var wg sync.WaitGroup
	due := time.Now()
	for end := due.Add(phase); ctx.Err() == nil; {
		if due = due.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) / 3)); due.After(end) {
			break
		}
		time.Sleep(time.Until(due))
		n, at := rng.IntN(1000), due
		wg.Go(func() {
			sent := time.Now()
			a, err := c.Complete(ctx, &llm.Request{Model: "tiny-a", Prompt: fmt.Sprint("tell me number ", n), MaxTokens: 16, Fields: map[string]any{"slo_class": "interactive"}}, nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			out = append(out, sent.Sub(at)+a.FirstTokenTime)
		})
	}
	wg.Wait()
	return out, errors.Join(append(errs, ctx.Err())...)
}

// work is a batch.
type work struct {
	address string
	id      string
}

// post sends a body and reads the answer's JSON.
func (w *work) post(ctx context.Context, path, kind string, body io.Reader, into any) error {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, w.address+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d %.200s, %w", path, resp.StatusCode, data, err)
	}
	return json.Unmarshal(data, into)
}

// begin uploads so many lines and starts a batch of them.
func (w *work) begin(ctx context.Context, lines int) error {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	_ = form.WriteField("purpose", "batch") // into memory
	file, err := form.CreateFormFile("file", "batch.jsonl")
	if err != nil {
		return err
	}
	for i := range lines {
		fmt.Fprintf(file, `{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":{"model":"tiny-a","prompt":"line %d of many","max_tokens":64}}`+"\n", i, i)
	}
	if err := form.Close(); err != nil {
		return err
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := w.post(ctx, "/v1/files", form.FormDataContentType(), &b, &made); err != nil {
		return err
	}
	ask := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"%ds"}`, made.ID, int(window.Seconds()))
	err = w.post(ctx, "/v1/batches", "application/json", bytes.NewReader([]byte(ask)), &made)
	w.id = made.ID
	return err
}

// end waits for the batch and says how many lines were answered.
func (w *work) end(ctx context.Context) (int, error) {
	for {
		var s struct {
			Status string `json:"status"`
			Counts struct {
				Completed int `json:"completed"`
			} `json:"request_counts"`
		}
		if err := w.post(ctx, "/v1/batches/"+w.id, "application/json", nil, &s); err != nil {
			return 0, err
		}
		switch s.Status {
		case "completed", "expired", "failed", "cancelled":
			return s.Counts.Completed, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
