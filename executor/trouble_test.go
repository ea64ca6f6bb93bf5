package executor

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"inferplan/formats/seeded"
)

// Workers are killed one after the other while clients ask and go away as they
// like: everybody has one answer, all that was taken is given back, the counts
// add up, and the policy does the same when it is told the same again. What
// happens when is up to the machine; what must be so is not.
func TestKillsAndCancels(t *testing.T) {
	var log bytes.Buffer
	o := replayOptions(false)
	o.EventLog = &log
	plan := pooledPlan(time.Millisecond, 2, patient)
	x := open(t, plan, o)
	c := x.core.Load()
	var wg sync.WaitGroup
	var mu sync.Mutex
	how := map[string]int64{}
	for client := range 12 {
		wg.Go(func() {
			rng := seeded.New(1, fmt.Sprintf("client/%d", client))
			for range 20 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(20_000))*time.Microsecond, cancel)
				}
				resp, err := x.Infer(ctx, sampleOf(x, rng.IntN(2), 2))
				if err == nil {
					resp.Release()
				}
				cancel()
				mu.Lock()
				how[reasonOf(err)] += 2
				mu.Unlock()
			}
		})
	}
	rng := seeded.New(1, "kills")
	for range 6 {
		d := workersOf(c).Devices[rng.IntN(len(workersOf(c).Devices))]
		gen := int32(0)
		until(func() (up bool) {
			c.Loop.CallInRound(func() {
				if up = d.Process != nil; up {
					gen = d.Generation
					syscall.Kill(d.Process.PID(), syscall.SIGKILL)
				}
			})
			return up
		})
		until(func() (back bool) {
			c.Loop.CallInRound(func() { back = d.Process != nil && d.Generation > gen })
			return back
		})
	}
	wg.Wait()
	if how["served"]+how["cancelled"] != 12*20*2 || how["served"] == 0 {
		t.Errorf("ended as %v", how)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
	r := x.Report()
	if r.Requests != r.Completed+r.Dropped || r.Completed != how["served"] || r.DroppedByReason["cancelled"] != r.Dropped {
		t.Errorf("report %+v, clients %v", r.Counts, how)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	conforms(t, plan, &log)
}
