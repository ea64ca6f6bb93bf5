package executor

import (
	"time"

	"inferplan/executor/live"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/served"
	"inferplan/policy"
)

// snapshot returns the counters of the server, for its page. Any goroutine may call it: what belongs to the core's turn is read
// in a round.
func (x *Executor) snapshot() *live.Snapshot {
	c := x.core.Load()
	t := c.Tables
	s := &live.Snapshot{Plan: c, Kind: c.Plan.Kind, Policy: c.Spec.Name, SHA: c.PlanSHA, Ready: x.Ready(), PlanAt: c.Loop.Epoch(), DeviceKinds: t.KindLabels(), Devices: make([]live.DeviceCount, len(t.Devices))}
	c.Loop.ReadInRound(func() {
		s.At, s.OpenRequests, s.Part = time.Now(), c.Ledger.Pending(), c.Answerer.Part()
		for i := range t.Devices {
			backend := c.Backends.BackendOf(int32(i))
			s.Devices[i] = live.DeviceCount{Kind: t.Devices[i].Kind, Share: t.Devices[i].Share, Up: backend.IsUp(int32(i)), BusyTime: backend.BusyTime(int32(i))}
		}
	})
	counts, total, startedAt := x.history.requestCounts()
	s.ServerAt, s.Total, s.DropsByReason = startedAt, servedCounts(&total), map[string]int64{}
	for reason, n := range total.dropped {
		if n > 0 {
			s.DropsByReason[policy.DropReason(reason).String()] = n
		}
	}
	for i, m := range c.ServedModels.Models {
		model := &t.Models[i]
		key := formats.ModelClass{Model: m.Name, Class: m.Class}
		s.Models = append(s.Models, served.Model{Model: m.Name, Class: m.Class, PromisedRPS: model.RPS, SLOUS: document.Micros(m.Slo), PromisedAttainment: model.Percentile,
			Waiting: m.Waiting.Load(), Running: m.Running.Load(), Counts: servedCounts(counts[key])})
		s.PromisedRPS += model.RPS
		s.Waiting += m.Waiting.Load()
		s.Running += m.Running.Load()
	}
	return s
}

// servedCounts returns counts of requests in the form of a server's state. Without counts it returns zeros.
func servedCounts(c *requestCounts) served.Counts {
	if c == nil {
		return served.Counts{}
	}
	return served.Counts{Requests: c.requests, Completed: c.completed, Late: c.late, Dropped: sumOf(c.dropped)}
}

// requestCounts returns the counts of requests of all plans so far, by model and in total, and when the first plan came into
// force. Unlike report it copies no latencies, because it is called every few seconds.
func (h *planHistory) requestCounts() (byModel map[formats.ModelClass]*requestCounts, total requestCounts, startedAt time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	byModel = map[formats.ModelClass]*requestCounts{}
	total = newCounts()
	add := func(key formats.ModelClass, counts *requestCounts) {
		if byModel[key] == nil {
			sum := newCounts()
			byModel[key] = &sum
		}
		byModel[key].add(counts)
		total.add(counts)
	}
	for i := range h.tallies {
		add(h.tallies[i].key, &h.tallies[i].requestCounts)
	}
	for _, c := range append([]*turn.Core{h.current}, h.retiring...) {
		for _, m := range c.ServedModels.Models {
			m.Stats.Mu.Lock()
			add(formats.ModelClass{Model: m.Name, Class: m.Class}, &requestCounts{m.Stats.Requests, m.Stats.Completed, m.Stats.Late, m.Stats.Dropped})
			m.Stats.Mu.Unlock()
		}
	}
	return byModel, total, h.startedAt
}

// newCounts returns counts of no requests.
func newCounts() requestCounts {
	return requestCounts{dropped: make([]int64, len(policy.DropReasons())+1)}
}
