package fair

import (
	"math"
	"time"

	"inferplan/policy/slots"
)

// stays is how long a client is remembered that sends nothing.
const stays = time.Minute

// client is what is known of a client.
type client struct {
	number   int32
	inside   int32         // requests without an answer
	seen     time.Duration // when it sent last
	offered  []decaying    // by model
	admitted []decaying    // by model: what was let in
}

// decaying is a sum of requests that forgets.
type decaying struct {
	sum float64
	at  time.Duration
}

// after is the sum at a later time, of what was sent over about the window.
func (r *decaying) after(now, window time.Duration) float64 {
	if r.sum == 0 || now <= r.at {
		return r.sum
	}
	return r.sum * math.Exp(-float64(now-r.at)/float64(window))
}

func (r *decaying) add(now, window time.Duration, n float64) {
	r.sum, r.at = r.after(now, window)+n, now
}

// find is the client of a number, which has sent now.
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

// forget looks at one client, and forgets it where it is gone.
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
