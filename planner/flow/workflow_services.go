package flow

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/stages"
)

// service is a model that the applications share.
type service struct {
	name      string
	profile   *formats.ProfileModel
	weights   int64         // bytes
	near, far time.Duration // to move a session's state to a device of the same machine, or of another
	on        []onKind      // by kind of devices
}

// serviceOnKind is a service on one kind of devices.
type onKind struct {
	costs   stages.Share
	working int64 // memory of the largest useful batch, in bytes, beside the weights
	load    time.Duration
	sizes   []size // rising. If there is none, the service cannot run there.
}

// usefulBatch is a batch size that a service may have on a kind of devices.
type size struct {
	batch      int
	run, worst time.Duration // mean time of this batch, and the longest of any batch up to it
}

// secondsPerTask returns the device time of a task in a full batch, in seconds.
func (s *size) each() float64 { return s.run.Seconds() / float64(s.batch) }

// minBatchGain is the least factor by which a larger batch must raise the throughput to be useful.
const useful = 1.001

// notDeployed stands for the batch of a service on a kind of devices that does not run it.
const nowhere = -1

// slowestBatch returns the longest time that a batch of the service takes on any kind, with the batches
// that were chosen. If chosen is nil, it returns the least time that a batch of one takes. index is that of
// the service.
func (s *service) slowest(chosen [][]int, at int) time.Duration {
	out, some := time.Duration(0), false
	for k := range s.on {
		on := &s.on[k]
		switch {
		case len(on.sizes) == 0 || chosen != nil && chosen[at][k] == nowhere:
		case chosen != nil:
			out = max(out, on.sizes[chosen[at][k]].worst)
		case !some || on.sizes[0].worst < out:
			out, some = on.sizes[0].worst, true
		}
	}
	return out
}

// serviceIndex returns the index of a service. If it is not there yet, it is read from the profile and
// added. docPath is the place of the module that asks for it.
func (w *workflowProblem) service(name, at string) (int, error) {
	if i := slices.IndexFunc(w.services, func(s service) bool { return s.name == name }); i >= 0 {
		return i, nil
	}
	i, err := w.in.Model(name, at)
	if err != nil {
		return 0, err
	}
	m := &w.in.Profile.Models[i]
	costs, err := stages.Costs(m, w.pools, w.in.Values.Whole("max-batch"), w.in.File("profile"), fmt.Sprintf("models[%d]", i))
	if err != nil {
		return 0, err
	}
	s := service{name: name, profile: m, on: make([]onKind, len(w.pools))}
	for k := range m.Blocks {
		s.weights += m.Blocks[k].WeightBytes
	}
	if m := m.Move; m != nil {
		s.near, s.far = m.NearUS.D(), m.FarUS.D()
	}

	// Measure it on each kind of devices. It must run on some kind.
	some := false
	for k := range w.pools {
		s.on[k].costs = costs[k][0]
		s.measure(k, &w.pools[k])
		if len(s.on[k].sizes) > 0 {
			some = true
			w.loads(&s, k)
		}
	}
	if !some && w.llms[name] != nil {
		return 0, w.in.Fail("workload", at, fmt.Sprintf("%q, whose longest sequence has no room in KV memory beside the weights on %s", name, kindsOf(w.pools)), "devices with more memory", "a lower max of prompt and output makes sequences shorter")
	}
	if !some {
		return 0, w.in.Fail("workload", at, fmt.Sprintf("%q, which was measured with no batch that fits on %s", name, kindsOf(w.pools)), "a model that was measured there", "")
	}
	for k := range w.apps {
		w.apps[k].tasks, w.apps[k].work = append(w.apps[k].tasks, 0), append(w.apps[k].work, 0)
	}
	w.services = append(w.services, s)
	return len(w.services) - 1, nil
}

// listBatches lists the useful batches on kind k: sizes up to the one where the throughput stops rising or
// the memory is full.
func (s *service) measure(k int, pool *formats.Pool) {
	on, worst, best := &s.on[k], time.Duration(0), 0.0
	for _, b := range on.costs.Sizes() {
		e := on.costs.Expect(b)
		worst = max(worst, stages.Infer(&on.costs, b, 0, len(s.profile.Blocks)))
		run := e.Mean(0, len(s.profile.Blocks))
		rate := float64(b) / run.Seconds()
		working := max(0, on.costs.At(b).Memory-s.weights)
		if pool.Memory > 0 && s.weights+working > int64(pool.Memory) || rate < best*useful {
			return
		}
		best, on.working = rate, max(on.working, working)
		on.sizes = append(on.sizes, size{batch: b, run: run, worst: worst})
	}
}

// Assumed times of loads from the host's memory if none was measured: a fixed part, and bytes per second.
const (
	loadFixed = 100 * time.Millisecond
	loadRate  = 12e9
)

// setLoadTime sets how long it takes to load a service onto a device of kind k.
func (w *workflowProblem) loads(s *service, k int) {
	on, device := &s.on[k], w.pools[k].Device
	for _, l := range s.profile.Loads {
		if l.Device == device {
			if on.load = l.WarmUS.D(); on.load == 0 {
				on.load = l.ColdUS.D()
			}
		}
	}
	if on.load == 0 && s.weights > 0 {
		on.load = loadFixed + time.Duration(float64(s.weights)/loadRate*1e9).Round(time.Microsecond)
		w.run.Assume("load of %s: %s, at 12 GB/s and 100ms: the profile has no time of a load on %s", s.name, document.Duration(on.load), device)
	}
}
