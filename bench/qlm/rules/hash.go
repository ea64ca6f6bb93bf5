package rules

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// sessionHash binds every session to an instance by a hash, as load balancers with affinity do, and serves the waiting requests of an
// instance first come, first served. Requests without a session go to the instance with the fewest requests. With a bound on
// the load, a session also goes there if its own instance has more than that many times the mean (Mirrokni et al., "Consistent
// Hashing with Bounded Loads", SODA 2018).
type sessionHash struct {
	*vqueue.InstanceControl
	waitingRequests [][]int32 // by instance, in the order of arrival
	open            []int     // by instance: requests that wait or run
	owner           []int32   // by request: its instance
	bound           float64   // of the load, times the mean; 0 for none
}

// SessionHash makes the rule that binds sessions to instances by a hash.
func SessionHash(s *vqueue.InstanceControl) vqueue.Dispatcher { return newSessionHash(s, 0) }

// BoundedSessionHash makes the same rule with a bound of 1.25 times the mean load, as HAProxy and Envoy document it.
func BoundedSessionHash(s *vqueue.InstanceControl) vqueue.Dispatcher { return newSessionHash(s, 1.25) }

func newSessionHash(s *vqueue.InstanceControl, bound float64) *sessionHash {
	return &sessionHash{InstanceControl: s, waitingRequests: make([][]int32, s.Len()), open: make([]int, s.Len()), bound: bound}
}

// AddWaiting binds a request to an instance.
func (h *sessionHash) AddWaiting(req int32) {
	for int(req) >= len(h.owner) {
		h.owner = append(h.owner, -1)
	}
	if q := h.owner[req]; q >= 0 { // its instance is lost, or has returned it
		h.open[q]--
	}
	q := h.choose(req)
	h.owner[req] = q
	h.waitingRequests[q] = append(h.waitingRequests[q], req)
	h.open[q]++
}

// choose is the instance for a request: among those that serve its model, and are up if one is.
func (h *sessionHash) choose(req int32) int32 {
	r := h.Request(req)
	total, serving, least, hashed, weight := 0, 0, int32(-1), int32(0), uint64(0)
	for q := range h.Len() {
		if in := h.Instance(q); !h.ServesModel(in, r.Model) || !in.IsUp() {
			continue
		}
		total, serving = total+h.open[q], serving+1
		if least < 0 || h.open[q] < h.open[least] {
			least = q
		}
		// The highest of pseudo-random weights wins (rendezvous hashing).
		if w := mix(mix(uint64(r.Session)) + uint64(q)); w >= weight {
			hashed, weight = q, w
		}
	}
	switch {
	case least < 0:
		return 0
	case r.Session == 0, h.bound > 0 && float64(h.open[hashed]+1) > math.Ceil(h.bound*float64(total+1)/float64(serving)):
		return least
	}
	return hashed
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// RemoveWaiting forgets a request that waits.
func (h *sessionHash) RemoveWaiting(req int32) {
	if int(req) >= len(h.owner) || h.owner[req] < 0 {
		return
	}
	q := h.owner[req]
	for i, other := range h.waitingRequests[q] {
		if other == req {
			h.waitingRequests[q] = append(h.waitingRequests[q][:i], h.waitingRequests[q][i+1:]...)
			h.open[q]--
			h.owner[req] = -1
			return
		}
	}
}

// AssignRequests has every instance take its waiting requests while it has room.
func (h *sessionHash) AssignRequests(now time.Duration, out *policy.Actions) {
	t := h.Tables()
	for q := range h.Len() {
		for len(h.waitingRequests[q]) > 0 {
			in, req := h.Instance(q), h.waitingRequests[q][0]
			if !in.IsUp() || in.LoadingNetwork >= 0 || in.LoadFailed {
				break
			}
			if network := t.Pipelines[t.Models[h.Request(req).Model].FirstPipeline].Network; in.LoadedNetwork != network {
				if len(in.RunningBatches) == 0 {
					h.ChangeNetwork(now, in, network, out)
				}
				break
			}
			if !h.CanTakeRequest(in, h.Request(req)) {
				break
			}
			h.waitingRequests[q] = h.waitingRequests[q][1:]
			h.DispatchRequest(in, req, out)
		}
	}
}

// RequestEnded hears of an answer.
func (h *sessionHash) RequestEnded(_ time.Duration, req int32) {
	if q := h.owner[req]; q >= 0 {
		h.open[q]--
		h.owner[req] = -1
	}
}

// Tick does nothing.
func (h *sessionHash) Tick(time.Duration) {}

// ViolationExpected reports whether a request waits that is late by now.
func (h *sessionHash) ViolationExpected(now time.Duration) bool {
	for q := range h.waitingRequests {
		for _, req := range h.waitingRequests[q] {
			if h.Request(req).Deadline < now {
				return true
			}
		}
	}
	return false
}

// StuckRequest returns a request past its deadline whose instance is not up, or -1.
func (h *sessionHash) StuckRequest(now time.Duration) int32 {
	for q := range h.waitingRequests {
		if h.Instance(int32(q)).IsUp() {
			continue
		}
		for _, req := range h.waitingRequests[q] {
			if r := h.Request(req); r.Deadline <= now && !r.AnswerPromised {
				return req
			}
		}
	}
	return -1
}
