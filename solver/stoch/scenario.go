package stoch

import "math/rand/v2"

// Scenarios are equally likely futures of a sample-average program, as factors on times with mean 1.
type Scenarios struct {
	QueueFactors [][]float64 // by scenario and queue: factor on all work of a queue
	GroupFactors [][]float64 // by scenario and group: factor on the group's own work
}

// minFactor keeps times above 0.
const minFactor = 0.05

// SampleScenarios draws n scenarios: in each a factor with mean 1 for all work of each queue, and one for the work of
// each group of requests. The factors of all queues have the standard deviation commonSD, those of a group that of
// groupSDs; no factor is below minFactor. Every factor is stratified over the scenarios, so that few scenarios have the
// right spread.
func SampleScenarios(rng *rand.Rand, n, queues int, commonSD float64, groupSDs []float64) *Scenarios {
	s := &Scenarios{QueueFactors: make([][]float64, n), GroupFactors: make([][]float64, n)}
	for i := range n {
		s.QueueFactors[i], s.GroupFactors[i] = make([]float64, queues), make([]float64, len(groupSDs))
	}

	// fill draws column j of a list of factors: one standard normal value for each scenario, which sd scales.
	column := make([]float64, n)
	fill := func(factors [][]float64, j int, sd float64) {
		stratifiedNormals(rng, column)
		for i, z := range column {
			factors[i][j] = max(1+sd*z, minFactor)
		}
	}
	for q := range queues {
		fill(s.QueueFactors, q, commonSD)
	}
	for g, sd := range groupSDs {
		fill(s.GroupFactors, g, sd)
	}
	return s
}

// stratifiedNormals fills a slice with standard normal values in random order, one from each of as many equally likely
// intervals (strata) as there are values.
func stratifiedNormals(rng *rand.Rand, values []float64) {
	for i := range values {
		values[i] = Normal{0, 1}.Quantile((float64(i) + rng.Float64()) / float64(len(values)))
	}
	rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
}
