package turn

import (
	"strconv"
	"time"

	"inferplan/executor/tracing"
)

// batchTrace holds the times of a batch for the traces of its requests. It belongs to the core's turn.
type batchTrace struct {
	service               string
	size                  int
	number                uint64
	dispatchedAt, endedAt time.Duration // endedAt is 0 until it has ended
	hops                  []hopTrace
}

// hopTrace is a batch on a device.
type hopTrace struct {
	device             int32
	startedAt, endedAt time.Duration
}

// jobRun is a batch with a sample of a job, and since when the sample waited for it.
type jobRun struct {
	batch    *batchTrace
	queuedAt time.Duration
}

// revealer is implemented by answerers that know since when a task waits. Otherwise tasks wait since their request has
// arrived.
type revealer interface {
	RevealedAt(task int32) time.Duration
}

// traceDispatch notes a batch that was dispatched in the jobs of its tasks that are traced.
func (c *Core) traceDispatch(b *Batch) {
	for _, t := range b.Tasks {
		q := c.Ledger.RequestIn(c.Answerer.RequestOf(t))
		if q == nil || !q.Job.Trace.IsRecording() {
			continue
		}
		if b.trace == nil {
			b.trace = &batchTrace{service: b.Service.Label, size: len(b.Tasks), number: b.Serial, dispatchedAt: b.DispatchedAt}
		}
		j := q.Job
		n := len(j.runs)
		if n > 0 && j.runs[n-1].batch == b.trace {
			continue // another sample of the job
		}
		run := jobRun{batch: b.trace, queuedAt: j.ArrivedAt}
		if known, ok := c.Answerer.(revealer); ok {
			run.queuedAt = known.RevealedAt(t)
		} else if n > 0 && j.Samples == 1 {
			run.queuedAt = max(run.queuedAt, j.runs[n-1].batch.endedAt)
		}
		j.runs = append(j.runs, run)
	}
}

// TraceHop notes that a batch has run on its current device.
func (b *Batch) TraceHop(startedAt, endedAt time.Duration) {
	if b.trace != nil {
		b.trace.hops = append(b.trace.hops, hopTrace{b.Device(), startedAt, endedAt})
	}
}

// traceAnswer hands what a job has done to its trace.
func (c *Core) traceAnswer(j *Job) {
	at := time.Now().Add(-c.Loop.Now()).Add // the epoch has the wall clock of the start, which may have been set since
	progress := tracing.Progress{ArrivedAt: at(j.ArrivedAt)}
	for _, r := range j.runs {
		b := r.batch
		run := tracing.Run{Service: b.service, Size: b.size, Number: b.number, QueuedAt: at(r.queuedAt), DispatchedAt: at(b.dispatchedAt)}
		if b.endedAt > 0 {
			run.EndedAt = at(b.endedAt)
		}
		for _, h := range b.hops {
			run.Hops = append(run.Hops, tracing.Hop{Device: c.deviceName(h.device), StartedAt: at(h.startedAt), EndedAt: at(h.endedAt)})
		}
		progress.Runs = append(progress.Runs, run)
	}
	j.Trace.Answered(at(c.Loop.Now()), progress)
}

// deviceName returns the name of a device: its kind and its number.
func (c *Core) deviceName(device int32) string {
	return c.Tables.Kinds[c.Tables.Devices[device].Kind] + "/" + strconv.Itoa(int(device))
}
