package turn

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// Stats counts what happens in a core. The loop writes; readers on other goroutines take the lock of the part that they
// read.
type Stats struct {
	Core     *Core
	Metrics  *Metrics
	Recorder *serviceRecorder // nil if times are not recorded

	Ingress, Egress transferCount // copies between requests and workers
	Reference, Shm  transferCount // between stages
	Ipc, Pinned     transferCount
	Stream          transferCount // to or from another host

	IgnoredActions int64 // actions that could not be carried out
	AbortedBatches int64
	StartedAt      time.Duration
}

// transferCount counts tensors that were moved.
type transferCount struct {
	Count    int64
	Bytes    int64
	Duration time.Duration
}

func (t *transferCount) Add(bytes int64) {
	t.Count++
	t.Bytes += bytes
}

// Latencies are recorded from 1 us to 10 minutes, with three digits.
const (
	MinLatencyUS  = 1
	MaxLatencyUS  = 600_000_000
	LatencyDigits = 3
)

// modelStats are a model's statistics for clients and for the report.
type modelStats struct {
	Mu             sync.Mutex
	Requests       int64 // samples
	Completed      int64
	Late           int64
	Dropped        []int64 // by reason
	Latency        *hdrhistogram.Histogram
	Batches        []batchTimes // by size
	oip            oip.ModelStatistics
	lastAnsweredAt time.Time // date of the last answer, by the machine's clock at that time
}

// batchTimes sums up the times of batches of one size.
type batchTimes struct {
	Count                        int64
	gatherSum, inferSum, copySum time.Duration
}

// newModelStats returns empty statistics of a model.
func newModelStats(name string) *modelStats {
	return &modelStats{
		Dropped: make([]int64, len(policy.DropReasons())+1), Latency: hdrhistogram.New(MinLatencyUS, MaxLatencyUS, LatencyDigits),
		oip: oip.ModelStatistics{Name: name, Version: modelVersion},
	}
}

// countArrival counts the requests of a job that arrives, and records when it came and when the core took it, if
// times are recorded.
func (s *Stats) countArrival(j *Job) {
	m := j.Model.Stats
	m.Mu.Lock()
	m.Requests += int64(j.Samples)
	m.Mu.Unlock()
	if s.Recorder != nil {
		s.Recorder.recordArrival(j.ArrivedAt, s.Core.Loop.Now())
	}
}

// RecordServed records the times of a job that was answered, by the batch b that ended it. `answer` is how long the
// copy of the outputs took. The parts (queue, input, run, output) are those of the inference protocol's statistics.
func (s *Stats) RecordServed(j *Job, b *Batch, now, answer time.Duration) {
	m := j.Model.Stats
	m.Mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, b.StartedAt-j.ArrivedAt)
	st.ComputeInput.Add(1, b.GatherTime)
	st.ComputeInfer.Add(1, b.InferTime)
	st.ComputeOutput.Add(1, answer)
	m.oip.InferenceCount += uint64(j.Samples)
	m.Mu.Unlock()
	if s.Recorder != nil {
		s.Recorder.recordEgress(s.Core.Loop.OnLoopClock(b.ReadyAt), now)
	}
}

// RecordServedTasks records the times of an answered job whose tasks may have been in several batches: infer and
// gather are their sums of run and input times. The rest counts as queueing. The policy was told the end of the
// last batch at toldAt.
func (s *Stats) RecordServedTasks(j *Job, infer, gather time.Duration, now, toldAt time.Duration) {
	m := j.Model.Stats
	m.Mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, max(0, now-j.ArrivedAt-infer-gather))
	st.ComputeInput.Add(1, gather)
	st.ComputeInfer.Add(1, infer)
	st.ComputeOutput.Add(1, 0)
	m.oip.InferenceCount += uint64(j.Samples)
	m.Mu.Unlock()
	if s.Recorder != nil {
		s.Recorder.egressTimes = append(s.Recorder.egressTimes, now-toldAt)
	}
}

// recordAnswer counts the answer of a job in its model's statistics: served with its latency, or dropped or failed.
// A job that moves to another plan is counted there, and its arrival is taken back here.
func (s *Stats) recordAnswer(j *Job, now time.Duration) {
	m := j.Model.Stats
	latency := now - j.ArrivedAt
	n := int64(j.Samples)
	m.Mu.Lock()
	if s.Core.isMoving && j.Outcome == OutcomeDropped && j.Reason == policy.ReasonDraining {
		m.Requests -= n // the plan that answers it counts it
		m.Mu.Unlock()
		return
	}
	switch j.Outcome {
	case OutcomeServed:
		m.Completed += n
		if j.IsLate {
			m.Late += n
		}
		_ = m.Latency.RecordValues(min(max(int64(latency/time.Microsecond), MinLatencyUS), MaxLatencyUS), n)
		m.oip.Inference.Success.Add(1, latency)
		m.lastAnsweredAt = time.Now() // clients compare it with their date; the machine's may have been set since the loop began
	default:
		m.Dropped[j.Reason] += n
		m.oip.Inference.Fail.Add(1, latency)
	}
	m.Mu.Unlock()
	j.Model.metrics.countAnswer(j, latency)
}

