package gear

import (
	"sort"

	"inferplan/policy"
)

// Tables are the tables of a gear plan: a family of models, each with one or more
// pipelines, that together serve one model of policy.Tables. Which of them
// answers a request depends on the certainty of their answers.
//
// A replica of a pipeline is a chain of one device per stage, see policy.Tables.ChainDevice. A
// model that runs whole on one device has chains of one.
//
// What differs from a pool plan for an interpreter: a batch that leaves its
// last device answers nobody. The interpreter first reveals, request by request, how
// certain the answer is (ControlRevealed, Value a level), then tells of the
// batch (BatchFinished). The policy answers a request with Complete, else it
// keeps it and dispatches it again with the next model of its cascade.
type Tables struct {
	Family     []string    // by pipeline: name of the model; a model on several kinds has several
	Thresholds [][]float64 // by pipeline, ascending
	Gears      []Gear      // by rising rate
	MaxQPS     float64
	Records    Records
}

// Gear is one range of rates with its cascade.
type Gear struct {
	ToQPS  float64
	Stages []Stage
}

// Stage is one model of a gear's cascade.
type Stage struct {
	Pipeline int32
	More     []int32 // the model's other pipelines, over other device kinds
	Below    int32   // requests of a lower level go on; 0 in the last stage
	MinQueue int32
	Split    []float64 // over the chains of its pipelines, in their order
}

// Pipelines are all pipelines of a stage's model.
func (s *Stage) Pipelines() []int32 { return append([]int32{s.Pipeline}, s.More...) }

// Of returns the gears of a plan's tables; nil: the plan is of another kind.
func Of(t *policy.Tables) *Tables {
	g, _ := t.Own.(*Tables)
	return g
}

// Records are the answers of every model to the samples planned on: what
// the simulator reveals. A real engine computes the level from the certainty.
type Records struct {
	Samples int
	Levels  [][]uint8 // [pipeline][sample]
	Correct [][]bool
}

// Level is the number of thresholds of a pipeline that a certainty reaches.
func (g *Tables) Level(pipeline int32, certainty float64) int64 {
	t := g.Thresholds[pipeline]
	return int64(sort.Search(len(t), func(i int) bool { return t[i] > certainty }))
}

// Accuracies are the shares of all samples that the gears answer right.
func (g *Tables) Accuracies() []float64 {
	out := make([]float64, len(g.Gears))
	for k := range g.Gears {
		right := 0
		for i := range g.Records.Samples {
			if g.Gears[k].answers(&g.Records, i) {
				right++
			}
		}
		out[k] = float64(right) / float64(g.Records.Samples)
	}
	return out
}

// answers tells whether a sample gets a right answer.
func (g *Gear) answers(r *Records, sample int) bool {
	for k := range g.Stages {
		s := &g.Stages[k]
		if k == len(g.Stages)-1 || int32(r.Levels[s.Pipeline][sample]) >= s.Below {
			return r.Correct[s.Pipeline][sample]
		}
	}
	return false
}
