package workers

import (
	"slices"
	"testing"
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// What the simulator is fed is how long a run kept its device: with the copy of
// its inputs and the command's way where the device waited for them, without where
// it was busy meanwhile.
func TestRecordedRunsTakeTheDevice(t *testing.T) {
	const ms = time.Millisecond
	tables := &policy.Tables{Stages: make([]policy.Stage, 1)}
	tables.Stages[0].Infer = make([]time.Duration, 1)
	m := turn.NewMetrics(nil)
	c := &turn.Core{Answerer: turn.DirectAnswerer{}, Tables: tables, Metrics: m}
	c.Stats = &turn.Stats{Core: c, Metrics: m, Recorder: turn.NewRecorder(tables)}
	c.Stats.Recorder.Arrivals = []time.Duration{0}
	near := &Device{stats: m.AddDevice(0, "H100")}
	far := &Device{stats: m.AddDevice(1, "H100"), isRemote: true}
	for _, x := range []struct {
		d                *Device
		sent, start, end time.Duration
	}{
		{near, 10 * ms, 12 * ms, 20 * ms}, // the device waited for it
		{near, 11 * ms, 21 * ms, 30 * ms}, // it waited for the device
		{near, 40 * ms, 41 * ms, 50 * ms}, // again
		{far, 60 * ms, 65 * ms, 70 * ms},  // its way is not known
	} {
		r := &stageRun{Batch: &turn.Batch{DispatchedAt: x.sent}, size: 1, sentAt: x.sent}
		x.d.countRun(c, r, &turn.BackendEvent{}, x.start, x.end)
	}
	s := c.Stats.Recorder.Snapshot()
	if want := []time.Duration{10 * ms, 10 * ms, 10 * ms, 5 * ms}; !slices.Equal(s.Runs[0][0], want) {
		t.Errorf("runs took %v, want %v", s.Runs[0][0], want)
	}
	if want := []time.Duration{10 * ms, 20 * ms, 40 * ms, 65 * ms}; !slices.Equal(s.Starts[0][0], want) {
		t.Errorf("runs began at %v, want %v", s.Starts[0][0], want)
	}
}
