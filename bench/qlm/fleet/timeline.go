package fleet

import (
	"context"
	"time"

	"inferplan/policy"
)

// Stretch is a time in which an instance ran requests of a model, or loaded it.
type Stretch struct {
	Device, Network int32
	From, To        time.Duration
	Loading         bool `json:",omitempty"`
}

// watched is a policy whose instances are watched.
type watched struct {
	policy.Policy
	t       *policy.Tables
	open    []Stretch // by instance: what runs
	running []int     // by instance: requests
	out     []Stretch
}

// Unwrap implements policy.Wrapper.
func (w *watched) Unwrap() policy.Policy { return w.Policy }

// Handle implements policy.Policy.
func (w *watched) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.BatchFinished, policy.BatchReturned:
		if w.running[ev.Device]--; w.running[ev.Device] == 0 {
			w.close(ev.Device, now)
		}
	case policy.NetworkLoaded:
		w.out = append(w.out, Stretch{Device: ev.Device, Network: ev.Network, From: ev.Start, To: ev.End, Loading: true})
	}
	before := len(out.List)
	w.Policy.Handle(now, ev, out)
	for i := before; i < len(out.List); i++ {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		d, network := out.Hops[a.HopFirst].Device, w.t.Pipelines[a.Pipeline].Network
		if w.running[d] > 0 && w.open[d].Network != network {
			w.close(d, now)
		}
		if w.running[d] == 0 || w.open[d].Network != network {
			w.open[d] = Stretch{Device: d, Network: network, From: now}
		}
		w.running[d]++
	}
}

func (w *watched) close(device int32, now time.Duration) {
	w.open[device].To = now
	w.out = append(w.out, w.open[device])
}

// Timeline returns the stretches of the instances of a case, in order of end.
func (d *Data) Timeline(ctx context.Context, c *Case) ([]Stretch, error) {
	w := &watched{open: make([]Stretch, c.Instances), running: make([]int, c.Instances)}
	_, err := d.measure(ctx, c, func(p policy.Policy, t *policy.Tables) policy.Policy {
		w.Policy, w.t = p, t
		return w
	})
	return w.out, err
}
