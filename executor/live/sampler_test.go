package live_test

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"inferplan/executor/live"
	"inferplan/formats/served"
)

// clocked is a server whose counts and clock the tests set.
type clocked struct {
	at     time.Time
	plan   string
	planAt time.Time // start if zero
	total  served.Counts
	busy   []time.Duration
	looks  int
}

// start is the time at which the server of the tests started.
var start = time.Now().Add(-time.Hour)

func (c *clocked) take() *live.Snapshot {
	c.looks++
	planAt := start
	if !c.planAt.IsZero() {
		planAt = c.planAt
	}
	s := &live.Snapshot{At: c.at, PlanAt: planAt, ServerAt: start, Plan: c.plan, Total: c.total, DeviceKinds: []string{"L4"}, Part: &served.Gear{InForce: len(c.plan)},
		Models: []served.Model{{Model: "m", Counts: c.total}}}
	for _, busy := range c.busy {
		s.Devices = append(s.Devices, live.DeviceCount{Share: 1, Up: true, BusyTime: busy})
	}
	return s
}

// pass lets an interval pass in which requests come at a rate, some late and dropped, and devices are busy for a share.
func (c *clocked) pass(rps int64, busy float64) {
	c.at = c.at.Add(live.Interval)
	n := rps * int64(live.Interval/time.Second)
	c.total.Add(served.Counts{Requests: n, Completed: n * 9 / 10, Late: n / 10, Dropped: n / 10})
	for i := range c.busy {
		c.busy[i] += time.Duration(busy * float64(live.Interval))
	}
}

// Rates of the page are of the last minute, its lines of the last ten, and both forget what is older.
func TestSamplesAreOfTheLastMinutes(t *testing.T) {
	c := &clocked{at: start, plan: "p", busy: make([]time.Duration, 2)}
	s := live.NewSampler(c.take, &live.EventLog{})
	s.Sample()
	for range 150 { // more than ten minutes
		c.pass(20, .25)
		s.Sample()
	}
	for range 13 { // more than a minute
		c.pass(100, .5)
		s.Sample()
	}
	state := s.State()
	if len(state.Samples) != 120 {
		t.Errorf("%d samples, expected those of ten minutes", len(state.Samples))
	}
	m := state.Models[0]
	if w := m.Window; math.Abs(w.OfferedRPS-100) > 1e-9 || math.Abs(w.AnsweredRPS-90) > 1e-9 || math.Abs(w.InTimeRPS-80) > 1e-9 || math.Abs(w.DroppedRPS-10) > 1e-9 || math.Abs(*w.Attainment-.8) > 1e-9 {
		t.Errorf("the last minute is %+v", w)
	}
	if state.WindowS != 60 || state.DeviceWindowS != 60 || math.Abs(state.Devices[1].Busy-.5) > 1e-9 {
		t.Errorf("a window of %v s with %+v", state.WindowS, state.Devices)
	}
	if first, last := state.Samples[0], state.Samples[119]; first.Rates.OfferedRPS != 20 || last.Rates.OfferedRPS != 100 || last.AgeS != 0 || first.AgeS != 595 || math.Abs(first.BusyByKind[0]-.25) > 1e-9 || last.Gauge != 1 {
		t.Errorf("samples from %+v to %+v", first, last)
	}
}

// Devices of another plan begin anew, and have no negative shares.
func TestDevicesBeginWithTheirPlan(t *testing.T) {
	c := &clocked{at: start, plan: "p", busy: make([]time.Duration, 1)}
	s := live.NewSampler(c.take, &live.EventLog{})
	s.Sample()
	c.pass(10, 1)
	s.Sample()
	c.plan, c.planAt, c.busy = "other", c.at, make([]time.Duration, 3)
	c.pass(10, 0)
	s.Sample()
	c.pass(10, .5)
	s.Sample()
	state := s.State()
	if len(state.Devices) != 3 || math.Abs(state.Devices[2].Busy-.25) > 1e-9 || state.DeviceWindowS != 10 || state.WindowS != 15 {
		t.Errorf("in %v s of %v s: devices %+v", state.DeviceWindowS, state.WindowS, state.Devices)
	}
	for _, sample := range state.Samples {
		if sample.BusyByKind[0] < 0 || sample.Rates.OfferedRPS != 10 {
			t.Errorf("sample %+v", sample)
		}
	}
}

// However many look at the page, the server is asked once a second.
func TestLooksAreBounded(t *testing.T) {
	c := &clocked{at: time.Now(), plan: "p", busy: make([]time.Duration, 1)}
	s := live.NewSampler(c.take, &live.EventLog{})
	renders := 0
	var jsons [][]byte // those that were marshalled
	for range 100 {
		if _, err := s.Page(func(*served.State) ([]byte, error) { renders++; return []byte{}, nil }); err != nil {
			t.Fatal(err)
		}
		s.State()
		if data, err := s.JSON(); err != nil || len(jsons) == 0 || &data[0] != &jsons[len(jsons)-1][0] {
			jsons = append(jsons, data)
		}
	}
	if len(jsons) > 2 {
		t.Errorf("%d JSON texts of the same state", len(jsons))
	}
	if c.looks > 2 || renders > 2 { // 2 if a second has passed on a machine that is very busy
		t.Errorf("%d looks and %d renderings for 100 pages", c.looks, renders)
	}
}

// Events are the last messages of the log with their attributes, without those for debugging, which may be many; repeated ones are counted,
// and the log itself gets what it asks for.
func TestEventLog(t *testing.T) {
	var events live.EventLog
	var text strings.Builder
	log := slog.New(events.Handler(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))).With("plan", "p.json")
	log.Info("worker back", "device", 3)
	for gear := range 100 {
		log.Debug("gear switched", "from", gear, "to", gear+1)
	}
	for range 3 {
		log.Warn("worker lost", "device", 3)
	}
	list := events.Newest()
	if len(list) != 2 || list[0].Text != "worker lost, plan p.json, device 3" || list[0].Times != 3 || list[0].Level != "warning" || list[1].Text != "worker back, plan p.json, device 3" || list[1].Level != "info" {
		t.Errorf("events %+v", list)
	}
	if n := strings.Count(text.String(), "\n"); n != 104 {
		t.Errorf("the log has %q", text.String())
	}
	for i := range 100 {
		log.Error(strings.Repeat("é", 1000), "number", i%2)
	}
	if list = events.Newest(); len(list) > 30 || len(list[0].Text) > 1000 {
		t.Errorf("%d events, of %d bytes", len(list), len(list[0].Text))
	}
}
