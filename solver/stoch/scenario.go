package stoch

import "math/rand/v2"

// Scenarios are equally likely futures of a sample-average program, as factors on times with mean 1.
type Scenarios struct {
	QueueFactors [][]float64 // by scenario and queue: factor on all work of a queue
	GroupFactors [][]float64 // by scenario and group: factor on the group's own work
}

// minFactor keeps times above 0.
const minFactor = 0.05

// SampleScenarios draws `count` scenarios: in each a factor with mean 1 for all work of each queue, and one for the work of
// each group of requests. The factors of all queues have the standard deviation commonSD, those of a group that of
// groupSDs; no factor is below minFactor. Every factor is stratified over the scenarios, so that few scenarios have the
// right spread.
func SampleScenarios(rng *rand.Rand, count, queues int, commonSD float64, groupSDs []float64) *Scenarios {
	scenarios := &Scenarios{QueueFactors: make([][]float64, count), GroupFactors: make([][]float64, count)}
	for scenario := range count {
		scenarios.QueueFactors[scenario], scenarios.GroupFactors[scenario] = make([]float64, queues), make([]float64, len(groupSDs))
	}

	// drawColumn draws the factors of one queue or group, by its index in factors[scenario]: a standard normal value for each
	// scenario, scaled by the standard deviation.
	normals := make([]float64, count)
	drawColumn := func(factors [][]float64, index int, standardDeviation float64) {
		stratifiedNormals(rng, normals)
		for scenario, normal := range normals {
			factors[scenario][index] = max(1+standardDeviation*normal, minFactor)
		}
	}
	for queue := range queues {
		drawColumn(scenarios.QueueFactors, queue, commonSD)
	}
	for group, groupSD := range groupSDs {
		drawColumn(scenarios.GroupFactors, group, groupSD)
	}
	return scenarios
}

// stratifiedNormals fills a slice with standard normal values in random order, one from each of as many equally likely
// intervals (strata) as there are values.
func stratifiedNormals(rng *rand.Rand, values []float64) {
	for i := range values {
		values[i] = Normal{0, 1}.Quantile((float64(i) + rng.Float64()) / float64(len(values)))
	}
	rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
}
