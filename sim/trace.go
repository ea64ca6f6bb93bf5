package sim

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"inferplan/policy"
)

// chromeTrace writes a run in the Trace Event Format of Chrome: a complete event per run of a batch and per transfer.
// Processes are device kinds, threads are devices. Links have a process of their own.
type chromeTrace struct {
	writer  *bufio.Writer
	tables  *policy.Tables
	isFirst bool // nothing was written yet
}

// newChromeTrace begins a document in the trace format of Chrome and names all processes (device kinds, then the
// links) and threads (devices, and the links by direction). Write errors show when it is closed.
func newChromeTrace(writer io.Writer, tables *policy.Tables) *chromeTrace {
	trace := &chromeTrace{writer: bufio.NewWriter(writer), tables: tables, isFirst: true}
	trace.writer.WriteString("[")

	// The processes: device kinds, and links.
	for kind, name := range tables.Kinds {
		trace.writeName("process_name", kind, 0, name)
	}
	trace.writeName("process_name", len(tables.Kinds), 0, "links")

	// The threads: devices, then links.
	for deviceIndex := range tables.Devices {
		device := &tables.Devices[deviceIndex]
		name := fmt.Sprintf("%s %d", tables.Kinds[device.Kind], device.GPU)
		if device.Share > 1 {
			name += fmt.Sprintf(" share %d of %d", device.Slot+1, device.Share)
		}
		trace.writeName("thread_name", int(device.Kind), deviceIndex, name)
	}
	for link := range tables.Links {
		direction := "downlink"
		if tables.Links[link].IsUplink {
			direction = "uplink"
		}
		trace.writeName("thread_name", len(tables.Kinds), link, fmt.Sprintf("%s node %d %s", tables.Kinds[tables.Links[link].Kind], tables.Links[link].Node, direction))
	}
	return trace
}

// writeSeparator writes what separates two events: a comma, except before the first, and a new line.
func (c *chromeTrace) writeSeparator() {
	if !c.isFirst {
		c.writer.WriteByte(',')
	}
	c.isFirst = false
	c.writer.WriteByte('\n')
}

// writeName writes an event that names a process (metadata is process_name) or a thread (thread_name).
func (c *chromeTrace) writeName(metadata string, pid, tid int, name string) {
	c.writeSeparator()
	fmt.Fprintf(c.writer, `{"ph":"M","name":%q,"pid":%d,"tid":%d,"args":{"name":%q}}`, metadata, pid, tid, name)
}

// writeSpan writes an event of a process and a thread from one time to another: a batch of a model with its size.
func (c *chromeTrace) writeSpan(pid, tid int, model, size int32, from, to time.Duration) {
	c.writeSeparator()
	fmt.Fprintf(c.writer, `{"ph":"X","name":%q,"cat":"batch","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"batch":%d}}`,
		c.tables.Models[model].Key().String(), pid, tid, float64(from)/1e3, float64(to-from)/1e3, size)
}

// writeRun writes the run of a batch of a model on a device.
func (c *chromeTrace) writeRun(device, model, size int32, from, to time.Duration) {
	c.writeSpan(int(c.tables.Devices[device].Kind), int(device), model, size, from, to)
}

// writeTransfer writes the transfer of a batch of a model on both of its links; -1 stands for none.
func (c *chromeTrace) writeTransfer(uplink, downlink, model, size int32, from, to time.Duration) {
	for _, link := range [2]int32{uplink, downlink} {
		if link >= 0 {
			c.writeSpan(len(c.tables.Kinds), int(link), model, size, from, to)
		}
	}
}

// close ends the document and returns the first error of writing it. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) close() error {
	if c == nil {
		return nil
	}
	c.writer.WriteString("\n]\n")
	if err := c.writer.Flush(); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
