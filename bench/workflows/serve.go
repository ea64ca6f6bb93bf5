package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/bench/started"
	"inferplan/engine"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/formats/seeded"
	"inferplan/testkit/stepstest"
)

// asked is a request and what became of it.
type asked struct {
	at, took  time.Duration
	app, page int
	found     int // lines
	exact     int // of those on the page
	spaces    int // that lack nothing but spaces
	lines     int // on the page
	err       error
}

// served is a run.
type served struct {
	rate     float64
	list     []asked
	service  *executor.Service
	models   []string        // by stage
	virtual  []time.Duration // latencies in virtual time
	simLoads int64
	busy     string // load average of the machine at the end
}

// Before what is counted comes a single request now and then: the first runs of a
// worker are slow.
const (
	leadIn    = 4 * time.Second
	leadEvery = time.Second
)

// serve serves requests that come at random moments, whatever becomes of those before.
func (b *ocr) serve(ctx context.Context, rate float64, length time.Duration) (*served, error) {
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	b.plan.Policy.Name = b.policy
	x, err := executor.New(ctx, b.plan, executor.Options{
		CoreOptions:   executor.CoreOptions{ModelsDir: b.dir, RecordService: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		WorkerOptions: executor.WorkerOptions{CPUs: cpus[len(cpus)-1:], HangTimeout: time.Minute},
	})
	if err != nil {
		return nil, fmt.Errorf("starting to serve: %w", err)
	}
	r := &served{rate: rate, list: b.arrivals(rate, length)}
	for i := range b.plan.Deployment {
		r.models = append(r.models, b.plan.Deployment[i].Model)
	}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range r.list {
		a := &r.list[i]
		if d := time.Until(start.Add(a.at)); d > 0 {
			time.Sleep(d)
		}
		if ctx.Err() != nil {
			break
		}
		a.at = time.Since(start)
		wg.Go(func() { b.ask(ctx, x, a) })
	}
	wg.Wait()
	r.service, r.busy = x.Service(), started.LoadAverage()
	if err := x.Close(); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// arrivals draws requests. Pages that stand on their head go to the application that
// turns lines.
func (b *ocr) arrivals(rate float64, length time.Duration) []asked {
	var list []asked
	for at := time.Duration(0); at < leadIn; at += leadEvery {
		list = append(list, asked{at: at})
	}
	rng := seeded.New(1, "bench-workflows/arrivals")
	for at := leadIn; ; {
		if at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)); at >= leadIn+length {
			return list
		}
		a := asked{at: at, page: rng.IntN(len(b.pages)), app: rng.IntN(2)}
		if b.pages[a.page].turned {
			a.app = 0
		}
		list = append(list, a)
	}
}

// ask asks for the text of a page.
func (b *ocr) ask(ctx context.Context, x *executor.Executor, a *asked) {
	p, info := &b.pages[a.page], x.Models().Models()[a.app]
	sent := time.Now()
	resp, err := x.Infer(ctx, &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
		Inputs: []oip.Tensor{{Name: info.Inputs[0].Name, Datatype: oip.Uint8, Shape: []int64{1, pageHeight, pageWidth, 3}, Data: p.image}}})
	a.took, a.lines, a.err = time.Since(sent), len(p.lines), err
	if err != nil {
		return
	}
	defer resp.Release()
	var text []string
	for _, o := range resp.Outputs {
		switch o.Name {
		case "detect.count":
			a.found = int(binary.LittleEndian.Uint32(o.Data))
		case "read.codes":
			for codes := range slices.Chunk(o.Data, len(o.Data)/mostLines) {
				text = append(text, stepstest.Spell(b.keys, codes))
			}
		}
	}
	if passed, _ := resp.Params["passed_over"].(string); passed != "read" {
		_, items, _ := strings.Cut(fmt.Sprint(resp.Params["items"]), "=")
		fmt.Sscan(items, &a.found)
	}
	for i, line := range p.lines {
		switch {
		case i >= len(text):
		case text[i] == line:
			a.exact++
		case strings.ReplaceAll(text[i], " ", "") == strings.ReplaceAll(line, " ", ""):
			a.spaces++
		}
	}
}

// counted are the requests behind the lead-in.
func (r *served) counted() []asked {
	return r.list[slices.IndexFunc(r.list, func(a asked) bool { return a.at >= leadIn }):]
}
