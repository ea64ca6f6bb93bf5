package fair

import (
	"math"
	"time"

	"inferplan/policy/slots"
)

// forgetAfter is the time after which a client that sends nothing is forgotten.
const forgetAfter = time.Minute

// client holds the rates and open requests of a client, who is known by a number.
type client struct {
	id               int32         // 0 if the slot is free
	openRequests     int32         // admitted requests without an answer
	lastSeenAt       time.Duration // when it last sent a request
	offeredRequests  []decayingSum // by model: requests sent
	admittedRequests []decayingSum // by model: requests admitted
}

// decayingSum is a sum of requests that decays exponentially.
type decayingSum struct {
	sum       float64
	updatedAt time.Duration
}

// valueAt returns the value of a sum that decays exponentially over the window, at the time now: about the requests
// of the last window.
func (sum *decayingSum) valueAt(now, window time.Duration) float64 {
	if sum.sum == 0 || now <= sum.updatedAt {
		return sum.sum
	}
	return sum.sum * math.Exp(-float64(now-sum.updatedAt)/float64(window))
}

// addAt adds a count of requests to a sum that decays exponentially over the window, at the time now.
func (sum *decayingSum) addAt(now, window time.Duration, count float64) {
	sum.sum, sum.updatedAt = sum.valueAt(now, window)+count, now
}

// clientOf returns the entry of the client with a number, which has sent a request now, and makes one if it is new.
// Each call also checks one idle client, so that entries do not pile up.
func (s *ClientShares) clientOf(now time.Duration, number int32) *client {
	s.forgetIdleClient(now)
	slot, ok := s.slotOf[number]
	if !ok {
		slot = slots.Take(&s.clients, &s.freeSlots)
		s.slotOf[number] = slot
	}
	entry := &s.clients[slot]
	entry.id = number
	if entry.offeredRequests == nil { // a slot that is used for the first time
		entry.offeredRequests, entry.admittedRequests = make([]decayingSum, len(s.models)), make([]decayingSum, len(s.models))
	}
	entry.lastSeenAt = now
	return entry
}

// forgetIdleClient checks one client, the next in turn, and forgets it if it has no open request and has sent none
// for forgetAfter. One per call keeps each call short.
func (s *ClientShares) forgetIdleClient(now time.Duration) {
	if len(s.clients) == 0 {
		return
	}
	s.lastChecked = (s.lastChecked + 1) % len(s.clients)
	entry := &s.clients[s.lastChecked]
	if entry.id == 0 || entry.openRequests > 0 || now-entry.lastSeenAt < forgetAfter {
		return
	}
	delete(s.slotOf, entry.id)
	entry.id = 0
	clear(entry.offeredRequests)
	clear(entry.admittedRequests)
	s.freeSlots = append(s.freeSlots, int32(s.lastChecked))
}
