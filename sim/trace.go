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
	w       *bufio.Writer
	t       *policy.Tables
	isFirst bool
}

// newChromeTrace begins a document in the trace format of Chrome and names all processes (device kinds, then the
// links) and threads (devices, and the links by direction). Write errors show when it is closed.
func newChromeTrace(w io.Writer, t *policy.Tables) *chromeTrace {
	c := &chromeTrace{w: bufio.NewWriter(w), t: t, isFirst: true}
	c.w.WriteString("[")

	// The processes: device kinds, and links.
	for k, name := range t.Kinds {
		c.writeName("process_name", k, 0, name)
	}
	c.writeName("process_name", len(t.Kinds), 0, "links")

	// The threads: devices, then links.
	for d := range t.Devices {
		dev := &t.Devices[d]
		name := fmt.Sprintf("%s %d", t.Kinds[dev.Kind], dev.GPU)
		if dev.Share > 1 {
			name += fmt.Sprintf(" share %d of %d", dev.Slot+1, dev.Share)
		}
		c.writeName("thread_name", int(dev.Kind), d, name)
	}
	for l := range t.Links {
		direction := "downlink"
		if t.Links[l].IsUplink {
			direction = "uplink"
		}
		c.writeName("thread_name", len(t.Kinds), l, fmt.Sprintf("%s node %d %s", t.Kinds[t.Links[l].Kind], t.Links[l].Node, direction))
	}
	return c
}

// writeSeparator separates two events.
func (c *chromeTrace) writeSeparator() {
	if !c.isFirst {
		c.w.WriteByte(',')
	}
	c.isFirst = false
	c.w.WriteByte('\n')
}

// writeName names a process or a thread.
func (c *chromeTrace) writeName(metadata string, pid, tid int, name string) {
	c.writeSeparator()
	fmt.Fprintf(c.w, `{"ph":"M","name":%q,"pid":%d,"tid":%d,"args":{"name":%q}}`, metadata, pid, tid, name)
}

// writeSpan writes an event with a start and an end.
func (c *chromeTrace) writeSpan(pid, tid int, model, size int32, from, to time.Duration) {
	c.writeSeparator()
	fmt.Fprintf(c.w, `{"ph":"X","name":%q,"cat":"batch","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"batch":%d}}`,
		c.t.Models[model].Key().String(), pid, tid, float64(from)/1e3, float64(to-from)/1e3, size)
}

// writeRun writes the run of a batch on a device.
func (c *chromeTrace) writeRun(device, model, size int32, from, to time.Duration) {
	c.writeSpan(int(c.t.Devices[device].Kind), int(device), model, size, from, to)
}

// writeTransfer writes a transfer on both of its links.
func (c *chromeTrace) writeTransfer(uplink, downlink, model, size int32, from, to time.Duration) {
	for _, l := range [2]int32{uplink, downlink} {
		if l >= 0 {
			c.writeSpan(len(c.t.Kinds), int(l), model, size, from, to)
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
