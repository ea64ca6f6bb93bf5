package arrivals

import (
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
func WithSessions(s Source, rng *rand.Rand, spec *formats.Sessions, first int64) Source {
	w := &withSessions{Source: s, rng: rng, spec: *spec, next: first}
	if w.spec.Repeats == 0 {
		w.spec.Repeats = 1
	}
	return w
}

type withSessions struct {
	Source
	rng  *rand.Rand
	spec formats.Sessions
	next int64
	open []session
}

type session struct {
	key     int64
	ready   time.Duration
	context int32
}

func (w *withSessions) Next(r *Request) bool {
	if !w.Source.Next(r) {
		return false
	}
	at := -1
	if w.rng.Float64() < 1-1/w.spec.Turns {
		for i := range w.open { // the one that has waited longest
			if o := &w.open[i]; o.ready <= r.At && (at < 0 || o.ready < w.open[at].ready) {
				at = i
			}
		}
	}
	s := session{context: int32(w.spec.SharedTokens)}
	if at >= 0 {
		s = w.open[at]
		w.open[at] = w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
	} else {
		w.next++
		s.key = w.next
	}
	r.Session = s.key
	r.PromptTokens += int32(math.Round(w.spec.Repeats * float64(s.context)))
	s.context = int32(min(int64(r.PromptTokens)+int64(r.OutputTokens), longest))
	s.ready = r.At + time.Duration(w.rng.ExpFloat64()*float64(w.spec.ThinkUS.D()))
	if len(w.open) < mostSessions {
		w.open = append(w.open, s)
	} else {
		w.open[w.rng.IntN(len(w.open))] = s
	}
	return true
}

// mostSessions bounds the sessions that may go on; beyond, others are forgotten.
const mostSessions = 4096

func (w *withSessions) Err() error   { return Err(w.Source) }
func (w *withSessions) Close() error { return Close(w.Source) }
