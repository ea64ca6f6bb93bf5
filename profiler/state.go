package profiler

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/formats"
)

// GPUState holds what a GPU reports of itself at a moment. A value is 0 if it is not reported.
type GPUState struct {
	Watts                        float64
	ClockMHz, MemoryMHz, Celsius int
	ClocksLowered                bool // the clocks are lowered for power or heat
}

// StateReader reads a GPU's power and clocks.
type StateReader interface {
	Read() (GPUState, error)
	Close()
}

// statePeriod is the time between two readings.
const statePeriod = 100 * time.Millisecond

// stateWatch reads a device's state while it is measured.
type stateWatch struct {
	reader StateReader
	quit   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	readings []GPUState
}

// watchDevice starts to read the state of a GPU. If the state cannot be read, the watch has no readings.
func watchDevice(o *Options, d engine.Device) *stateWatch {
	w := &stateWatch{quit: make(chan struct{})}
	if o.Watch == nil || d.IsCPU() {
		return w
	}
	r, err := o.Watch(d)
	if err != nil {
		return w
	}
	w.reader = r
	w.ended.Go(func() {
		t := time.NewTicker(statePeriod)
		defer t.Stop()
		for {
			w.readOnce()
			select {
			case <-w.quit:
				return
			case <-t.C:
			}
		}
	})
	return w
}

// readOnce adds a reading, unless it fails.
func (w *stateWatch) readOnce() {
	s, err := w.reader.Read()
	if err != nil {
		return
	}
	w.mu.Lock()
	w.readings = append(w.readings, s)
	w.mu.Unlock()
}

// stop ends the reading.
func (w *stateWatch) stop() {
	if w.reader == nil {
		return
	}
	close(w.quit)
	w.ended.Wait()
	w.reader.Close()
	w.reader = nil
}

// summary returns the medians and extremes of the power, clocks and temperature that were read so far, or nil
// without readings.
func (w *stateWatch) summary() *formats.DeviceState {
	w.mu.Lock()
	seen := slices.Clone(w.readings)
	w.mu.Unlock()
	if len(seen) == 0 {
		return nil
	}
	out := &formats.DeviceState{Samples: len(seen)}
	var watts []float64
	var clocks, memory []int
	loweredReadings := 0
	for _, s := range seen {
		watts, clocks, memory = append(watts, s.Watts), append(clocks, s.ClockMHz), append(memory, s.MemoryMHz)
		out.CelsiusMax = max(out.CelsiusMax, s.Celsius)
		if s.ClocksLowered {
			loweredReadings++
		}
	}
	out.WattsMedian, out.WattsMax = medianOf(watts), slices.Max(watts)
	out.ClockMHzMin, out.ClockMHzMedian, out.MemoryMHz = slices.Min(clocks), medianOf(clocks), medianOf(memory)
	out.ThrottledShare = float64(loweredReadings*1000/len(seen)) / 1000 // rounded down to three decimals
	return out
}

// medianOf returns the median of a list in any order, the upper one of two.
func medianOf[T cmp.Ordered](list []T) T {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}
