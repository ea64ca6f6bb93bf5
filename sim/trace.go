package sim

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"inferplan/policy"
)

// chromeTrace writes a run in the Trace Event Format of Chrome: a complete event per run of a batch and per transfer.
// Processes are device kinds, threads are devices. Links have a process of their own. Counters say how many requests of
// each model are open, and which gear is in force.
type chromeTrace struct {
	writer  *bufio.Writer
	tables  *policy.Tables
	isFirst bool // nothing was written yet

	iterations []iterationRun // by device: iterations that are not yet written

	open    []int32         // open requests by model: they wait or run
	written []int32         // the last value of open that was written, by model
	nextAt  []time.Duration // from when on the next value is written, by model
}

// iterationRun is iterations of a language model that follow each other without a pause.
type iterationRun struct {
	network  int32
	from, to time.Duration
}

// Names of the counters of a trace: openCounter is followed by the name of the model.
const (
	openCounter = "open "
	gearCounter = "gear"
)

// countInterval is the least time between two values of a counter of open requests, so that a trace does not grow with the rate.
const countInterval = 10 * time.Millisecond

// newChromeTrace begins a document in the trace format of Chrome and names all processes (device kinds, then the
// links) and threads (devices, and the links by direction). Write errors show when it is closed.
func newChromeTrace(writer io.Writer, tables *policy.Tables) *chromeTrace {
	trace := &chromeTrace{writer: bufio.NewWriter(writer), tables: tables, isFirst: true, iterations: make([]iterationRun, len(tables.Devices)),
		open: make([]int32, len(tables.Models)), written: make([]int32, len(tables.Models)), nextAt: make([]time.Duration, len(tables.Models))}
	trace.writer.WriteString("[")

	// The processes: device kinds, and links.
	kindLabels := tables.KindLabels()
	for kind, name := range kindLabels {
		trace.writeName("process_name", kind, 0, name)
	}
	trace.writeName("process_name", len(tables.Kinds), 0, "links")
	trace.writeName("process_name", len(tables.Kinds)+1, 0, "requests")

	// The threads: devices, then links.
	for deviceIndex := range tables.Devices {
		device := &tables.Devices[deviceIndex]
		name := fmt.Sprintf("%s %d", kindLabels[device.Kind], device.GPU)
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

// writeSpan writes an event of a process and a thread from one time to another: a batch with its size, or what has no
// size (0).
func (c *chromeTrace) writeSpan(pid, tid int, name string, size int32, from, to time.Duration) {
	c.writeSeparator()
	fmt.Fprintf(c.writer, `{"ph":"X","name":%q,"cat":"batch","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{`, name, pid, tid, float64(from)/1e3, float64(to-from)/1e3)
	if size > 0 {
		fmt.Fprintf(c.writer, `"batch":%d`, size)
	}
	c.writer.WriteString("}}")
}

// nameOf returns the name of what a batch runs: its model with its class, or, if that is not what requests ask for, its
// network (a member of a cascade, a module of an application).
func (c *chromeTrace) nameOf(batch *batchState) string {
	network := c.tables.Networks[c.tables.Pipelines[batch.pipeline].Network].Name
	if batch.model >= 0 && c.tables.Models[batch.model].Name == network {
		return c.tables.Models[batch.model].Key().String()
	}
	return network
}

// writeRun writes the run of a batch on a device.
func (c *chromeTrace) writeRun(device int32, batch *batchState, from, to time.Duration) {
	c.writeSpan(int(c.tables.Devices[device].Kind), int(device), c.nameOf(batch), batch.size, from, to)
}

// writeTransfer writes the transfer of a batch on both of its links; -1 stands for none.
func (c *chromeTrace) writeTransfer(uplink, downlink int32, batch *batchState, from, to time.Duration) {
	for _, link := range [2]int32{uplink, downlink} {
		if link >= 0 {
			c.writeSpan(len(c.tables.Kinds), int(link), c.nameOf(batch), batch.size, from, to)
		}
	}
}

// writeLoad writes the load of a network onto an instance. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) writeLoad(device, network int32, from, to time.Duration) {
	if c != nil {
		c.writeSpan(int(c.tables.Devices[device].Kind), int(device), "load "+c.tables.Networks[network].Name, 0, from, to)
	}
}

// addIteration adds an iteration of a language model on an instance. Iterations that follow each other without a pause are one
// event, which is written when the next one begins, or at the end. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) addIteration(device, network int32, from, to time.Duration) {
	if c == nil {
		return
	}
	run := &c.iterations[device]
	if run.to == from && run.network == network {
		run.to = to
		return
	}
	c.writeIterations(device)
	*run = iterationRun{network, from, to}
}

// writeIterations writes the iterations of an instance that were added and not yet written.
func (c *chromeTrace) writeIterations(device int32) {
	if run := &c.iterations[device]; run.to > run.from {
		c.writeSpan(int(c.tables.Devices[device].Kind), int(device), c.tables.Networks[run.network].Name, 0, run.from, run.to)
	}
}

// countOpen adds to the number of open requests of a model. It writes the number if it is 0, or if it wrote none
// of the model for countInterval. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) countOpen(now time.Duration, model, change int32) {
	if c == nil {
		return
	}
	c.open[model] += change
	if open := c.open[model]; now >= c.nextAt[model] || open == 0 && c.written[model] != 0 {
		c.written[model], c.nextAt[model] = open, now+countInterval
		c.writeCounter(now, openCounter+c.tables.Models[model].Key().String(), c.open[model])
	}
}

// writeCounter writes the value that a counter has from now on. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) writeCounter(now time.Duration, name string, value int32) {
	if c == nil {
		return
	}
	c.writeSeparator()
	fmt.Fprintf(c.writer, `{"ph":"C","name":%q,"pid":%d,"ts":%.3f,"args":{"value":%d}}`, name, len(c.tables.Kinds)+1, float64(now)/1e3, value)
}

// close ends the document and returns the first error of writing it. If the run writes no trace (nil), nothing happens.
func (c *chromeTrace) close() error {
	if c == nil {
		return nil
	}
	for device := range c.iterations {
		c.writeIterations(int32(device))
	}
	c.writer.WriteString("\n]\n")
	if err := c.writer.Flush(); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