// recordDispatch counts a dispatched batch.
func (s *Stats) recordDispatch(b *Batch) {
	b.Service.metrics.batch.Observe(float64(len(b.Tasks)))
}

// RecordBatch adds the times of a batch that has ended to the statistics of its model, in the row of its size: gathering
// the inputs, running, and copying the outputs. The first and the last also count as time of transfers, into the workers
// (Ingress) and out of them (Egress). It also counts an execution for the inference protocol.
func (s *Stats) RecordBatch(b *Batch) {
	m := b.Service.Stats
	size := len(b.Tasks)
	m.Mu.Lock()
	for len(m.Batches) <= size {
		m.Batches = append(m.Batches, batchTimes{})
	}
	c := &m.Batches[size]
	c.Count++
	c.gatherSum += b.GatherTime
	c.inferSum += b.InferTime
	c.copySum += b.CopyTime
	m.oip.ExecutionCount++
	m.Mu.Unlock()
	s.Ingress.Duration += b.GatherTime
	s.Egress.Duration += b.CopyTime
}

// RecordReport records that the policy is told of the end of a batch now.
func (s *Stats) RecordReport(b *Batch, now time.Duration) {
	if s.Recorder != nil && b.LastRun != nil {
		b.LastRun.toldAfter = max(0, now-s.Core.Loop.OnLoopClock(b.ReadyAt))
	}
}

// Statistics returns a copy of a model's statistics in the form of the inference protocol, with one entry for each
// batch size that has run.
func (m *modelStats) Statistics() oip.ModelStatistics {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	out := m.oip
	if !m.lastAnsweredAt.IsZero() {
		out.LastInference = uint64(m.lastAnsweredAt.UnixMilli())
	}
	out.Batches = nil
	for size := range m.Batches {
		c := &m.Batches[size]
		if c.Count == 0 {
			continue
		}
		b := oip.BatchStats{BatchSize: uint64(size)}
		b.ComputeInput.Add(uint64(c.Count), c.gatherSum)
		b.ComputeInfer.Add(uint64(c.Count), c.inferSum)
		b.ComputeOutput.Add(uint64(c.Count), c.copySum)
		out.Batches = append(out.Batches, b)
	}
	return out
}

// TierReport returns how tensors were moved, by tier. Between stages, the time is from the end of the producer's run
// until the consumer has been told where the tensor is:
//
//   - reference: in its own process, on a GPU by its address there
//   - ipc: in GPU memory of another process
//   - pinned: in shared memory that GPUs copy from and to directly, within the runs
//   - shm: in shared memory
//
// Nothing is copied in these. A stream is a tensor to or from another host: the time is that of its way here; the way
// out counts with the next run. Ingress and egress are the copies from requests into the memory of the first stage, and
// from that of the last.
func (s *Stats) TierReport() *formats.TierReport {
	out := &formats.TierReport{}
	for _, t := range []struct {
		name string
		*transferCount
	}{{"reference", &s.Reference}, {"ipc", &s.Ipc}, {"pinned", &s.Pinned}, {"shm", &s.Shm}, {"stream", &s.Stream}, {"ingress", &s.Ingress}, {"egress", &s.Egress}} {
		if t.Count == 0 {
			continue
		}
		tier := formats.Tier{Name: t.name, Transfers: t.Count, Bytes: t.Bytes}
		if t.Duration > 0 {
			tier.BytesPerSecond = float64(t.Bytes) / t.Duration.Seconds()
		}
		out.Tiers = append(out.Tiers, tier)
	}
	return out
}

// LatencySummary returns the mean, percentiles and maximum of latencies, which h has recorded in microseconds. Without
// latencies all are 0.
func LatencySummary(h *hdrhistogram.Histogram) formats.LatencySummary {
	quantileUS := func(q float64) document.Micros {
		return document.Micros(time.Duration(h.ValueAtQuantile(q)) * time.Microsecond)
	}
	if h.TotalCount() == 0 {
		return formats.LatencySummary{}
	}
	return formats.LatencySummary{
		MeanUS: document.Micros(h.Mean() * float64(time.Microsecond)), P50US: quantileUS(50), P90US: quantileUS(90), P95US: quantileUS(95), P99US: quantileUS(99),
		MaxUS: document.Micros(time.Duration(h.Max()) * time.Microsecond),
	}
}
