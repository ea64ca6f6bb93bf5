package fair

import (
	"time"

	"inferplan/policy"
)

// Shares says which requests are let in. It is a state machine like a policy: times are
// arguments, and one goroutine uses it.
type Shares struct {
	models  []model
	clients []client
	places  map[int32]int32 // in clients, by number
	free    []int32         // places without a client
	swept   int             // place that was looked at last
}

// model is what is shared of a model.
type model struct {
	slo    time.Duration
	rate   float64 // requests a second that the plan carries
	room   float64 // requests that can be inside and still be in time
	inside int32
	level  float64       // requests a second of the clients that send most
	looked time.Duration // when the level was found

	health        float64 // share of rate and room that seems to be there
	since         time.Duration
	answers, late int32 // since then
}

// How much of what a plan carries within an SLO may be inside, and which part of its
// rate clients share while more is. The rate of a client is taken over so many SLOs, and
// so many requests at least. Health is looked at once an SLO: it falls where more than a
// share of the answers is late.
const (
	roomShare   = 0.35
	carried     = 0.8
	windowSLOs  = 1
	windowCount = 20
	lateShare   = 0.01
	unhealthy   = 0.8
	healing     = 1.1
	minHealth   = 0.2
	minLevel    = 0.6 // so that a client at half of its share loses nothing
)

// New makes the shares of a plan; nil where the plan's requests are not refused for want
// of room (instances of language models), which shares nothing.
func New(t *policy.Tables) *Shares {
	if len(t.Instances) > 0 {
		return nil
	}
	s := &Shares{places: map[int32]int32{}, models: make([]model, len(t.Models))}
	total := 0.0
	for i := range t.Models {
		total += t.Models[i].RPS
	}
	for i := range s.models {
		m := &t.Models[i]
		busy := 0.0 // requests in planned batches on all devices
		for p := m.FirstPipeline; p < m.FirstPipeline+m.NumPipelines; p++ {
			pl := &t.Pipelines[p]
			for _, st := range t.Stages[pl.FirstStage : pl.FirstStage+pl.NumStages] {
				busy += float64(pl.Batch * st.NumDevices)
			}
		}
		if len(t.Services) != len(t.Models) && total > 0 {
			busy *= m.RPS / total // the models share all pipelines
		}
		s.models[i] = model{slo: m.SLO, rate: m.RPS, room: max(roomShare*m.RPS*m.SLO.Seconds(), busy, 1), health: 1, level: m.RPS}
	}
	return s
}

// Admit says whether n requests of a client, which come together, are let in. 0 is a
// client of which nothing is known: it is let in and not counted.
func (s *Shares) Admit(now time.Duration, model, number, n int32) bool {
	if s == nil || number == 0 {
		return true
	}
	m, c := &s.models[model], s.find(now, number)
	if len(s.places) > 1 {
		s.findLevel(now, model)
	}
	window := m.window()
	c.offered[model].add(now, window, float64(n))
	if len(s.places) > 1 && m.rate > 0 && float64(m.inside+n) > m.health*m.room &&
		c.admitted[model].after(now, window)+float64(n) > m.level*max(m.health, minLevel)*window.Seconds() {
		return false
	}
	c.admitted[model].add(now, window, float64(n))
	m.inside += n
	c.inside += n
	return true
}

// window is the time over which a client's requests are counted.
func (m *model) window() time.Duration {
	window := windowSLOs * m.slo
	if m.level > 0 {
		window = max(window, time.Duration(min(windowCount/m.level, 3600)*float64(time.Second)))
	}
	return max(window, time.Millisecond)
}

// findLevel brings the level of a model up to date now and then: what the clients
// that send more than it divide equally.
func (s *Shares) findLevel(now time.Duration, model int32) {
	m := &s.models[model]
	if now-m.looked < max(m.slo/8, time.Millisecond) {
		return
	}
	m.looked = now
	window := m.window()
	capacity, heavy := carried*m.rate, 0
	for i := range s.clients {
		c := &s.clients[i]
		if c.number == 0 {
			continue
		}
		if r := c.offered[model].after(now, window) / window.Seconds(); r < m.level {
			capacity -= r
		} else {
			heavy++
		}
	}
	// A level that nobody exceeds rises to all that is carried.
	m.level = max(capacity, 0) / float64(max(heavy, 1))
	if equal := carried * m.rate / float64(max(len(s.places), 1)); m.level < equal {
		m.level = equal
	}
}

// Ended takes n requests of a client back that were let in. late says of requests that
// had the whole SLO of the model that they were not answered in time.
func (s *Shares) Ended(now time.Duration, model, number, n int32, late bool) {
	if s == nil || number == 0 {
		return
	}
	m := &s.models[model]
	m.inside -= n
	if at, ok := s.places[number]; ok {
		s.clients[at].inside -= n
	}
	m.answers += n
	if late {
		m.late += n
	}
	if now < m.since+m.slo {
		return
	}
	switch {
	case len(s.places) < 2:
		m.health = 1 // of a client alone nobody is refused, so many are late
	case float64(m.late) > lateShare*float64(m.answers):
		m.health = max(m.health*unhealthy, minHealth)
	default:
		m.health = min(m.health*healing, 1)
	}
	m.since, m.answers, m.late = now, 0, 0
}
