package underway

import (
	"testing"

	"inferplan/policy"
	"inferplan/policy/waiting"
	"inferplan/testkit/policytest"
)

// A batch needs a device until it has run there and its tensors have left it;
// slots are used again, and more are made when they run out.
func TestLifeOfABatch(t *testing.T) {
	u := New(policytest.Compile(t, policytest.Hundred().Plan()))
	var out policy.Actions
	var q waiting.Queue
	slots := u.Len()
	for i := range 2 * slots {
		q.Insert(waiting.Request{Req: i})
		out.Reset()
		out.Hops = append(out.Hops, policy.Hop{Device: 3}, policy.Hop{Stage: 1, Device: 40})
		u.Dispatch(&q, 0, 0, 1, 0, 2, &out)
		if act := out.List[0]; u.Members(act.Batch)[0].Req != i || !u.NeedsDevice(act.Batch, 3) || !u.NeedsDevice(act.Batch, 40) || u.NeedsDevice(act.Batch, 4) {
			t.Fatalf("batch %d: %+v", i, act)
		}
	}
	if u.Len() < 2*slots {
		t.Fatalf("%d slots for %d batches", u.Len(), 2*slots)
	}
	const batch = 0
	if u.RecordFinish(&policy.Event{Batch: batch, Hop: 0}) || !u.NeedsDevice(batch, 3) {
		t.Fatal("its tensors are still on the first device")
	}
	u.RecordArrival(&policy.Event{Batch: batch, Hop: 1})
	if u.NeedsDevice(batch, 3) || !u.NeedsDevice(batch, 40) {
		t.Fatal("its tensors have left the first device and wait for the second")
	}
	if !u.RecordFinish(&policy.Event{Batch: batch, Hop: 1}) || u.NeedsDevice(batch, 40) || u.BatchAt(batch).IsLive {
		t.Fatal("it has left its last hop")
	}
	if u.RecordFinish(&policy.Event{Batch: batch, Hop: 1}) {
		t.Fatal("it finished twice")
	}
}
