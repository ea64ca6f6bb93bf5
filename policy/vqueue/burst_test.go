package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// TestBurstServesWhatComes: requests that come while a model is on its way join a queue
// with that model. None of another model goes before what it is loaded for, and has it
// leave again before it served anything.
func TestBurstServesWhatComes(t *testing.T) {
	tab := instanceTables([]int32{0}, 2, 8)
	pol, err := vqueue.New(tab, vqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 41
	p := &play{t: tab, pol: pol, outputs: slices.Repeat([]int32{50}, n), endTimes: make([]time.Duration, n)}
	for requestNumber := range int32(n) {
		model := int32(1) // of network 0, which was loaded first
		if requestNumber == 0 {
			model = 3 // of network 1
		}
		at := time.Duration(requestNumber) * 15 * time.Millisecond // within the 800 ms of a load
		p.schedule(at, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: model, Service: model, Tokens: 200, Limit: 400, ArrivedAt: at, Deadline: at + tab.Models[model].SLO}, nil)
	}
	p.run(t)
	if p.uselessLoads > 0 || p.loads != 2 || p.endTimes[0] == 0 || p.endTimes[0] > slices.Min(p.endTimes[1:]) {
		t.Errorf("%d loads, %d of them for nothing; the first request ends after %v, others after %v", p.loads, p.uselessLoads, p.endTimes[0], slices.Min(p.endTimes[1:]))
	}
}
