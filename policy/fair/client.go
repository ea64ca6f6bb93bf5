package fair

import (
	"math"
	"time"

	"inferplan/policy/slots"
)

// forgetAfter is the time after which a client that sends nothing is forgotten.
const stays = time.Minute

// client holds the rates and open requests of a client.
type client struct {
	number   int32         // 0 if the slot is free
	inside   int32         // admitted requests without an answer
	seen     time.Duration // when it last sent a request
	offered  []decaying    // by model: requests sent
	admitted []decaying    // by model: requests admitted
}

// decayingSum is a sum of requests that decays exponentially.
type decaying struct {
	sum float64
	at  time.Duration
}

// valueAt returns the sum at a time: about the requests of the last window.
func (r *decaying) after(now, window time.Duration) float64 {
	if r.sum == 0 || now <= r.at {
		return r.sum
	}
	return r.sum * math.Exp(-float64(now-r.at)/float64(window))
}

// addAt adds n requests at a time.
func (r *decaying) add(now, window time.Duration, n float64) {
	r.sum, r.at = r.after(now, window)+n, now
}

// clientOf returns the client with a number, which has sent a request now.
func (s *Shares) find(now time.Duration, number int32) *client {
	s.forget(now)
	at, ok := s.places[number]
	if !ok {
		at = slots.Take(&s.clients, &s.free)
		s.places[number] = at
	}
	c := &s.clients[at]
	if c.number = number; c.offered == nil {
		c.offered, c.admitted = make([]decaying, len(s.models)), make([]decaying, len(s.models))
	}
	c.seen = now
	return c
}

// forgetIdleClient checks one client, the next in turn, and forgets it if it has been idle for long.
func (s *Shares) forget(now time.Duration) {
	if len(s.clients) == 0 {
		return
	}
	s.swept = (s.swept + 1) % len(s.clients)
	c := &s.clients[s.swept]
	if c.number == 0 || c.inside > 0 || now-c.seen < stays {
		return
	}
	delete(s.places, c.number)
	c.number = 0
	clear(c.offered)
	clear(c.admitted)
	s.free = append(s.free, int32(s.swept))
}
