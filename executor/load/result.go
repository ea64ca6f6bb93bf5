package load

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// Result is the result of a run. Its Report can be written as a document; the other fields are about the client.
type Result struct {
	formats.Report
	Protocol Protocol `json:"protocol"`
	// Started is time 0 of the schedule.
	Started time.Time `json:"started"`
	// Errors, ClientOverload and Unanswered are included in Dropped.
	Errors         int64 `json:"errors"`
	ClientOverload int64 `json:"client_overload"`
	Unanswered     int64 `json:"unanswered"`
	// GeneratorLag is the time from a request's scheduled time until it was sent.
	GeneratorLag Lag `json:"generator_lag"`
	// PeakInFlight is the largest number of requests that were open at once.
	PeakInFlight int `json:"peak_in_flight"`
	// Interrupted says that the context ended before the schedule did.
	Interrupted bool `json:"interrupted"`
}

// Lag summarises how late the generator sent.
type Lag struct {
	P50US document.Micros `json:"p50_us"`
	P99US document.Micros `json:"p99_us"`
	MaxUS document.Micros `json:"max_us"`
}

const (
	reasonOverload   = "client_overload"
	reasonUnanswered = "unanswered"
	errorPrefix      = "error."

	// exactSamples is the number of latencies per model that are kept. With more requests than that, percentiles come
	// from the histogram, which has three digits.
	exactSamples = 1 << 18
	// lagWarning is the 99th percentile of the lag from which on a run has a warning.
	lagWarning = 2 * time.Millisecond
)

// recorder collects the outcomes of one model.
type recorder struct {
	mu        sync.Mutex
	requests  int64
	completed int64
	late      int64
	reasons   map[string]int64
	hist      *hdrhistogram.Histogram // in µs
	latencies []time.Duration
	sum       time.Duration
	max       time.Duration
	ttft      []time.Duration // of completions
	tpot      []time.Duration
}

// newRecorder returns a recorder without outcomes.
func newRecorder() *recorder {
	return &recorder{reasons: map[string]int64{}, hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
}

// recordScheduled counts a request that fell due.
func (r *recorder) recordScheduled() {
	r.mu.Lock()
	r.requests++
	r.mu.Unlock()
}

// recordDropped counts a request that was dropped for a reason.
func (r *recorder) recordDropped(reason string) {
	r.mu.Lock()
	r.reasons[reason]++
	r.mu.Unlock()
}

// recordAnswer records an answer. It is late if it took longer than the SLO.
func (r *recorder) recordAnswer(latency, slo time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addAnswer(latency, slo > 0 && latency > slo)
}

// recordCompletion records the answer to a request for text: its latency, the times of its tokens where known (0
// is unknown), and whether it was late.
func (r *recorder) recordCompletion(latency time.Duration, f tokenTimes, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addAnswer(latency, late)
	if f.ttft > 0 {
		r.ttft = append(r.ttft, f.ttft)
	}
	if f.tpot > 0 {
		r.tpot = append(r.tpot, f.tpot)
	}
}

// addAnswer counts an answer and its latency: in the histogram, in sum and maximum, and, for the first exactSamples of
// them, exactly. late means after the SLO. The caller holds the lock.
func (r *recorder) addAnswer(latency time.Duration, late bool) {
	r.completed++
	if late {
		r.late++
	}
	r.sum += latency
	r.max = max(r.max, latency)
	// A latency of more than an hour is counted as an hour.
	micros := min(max(latency.Microseconds(), 1), int64(time.Hour/time.Microsecond))
	if err := r.hist.RecordValue(micros); err != nil {
		panic(fmt.Sprintf("load: a latency of %d us does not fit the histogram: %v", micros, err))
	}
	if len(r.latencies) < exactSamples {
		r.latencies = append(r.latencies, latency)
	}
}

// merge adds the outcomes of another recorder, for the sum over models or classes.
func (r *recorder) merge(o *recorder) {
	r.requests += o.requests
	r.completed += o.completed
	r.late += o.late
	for k, v := range o.reasons {
		r.reasons[k] += v
	}
	r.hist.Merge(o.hist)
	r.latencies = append(r.latencies, o.latencies...)
	r.sum += o.sum
	r.max = max(r.max, o.max)
}

// counts returns the recorded counts of a run of so many seconds, with attainment and goodput.
func (r *recorder) counts(seconds float64) formats.Counts {
	c := formats.Counts{Requests: r.requests, Completed: r.completed, Late: r.late, DroppedByReason: map[string]int64{}}
	for reason, n := range r.reasons {
		c.Dropped += n
		c.DroppedByReason[reason] = n
	}
	report.SetAttainment(&c, seconds)
	return c
}

// latency returns the mean and percentiles of the recorded latencies.
func (r *recorder) latency() formats.LatencySummary {
	if r.completed == 0 {
		return formats.LatencySummary{}
	}
	p := r.percentile
	return formats.LatencySummary{
		MeanUS: document.Micros(r.sum / time.Duration(r.completed)),
		P50US:  p(50), P90US: p(90), P95US: p(95), P99US: p(99),
		MaxUS: document.Micros(r.max),
	}
}

// percentile returns the smallest latency that at least q percent (0 to 100) do not exceed. It is exact if the recorder
// has all latencies, and else as exact as the histogram. It sorts r.latencies.
func (r *recorder) percentile(q float64) document.Micros {
	if int64(len(r.latencies)) == r.completed {
		if !slices.IsSorted(r.latencies) {
			slices.Sort(r.latencies)
		}
		i := int(math.Ceil(q/100*float64(len(r.latencies)))) - 1
		return document.Micros(r.latencies[max(i, 0)])
	}
	return document.Micros(time.Duration(r.hist.ValueAtPercentile(q)) * time.Microsecond)
}
