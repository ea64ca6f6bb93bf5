package pages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/pages/picture"
)

// Timeline holds the batches of devices and the numbers of open requests, by the trace of plan simulate --chrome-trace. Times
// are in seconds.
type Timeline struct {
	Devices []deviceSpans // those that ran something
	Open    []counter     // open requests by model
	Gears   []counter     // the gear in force; none or one
	End     float64
}

// deviceSpans are the batches of a device or link, in the order of time.
type deviceSpans struct {
	kind, name string
	isLink     bool
	spans      []span
}

type span struct {
	model    string
	from, to float64
}

// counter is a name with its values over time.
type counter struct {
	name   string
	values plotter.XYs
}

// traceEvent is an event of Chrome's Trace Event Format.
type traceEvent struct {
	Phase string    `json:"ph"`
	Name  string    `json:"name"`
	PID   int       `json:"pid,omitempty"`
	TID   int       `json:"tid,omitempty"`
	TS    float64   `json:"ts,omitempty"`
	Dur   float64   `json:"dur,omitempty"`
	Args  traceArgs `json:"args,omitempty"`
}

type traceArgs struct {
	Name  string  `json:"name,omitempty"`
	Value float64 `json:"value,omitempty"`
}

// maxTraceBytes bounds the size of a trace that is read.
const maxTraceBytes = 1 << 27

// maxTraceMicros bounds the times in a trace, about 300 years, and its counters.
const maxTraceMicros = 1e16

// Names in traces of plan simulate.
const (
	linksProcess = "links"
	openPrefix   = "open "
	gearCounter  = "gear"
)

