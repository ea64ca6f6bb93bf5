package gear

import (
	"sort"

	"inferplan/policy"
)

// Tables are the tables of a gear plan: a family of models, each with one or more pipelines, that together serve
// one model of policy.Tables. The certainty of their answers decides which model answers a request.
//
// A replica of a pipeline is a chain of one device per stage, see policy.Tables.ChainDevice. A model that runs
// whole on one device has chains of one.
//
// For an interpreter, gear plans differ from pool plans as follows. A batch that leaves its last device answers no
// request. The interpreter first reveals, request by request, how certain the answer is (ControlRevealed, with the
// level as Value), then reports the end of the batch (BatchFinished). The policy answers a request with Complete,
// or keeps it and dispatches it again with the next model of its cascade.
type Tables struct {
	PipelineModels []string    // by pipeline: name of its model; a model on several device kinds has several pipelines
	Thresholds     [][]float64 // by pipeline, ascending
	Gears          []Gear      // by rising rate
	MaxQPS         float64
	Records        SampleRecords
}

// Gear is a cascade for one range of rates.
type Gear struct {
	ToQPS  float64 // upper end of the range
	Stages []Stage
}

// Stage is one model of a gear's cascade.
type Stage struct {
	Pipeline       int32
	OtherPipelines []int32   // the model's other pipelines, on other device kinds
	ForwardBelow   int32     // answers of a lower level are forwarded to the next model; 0 in the last stage
	MinQueue       int32     // requests from which on a queue is ready
	ReplicaShares  []float64 // shares of the chains of its pipelines, in their order
}

// AllPipelines returns all pipelines of a stage's model, which has one on each kind of its devices.
func (s *Stage) AllPipelines() []int32 { return append([]int32{s.Pipeline}, s.OtherPipelines...) }

// TablesOf returns the gear tables of a plan's tables. If the plan is of another kind, it returns nil.
func TablesOf(tables *policy.Tables) *Tables {
	gearTables, _ := tables.KindTables.(*Tables)
	return gearTables
}

// SampleRecords are the answers of every model to the samples of the plan. The simulator reveals them; a real
// engine computes the level from the certainty.
type SampleRecords struct {
	Samples int
	Levels  [][]uint8 // [pipeline][sample]
	Correct [][]bool  // [pipeline][sample]
}

// Level returns the level of an answer of a pipeline: the number of the pipeline's thresholds that its certainty reaches.
func (tables *Tables) Level(pipeline int32, certainty float64) int64 {
	thresholds := tables.Thresholds[pipeline]
	return int64(sort.Search(len(thresholds), func(i int) bool { return thresholds[i] > certainty }))
}

// GearAccuracies returns for each gear (a cascade) the share of all recorded samples that it answers right.
func (tables *Tables) GearAccuracies() []float64 {
	accuracies := make([]float64, len(tables.Gears))
	for gear := range tables.Gears {
		correctCount := 0
		for sample := range tables.Records.Samples {
			if tables.Gears[gear].answersRight(&tables.Records, sample) {
				correctCount++
			}
		}
		accuracies[gear] = float64(correctCount) / float64(tables.Records.Samples)
	}
	return accuracies
}

// answersRight reports whether a recorded sample (by its index) gets a right answer under this gear: that of the
// first model whose level is high enough.
func (g *Gear) answersRight(records *SampleRecords, sample int) bool {
	for stageIndex := range g.Stages {
		stage := &g.Stages[stageIndex]
		if stageIndex == len(g.Stages)-1 || int32(records.Levels[stage.Pipeline][sample]) >= stage.ForwardBelow {
			return records.Correct[stage.Pipeline][sample]
		}
	}
	return false
}
