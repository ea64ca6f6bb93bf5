package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"inferplan/formats"
)

// answer is how an open-loop request ended.
type answer struct {
	due, done time.Duration // since the start of the load
	how       string
}

// openLoop sends requests at their times whatever became of earlier ones, and
// tells what became of each.
func openLoop(x *Executor, model int, rate float64, d time.Duration) []answer {
	n := int(rate * d.Seconds())
	out := make([]answer, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		due := time.Duration(float64(i) / rate * float64(time.Second))
		time.Sleep(time.Until(start.Add(due)))
		wg.Go(func() {
			req := sampleOf(x, model, 1)
			req.Received = start.Add(due)
			resp, err := x.Infer(context.Background(), req)
			if err == nil {
				resp.Release()
			}
			out[i] = answer{due, time.Since(start), reasonOf(err)}
		})
	}
	wg.Wait()
	return out
}

// silence is the longest time without a served answer between two moments.
func silence(all []answer, from, to time.Duration) time.Duration {
	var done []time.Duration
	for _, a := range all {
		if a.how == "served" && a.done >= from && a.done <= to {
			done = append(done, a.done)
		}
	}
	done = append(done, from, to)
	slices.Sort(done)
	var most time.Duration
	for i := 1; i < len(done); i++ {
		most = max(most, done[i]-done[i-1])
	}
	return most
}

// The plan changes from two stages on two kinds of devices to one stage and
// back, several times, under open-loop load: nothing is lost, nobody is
// refused, and answers never stop for longer than one SLO.
func TestSwitchUnderOpenLoopLoad(t *testing.T) {
	const slo, rate, length = 400 * time.Millisecond, 150, 4 * time.Second
	pooled, single := pooledPlan(3*time.Millisecond, 2, slo), onePlan(6*time.Millisecond, 4, 3, slo)
	x := open(t, pooled, replayOptions(false))
	var all []answer
	done := make(chan struct{})
	start := time.Now()
	go func() {
		all = openLoop(x, 0, rate, length)
		close(done)
	}()
	type window struct{ from, to time.Duration }
	var windows []window
	for _, next := range []*formats.Plan{single, pooled, single} {
		time.Sleep(300 * time.Millisecond)
		from := time.Since(start)
		if err := x.Reload(context.Background(), next, ""); err != nil {
			t.Fatal(err)
		}
		windows = append(windows, window{from, min(time.Since(start), length)})
	}
	<-done
	ended := map[string]int{}
	late := 0
	for _, a := range all {
		ended[a.how]++
		if a.how == "served" && a.done-a.due > slo {
			late++
		}
	}
	if ended["served"] != len(all) {
		t.Errorf("%d requests ended as %v", len(all), ended)
	}
	var worst time.Duration
	for _, w := range windows {
		if w.to > w.from {
			worst = max(worst, silence(all, w.from, w.to))
		}
	}
	t.Logf("%d requests over 3 switches: %v, %d late; longest time without an answer %v; SLO %v; last switch %s", len(all), ended, late, worst, slo, phases(t, x))
	if worst > slo {
		t.Errorf("no answer for %v during a switch, want at most one SLO, %v", worst, slo)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

func phases(t *testing.T, x *Executor) string {
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for _, f := range families {
		if f.GetName() == prefix+"plan_switch_seconds" {
			for _, m := range f.Metric {
				out += fmt.Sprintf("%s %.3f s ", m.Label[0].GetValue(), m.Gauge.GetValue())
			}
		}
	}
	return out
}
