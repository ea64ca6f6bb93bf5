package completions

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
)

// Steps of the machine's clock, years forwards and backwards, end no stream, no batch and
// nothing that is kept.
func TestClockStepsEndNothing(t *testing.T) {
	var step atomic.Int64
	wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(step.Load())) }
	fake := &fake{every: time.Millisecond}
	r := &rig{t: t, path: t.TempDir() + "/store", fake: fake, wrap: func(s durable.Store) durable.Store {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := bolt.Open(t.TempDir()+"/store", bolt.Options{Log: quiet, Now: durable.SteadyClock(wall)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
	r.up(Options{Now: durable.SteadyClock(wall)})
	t.Cleanup(r.down)
	rng := rand.New(rand.NewPCG(1, 1))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 40 {
			step.Store(int64((rng.Float64() - .5) * 10 * 365 * float64(day)))
			if err := r.front.deleteExpired(); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	lines := ""
	for i := range 5 {
		text, _ := line(i, 8)
		lines += text
	}
	var s batchState
	r.ok(&s, "POST", "/v1/batches", batchBody(r.uploaded(lines), "1h"))
	body, want := prompt("kept", 20, `,"store":true`)
	var c completion
	r.ok(&c, "POST", "/v1/completions", body)
	if *c.Choices[0].Text != want {
		t.Errorf("got %q, expected %q", *c.Choices[0].Text, want)
	}
	if done := r.over(s.ID); done.Status != batchCompleted || done.RequestCounts.Completed != 5 {
		t.Errorf("the batch: %+v", done)
	}
	<-ended
	var again completion
	r.ok(&again, "GET", "/v1/completions/"+c.ID, "")
	if *again.Choices[0].Text != want || len(r.results(r.over(s.ID).OutputFile)) != 5 {
		t.Errorf("what was kept: %+v", again)
	}
	// The test sees what it should: by the machine's clock all of this is old.
	step.Store(int64(10 * 365 * day))
	if n, err := r.store.Expire(t.Context(), wall(), r.front.opt.retention); err != nil || n == 0 {
		t.Errorf("%d results are old by the machine's clock, %v", n, err)
	}
}
