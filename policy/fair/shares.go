package fair

import (
	"time"

	"inferplan/policy"
)

// ClientShares decides which requests are admitted. It is a state machine like a policy: times are arguments. Calls must
// not be concurrent.
type ClientShares struct {
	models    []modelShare
	clients   []client
	slotOf    map[int32]int32 // by client number: its slot in clients
	freeSlots []int32         // slots without a client
	sweptSlot int             // slot that was checked last
}

// modelShare is the capacity of a model, and how much of it is in use.
type modelShare struct {
	slo          time.Duration
	plannedRate  float64 // requests per second that the plan carries
	capacity     float64 // requests that may be open and still be in time
	openRequests int32
	fairRate     float64       // requests per second of each client that sends more than this
	fairRateAt   time.Duration // when fairRate was computed

	health               float64       // share of rate and capacity that seems to be available
	healthSince          time.Duration // when health was last adjusted
	answers, lateAnswers int32         // since then
}

// Constants of admission. Of the requests that a plan carries within an SLO, capacityShare may be open. If more are,
// clients share sharedRatePart of its rate. The rate of a client is taken over windowSLOs SLOs, and over windowCount
// requests at least. Health is adjusted once per SLO: it falls if more than maxLateShare of the answers are late.
const (
	capacityShare  = 0.35
	sharedRatePart = 0.8
	windowSLOs     = 1
	windowCount    = 20
	maxLateShare   = 0.01
	healthDecay    = 0.8
	healthGrowth   = 1.1
	minHealth      = 0.2
	minRateHealth  = 0.6 // so that a client at half of its share loses nothing
)

// New returns the shares of a plan. For plans with instances of language models it returns nil, which admits everything:
// their requests are not refused for lack of capacity.
func New(t *policy.Tables) *ClientShares {
	if len(t.Instances) > 0 {
		return nil
	}
	s := &ClientShares{slotOf: map[int32]int32{}, models: make([]modelShare, len(t.Models))}
	total := 0.0
	for i := range t.Models {
		total += t.Models[i].RPS
	}
	for i := range s.models {
		m := &t.Models[i]

		// The capacity is at least what fills planned batches on all devices.
		inPlannedBatches := 0.0 // requests in planned batches on all devices
		for p := m.FirstPipeline; p < m.FirstPipeline+m.NumPipelines; p++ {
			pipeline := &t.Pipelines[p]
			for _, stage := range t.Stages[pipeline.FirstStage : pipeline.FirstStage+pipeline.NumStages] {
				inPlannedBatches += float64(pipeline.Batch * stage.NumDevices)
			}
		}
		if len(t.Services) != len(t.Models) && total > 0 {
			inPlannedBatches *= m.RPS / total // the models share all pipelines
		}
		s.models[i] = modelShare{slo: m.SLO, plannedRate: m.RPS, capacity: max(capacityShare*m.RPS*m.SLO.Seconds(), inPlannedBatches, 1), health: 1, fairRate: m.RPS}
	}
	return s
}

// Admit returns true if n requests of a client, which arrive together, are admitted. The number 0 stands for an unknown
// client, which is always admitted and not counted.
//
// A request is refused if other clients are present, the open requests exceed the capacity, and the client was admitted
// more than its fair rate lately.
func (s *ClientShares) Admit(now time.Duration, model, number, n int32) bool {
	if s == nil || number == 0 {
		return true
	}
	m, c := &s.models[model], s.clientOf(now, number)
	if len(s.slotOf) > 1 {
		s.updateFairRate(now, model)
	}
	window := m.window()
	c.offeredRequests[model].addAt(now, window, float64(n))
	if len(s.slotOf) > 1 && m.plannedRate > 0 && float64(m.openRequests+n) > m.health*m.capacity &&
		c.admittedRequests[model].valueAt(now, window)+float64(n) > m.fairRate*max(m.health, minRateHealth)*window.Seconds() {
		return false
	}
	c.admittedRequests[model].addAt(now, window, float64(n))
	m.openRequests += n
	c.openRequests += n
	return true
}

// window returns the time over which a client's requests are counted: some SLOs or, at low rates, as long as
// windowCount requests take at the fair rate, at most an hour and at least 1 ms.
func (m *modelShare) window() time.Duration {
	window := windowSLOs * m.slo
	if m.fairRate > 0 {
		window = max(window, time.Duration(min(windowCount/m.fairRate, 3600)*float64(time.Second)))
	}
	return max(window, time.Millisecond)
}

// updateFairRate computes the fair rate of a model anew, at most eight times per SLO: what clients that send more
// than it share equally, while the others get what they ask for (max-min fairness).
func (s *ClientShares) updateFairRate(now time.Duration, model int32) {
	m := &s.models[model]
	if now-m.fairRateAt < max(m.slo/8, time.Millisecond) {
		return
	}
	m.fairRateAt = now
	window := m.window()

	// What light clients send is theirs; heavy clients share the rest.
	capacity, heavyClients := sharedRatePart*m.plannedRate, 0
	for i := range s.clients {
		c := &s.clients[i]
		if c.id == 0 {
			continue
		}
		if clientRate := c.offeredRequests[model].valueAt(now, window) / window.Seconds(); clientRate < m.fairRate {
			capacity -= clientRate
		} else {
			heavyClients++
		}
	}
	// A level that nobody exceeds rises to all that is carried.
	m.fairRate = max(capacity, 0) / float64(max(heavyClients, 1))

	// A fair rate that no client exceeds rises to the whole shared rate.
	if equalRate := sharedRatePart * m.plannedRate / float64(max(len(s.slotOf), 1)); m.fairRate < equalRate {
		m.fairRate = equalRate
	}
}

// RecordEnd records that n admitted requests of a client have ended. isLate says that they had the whole SLO of the
// model and were not answered in time. From these follows, once per SLO, the model's health: it falls while many
// are late, and fewer requests are then admitted.
func (s *ClientShares) RecordEnd(now time.Duration, model, number, n int32, isLate bool) {
	if s == nil || number == 0 {
		return
	}
	m := &s.models[model]
	m.openRequests -= n
	if slot, ok := s.slotOf[number]; ok {
		s.clients[slot].openRequests -= n
	}
	m.answers += n
	if isLate {
		m.lateAnswers += n
	}

	// Adjust the health once per SLO.
	if now < m.healthSince+m.slo {
		return
	}
	switch {
	case len(s.slotOf) < 2:
		m.health = 1 // a client alone is never refused, so many of its requests may be late
	case float64(m.lateAnswers) > maxLateShare*float64(m.answers):
		m.health = max(m.health*healthDecay, minHealth)
	default:
		m.health = min(m.health*healthGrowth, 1)
	}
	m.healthSince, m.answers, m.lateAnswers = now, 0, 0
}
