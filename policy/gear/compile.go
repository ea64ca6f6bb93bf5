package gear

import (
	"fmt"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// compiler turns the tables of a gear plan's models, one served model each, into those of one served model with
// one pipeline per model and device kind.
type compiler struct {
	plan           *formats.GearPlan
	tables         *policy.Tables
	gearTables     *Tables
	modelIndex     map[string]int // index of a model by its name
	modelPipelines [][]int32      // by model
}

// Compile adds the gears of a plan (cascades of models for ranges of rates) to its tables, which policy.Compile
// made. The family of models becomes one served model. It returns an error for a plan of another kind or with wrong
// values.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	g := formats.GearOf(plan)
	if g == nil {
		return &document.Error{Path: "gear", Found: "nothing", Expected: "the gears of a plan of kind gear"}
	}

	// Add the models with their pipelines and records.
	c := compiler{
		plan: g, tables: t, gearTables: &Tables{MaxQPS: g.MaxQPS, Records: SampleRecords{Samples: g.Samples}},
		modelIndex: map[string]int{}, modelPipelines: make([][]int32, len(t.Models)),
	}
	for i := range t.Models {
		if err := c.addModel(i); err != nil {
			return err
		}
	}

	// Make them one served model, and add the gears.
	if err := c.mergeModels(); err != nil {
		return err
	}
	for i := range g.Gears {
		if err := c.addGear(i); err != nil {
			return err
		}
	}
	t.KindTables = c.gearTables
	return nil
}

// addModel adds a model of the family (models that answer the same requests) with all of its pipelines, its
// thresholds of certainty and its recorded answers. It returns an error if it does not fit the plan's list.
func (c *compiler) addModel(i int) error {
	m, path := &c.tables.Models[i], fmt.Sprintf("deployment[%d]", i)
	if i >= len(c.plan.Models) || c.plan.Models[i].Model != m.Name {
		return &document.Error{Path: "gear.models", Found: fmt.Sprintf("%d models", len(c.plan.Models)), Expected: "those of models, in order"}
	}
	if m.NumPipelines < 1 {
		return &document.Error{Path: path + ".pipelines", Found: "nothing", Expected: "a pipeline on every kind of its devices"}
	}
	c.modelIndex[m.Name] = i
	for n := range m.NumPipelines {
		p := m.FirstPipeline + n
		if err := c.checkChains(p, fmt.Sprintf("%s.pipelines[%d]", path, n)); err != nil {
			return err
		}
		c.modelPipelines[i] = append(c.modelPipelines[i], p)
		c.gearTables.PipelineModels = append(c.gearTables.PipelineModels, m.Name)
		if err := c.gearTables.addRecords(&c.plan.Models[i], fmt.Sprintf("gear.models[%d]", i), n == 0); err != nil {
			return err
		}
	}
	return nil
}

// checkChains returns an error if a pipeline's devices cannot be divided into chains, each of one device for every
// stage.
func (c *compiler) checkChains(p int32, path string) error {
	chains := c.tables.ChainCount(p)
	pl := &c.tables.Pipelines[p]
	for k := range pl.NumStages {
		if err := formats.ChainError(path, int(k), int(c.tables.Stages[pl.FirstStage+k].NumDevices), int(chains)); err != nil {
			return err
		}
	}
	return nil
}

// mergeModels makes the family one served model, with the SLO and percentile of the gears, because a client asks
// for the family and the gear decides which models answer.
func (c *compiler) mergeModels() error {
	g, t := c.plan, c.tables
	percentile, err := policy.ParsePercentile(g.Percentile)
	if err != nil || g.SLOUS <= 0 || len(g.Gears) == 0 || g.Samples < 1 {
		return &document.Error{Path: "gear", Found: fmt.Sprintf("percentile %q, SLO %v, %d gears, %d samples", g.Percentile, g.SLOUS.D(), len(g.Gears), g.Samples), Expected: "a percentile, a positive SLO, a gear and a sample"}
	}
	MergeModels(t, g.SLOUS.D(), percentile, g.MaxQPS)
	return nil
}

