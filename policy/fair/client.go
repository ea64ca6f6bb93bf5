package fair

import (
	"math"
	"time"

	"inferplan/policy/slots"
)

// forgetAfter is the time after which a client that sends nothing is forgotten.
const forgetAfter = time.Minute

// client holds the rates and open requests of a client.
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

// valueAt returns the value of a sum that decays exponentially over the window, at a time: about the requests of
// the last window.
func (r *decayingSum) valueAt(now, window time.Duration) float64 {
	if r.sum == 0 || now <= r.updatedAt {
		return r.sum
	}
	return r.sum * math.Exp(-float64(now-r.updatedAt)/float64(window))
}

// addAt adds n requests at a time.
func (r *decayingSum) addAt(now, window time.Duration, n float64) {
	r.sum, r.updatedAt = r.valueAt(now, window)+n, now
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
	c := &s.clients[slot]
	if c.id = number; c.offeredRequests == nil {
		c.offeredRequests, c.admittedRequests = make([]decayingSum, len(s.models)), make([]decayingSum, len(s.models))
	}
	c.lastSeenAt = now
	return c
}

// forgetIdleClient checks one client, the next in turn, and forgets it if it has no open request and has sent none
// for forgetAfter. One per call keeps each call short.
func (s *ClientShares) forgetIdleClient(now time.Duration) {
	if len(s.clients) == 0 {
		return
	}
	s.sweptSlot = (s.sweptSlot + 1) % len(s.clients)
	c := &s.clients[s.sweptSlot]
	if c.id == 0 || c.openRequests > 0 || now-c.lastSeenAt < forgetAfter {
		return
	}
	delete(s.slotOf, c.id)
	c.id = 0
	clear(c.offeredRequests)
	clear(c.admittedRequests)
	s.freeSlots = append(s.freeSlots, int32(s.sweptSlot))
}
