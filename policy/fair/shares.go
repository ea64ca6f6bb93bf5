package fair

import (
	"time"

	"inferplan/policy"
)

// ClientShares decides which requests are admitted. It is a state machine like a policy: times are arguments. Calls must
// not be concurrent.
type Shares struct {
	models  []model
	clients []client
	places  map[int32]int32 // by client number: its slot in clients
	free    []int32         // slots without a client
	swept   int             // slot that was checked last
}

// modelShare is the capacity of a model, and how much of it is in use.
type model struct {
	slo    time.Duration
	rate   float64 // requests per second that the plan carries
	room   float64 // requests that may be open and still be in time
	inside int32
	level  float64       // requests per second of each client that sends more than this
	looked time.Duration // when fairRate was computed

	health        float64       // share of rate and capacity that seems to be available
	since         time.Duration // when health was last adjusted
	answers, late int32         // since then
}

// Constants of admission. Of the requests that a plan carries within an SLO, capacityShare may be open. If more are,
// clients share sharedRatePart of its rate. The rate of a client is taken over windowSLOs SLOs, and over windowCount
// requests at least. Health is adjusted once per SLO: it falls if more than maxLateShare of the answers are late.
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

// New returns the shares of a plan. For plans with instances of language models it returns nil, which admits everything:
// their requests are not refused for lack of capacity.
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

		// The capacity is at least what fills planned batches on all devices.
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

// Admit returns true if n requests of a client, which arrive together, are admitted. The number 0 stands for an unknown
// client, which is always admitted and not counted.
//
// A request is refused if other clients are present, the open requests exceed the capacity, and the client was admitted
// more than its fair rate lately.
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

// window returns the time over which a client's requests are counted.
func (m *model) window() time.Duration {
	window := windowSLOs * m.slo
	if m.level > 0 {
		window = max(window, time.Duration(min(windowCount/m.level, 3600)*float64(time.Second)))
	}
	return max(window, time.Millisecond)
}

// updateFairRate computes the fair rate of a model anew, at most eight times per SLO: what clients that send more than
// it share equally (max-min fairness).
func (s *Shares) findLevel(now time.Duration, model int32) {
	m := &s.models[model]
	if now-m.looked < max(m.slo/8, time.Millisecond) {
		return
	}
	m.looked = now
	window := m.window()

	// What light clients send is theirs; heavy clients share the rest.
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

	// A fair rate that no client exceeds rises to the whole shared rate.
	if equal := carried * m.rate / float64(max(len(s.places), 1)); m.level < equal {
		m.level = equal
	}
}

// RecordEnd records that n admitted requests of a client have ended. `late` says that they had the whole SLO of the
// model and were not answered in time.
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

	// Adjust the health once per SLO.
	if now < m.since+m.slo {
		return
	}
	switch {
	case len(s.places) < 2:
		m.health = 1 // a client alone is never refused, so many of its requests may be late
	case float64(m.late) > lateShare*float64(m.answers):
		m.health = max(m.health*unhealthy, minHealth)
	default:
		m.health = min(m.health*healing, 1)
	}
	m.since, m.answers, m.late = now, 0, 0
}
