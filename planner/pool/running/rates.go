package running

import (
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
)

// turn is a device on which stages take turns.
type turn struct{ pool, device int }

// setRates sets the rate and the devices of all pipelines: as much as their replicas carry together, in the ratio of
// the weights where they take turns on devices (weighted max-min fairness).
//
// Rates are raised together, in proportion to weights w, until a pipeline p carries no more: its own replicas are busy
// (at the rate carried[p]), or a device on which it takes turns is. With u the time that a request takes of a device,
// that is at the factor min(carried[p]/w[p], (1 - time taken)/sum(w u)). These pipelines keep their rate, and the
// others are raised further.
func setRates(p *problem.Problem, pipelines []problem.Pipeline) {
	carried, weights := make([]float64, len(pipelines)), make([]float64, len(pipelines))
	modelCarries := make([]float64, len(p.Models))
	for i := range pipelines {
		carried[i] = carriedAlone(&pipelines[i])
		modelCarries[pipelines[i].Model] += carried[i]
	}
	times := make([]map[turn]float64, len(pipelines))
	for i := range pipelines {
		q := &pipelines[i]
		weights[i] = p.Models[q.Model].Weight * carried[i] / modelCarries[q.Model]
		times[i] = turnTimes(p, q)
	}

	// Raise the rates, and settle those that can rise no more.
	settled, taken := make([]bool, len(pipelines)), map[turn]float64{}
	for range pipelines {
		factors, lowest := risesTo(pipelines, carried, weights, times, settled, taken), math.Inf(1)
		for i, f := range factors {
			if !settled[i] {
				lowest = min(lowest, f)
			}
		}
		for i, f := range factors {
			if !settled[i] && f <= lowest*(1+1e-12) {
				settled[i], pipelines[i].RPS = true, lowest*weights[i]
			}
		}
		clear(taken)
		for i := range pipelines {
			for d, u := range times[i] {
				if settled[i] {
					taken[d] += pipelines[i].RPS * u
				}
			}
		}
	}
	for i := range pipelines {
		setDevices(p, &pipelines[i])
	}
}

// risesTo returns, for each pipeline that is not settled, the factor of the weights up to which its rate can rise.
func risesTo(pipelines []problem.Pipeline, carried, weights []float64, times []map[turn]float64, settled []bool, taken map[turn]float64) []float64 {
	demand := map[turn]float64{} // device time per unit of the factor
	for i := range pipelines {
		for d, u := range times[i] {
			if !settled[i] {
				demand[d] += weights[i] * u
			}
		}
	}
	factors := make([]float64, len(pipelines))
	for i := range pipelines {
		factors[i] = carried[i] / weights[i]
		for d := range times[i] {
			factors[i] = min(factors[i], (1-taken[d])/demand[d])
		}
	}
	return factors
}

// carriedAlone returns the rate that the replicas of a pipeline carry if nothing else runs.
func carriedAlone(q *problem.Pipeline) float64 {
	return lists.Min(math.Inf(1), len(q.Stages), func(i int) float64 { return q.Stages[i].Rate * float64(q.Replicas[i]) })
}

// turnTimes returns the time in seconds that a request of a pipeline takes of each device on which its stages take
// turns. Its requests are divided evenly among its replicas.
func turnTimes(p *problem.Problem, q *problem.Pipeline) map[turn]float64 {
	times := map[turn]float64{}
	for i := range q.Stages {
		s := &q.Stages[i]
		if !p.Pools[s.Pool].TimeShared {
			continue
		}
		for _, d := range deviceNumbers(q.Placement[i]) {
			times[turn{s.Pool, d}] += 1 / (s.Rate * float64(q.Replicas[i]))
		}
	}
	return times
}

// setDevices sets how many devices each stage of a pipeline takes: those of its replicas' shares, or those that its
// rate keeps busy where stages take turns.
func setDevices(p *problem.Problem, q *problem.Pipeline) {
	for i := range q.Stages {
		s := &q.Stages[i]
		if p.Pools[s.Pool].TimeShared {
			q.Devices = append(q.Devices, q.RPS/s.Rate)
			continue
		}
		q.Devices = append(q.Devices, float64(q.Replicas[i])/float64(s.Share))
	}
}

// modelsThatWait returns the models of which some pipeline breaks the SLO if each of its stages first waits for the
// longest batch of another stage with which it takes turns on a device. In ascending order.
func modelsThatWait(p *problem.Problem, pipelines []problem.Pipeline) []int {
	var models []int
	for i := range pipelines {
		q := &pipelines[i]
		latency := q.Latency
		latency += lists.Sum(len(q.Stages), func(si int) time.Duration { return longestTurn(p, pipelines, i, si) })
		if latency > p.Models[q.Model].Budget(q.Batch) && !slices.Contains(models, q.Model) {
			models = append(models, q.Model)
		}
	}
	slices.Sort(models)
	return models
}

// longestTurn returns the longest time of a batch that another stage runs on a device of a stage, if stages take turns
// there. Otherwise it returns 0.
func longestTurn(p *problem.Problem, pipelines []problem.Pipeline, pipeline, stage int) (longest time.Duration) {
	pool, places := pipelines[pipeline].Stages[stage].Pool, pipelines[pipeline].Placement[stage]
	if !p.Pools[pool].TimeShared {
		return 0
	}
	devices := deviceNumbers(places)
	for i := range pipelines {
		for si, s := range pipelines[i].Stages {
			isOther := i != pipeline || si != stage
			if isOther && s.Pool == pool && slices.ContainsFunc(deviceNumbers(pipelines[i].Placement[si]), func(d int) bool { return slices.Contains(devices, d) }) {
				longest = max(longest, s.MaxTime)
			}
		}
	}
	return longest
}
