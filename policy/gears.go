package policy

import (
	"fmt"
	"sort"
	"strings"

	"inferplan/formats"
)

// Gears are the tables of a gear plan: a family of models, each with one or more
// pipelines, that together serve one model of Tables.Models. Which of them
// answers a request depends on the certainty of their answers.
//
// A replica of a pipeline is a chain of one device per stage, see ChainDevice. A
// model that runs whole on one device has chains of one.
//
// What differs from a pool plan for an interpreter: a batch that leaves its
// last device answers nobody. The interpreter first reveals, request by request, how
// certain the answer is (ControlRevealed, Value a level), then tells of the
// batch (BatchFinished). The policy answers a request with Complete, else it
// keeps it and dispatches it again with the next model of its cascade.
type Gears struct {
	Family     []string    // by pipeline: name of the model; a model on several kinds has several
	Thresholds [][]float64 // by pipeline, ascending
	Gears      []GearTable // by rising rate
	MaxQPS     float64
	Records    GearRecords
}

// GearTable is one gear.
type GearTable struct {
	ToQPS  float64
	Stages []GearStage
}

// GearStage is one model of a gear's cascade.
type GearStage struct {
	Pipeline int32
	More     []int32 // the model's other pipelines, over other device kinds
	Below    int32   // requests of a lower level go on; 0 in the last stage
	MinQueue int32
	Split    []float64 // over the chains of its pipelines, in their order
}

// Pipelines are all pipelines of a stage's model.
func (s *GearStage) Pipelines() []int32 { return append([]int32{s.Pipeline}, s.More...) }

// Chains is the number of replicas of a pipeline: that of the devices of the stage
// that has most. A device of a stage that has fewer is in several chains, in each
// stage's devices in equally many.
func (t *Tables) Chains(pipeline int32) int32 {
	p, most := &t.Pipelines[pipeline], int32(0)
	for s := p.FirstStage; s < p.FirstStage+p.NumStages; s++ {
		most = max(most, t.Stages[s].NumDevices)
	}
	return most
}

// ChainDevice is the device of a stage (by its place in the pipeline) in a chain.
func (t *Tables) ChainDevice(pipeline, chain, hop int32) int32 {
	stage := t.Pipelines[pipeline].FirstStage + hop
	return t.DevicesOf(stage)[chain/(t.Chains(pipeline)/t.Stages[stage].NumDevices)]
}

// GearRecords are the answers of every model to the samples planned on: what
// the simulator reveals. A real engine computes the level from the certainty.
type GearRecords struct {
	Samples int
	Levels  [][]uint8 // [pipeline][sample]
	Correct [][]bool
}

// Level is the number of thresholds of a pipeline that a certainty reaches.
func (g *Gears) Level(pipeline int32, certainty float64) int64 {
	t := g.Thresholds[pipeline]
	return int64(sort.Search(len(t), func(i int) bool { return t[i] > certainty }))
}

