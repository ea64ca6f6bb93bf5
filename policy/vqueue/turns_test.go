package vqueue_test

import (
	"fmt"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// TestClientsTakeTurns: a short request of one client behind 2,000 long ones of another
// waits until one of these ends, on one instance and on two. Without clients it waits
// for many.
func TestClientsTakeTurns(t *testing.T) {
	const long = 2000
	for _, instances := range []int{1, 2} {
		for _, clients := range [][2]int32{{1, 2}, {0, 0}} {
			t.Run(fmt.Sprint(instances, clients), func(t *testing.T) {
				tab := instanceTables(make([]int32, instances), 1, 8)
				pol, err := vqueue.New(tab, vqueue.Options{})
				if err != nil {
					t.Fatal(err)
				}
				p := &play{t: tab, pol: pol, endTimes: make([]time.Duration, long+1)}
				for requestNumber := range int32(long + 1) {
					at, output, client := time.Duration(0), int32(400), clients[0]
					if requestNumber == long {
						at, output, client = time.Second, 3, clients[1]
					}
					p.outputs = append(p.outputs, output)
					p.schedule(at, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Client: client, Tokens: 20, Limit: output, ArrivedAt: at, Deadline: at + time.Minute}, nil)
				}
				p.run(t)
				var first time.Duration // end of the first long one
				for _, end := range p.endTimes[:long] {
					if end == 0 {
						t.Fatal("a request has no answer")
					}
					if first == 0 || end < first {
						first = end
					}
				}
				waited := p.endTimes[long] - time.Second
				t.Logf("the short one is answered after %v, a long one takes %v", waited, first)
				if byTurns := waited < 2*first; byTurns != (clients[0] > 0) {
					t.Errorf("the short one is answered after %v, a long one takes %v", waited, first)
				}
			})
		}
	}
}