// MergeModels replaces a family's models and services by one. It returns the pipelines of every model of the
// family.
func MergeModels(t *policy.Tables, slo time.Duration, percentile, rps float64) [][]int32 {
	modelPipelines := make([][]int32, len(t.Models))
	for m := range t.Models {
		for p, last := t.PipelinesOf(int32(m)); p < last; p++ {
			modelPipelines[m] = append(modelPipelines[m], p)
			t.Pipelines[p].Model, t.Pipelines[p].Service = 0, 0
		}
	}
	t.Models = []policy.Model{{Name: formats.CascadeName, SLO: slo, Percentile: percentile, RPS: rps, NumPipelines: int32(len(t.Pipelines))}}
	t.Services = []policy.Service{{Name: formats.CascadeName, NumPipelines: int32(len(t.Pipelines))}}
	return modelPipelines
}

// addGear adds gear i of the plan: the models of its cascade in order, and the rate up to which it is used. It
// returns an error if it has no model.
func (c *compiler) addGear(i int) error {
	gear := Gear{ToQPS: c.plan.Gears[i].ToQPS}
	for k := range c.plan.Gears[i].Stages {
		s, err := c.compileStage(i, k)
		if err != nil {
			return err
		}
		gear.Stages = append(gear.Stages, s)
	}
	if len(gear.Stages) == 0 {
		return &document.Error{Path: fmt.Sprintf("gear.gears[%d].stages", i), Found: "an empty list", Expected: "at least one model"}
	}
	c.gearTables.Gears = append(c.gearTables.Gears, gear)
	return nil
}

// compileStage returns stage k of gear i: a model of the cascade, with the share of requests for each replica, and
// the level of certainty below which an answer goes on to the next stage. The last stage has no level. It returns
// an error for a wrong number of shares or level.
func (c *compiler) compileStage(i, k int) (Stage, error) {
	s, path := &c.plan.Gears[i].Stages[k], fmt.Sprintf("gear.gears[%d].stages[%d]", i, k)
	m, ok := c.modelIndex[s.Model]
	replicas := 0
	if ok {
		for _, p := range c.modelPipelines[m] {
			replicas += int(c.tables.ChainCount(p))
		}
	}

	// Every replica needs a share.
	if !ok || len(s.Split) != replicas {
		return Stage{}, &document.Error{Path: path, Found: fmt.Sprintf("model %q with %d shares", s.Model, len(s.Split)), Expected: "a model of the plan with one share per replica"}
	}

	// Every stage but the last needs a level.
	p := c.modelPipelines[m][0]
	if isLast := k == len(c.plan.Gears[i].Stages)-1; isLast != (s.Level == 0) || s.Level < 0 || s.Level > len(c.gearTables.Thresholds[p]) {
		return Stage{}, &document.Error{Path: path + ".level", Found: fmt.Sprint(s.Level), Expected: "a level of the model, and none in the last stage"}
	}
	return Stage{Pipeline: p, OtherPipelines: c.modelPipelines[m][1:], ForwardBelow: int32(s.Level), MinQueue: int32(max(1, s.MinQueue)), ReplicaShares: s.Split}, nil
}

// addRecords adds the thresholds and records of a pipeline. The further pipelines of a model share those of its
// first.
func (t *Tables) addRecords(m *formats.GearModel, path string, isFirst bool) error {
	n := t.Records.Samples
	if lastIndex := len(t.Thresholds) - 1; !isFirst {
		t.Thresholds = append(t.Thresholds, t.Thresholds[lastIndex])
		t.Records.Levels = append(t.Records.Levels, t.Records.Levels[lastIndex])
		t.Records.Correct = append(t.Records.Correct, t.Records.Correct[lastIndex])
		return nil
	}

	// Decode a level and a verdict for every sample, which are characters.
	if len(m.Levels) != n || len(m.Correct) != n || len(m.Thresholds) >= formats.MaxGrid {
		return &document.Error{Path: path, Found: fmt.Sprintf("%d levels, %d answers", len(m.Levels), len(m.Correct)), Expected: fmt.Sprintf("%d of each, one per sample", n)}
	}
	levels, correct := make([]uint8, n), make([]bool, n)
	for i := range levels {
		l := strings.IndexByte(formats.GearLevels, m.Levels[i])
		if l < 0 || l > len(m.Thresholds) {
			return &document.Error{Path: path + ".levels", Found: fmt.Sprintf("%q at sample %d", m.Levels[i], i), Expected: fmt.Sprintf("a level of 0 to %d", len(m.Thresholds))}
		}
		levels[i], correct[i] = uint8(l), m.Correct[i] == '1'
	}
	t.Thresholds = append(t.Thresholds, m.Thresholds)
	t.Records.Levels = append(t.Records.Levels, levels)
	t.Records.Correct = append(t.Records.Correct, correct)
	return nil
}
