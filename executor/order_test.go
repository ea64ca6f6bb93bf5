package executor

import (
	"context"
	"slices"
	"testing"
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy"
)

// orderWatch drops what comes and notes the kinds of events. Once it hears of a lost worker
// it asks to be woken.
type orderWatch struct {
	kinds []policy.EventKind
	wake  time.Duration
}

func (w *orderWatch) Handle(_ time.Duration, ev *policy.Event, out *policy.Actions) {
	w.kinds = append(w.kinds, ev.Kind)
	if ev.Kind == policy.Arrival {
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: ev.Req, Reason: policy.ReasonDeadline})
	}
	if ev.Kind == policy.WorkerLost {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: 7, At: w.wake})
	}
}

// A wake-up that is due comes before a request that the policy hears of later,
// as in the simulator, also where both wait for the loop.
func TestDueWakeComesBeforeArrival(t *testing.T) {
	w := &orderWatch{}
	o := replayOptions(true)
	o.NewPolicy = func(*policy.Tables, formats.PolicySpec) (policy.Policy, error) { return w, nil }
	x := open(t, onePlan(time.Millisecond, 1, 1, time.Hour), o)
	c := x.core.Load()
	answered := make(chan error, 1)
	c.Loop.CallInRound(func() { // on the loop's goroutine: what comes meanwhile waits
		w.wake = c.Loop.Now() + time.Millisecond
		c.Loop.TellPolicy(policy.Event{Kind: policy.WorkerLost})
		w.kinds = nil
		go func() {
			_, err := x.Infer(context.Background(), sample(x, 1))
			answered <- err
		}()
		time.Sleep(50 * time.Millisecond) // by then the request waits, and the wake-up is due
	})
	if got := reasonOf(<-answered); got != "deadline" {
		t.Fatalf("the request ended as %s", got)
	}
	var got []policy.EventKind
	c.Loop.CallInRound(func() { got = slices.Clone(w.kinds) })
	if want := []policy.EventKind{policy.Timer, policy.Arrival}; !slices.Equal(got, want) {
		t.Errorf("events %v, expected %v: the wake-up, then the request", got, want)
	}
}

// A worker is not taken for one that hangs because the whole machine, this
// process included, was paused.
func TestPauseIsNoHang(t *testing.T) {
	o := replayOptions(false)
	o.HangTimeout = time.Minute
	x := open(t, onePlan(200*time.Millisecond, 1, 1, time.Hour), o)
	c := x.core.Load()
	answered := make(chan error, 1)
	ask := func() {
		_, err := x.Infer(context.Background(), sample(x, 1))
		answered <- err
	}
	go ask()
	for looked := false; !looked; time.Sleep(time.Millisecond) {
		select {
		case err := <-answered: // the machine paused for longer than the run lasts
			if got := reasonOf(err); got != "served" {
				t.Fatalf("the request ended as %s", got)
			}
			go ask()
		default:
		}
		c.Loop.CallInRound(func() {
			d := workersOf(c).Devices[0]
			if len(d.InFlight) == 0 {
				return
			}
			looked = true
			const pause = time.Second
			c.TimerFired(0)
			began := d.InFlight[0].StartedAt
			time.Sleep(pause)
			c.TimerFired(0)
			if got := d.InFlight[0].StartedAt - began; got < pause-3*turn.WatchInterval {
				t.Errorf("a pause of %v makes the run %v younger", pause, got)
			}
		})
	}
	if got := reasonOf(<-answered); got != "served" {
		t.Errorf("the request ended as %s", got)
	}
}
