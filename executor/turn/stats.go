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
	Core    *Core
	Metrics *Metrics
	Service *recorder // nil if times are not recorded

	Ingress, Egress transferCount // copies between requests and workers
	Reference, Shm  transferCount // between stages
	Ipc, Pinned     transferCount
	Stream          transferCount // to or from another host

	Ignored int64 // actions that could not be carried out
	Aborted int64
	Began   time.Duration
}

// transferCount counts tensors that were moved.
type transferCount struct {
	N     int64
	Bytes int64
	Took  time.Duration
}

func (t *transferCount) Add(bytes int64) {
	t.N++
	t.Bytes += bytes
}

// Latencies are recorded from 1 us to 10 minutes, with three digits.
const (
	ShortestLatency = 1
	LongestLatency  = 600_000_000
	LatencyDigits   = 3
)

// modelStats are a model's statistics for clients and for the report.
type modelStats struct {
	Mu        sync.Mutex
	Requests  int64 // samples
	Completed int64
	Late      int64
	Dropped   []int64 // by reason
	Latency   *hdrhistogram.Histogram
	Batches   []batchCount // by size
	oip       oip.ModelStatistics
	lastDone  time.Time
}

// batchTimes sums up the times of batches of one size.
type batchCount struct {
	N                     int64
	gather, infer, answer time.Duration
}

// newModelStats returns empty statistics of a model.
func newModelStats(name string) *modelStats {
	return &modelStats{
		Dropped: make([]int64, len(policy.Reasons())+1), Latency: hdrhistogram.New(ShortestLatency, LongestLatency, LatencyDigits),
		oip: oip.ModelStatistics{Name: name, Version: version},
	}
}

// countArrival counts the requests of a job.
func (s *Stats) seen(j *Job) {
	m := j.Model.Stats
	m.Mu.Lock()
	m.Requests += int64(j.Samples)
	m.Mu.Unlock()
	if s.Service != nil {
		s.Service.heard(j.Arrived, s.Core.Now())
	}
}

// RecordServed records the times of a job that was answered, by the batch that ended it.
func (s *Stats) Served(j *Job, b *Batch, now, answer time.Duration) {
	m := j.Model.Stats
	m.Mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, b.Started-j.Arrived)
	st.ComputeInput.Add(1, b.Gather)
	st.ComputeInfer.Add(1, b.Infer)
	st.ComputeOutput.Add(1, answer)
	m.oip.InferenceCount += uint64(j.Samples)
	m.Mu.Unlock()
	if s.Service != nil {
		s.Service.overhead(b, s.Core.Since(b.Ready), now)
	}
}

// RecordServedTasks records the times of a job whose requests may have been in several batches. The policy was told the
// end of the last one at toldAt. Time outside of batches counts as queueing.
func (s *Stats) ServedBy(j *Job, infer, gather time.Duration, now, since time.Duration) {
	m := j.Model.Stats
	m.Mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, max(0, now-j.Arrived-infer-gather))
	st.ComputeInput.Add(1, gather)
	st.ComputeInfer.Add(1, infer)
	st.ComputeOutput.Add(1, 0)
	m.oip.InferenceCount += uint64(j.Samples)
	m.Mu.Unlock()
	if s.Service != nil {
		s.Service.egress = append(s.Service.egress, now-since)
	}
}

// recordAnswer counts the answer of a job.
func (s *Stats) answered(j *Job, now time.Duration) {
	m := j.Model.Stats
	took := now - j.Arrived
	n := int64(j.Samples)
	m.Mu.Lock()
	if s.Core.moving && j.Outcome == Dropped && j.Reason == policy.ReasonDraining {
		m.Requests -= n // the plan that answers it counts it
		m.Mu.Unlock()
		return
	}
	switch j.Outcome {
	case Served:
		m.Completed += n
		if j.Late {
			m.Late += n
		}
		_ = m.Latency.RecordValues(min(max(int64(took/time.Microsecond), ShortestLatency), LongestLatency), n)
		m.oip.Inference.Success.Add(1, took)
		m.lastDone = s.Core.loop.Epoch().Add(now)
	default:
		m.Dropped[j.Reason] += n
		m.oip.Inference.Fail.Add(1, took)
	}
	m.Mu.Unlock()
	j.Model.metrics.answered(j, took)
}

// recordDispatch counts a dispatched batch.
func (s *Stats) dispatched(b *Batch) {
	b.Service.metrics.batch.Observe(float64(len(b.Tasks)))
}

// RecordBatch records the times of a batch that has ended.
func (s *Stats) BatchDone(b *Batch) {
	m := b.Service.Stats
	size := len(b.Tasks)
	m.Mu.Lock()
	for len(m.Batches) <= size {
		m.Batches = append(m.Batches, batchCount{})
	}
	c := &m.Batches[size]
	c.N++
	c.gather += b.Gather
	c.infer += b.Infer
	c.answer += b.Answer
	m.oip.ExecutionCount++
	m.Mu.Unlock()
	s.Ingress.Took += b.Gather
	s.Egress.Took += b.Answer
}

// RecordReport records that the policy is told of the end of a batch now.
func (s *Stats) Told(b *Batch, now time.Duration) {
	if s.Service != nil && b.Recorded != nil {
		b.Recorded.told = max(0, now-s.Core.Since(b.Ready))
	}
}

// Statistics returns a copy in the protocol's form.
func (m *modelStats) Statistics() oip.ModelStatistics {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	out := m.oip
	if !m.lastDone.IsZero() {
		out.LastInference = uint64(m.lastDone.UnixMilli())
	}
	out.Batches = nil
	for size := range m.Batches {
		c := &m.Batches[size]
		if c.N == 0 {
			continue
		}
		b := oip.BatchStats{BatchSize: uint64(size)}
		b.ComputeInput.Add(uint64(c.N), c.gather)
		b.ComputeInfer.Add(uint64(c.N), c.infer)
		b.ComputeOutput.Add(uint64(c.N), c.answer)
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
func (s *Stats) Tiers() *formats.TierReport {
	out := &formats.TierReport{}
	for _, t := range []struct {
		name string
		*transferCount
	}{{"reference", &s.Reference}, {"ipc", &s.Ipc}, {"pinned", &s.Pinned}, {"shm", &s.Shm}, {"stream", &s.Stream}, {"ingress", &s.Ingress}, {"egress", &s.Egress}} {
		if t.N == 0 {
			continue
		}
		tier := formats.Tier{Name: t.name, Transfers: t.N, Bytes: t.Bytes}
		if t.Took > 0 {
			tier.BytesPerSecond = float64(t.Bytes) / t.Took.Seconds()
		}
		out.Tiers = append(out.Tiers, tier)
	}
	return out
}

// LatencySummary returns the mean and percentiles of latencies recorded in microseconds.
func Summary(h *hdrhistogram.Histogram) formats.LatencySummary {
	at := func(q float64) document.Micros {
		return document.Micros(time.Duration(h.ValueAtQuantile(q)) * time.Microsecond)
	}
	if h.TotalCount() == 0 {
		return formats.LatencySummary{}
	}
	return formats.LatencySummary{
		MeanUS: document.Micros(h.Mean() * float64(time.Microsecond)), P50US: at(50), P90US: at(90), P95US: at(95), P99US: at(99),
		MaxUS: document.Micros(time.Duration(h.Max()) * time.Microsecond),
	}
}
