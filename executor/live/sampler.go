package live

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"inferplan/formats"
	"inferplan/formats/served"
)

// Times of sampling.
const (
	Interval = served.Interval  // between two samples
	span     = 10 * time.Minute // of the samples that are kept
	window   = time.Minute      // of the rates of models and the busy shares of devices
	minAge   = time.Second      // of a state before another one is taken
)

// Snapshot has the counters of a server at a moment.
type Snapshot struct {
	At                time.Time
	PlanAt, ServerAt  time.Time // when the plan, and the first plan, came into force
	Plan              any       // identifies the plan in force: counts of devices are of it alone
	Kind, Policy, SHA string
	Ready             bool
	OpenRequests      int
	Models            []served.Model // without their windows
	PromisedRPS       float64        // of all models
	Waiting, Running  int64
	Total             served.Counts // of all models, also those of earlier plans
	DropsByReason     map[string]int64
	DeviceKinds       []string
	Devices           []DeviceCount
	Part              served.Part
}

// DeviceCount is a device of the plan in force with the time in which it has run batches.
type DeviceCount struct {
	Kind, Share int32
	Up          bool
	BusyTime    time.Duration
}

// Sampler takes snapshots of a server at intervals and makes its state of them. Its methods may be called by any goroutine.
type Sampler struct {
	take   func() *Snapshot
	events *EventLog

	mu      sync.Mutex
	samples []timedSample
	recent  []*Snapshot   // those of the last window, the oldest first
	state   *served.State // the last one that was made
	page    []byte        // what render made of it; nil if it was not rendered
	data    []byte        // it as JSON; nil if nobody has asked for that
}

// timedSample is a sample with the end of its interval.
type timedSample struct {
	at     time.Time
	sample served.Sample
}

// NewSampler returns a sampler that takes snapshots by a function and shows the events of a log.
func NewSampler(take func() *Snapshot, events *EventLog) *Sampler {
	return &Sampler{take: take, events: events}
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		s.Sample()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sample takes a snapshot and adds what happened since the last one to the samples.
func (s *Sampler) Sample() {
	now := s.take()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.recent); n > 0 {
		before := s.recent[n-1]
		sample := served.Sample{Rates: now.Total.RatesSince(&before.Total, now.At.Sub(before.At)), Waiting: now.Waiting, BusyByKind: busyByKind(before, now)}
		if now.Part != nil {
			_, sample.Gauge = now.Part.Gauge()
		}
		s.samples = append(s.samples, timedSample{now.At, sample})
	}
	s.samples = slices.DeleteFunc(s.samples, func(t timedSample) bool { return now.At.Sub(t.at) >= span })
	s.recent = append(s.recent, now)
	s.recent = slices.DeleteFunc(s.recent, func(t *Snapshot) bool { return now.At.Sub(t.At) > window })
}

// State returns the state of the server. Calls within a second get the same one, so that many who look cost no more than one.
func (s *Sampler) State() *served.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentState()
}

// Page returns the state as render shows it, and renders each state once.
func (s *Sampler) Page(render func(*served.State) ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.currentState()
	if s.page == nil {
		var err error
		if s.page, err = render(state); err != nil {
			return nil, err
		}
	}
	return s.page, nil
}

// JSON returns the state as JSON, and marshals each state once.
func (s *Sampler) JSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.currentState()
	if s.data == nil {
		var err error
		if s.data, err = json.Marshal(state); err != nil {
			return nil, err
		}
	}
	return s.data, nil
}

// currentState returns the last state, or another one if it is older than minAge. The caller holds the lock.
func (s *Sampler) currentState() *served.State {
	if s.state != nil && time.Since(s.state.At) < minAge {
		return s.state
	}
	now := s.take()
	s.state, s.page, s.data = s.stateAt(now), nil, nil
	return s.state
}

// stateAt returns the state at a snapshot.
func (s *Sampler) stateAt(now *Snapshot) *served.State {
	// Before the first sample, rates are since the start.
	earliest := &Snapshot{At: now.ServerAt}
	if len(s.recent) > 0 {
		earliest = s.recent[0]
	}
	elapsed := now.At.Sub(earliest.At)
	state := &served.State{
		At: now.At, Kind: now.Kind, Policy: now.Policy, PlanSHA256: now.SHA, PlanAgeS: now.At.Sub(now.PlanAt).Seconds(), UptimeS: now.At.Sub(now.ServerAt).Seconds(),
		Ready: now.Ready, Models: []served.Model{}, Devices: []served.Device{}, Samples: []served.Sample{}, OpenRequests: now.OpenRequests, WindowS: elapsed.Seconds(), DropsByReason: now.DropsByReason, DeviceKinds: now.DeviceKinds,
		SampleInterval: Interval.Seconds(), Events: s.events.Newest(), Part: now.Part,
		Total: served.Model{PromisedRPS: now.PromisedRPS, Waiting: now.Waiting, Running: now.Running, Window: now.Total.RatesSince(&earliest.Total, elapsed), Counts: now.Total},
	}

	// Models: counts that a model had at the beginning of the window are found by its name, as another plan may have come.
	before := map[formats.ModelClass]served.Counts{}
	for i := range earliest.Models {
		before[earliest.Models[i].Key()] = earliest.Models[i].Counts
	}
	for _, m := range now.Models {
		counts := before[m.Key()]
		m.Window = m.Counts.RatesSince(&counts, elapsed)
		state.Models = append(state.Models, m)
	}

	// Devices: their counts begin with the plan, and so does their window if the plan came after the window's begin.
	if earliest.Plan != now.Plan {
		earliest = &Snapshot{At: now.PlanAt, Devices: make([]DeviceCount, len(now.Devices))}
	}
	elapsed = now.At.Sub(earliest.At)
	state.DeviceWindowS = elapsed.Seconds()
	for i := range now.Devices {
		d := &now.Devices[i]
		state.Devices = append(state.Devices, served.Device{
			Device: i, Kind: int(d.Kind), Share: int(max(d.Share, 1)), Up: d.Up,
			Busy: busyShare(d.BusyTime-earliest.Devices[i].BusyTime, elapsed),
		})
	}
	for _, t := range s.samples {
		t.sample.AgeS = now.At.Sub(t.at).Seconds()
		state.Samples = append(state.Samples, t.sample)
	}
	return state
}

// busyShare returns the share of a time in which a device was busy, from 0 to 1: the time at which a run began and ended is known
// exactly only once it has ended.
func busyShare(busy, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return min(max(busy.Seconds()/elapsed.Seconds(), 0), 1)
}

// busyByKind returns the busy share of the devices by kind between two snapshots. If another plan came between them, it counts
// from the beginning of that plan.
func busyByKind(before, now *Snapshot) []float64 {
	busy, weights := make([]float64, len(now.DeviceKinds)), make([]float64, len(now.DeviceKinds))
	begin, isSame := before.At, before.Plan == now.Plan
	if !isSame {
		begin = now.PlanAt
	}
	for i := range now.Devices {
		d := &now.Devices[i]
		earlier := time.Duration(0)
		if isSame {
			earlier = before.Devices[i].BusyTime
		}
		weight := 1 / float64(max(d.Share, 1))
		weights[d.Kind] += weight
		busy[d.Kind] += weight * busyShare(d.BusyTime-earlier, now.At.Sub(begin))
	}
	for k := range busy {
		if weights[k] > 0 {
			busy[k] /= weights[k]
		}
	}
	return busy
}
