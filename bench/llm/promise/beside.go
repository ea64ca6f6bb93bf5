package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"slices"
	"sync"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

const (
	besideSlots = 4
	besideBatch = 1   // of them, for batches
	batchLines  = 100 // of a batch
	window      = 10 * time.Minute
)

// besidePlan is a plan of one model with two classes, of which batch has few slots.
func besidePlan() *formats.Plan {
	model := names[0]
	p := newPlan(&formats.QueuePlan{
		Models: []formats.LLMProfile{{Model: model, WeightBytes: 5 << 20, KVBytesPerToken: 1024, Instances: []formats.LLMInstance{
			{Device: device, TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 2e6, SequenceNS: 5e5}, KVTokens: 1 << 14, KVSource: "measured", Loads: &formats.ModelLoads{ColdUS: 250_000, WarmUS: 250_000}}}}},
		Estimates: []formats.QueueEstimate{{Model: model, Device: device, PromptNS: 1e5, OutputNS: 1e6, PrefillNS: 5e6, DecodeNS: 4e6, Batch: besideSlots, PromptMean: 20, OutputMean: 40, OutputSD: 20}},
		Instances: []formats.QueueInstance{{Device: device, TensorParallel: 1, Model: model, Models: []string{model}, Sequences: []int{besideSlots}, TokenBudget: 512, Caps: []formats.ClassCap{{Class: "batch", Sequences: besideBatch}}}},
	}, nil)
	addClass(p, formats.QueueClass{Figure: formats.FigureTTFT}, model, "interactive", time.Second, 2)
	addClass(p, formats.QueueClass{Figure: formats.FigureE2E, Priority: 1}, model, "batch", window, 2)
	return p
}

// serveBesideBatch serves interactive requests alone and beside a batch, in turns.
func (b *bench) serveBesideBatch(r *instrument.Run, t *instrument.Table) error {
	url, stop, err := served.Llama(r.Ctx, llama, b.dir, besideSlots, nil, names...)
	if err != nil {
		return err
	}
	defer stop()
	b.url = url
	if _, err := document.WriteFile(b.path("beside.json"), besidePlan(), document.Force(true)); err != nil {
		return err
	}
	t.Columns = []string{"turn", "first token p99, alone", "beside the batch", "lines completed"}
	var alone, with []time.Duration
	var ratios []float64
	done := 0
	for turn := range b.turns {
		err := b.serving(r.Ctx, "beside.json", func(address string) error {
			a, c, n, err := besideTurn(r.Ctx, address, b.phase, uint64(turn))
			if err != nil {
				return err
			}
			ratios = append(ratios, float64(quantile(c, .99))/float64(quantile(a, .99)))
			alone, with, done = append(alone, a...), append(with, c...), done+n
			t.Add(turn, quantile(a, .99), quantile(c, .99), n)
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(ratios)
	ratio := (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	const source = "batch beside interactive on one server"
	f := r.AtMost("first token of interactive requests, p99 beside a batch over p99 alone, median of the turns", source, 1.5, "times", ratio)
	f.Interval = &[2]float64{ratios[0], ratios[len(ratios)-1]}
	f.Note = fmt.Sprintf("all turns together: p99 %v alone, %v beside; p50 %v and %v; %d and %d requests in %d turns; %d of %d slots for batches",
		quantile(alone, .99), quantile(with, .99), quantile(alone, .5), quantile(with, .5), len(alone), len(with), b.turns, besideBatch, besideSlots)
	lines := b.turns * batchLines
	r.Figure(figures.Figure{Claim: "lines of batches that were completed within their window", Source: source, Asked: "all", Measured: float64(done), Unit: fmt.Sprint("of ", lines), Holds: figures.If(done == lines)})
	return nil
}

// quantile returns a quantile of a list.
func quantile(list []time.Duration, p float64) time.Duration {
	return report.PercentileReordering(list, p).Round(100 * time.Microsecond)
}

// besideTurn sends interactive requests alone, then the same beside a batch. It returns their times to the first token, and
// how many lines of the batch were completed.
func besideTurn(ctx context.Context, address string, phase time.Duration, seed uint64) (alone, with []time.Duration, lines int, err error) {
	c, err := llm.New(address)
	if err != nil {
		return nil, nil, 0, err
	}
	if alone, err = interactive(ctx, c, phase, seed); err != nil {
		return nil, nil, 0, err
	}
	id, err := beginBatch(ctx, c)
	if err != nil {
		return nil, nil, 0, err
	}
	if with, err = interactive(ctx, c, phase, seed); err != nil {
		return nil, nil, 0, err
	}
	lines, err = endBatch(ctx, c, id)
	return alone, with, lines, err
}

// interactive sends requests at exponential gaps, three a second, and gives the times to
// their first tokens, from when they were due.
func interactive(ctx context.Context, c *llm.Client, phase time.Duration, seed uint64) ([]time.Duration, error) {
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

// beginBatch uploads lines, starts a batch of them and returns its id.
func beginBatch(ctx context.Context, c *llm.Client) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("purpose", "batch") // into memory
	file, err := form.CreateFormFile("file", "batch.jsonl")
	if err != nil {
		return "", err
	}
	for i := range batchLines {
		fmt.Fprintf(file, `{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":{"model":"tiny-a","prompt":"line %d of many","max_tokens":64}}`+"\n", i, i)
	}
	if err := form.Close(); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Address()+"/v1/files", &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var made struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.ID == "" {
		return "", fmt.Errorf("uploading the lines of a batch: status %d, %w", resp.StatusCode, err)
	}
	data, err := c.Call(ctx, http.MethodPost, "/v1/batches", map[string]string{"input_file_id": made.ID, "endpoint": "/v1/completions", "completion_window": fmt.Sprintf("%ds", int(window.Seconds()))})
	if err != nil {
		return "", err
	}
	err = json.Unmarshal(data, &made)
	return made.ID, err
}

// endBatch waits for the batch and returns how many lines were answered.
func endBatch(ctx context.Context, c *llm.Client, id string) (int, error) {
	for {
		var batch struct {
			Status string `json:"status"`
			Counts struct {
				Completed int `json:"completed"`
			} `json:"request_counts"`
		}
		data, err := c.Call(ctx, http.MethodGet, "/v1/batches/"+id, nil)
		if err != nil {
			return 0, err
		}
		if err := json.Unmarshal(data, &batch); err != nil {
			return 0, err
		}
		switch batch.Status {
		case "completed", "expired", "failed", "cancelled":
			return batch.Counts.Completed, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
