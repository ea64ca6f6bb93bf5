package executor

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// stats is what a core counts. The loop writes; readers of other goroutines
// take the lock of the part that they read.
type stats struct {
	core    *core
	metrics *metrics
	service *recorder

	ingress, egress transferCount // copies between requests and workers
	reference, shm  transferCount // between stages
	ipc, pinned     transferCount
	stream          transferCount // likewise, to or from another host

	ignored int64
	aborted int64
	began   time.Duration
}

// transferCount counts tensors that moved.
type transferCount struct {
	n     int64
	bytes int64
	took  time.Duration
}

func (t *transferCount) add(bytes int64) {
	t.n++
	t.bytes += bytes
}

// Latencies from 1 us to 10 minutes with three digits.
const (
	shortest = 1
	longest  = 600_000_000
	digits   = 3
)

// modelStats are a model's figures for statistics and report.
type modelStats struct {
	mu        sync.Mutex
	requests  int64 // samples
	completed int64
	late      int64
	dropped   []int64 // by reason
	latency   *hdrhistogram.Histogram
	batches   []batchCount // by size
	oip       oip.ModelStatistics
	lastDone  time.Time
}

type batchCount struct {
	n                     int64
	gather, infer, answer time.Duration
}

func newModelStats(name string) *modelStats {
	return &modelStats{
		dropped: make([]int64, len(policy.Reasons())+1), latency: hdrhistogram.New(shortest, longest, digits),
		oip: oip.ModelStatistics{Name: name, Version: version},
	}
}

func (s *stats) seen(j *job) {
	m := j.model.stats
	m.mu.Lock()
	m.requests += int64(j.n)
	m.mu.Unlock()
	if s.service != nil {
		s.service.heard(j.arrived, s.core.now())
	}
}

// served notes the sums of a job that ran, by the batch that it ended with.
func (s *stats) served(j *job, b *batch, now, answer time.Duration) {
	m := j.model.stats
	m.mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, b.started-j.arrived)
	st.ComputeInput.Add(1, b.gather)
	st.ComputeInfer.Add(1, b.infer)
	st.ComputeOutput.Add(1, answer)
	m.oip.InferenceCount += uint64(j.n)
	m.mu.Unlock()
	if s.service != nil {
		s.service.overhead(b, s.core.since(b.ready), now)
	}
}

// servedBy is served for a request that may have been in several batches, of
// whose last one the end was told from since on: what it did not spend in them
// it waited.
func (s *stats) servedBy(j *job, infer, gather time.Duration, now, since time.Duration) {
	m := j.model.stats
	m.mu.Lock()
	st := &m.oip.Inference
	st.Queue.Add(1, max(0, now-j.arrived-infer-gather))
	st.ComputeInput.Add(1, gather)
	st.ComputeInfer.Add(1, infer)
	st.ComputeOutput.Add(1, 0)
	m.oip.InferenceCount += uint64(j.n)
	m.mu.Unlock()
	if s.service != nil {
		s.service.egress = append(s.service.egress, now-since)
	}
}

func (s *stats) answered(j *job, now time.Duration) {
	m := j.model.stats
	took := now - j.arrived
	n := int64(j.n)
	m.mu.Lock()
	if s.core.moving && j.outcome == dropped && j.reason == policy.ReasonDraining {
		m.requests -= n // it counts where it is answered
		m.mu.Unlock()
		return
	}
	switch j.outcome {
	case served:
		m.completed += n
		if j.late {
			m.late += n
		}
		_ = m.latency.RecordValues(min(max(int64(took/time.Microsecond), shortest), longest), n)
		m.oip.Inference.Success.Add(1, took)
		m.lastDone = s.core.loop.Epoch().Add(now)
	default:
		m.dropped[j.reason] += n
		m.oip.Inference.Fail.Add(1, took)
	}
	m.mu.Unlock()
	j.model.metrics.answered(j, took)
}

func (s *stats) dispatched(b *batch) {
	b.service.metrics.batch.Observe(float64(len(b.tasks)))
}

func (s *stats) batchDone(b *batch) {
	m := b.service.stats
	size := len(b.tasks)
	m.mu.Lock()
	for len(m.batches) <= size {
		m.batches = append(m.batches, batchCount{})
	}
	c := &m.batches[size]
	c.n++
	c.gather += b.gather
	c.infer += b.infer
	c.answer += b.answer
	m.oip.ExecutionCount++
	m.mu.Unlock()
	s.ingress.took += b.gather
	s.egress.took += b.answer
}

// told notes that the policy hears of a batch of tasks now.
func (s *stats) told(b *batch, now time.Duration) {
	if s.service != nil && b.recorded != nil {
		b.recorded.told = max(0, now-s.core.since(b.ready))
	}
}

// statistics is a copy in the protocol's form.
func (m *modelStats) statistics() oip.ModelStatistics {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.oip
	if !m.lastDone.IsZero() {
		out.LastInference = uint64(m.lastDone.UnixMilli())
	}
	out.Batches = nil
	for size := range m.batches {
		c := &m.batches[size]
		if c.n == 0 {
			continue
		}
		b := oip.BatchStats{BatchSize: uint64(size)}
		b.ComputeInput.Add(uint64(c.n), c.gather)
		b.ComputeInfer.Add(uint64(c.n), c.infer)
		b.ComputeOutput.Add(uint64(c.n), c.answer)
		out.Batches = append(out.Batches, b)
	}
	return out
}

// tiers reports how tensors moved. Between stages, the time is from the end
// of the producer's run until the consumer has been told where the tensor
// lies (reference: in its own process, on a GPU by its address there; ipc: in
// GPU memory of another process; pinned: in shared memory that GPUs copy from and to
// directly, within the runs; shm: in shared memory); nothing is copied here. A stream is a tensor to or from another host: the time is that of its
// way here, and the way out counts with the next run. Ingress and egress are the copies from requests into the first
// stage's memory, and from the last stage's.
func (s *stats) tiers() *formats.TierReport {
	out := &formats.TierReport{}
	for _, t := range []struct {
		name string
		*transferCount
	}{{"reference", &s.reference}, {"ipc", &s.ipc}, {"pinned", &s.pinned}, {"shm", &s.shm}, {"stream", &s.stream}, {"ingress", &s.ingress}, {"egress", &s.egress}} {
		if t.n == 0 {
			continue
		}
		tier := formats.Tier{Name: t.name, Transfers: t.n, Bytes: t.bytes}
		if t.took > 0 {
			tier.BytesPerSecond = float64(t.bytes) / t.took.Seconds()
		}
		out.Tiers = append(out.Tiers, tier)
	}
	return out
}