// ReadTimeline reads a trace that plan simulate --chrome-trace wrote.
func ReadTimeline(path string) (*Timeline, error) {
	f, err := csvfile.Open(path) // plain, or packed with gzip
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []traceEvent
	if err := document.ReadJSON(f, path, "a trace of plan simulate --chrome-trace", maxTraceBytes, document.SomeFields, &events); err != nil {
		return nil, err
	}
	processes, devices, counters := map[int]string{}, map[[2]int]*deviceSpans{}, map[string]*counter{}
	t := &Timeline{}
	for i, e := range events {
		if e.TS < 0 || e.Dur < 0 || e.TS+e.Dur > maxTraceMicros || math.Abs(e.Args.Value) > maxTraceMicros {
			return nil, &document.Error{File: path, Path: fmt.Sprintf("[%d]", i), Found: fmt.Sprintf("the time %g with the duration %g and the value %g", e.TS, e.Dur, e.Args.Value), Expected: fmt.Sprintf("0 to %g", maxTraceMicros)}
		}
		thread := [2]int{e.PID, e.TID}
		switch {
		case e.Phase == "M" && e.Name == "process_name":
			processes[e.PID] = e.Args.Name
		case e.Phase == "M":
			devices[thread] = &deviceSpans{kind: processes[e.PID], name: e.Args.Name, isLink: processes[e.PID] == linksProcess}
		case e.Phase == "X" && devices[thread] != nil:
			d := devices[thread]
			d.spans = append(d.spans, span{e.Name, e.TS / 1e6, (e.TS + e.Dur) / 1e6})
			t.End = max(t.End, (e.TS+e.Dur)/1e6)
		case e.Phase == "C":
			if counters[e.Name] == nil {
				counters[e.Name] = &counter{name: strings.TrimPrefix(e.Name, openPrefix)}
			}
			c := counters[e.Name]
			c.values = append(c.values, plotter.XY{X: e.TS / 1e6, Y: e.Args.Value})
			t.End = max(t.End, e.TS/1e6)
		}
	}

	// Sort by number and name.
	threads := make([][2]int, 0, len(devices))
	for thread, d := range devices {
		if len(d.spans) > 0 {
			threads = append(threads, thread)
		}
	}
	slices.SortFunc(threads, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, thread := range threads {
		t.Devices = append(t.Devices, *devices[thread])
	}
	for name, c := range counters {
		slices.SortStableFunc(c.values, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		if name == gearCounter {
			t.Gears = append(t.Gears, *c)
		} else {
			t.Open = append(t.Open, *c)
		}
	}
	slices.SortFunc(t.Open, func(a, b counter) int { return cmp.Compare(a.name, b.name) })
	if len(t.Devices)+len(t.Open) == 0 || t.End == 0 {
		return nil, &document.Error{File: path, Found: "no batch and no request", Expected: "a trace of plan simulate --chrome-trace"}
	}
	return t, nil
}

// Limits of the picture of single batches, so that it can be read and the page stays small.
const (
	maxShownDevices = 16
	shownSpans      = 300
	shownPoints     = 200 // points of a curve
)

// pictures draws the time lines: the busy share of every kind of device over the run, single batches in its middle, the open
// requests and the gears.
func (t *Timeline) pictures() ([]Picture, error) {
	var busy picture.Panel
	busy.Vertical, busy.FromZero = "busy %", true
	var kinds []string
	for i := range t.Devices {
		if d := &t.Devices[i]; !d.isLink && !slices.Contains(kinds, d.kind) {
			kinds = append(kinds, d.kind)
			busy.Lines = append(busy.Lines, picture.Line{Name: d.kind, Points: t.busyShares(d.kind)})
		}
	}
	open, gears := picture.Panel{Vertical: "requests", FromZero: true}, picture.Panel{Vertical: "gear", FromZero: true}
	for _, c := range t.Open {
		open.Lines = append(open.Lines, picture.Line{Name: c.name, Points: c.largest(t.End)})
	}
	for _, c := range t.Gears {
		gears.Lines = append(gears.Lines, picture.Line{Points: c.steps(t.End)})
	}
	batchesTitle, batchesUnit, batches := t.batches()
	var out []Picture
	for _, p := range []struct {
		title, unit string
		panel       picture.Panel
	}{
		{"Busy devices", "seconds", busy}, {batchesTitle, batchesUnit, batches}, {"Requests that wait or run", "seconds", open},
		{"Gear in force (0 is that for the lowest rates)", "seconds", gears},
	} {
		one, err := newPicture(p.title, picture.Figure{Horizontal: p.unit, Panels: []picture.Panel{p.panel}})
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// busyShares returns the share of time in percent in which the devices of a kind ran, over the run.
func (t *Timeline) busyShares(kind string) plotter.XYs {
	width := max(t.End, 1e-9) / (shownPoints / 2)
	sums, n := make([]float64, shownPoints/2), 0
	for i := range t.Devices {
		d := &t.Devices[i]
		if d.kind != kind {
			continue
		}
		n++
		for _, s := range d.spans {
			for k := int(s.from / width); k < len(sums) && float64(k)*width < s.to; k++ {
				sums[k] += min(s.to, float64(k+1)*width) - max(s.from, float64(k)*width)
			}
		}
	}
	out := make(plotter.XYs, len(sums))
	for k, sum := range sums {
		out[k] = plotter.XY{X: (float64(k) + .5) * width, Y: 100 * sum / width / float64(n)}
	}
	return out
}

// shownDevices returns the first of the devices, and the time from the middle of the run on in which they begin shownSpans batches.
func (t *Timeline) shownDevices() (devices []*deviceSpans, from, to float64) {
	var begins []float64
	from = t.End / 2
	for i := range t.Devices {
		if d := &t.Devices[i]; !d.isLink && len(devices) < maxShownDevices {
			devices = append(devices, d)
			for _, s := range d.spans {
				if s.from >= from {
					begins = append(begins, s.from)
				}
			}
		}
	}
	slices.Sort(begins)
	if to = t.End; len(begins) > shownSpans {
		to = begins[shownSpans]
	}
	return devices, from, to
}

// batches draws single batches: a row for each device, a bar for each batch in the colour of its model. Times count
// from the beginning of the picture, in unit.
func (t *Timeline) batches() (title, unit string, panel picture.Panel) {
	devices, from, to := t.shownDevices()
	unit, scale := "seconds", 1.
	if to-from < 1 {
		unit, scale = "ms", 1e3
	}
	for row, d := range devices {
		panel.Rows = append(panel.Rows, d.name)
		for _, s := range d.spans {
			if s.to > from && s.from < to {
				panel.Lines = append(panel.Lines, picture.Line{Name: s.model, Width: 8, Points: plotter.XYs{{X: scale * (max(s.from, from) - from), Y: float64(row)}, {X: scale * (min(s.to, to) - from), Y: float64(row)}}})
			}
		}
	}
	return fmt.Sprintf("What %s ran from %.4g s on", document.CountOf(len(devices), "device"), from), unit, panel
}

// largest returns the largest value of each of shownPoints parts of the time until the end.
func (c *counter) largest(end float64) plotter.XYs {
	width := max(end, 1e-9) / shownPoints
	out := make(plotter.XYs, shownPoints)
	last, next := 0.0, 0
	for k := range out {
		out[k] = plotter.XY{X: float64(k) * width, Y: last}
		for ; next < len(c.values) && (c.values[next].X < float64(k+1)*width || k == len(out)-1); next++ {
			last = c.values[next].Y
			out[k].Y = max(out[k].Y, last)
		}
	}
	return out
}

// steps returns the values of a counter that begins at 0 as steps until the end.
func (c *counter) steps(end float64) plotter.XYs {
	out := plotter.XYs{{X: 0, Y: 0}}
	for _, v := range c.values {
		out = append(out, plotter.XY{X: v.X, Y: out[len(out)-1].Y}, v)
	}
	return append(out, plotter.XY{X: end, Y: out[len(out)-1].Y})
}