// addGears turns the family's models, one served model each, into one served
// model with one pipeline per member, and reads the gears.
func (c *compiler) addGears(g *formats.GearPlan) error {
	if g == nil {
		return &formats.Error{Path: "gear", Found: "nothing", Expected: "the gears of a plan of kind gear"}
	}
	t := &Gears{MaxQPS: g.MaxQPS, Records: GearRecords{Samples: g.Samples}}
	member := map[string]int{}
	pipelines := make([][]int32, len(c.t.Models)) // by model
	for i := range c.t.Models {
		m, at := &c.t.Models[i], fmt.Sprintf("models[%d]", i)
		if i >= len(g.Models) || g.Models[i].Model != m.Name {
			return &formats.Error{Path: "gear.models", Found: fmt.Sprintf("%d models", len(g.Models)), Expected: "those of models, in order"}
		}
		if m.NumPipelines < 1 {
			return &formats.Error{Path: at + ".pipelines", Found: "nothing", Expected: "a pipeline on every kind of its devices"}
		}
		member[m.Name] = i
		for n := range m.NumPipelines {
			p := m.FirstPipeline + n
			chains := c.t.Chains(p)
			for k := range c.t.Pipelines[p].NumStages {
				if on := c.t.Stages[c.t.Pipelines[p].FirstStage+k].NumDevices; chains%on != 0 {
					return &formats.Error{Path: fmt.Sprintf("%s.pipelines[%d].stages[%d].replicas", at, n, k), Found: fmt.Sprint(on), Expected: fmt.Sprintf("a divisor of %d, the most of any stage", chains),
						Hint: "in a plan of kind gear a replica is a chain of one device per stage"}
				}
			}
			pipelines[i] = append(pipelines[i], p)
			t.Family = append(t.Family, m.Name)
			if err := t.addModel(&g.Models[i], fmt.Sprintf("gear.models[%d]", i), n == 0); err != nil {
				return err
			}
		}
	}
	for p := range c.t.Pipelines {
		c.t.Pipelines[p].Model = 0
	}
	percentile, err := parsePercentile(g.Percentile)
	if err != nil || g.SLOUS <= 0 || len(g.Gears) == 0 || g.Samples < 1 {
		return &formats.Error{Path: "gear", Found: fmt.Sprintf("percentile %q, SLO %v, %d gears, %d samples", g.Percentile, g.SLOUS.D(), len(g.Gears), g.Samples), Expected: "a percentile, a positive SLO, a gear and a sample"}
	}
	c.t.Models = []Model{{Name: formats.CascadeName, SLO: g.SLOUS.D(), Percentile: percentile, RPS: g.MaxQPS, NumPipelines: int32(len(c.t.Pipelines))}}
	for i := range g.Gears {
		gear := GearTable{ToQPS: g.Gears[i].ToQPS}
		for k := range g.Gears[i].Stages {
			s := &g.Gears[i].Stages[k]
			m, ok := member[s.Model]
			replicas := 0
			if ok {
				for _, p := range pipelines[m] {
					replicas += int(c.t.Chains(p))
				}
			}
			if !ok || len(s.Split) != replicas {
				return &formats.Error{Path: fmt.Sprintf("gear.gears[%d].stages[%d]", i, k), Found: fmt.Sprintf("model %q with %d shares", s.Model, len(s.Split)), Expected: "a model of the plan with one share per replica"}
			}
			p := pipelines[m][0]
			if last := k == len(g.Gears[i].Stages)-1; last != (s.Level == 0) || s.Level < 0 || s.Level > len(t.Thresholds[p]) {
				return &formats.Error{Path: fmt.Sprintf("gear.gears[%d].stages[%d].level", i, k), Found: fmt.Sprint(s.Level), Expected: "a level of the model, and none in the last stage"}
			}
			gear.Stages = append(gear.Stages, GearStage{Pipeline: p, More: pipelines[m][1:], Below: int32(s.Level), MinQueue: int32(max(1, s.MinQueue)), Split: s.Split})
		}
		if len(gear.Stages) == 0 {
			return &formats.Error{Path: fmt.Sprintf("gear.gears[%d].stages", i), Found: "an empty list", Expected: "at least one model"}
		}
		t.Gears = append(t.Gears, gear)
	}
	c.t.Gears = t
	return nil
}

// addModel adds a pipeline of a model; the further ones share the first's records.
func (t *Gears) addModel(m *formats.GearModel, at string, first bool) error {
	n := t.Records.Samples
	if last := len(t.Thresholds) - 1; !first {
		t.Thresholds = append(t.Thresholds, t.Thresholds[last])
		t.Records.Levels = append(t.Records.Levels, t.Records.Levels[last])
		t.Records.Correct = append(t.Records.Correct, t.Records.Correct[last])
		return nil
	}
	if len(m.Levels) != n || len(m.Correct) != n || len(m.Thresholds) >= formats.MaxGrid {
		return &formats.Error{Path: at, Found: fmt.Sprintf("%d levels, %d answers", len(m.Levels), len(m.Correct)), Expected: fmt.Sprintf("%d of each, one per sample", n)}
	}
	levels, correct := make([]uint8, n), make([]bool, n)
	for i := range levels {
		l := strings.IndexByte(formats.GearLevels, m.Levels[i])
		if l < 0 || l > len(m.Thresholds) {
			return &formats.Error{Path: at + ".levels", Found: fmt.Sprintf("%q at sample %d", m.Levels[i], i), Expected: fmt.Sprintf("a level of 0 to %d", len(m.Thresholds))}
		}
		levels[i], correct[i] = uint8(l), m.Correct[i] == '1'
	}
	t.Thresholds = append(t.Thresholds, m.Thresholds)
	t.Records.Levels = append(t.Records.Levels, levels)
	t.Records.Correct = append(t.Records.Correct, correct)
	return nil
}
