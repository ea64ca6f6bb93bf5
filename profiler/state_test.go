package profiler

import (
	"errors"
	"sync/atomic"
	"testing"

	"inferplan/engine"
)

type fakeReader struct {
	reads  atomic.Int64
	closed atomic.Bool
}

func (f *fakeReader) Read() (GPUState, error) {
	n := f.reads.Add(1)
	if n == 2 {
		return GPUState{}, errors.New("busy")
	}
	return GPUState{Watts: float64(100 * n), ClockMHz: int(2000 - 10*n), MemoryMHz: 2600, Celsius: int(40 + n), ClocksLowered: n == 3}, nil
}

func (f *fakeReader) Close() { f.closed.Store(true) }

func TestStateWatch(t *testing.T) {
	reader := &fakeReader{}
	gpu := engine.Device{ID: "cuda:0"}
	w := watchDevice(&Options{Watch: func(engine.Device) (StateReader, error) { return reader, nil }}, gpu)
	for reader.reads.Load() < 1 {
		w.summary() // beside the reading
	}
	w.stop()
	w.stop()
	if !reader.closed.Load() {
		t.Error("the reader is open")
	}
	// Whatever was read beside: three more readings of known content.
	w = &stateWatch{reader: &fakeReader{}}
	for range 3 {
		w.readOnce()
	}
	s := w.summary()
	if s == nil || s.Samples != 2 || s.WattsMedian != 300 || s.WattsMax != 300 || s.ClockMHzMin != 1970 || s.CelsiusMax != 43 || s.ThrottledShare != 0.5 || s.MemoryMHz != 2600 {
		t.Errorf("%+v", s)
	}
	for name, o := range map[string]*Options{
		"no reader":      {},
		"a reader fails": {Watch: func(engine.Device) (StateReader, error) { return nil, errors.New("no NVML") }},
	} {
		w := watchDevice(o, gpu)
		w.stop()
		if w.summary() != nil {
			t.Errorf("%s: something was seen", name)
		}
	}
	w = watchDevice(&Options{Watch: func(engine.Device) (StateReader, error) { t.Error("a CPU is watched"); return nil, nil }}, engine.CPUDevice(0))
	w.stop()
}
