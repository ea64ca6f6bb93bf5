package sim

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"inferplan/policy"
)

// chromeTrace writes the Trace Event Format: a complete event per run and per transfer.
// Processes are device kinds, threads are devices. Links have a process of their own.
type chromeTrace struct {
	w     *bufio.Writer
	t     *policy.Tables
	first bool
}

// newChromeTrace begins the document and names all processes and threads.
func newChromeTrace(w io.Writer, t *policy.Tables) *chromeTrace {
	c := &chromeTrace{w: bufio.NewWriter(w), t: t, first: true}
	c.w.WriteString("[")

	// The processes: device kinds, and links.
	for k, name := range t.Kinds {
		c.name("process_name", k, 0, name)
	}
	c.name("process_name", len(t.Kinds), 0, "links")

	// The threads: devices, then links.
	for d := range t.Devices {
		dev := &t.Devices[d]
		name := fmt.Sprintf("%s %d", t.Kinds[dev.Kind], dev.GPU)
		if dev.Share > 1 {
			name += fmt.Sprintf(" share %d of %d", dev.Slot+1, dev.Share)
		}
		c.name("thread_name", int(dev.Kind), d, name)
	}
	for l := range t.Links {
		way := "downlink"
		if t.Links[l].Up {
			way = "uplink"
		}
		c.name("thread_name", len(t.Kinds), l, fmt.Sprintf("%s node %d %s", t.Kinds[t.Links[l].Kind], t.Links[l].Node, way))
	}
	return c
}

// writeSeparator separates two events.
func (c *chromeTrace) next() {
	if !c.first {
		c.w.WriteByte(',')
	}
	c.first = false
	c.w.WriteByte('\n')
}

// writeName names a process or a thread.
func (c *chromeTrace) name(what string, pid, tid int, name string) {
	c.next()
	fmt.Fprintf(c.w, `{"ph":"M","name":%q,"pid":%d,"tid":%d,"args":{"name":%q}}`, what, pid, tid, name)
}

// writeSpan writes an event with a start and an end.
func (c *chromeTrace) span(pid, tid int, model, size int32, from, to time.Duration) {
	c.next()
	fmt.Fprintf(c.w, `{"ph":"X","name":%q,"cat":"batch","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"batch":%d}}`,
		c.t.Models[model].Key().String(), pid, tid, float64(from)/1e3, float64(to-from)/1e3, size)
}

// writeRun writes the run of a batch on a device.
func (c *chromeTrace) run(device, model, size int32, from, to time.Duration) {
	c.span(int(c.t.Devices[device].Kind), int(device), model, size, from, to)
}

// writeTransfer writes a transfer on both of its links.
func (c *chromeTrace) transfer(up, down, model, size int32, from, to time.Duration) {
	for _, l := range [2]int32{up, down} {
		if l >= 0 {
			c.span(len(c.t.Kinds), int(l), model, size, from, to)
		}
	}
}

// close ends the document. A nil trace is allowed.
func (c *chromeTrace) close() error {
	if c == nil {
		return nil
	}
	c.w.WriteString("\n]\n")
	if err := c.w.Flush(); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
