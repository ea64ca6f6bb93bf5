package arrivals

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/formats"
)

// WithSessions turns a source's requests into requests of sessions. A request continues a waiting session, unless
// there is none or a draw decides to begin a new one, so that sessions have a mean of spec.Turns requests. Its
// prompt is that of the source's request, behind the share spec.Repeats of all earlier tokens of the session. A
// session waits from spec.Think (exponential) after its last arrival on, because the time of the answer is not
// known here. Sessions are numbered from firstID + 1.
func WithSessions(s Source, rng *rand.Rand, spec *formats.Sessions, firstID int64) Source {
	w := &sessionSource{source: s, rng: rng, spec: *spec, nextID: firstID}
	w.spec.Repeats = cmp.Or(w.spec.Repeats, 1)
	return &mappedSource{s, w.next}
}

type sessionSource struct {
	source Source
	rng    *rand.Rand
	spec   formats.Sessions
	nextID int64
	open   []session
}

type session struct {
	key     int64
	readyAt time.Duration
	context int32
}

// next sets r to the next request, as a turn of a session. With probability 1-1/Turns it continues the open session
// whose user has waited longest since thinking ended; otherwise, or if no session is ready, it starts a new one. Its
// prompt then repeats a part of the session's context, which all turns so far make up. spec has the mean turns of a
// session, the tokens that all sessions share, the share of the context that a prompt repeats, and the mean time of
// thinking.
func (w *sessionSource) next(r *Request) bool {
	if !w.source.Next(r) {
		return false
	}
	// turn is the index of the session that goes on, or -1 for a new one.
	turn := -1
	if w.rng.Float64() < 1-1/w.spec.Turns {
		for i := range w.open { // the one that has waited longest
			if o := &w.open[i]; o.readyAt <= r.ArrivedAt && (turn < 0 || o.readyAt < w.open[turn].readyAt) {
				turn = i
			}
		}
	}
	s := session{context: int32(w.spec.SharedTokens)}
	if turn >= 0 {
		s = w.open[turn]
		w.open[turn] = w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
	} else {
		w.nextID++
		s.key = w.nextID
	}
	// Add the repeated context to the prompt, and draw when the user is ready for the next turn.
	r.Session = s.key
	r.PromptTokens += int32(math.Round(w.spec.Repeats * float64(s.context)))
	s.context = int32(min(int64(r.PromptTokens)+int64(r.OutputTokens), longest))
	s.readyAt = r.ArrivedAt + time.Duration(w.rng.ExpFloat64()*float64(w.spec.ThinkUS.D()))

	// Keep the session open. When too many are, it replaces any of them.
	if len(w.open) < maxSessions {
		w.open = append(w.open, s)
	} else {
		w.open[w.rng.IntN(len(w.open))] = s
	}
	return true
}

// maxSessions bounds the sessions that may go on; beyond, others are forgotten.
const maxSessions = 4096
