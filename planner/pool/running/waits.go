package running

import (
	"slices"
	"time"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
)

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
