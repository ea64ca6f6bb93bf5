package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/executor"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// dropped notes, of every refused request, whether its task ran. Requests are told
// apart by their budgets.
type dropped struct {
	policy.Policy
	mu     sync.Mutex
	budget []time.Duration // by request slot
	runs   []bool          // likewise
	of     map[int32]int32 // requests of tasks
	ran    map[time.Duration]bool
}

// Unwrap implements policy.Wrapper.
func (d *dropped) Unwrap() policy.Policy { return d.Policy }

// Handle implements policy.Policy.
func (d *dropped) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		d.of[ev.Task] = ev.Req
	case policy.Arrival:
		for int(ev.Req) >= len(d.budget) {
			d.budget, d.runs = append(d.budget, 0), append(d.runs, false)
		}
		d.budget[ev.Req], d.runs[ev.Req] = ev.Deadline-ev.ArrivedAt, false
	}
	d.Policy.Handle(now, ev, out)
	for i := range out.List {
		switch a := &out.List[i]; a.Kind {
		case policy.Dispatch:
			tasks, _ := out.BatchOf(a)
			for _, t := range tasks {
				d.runs[d.of[t]] = true
			}
		case policy.Drop:
			d.mu.Lock()
			d.ran[d.budget[a.Req]] = d.runs[a.Req]
			d.mu.Unlock()
		}
	}
}

// measureHopeless measures how soon requests without hope are refused.
func (b *bench) measureHopeless(r *instrument.Run, _ *instrument.Table) error {
	late, err := refusalDelays(r.Ctx, b.length)
	if err != nil {
		return err
	}
	if len(late) == 0 {
		return errors.New("no request was refused")
	}
	slices.Sort(late)
	p99 := late[min(len(late)-1, len(late)*99/100)]
	r.AtMost("from hopeless to refused while batches of 100 ms run, p99", b.machineSource("batches of 100 ms, replayed,"), 5, "ms", float64(p99)/1e6)
	return nil
}

// refusalDelays returns how long refusals come after requests have become hopeless, while batches of 100 ms run on a worker that has three times what it can do.
// Nothing is refused earlier, by an estimate.
func refusalDelays(ctx context.Context, length time.Duration) ([]time.Duration, error) {
	const run, slo = 100 * time.Millisecond, 350 * time.Millisecond
	seen := &dropped{of: map[int32]int32{}, ran: map[time.Duration]bool{}}
	p := &pipeline{name: "slow", slo: slo, stages: []stage{{name: "m1", batch: 2, ms: []float64{100, 100}}}}
	x, err := executor.New(ctx, p.deploy(formats.PolicySpec{Name: "naive", Params: map[string]float64{"prompt": 1}}, nil, []int{1}, 0), executor.Options{CoreOptions: executor.CoreOptions{
		Engine: "replay", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		NewPolicy: func(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) {
			pol, err := policies.New(spec, t)
			seen.Policy = pol
			return seen, err
		},
	}})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	info := x.Models().Models()[0]
	in := info.Inputs[0]
	budget := func(i int) time.Duration { return slo - time.Duration(i)*time.Microsecond }
	var mu sync.Mutex
	took := map[time.Duration]time.Duration{} // by budget
	_, err = served.Pace(ctx, drawArrivals(60, length, 1), func(i int, sent time.Time) {
		resp, err := x.Infer(ctx, &oip.Request{Model: info.Name, Info: info, Batch: 1, Timeout: budget(i), Received: sent,
			Inputs: []oip.Tensor{{Name: in.Name, Datatype: in.Datatype, Shape: []int64{1, 1}, Data: make([]byte, in.Datatype.Size())}}})
		after := time.Since(sent)
		if err == nil {
			resp.Release()
		}
		if refused, ok := errors.AsType[*oip.Error](err); ok && refused.Reason == policy.ReasonDeadline.String() {
			mu.Lock()
			defer mu.Unlock()
			took[budget(i)] = after
		}
	})
	if err != nil {
		return nil, err
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var late []time.Duration
	for budget, after := range took {
		if seen.ran[budget] {
			late = append(late, after-budget) // nothing is behind its module
		} else {
			late = append(late, after-(budget-run))
		}
	}
	return late, nil
}
