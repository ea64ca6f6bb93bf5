package llmrun

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/sim/llm"
)

// Figure is a figure of a run, as measured and as simulated by the model.
type Figure struct {
	Measured float64 `json:"real"`
	Model    float64 `json:"model"`
}

// RelativeError returns the model's error, relative to the measured value.
func (f Figure) RelativeError() float64 {
	if f.Measured == 0 {
		return 0
	}
	return f.Model/f.Measured - 1
}

// Comparison compares a run with its model. Times are in seconds from the instant at which the server queued a
// request.
type Comparison struct {
	Requests    int     `json:"requests"`
	E2E         Figure  `json:"e2e_mean_s"`
	E2EP99      Figure  `json:"e2e_p99_s"`
	TTFT        Figure  `json:"ttft_mean_s"`
	TTFTP99     Figure  `json:"ttft_p99_s"`
	TPOT        Figure  `json:"tpot_mean_s"` // (last - first token) / (output - 1)
	TPOTP99     Figure  `json:"tpot_p99_s"`
	QueueTime   Figure  `json:"queued_mean_s"` // until it was scheduled
	Makespan    Figure  `json:"makespan_s"`
	R2          float64 `json:"r2"`   // R2 of the end-to-end latency, request by request
	MAPE        float64 `json:"mape"` // likewise
	QueuedR2    float64 `json:"queued_r2"`
	Preemptions int64   `json:"preempted"` // preemptions in the simulation
}

// Compare simulates a run and compares the figures.
func (r *Run) Compare(c CPUCost) (*Comparison, error) {
	outcomes, counts, err := r.Simulate(c)
	if err != nil {
		return nil, err
	}
	return r.compare(outcomes, counts), nil
}

// compare computes the figures from what the simulation gives for each request (outcomes) and in all (counts). In
// each pair of lists, index 0 is measured and index 1 simulated; times are in seconds.
func (r *Run) compare(outcomes []llm.Outcome, counts llm.Counts) *Comparison {
	n := len(outcomes)
	var e2e, ttft, tpot, queueTimes [2][]float64
	x := &Comparison{Requests: n, Preemptions: counts.Preempted}
	for i, q := range r.Requests {
		o := &outcomes[i]
		add := func(list *[2][]float64, measured, model float64) {
			list[0], list[1] = append(list[0], measured), append(list[1], model)
		}
		add(&e2e, q.LastTokenAt-q.QueuedAt, o.LastToken.Seconds()-q.QueuedAt)
		add(&ttft, q.FirstTokenAt-q.QueuedAt, o.FirstToken.Seconds()-q.QueuedAt)
		add(&queueTimes, q.ScheduledAt-q.QueuedAt, o.FirstIteration.Seconds()-q.QueuedAt)
		if q.Output > 1 {
			add(&tpot, (q.LastTokenAt-q.FirstTokenAt)/float64(q.Output-1), o.TPOT(int32(q.Output)).Seconds())
		}
		x.Makespan.Measured, x.Makespan.Model = max(x.Makespan.Measured, q.LastTokenAt), max(x.Makespan.Model, o.LastToken.Seconds())
		x.MAPE += math.Abs(e2e[1][i]-e2e[0][i]) / max(e2e[0][i], float64(time.Microsecond)/1e9) / float64(n)
	}
	x.R2, x.QueuedR2 = rSquared(e2e[0], e2e[1]), rSquared(queueTimes[0], queueTimes[1])
	mean := func(list [2][]float64) Figure { return Figure{stat.Mean(list[0], nil), stat.Mean(list[1], nil)} }
	x.E2E, x.TTFT, x.TPOT, x.QueueTime = mean(e2e), mean(ttft), mean(tpot), mean(queueTimes)
	x.E2EP99, x.TTFTP99, x.TPOTP99 = p99(e2e), p99(ttft), p99(tpot)
	return x
}

// p99 returns the 99th percentiles of measured (list[0]) and simulated (list[1]) times, which it sorts.
func p99(list [2][]float64) Figure {
	var f [2]float64
	for k := range list {
		slices.Sort(list[k])
		if n := len(list[k]); n > 0 {
			f[k] = list[k][int(math.Ceil(0.99*float64(n)))-1]
		}
	}
	return Figure{f[0], f[1]}
}

// rSquared returns the coefficient of determination (R2) of a prediction: 1 minus the squared errors over the
// squared distances from the mean. If all values are equal, it is 1 for a perfect prediction and otherwise 0.
func rSquared(measured, model []float64) float64 {
	mean := stat.Mean(measured, nil)
	errors, totalVariance := 0.0, 0.0
	for i := range measured {
		errors += (model[i] - measured[i]) * (model[i] - measured[i])
		totalVariance += (measured[i] - mean) * (measured[i] - mean)
	}
	if totalVariance == 0 && errors > 0 {
		return 0
	}
	if totalVariance == 0 {
		return 1
	}
	return 1 - errors/totalVariance
}
