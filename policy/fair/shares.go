package fair

import (
	"time"

	"inferplan/policy"
)

// ClientShares decides which requests are admitted. It is a state machine like a policy: times are arguments. Calls must
// not be concurrent.
type ClientShares struct {
	models      []modelShare
	clients     []client
	slotOf      map[int32]int32 // by client number: its slot in clients
	freeSlots   []int32         // slots without a client
	lastChecked int             // slot that forgetIdleClient checked last
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

// Constants of admission. Health is adjusted once per SLO.
const (
	capacityShare  = 0.35 // share of the requests that a plan carries within an SLO that may be open before clients are limited
	sharedRatePart = 0.8  // part of the planned rate that clients then share
	windowSLOs     = 1    // window over which a client's rate is taken, in SLOs
	windowCount    = 20   // least window, in requests at the fair rate
	maxLateShare   = 0.01 // share of late answers above which health falls
	healthDecay    = 0.8  // factor on health if it falls
	healthGrowth   = 1.1  // factor on health if it recovers
	minHealth      = 0.2  // least health
	minRateHealth  = 0.6  // least health by which the fair rate is scaled, so that a client at half of its share loses nothing
)

// New returns the shares of a plan. For plans with instances of language models it returns nil, which admits
// everything: their requests are not refused for lack of capacity. Every model begins in full health (1), with all of
// its planned rate available.
func New(tables *policy.Tables) *ClientShares {
	if len(tables.Instances) > 0 {
		return nil
	}
	shares := &ClientShares{slotOf: map[int32]int32{}, models: make([]modelShare, len(tables.Models))}
	total := 0.0
	for i := range tables.Models {
		total += tables.Models[i].RPS
	}
	for i := range shares.models {
		model := &tables.Models[i]

		// The capacity is a number of requests that may be open: a share of those that come within an SLO, but at least as
		// many as fill planned batches on all devices. All stages of a pipeline work at the same time, on different batches.
		plannedRequests := 0.0 // requests in planned batches on all devices
		for pipelineIndex := model.FirstPipeline; pipelineIndex < model.FirstPipeline+model.NumPipelines; pipelineIndex++ {
			pipeline := &tables.Pipelines[pipelineIndex]
			for _, stage := range tables.Stages[pipeline.FirstStage : pipeline.FirstStage+pipeline.NumStages] {
				plannedRequests += float64(pipeline.Batch * stage.NumDevices)
			}
		}

		// In plans of applications a model is an application, not a service, and every one has all pipelines. Divide them by
		// the planned rates.
		sharesPipelines := len(tables.Services) != len(tables.Models)
		if sharesPipelines && total > 0 {
			plannedRequests *= model.RPS / total
		}
		shares.models[i] = modelShare{slo: model.SLO, plannedRate: model.RPS, capacity: max(capacityShare*model.RPS*model.SLO.Seconds(), plannedRequests, 1), health: 1, fairRate: model.RPS}
	}
	return shares
}

// Admit reports whether `count` requests of a client to a model, which arrive together, are admitted. number is that of
// the client (policy.ClientNumber); 0 stands for an unknown client, who is always admitted and not counted.
//
// A request is refused if the plan gives the model a rate, other clients are present, more requests are open than the
// model has capacity for, and the client was admitted more than its fair rate over the last window (share.window). The
// health of the model, the part of the planned rate that seems to be available, scales the capacity and the fair rate;
// the latter not below minRateHealth. Refused requests count as offered, because the fair rate depends on what clients
// ask for.
func (s *ClientShares) Admit(now time.Duration, model, number, count int32) bool {
	if s == nil || number == 0 {
		return true
	}
	share, client := &s.models[model], s.clientOf(now, number)
	if len(s.slotOf) > 1 {
		s.updateFairRate(now, model)
	}

	// Count the requests as sent, and refuse them if the model is full and the client has had its share.
	window := share.window()
	client.offeredRequests[model].addAt(now, window, float64(count))
	if len(s.slotOf) > 1 && share.plannedRate > 0 && float64(share.openRequests+count) > share.health*share.capacity {
		fairRequests := share.fairRate * max(share.health, minRateHealth) * window.Seconds()
		if client.admittedRequests[model].valueAt(now, window)+float64(count) > fairRequests {
			return false
		}
	}
	client.admittedRequests[model].addAt(now, window, float64(count))

	// Count them as admitted and open.
	share.openRequests += count
	client.openRequests += count
	return true
}

// window returns the time over which a client's requests to a model are counted: some SLOs or, at low rates, as long
// as windowCount requests take at the fair rate, at most an hour and at least 1 ms.
func (m *modelShare) window() time.Duration {
	window := windowSLOs * m.slo
	if m.fairRate > 0 {
		window = max(window, time.Duration(min(windowCount/m.fairRate, 3600)*float64(time.Second)))
	}
	return max(window, time.Millisecond)
}

// updateFairRate computes the fair rate of a model anew, at most eight times per SLO. Light clients, which send less than
// the fair rate so far, get all that they ask for. The heavy clients share the rest equally, and their part is the new
// fair rate (max-min fairness).
func (s *ClientShares) updateFairRate(now time.Duration, model int32) {
	share := &s.models[model]
	if now-share.fairRateAt < max(share.slo/8, time.Millisecond) {
		return
	}
	share.fairRateAt = now
	window := share.window()

	// What light clients send is theirs; heavy clients share the rest.
	remainingRate, heavyClients := sharedRatePart*share.plannedRate, 0
	for i := range s.clients {
		client := &s.clients[i]
		if client.id == 0 {
			continue
		}
		if clientRate := client.offeredRequests[model].valueAt(now, window) / window.Seconds(); clientRate < share.fairRate {
			remainingRate -= clientRate
		} else {
			heavyClients++
		}
	}

	// The heavy clients share equally. If no client is heavy, the fair rate is all that the light ones leave.
	share.fairRate = max(remainingRate, 0) / float64(max(heavyClients, 1))

	// The fair rate is at least an equal part of the shared rate for each client.
	if equalRate := sharedRatePart * share.plannedRate / float64(max(len(s.slotOf), 1)); share.fairRate < equalRate {
		share.fairRate = equalRate
	}
}

// RecordEnd records that `count` admitted requests of a client (its number) to a model have ended. isLate says that
// they had the whole SLO of the model and were not answered in time. From these follows, once per SLO, the model's
// health: it falls while many are late, and fewer requests are then admitted.
func (s *ClientShares) RecordEnd(now time.Duration, model, number, count int32, isLate bool) {
	if s == nil || number == 0 {
		return
	}
	share := &s.models[model]
	share.openRequests -= count
	if slot, ok := s.slotOf[number]; ok {
		s.clients[slot].openRequests -= count
	}
	share.answers += count
	if isLate {
		share.lateAnswers += count
	}

	// Adjust the health once per SLO.
	if now < share.healthSince+share.slo {
		return
	}
	switch {
	case len(s.slotOf) < 2:
		share.health = 1 // a client alone is never refused, so many of its requests may be late
	case float64(share.lateAnswers) > maxLateShare*float64(share.answers):
		share.health = max(share.health*healthDecay, minHealth)
	default:
		share.health = min(share.health*healthGrowth, 1)
	}
	share.healthSince, share.answers, share.lateAnswers = now, 0, 0
}
