package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/bench/served"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/stepstest"
)

// request is a request and what became of it.
type request struct {
	at, took  time.Duration
	app, page int
	found     int // lines
	exact     int // of those on the page
	spaces    int // that lack nothing but spaces
	lines     int // on the page
	err       error
}

// run is a run.
type run struct {
	list      []request
	service   *turn.ServiceTimes
	simulated []time.Duration // latencies in virtual time
	busy      string          // load average of the machine at the end
}

// Before what is counted comes a single request now and then: the first runs of a
// worker are slow.
const (
	leadIn    = 4 * time.Second
	leadEvery = time.Second
)

// serve serves requests that come at random moments, whatever becomes of those before.
func (o *ocr) serve(ctx context.Context, rate float64, length time.Duration) (*run, error) {
	x, err := served.Execute(ctx, o.plan, o.dir, executor.WorkerOptions{HangTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	r := &run{list: o.requests(rate, length)}
	var moments []time.Duration
	for _, q := range r.list {
		moments = append(moments, q.at)
	}
	began, err := served.Pace(ctx, moments, func(i int, sent time.Time) { o.ask(ctx, x, &r.list[i], sent) })
	for i := range began {
		r.list[i].at = began[i]
	}
	r.service, r.busy = x.Service(), served.LoadAverage()
	return r, errors.Join(err, x.Close())
}

// requests draws requests. Pages that stand on their head go to the application that
// turns lines.
func (o *ocr) requests(rate float64, length time.Duration) []request {
	var list []request
	for at := time.Duration(0); at < leadIn; at += leadEvery {
		list = append(list, request{at: at})
	}
	rng := seeded.New(1, "bench-workflows/arrivals")
	for at := leadIn; ; {
		if at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)); at >= leadIn+length {
			return list
		}
		q := request{at: at, page: rng.IntN(len(o.pages)), app: rng.IntN(2)}
		if o.pages[q.page].turned {
			q.app = 0
		}
		list = append(list, q)
	}
}

// ask asks for the text of a page.
func (o *ocr) ask(ctx context.Context, x *executor.Executor, q *request, sent time.Time) {
	p, info := &o.pages[q.page], x.Models().Models()[q.app]
	resp, err := x.Infer(ctx, &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: sent,
		Inputs: []oip.Tensor{{Name: info.Inputs[0].Name, Datatype: oip.Uint8, Shape: []int64{1, pageHeight, pageWidth, 3}, Data: p.image}}})
	q.took, q.lines, q.err = time.Since(sent), len(p.lines), err
	if err != nil {
		return
	}
	defer resp.Release()
	var text []string
	for _, output := range resp.Outputs {
		switch output.Name {
		case "detect.count":
			q.found = int(binary.LittleEndian.Uint32(output.Data))
		case "read.codes":
			for codes := range slices.Chunk(output.Data, len(output.Data)/mostLines) {
				text = append(text, stepstest.Spell(o.keys, codes))
			}
		}
	}
	if passed, _ := resp.Params["passed_over"].(string); passed != "read" {
		_, items, _ := strings.Cut(fmt.Sprint(resp.Params["items"]), "=")
		_, _ = fmt.Sscan(items, &q.found) // what is no number leaves the count
	}
	for i, line := range p.lines {
		switch {
		case i >= len(text):
		case text[i] == line:
			q.exact++
		case strings.ReplaceAll(text[i], " ", "") == strings.ReplaceAll(line, " ", ""):
			q.spaces++
		}
	}
}

// sums are the results of a run behind the lead-in.
type sums struct {
	requests, failed     int
	lines, exact, spaces int
	loads                int
	latencies            []time.Duration
}

func (r *run) sums() (s sums) {
	for _, q := range r.list {
		if q.at < leadIn {
			continue
		}
		s.requests++
		if q.err != nil {
			s.failed++
			continue
		}
		s.lines, s.exact, s.spaces = s.lines+q.lines, s.exact+q.exact, s.spaces+q.spaces
		s.latencies = append(s.latencies, q.took)
	}
	for _, l := range r.service.Loads {
		s.loads += len(l)
	}
	return s
}

// meanBatch returns the mean batch of a model, whose only stage has the same number.
func (r *run) meanBatch(model int) float64 {
	batches, tasks := 0, 0
	for i, runs := range r.service.Runs[model] {
		batches, tasks = batches+len(runs), tasks+(i+1)*len(runs)
	}
	return float64(tasks) / float64(max(1, batches))
}

// choices says where requests went: as many lines were found as in the run.
type choices struct {
	list []request
	next int
	slot []int // request of the list, by slot
}

func (c *choices) BeginRequest(req, _ int32) {
	for int(req) >= len(c.slot) {
		c.slot = append(c.slot, 0)
	}
	c.slot[req] = c.next
	c.next++
}

func (c *choices) ItemCount(req, _, _, _, _ int32) int32 { return int32(c.list[c.slot[req]].found) }

func (*choices) ChooseRoute(_, _, _, _, _, _ int32) int32 { return 0 }

// ChooseNext returns the first route, which leads to the lines, or the second, which ends a request without one.
func (c *choices) ChooseNext(req, _, _, _ int32, _ []bool) int32 {
	if c.list[c.slot[req]].found > 0 {
		return 0
	}
	return 1
}

// replay plays a run again in virtual time, with its recorded times.
func (o *ocr) replay(ctx context.Context, r *run) error {
	var list []arrivals.Request
	for _, q := range r.list {
		list = append(list, arrivals.Request{ArrivedAt: q.at, Model: int32(q.app)})
	}
	s := r.service
	times := &sim.Samples{Runs: s.Runs, Starts: s.Starts, ReportDelays: s.ReportDelays, Loads: s.Loads, LoadStarts: s.LoadStarts}
	_, err := served.Replay(ctx, o.plan, list, times, func(t *policy.Tables, c *sim.Config) error {
		control, ok := policies.NewControl(t).(*flow.WorkflowControl)
		if !ok {
			return errors.New("the plan has no workflows")
		}
		control.SetChoices(&choices{list: r.list})
		c.Control, c.Ingress, c.Egress, c.Verify = control, s.Ingress, s.Egress, true
		c.OnCompleted = func(arrived, answered time.Duration) {
			if arrived >= leadIn {
				r.simulated = append(r.simulated, answered-arrived)
			}
		}
		return nil
	})
	return err
}
