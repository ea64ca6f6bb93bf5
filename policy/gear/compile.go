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
func Compile(plan *formats.Plan, tables *policy.Tables) error {
	gearPlan := formats.GearOf(plan)
	if gearPlan == nil {
		return &document.Error{Path: "gear", Found: "nothing", Expected: "the gears of a plan of kind gear"}
	}

	// Add the models with their pipelines and records.
	gearCompiler := compiler{
		plan: gearPlan, tables: tables, gearTables: &Tables{MaxQPS: gearPlan.MaxQPS, Records: SampleRecords{Samples: gearPlan.Samples}},
		modelIndex: map[string]int{}, modelPipelines: make([][]int32, len(tables.Models)),
	}
	for i := range tables.Models {
		if err := gearCompiler.addModel(i); err != nil {
			return err
		}
	}

	// Make them one served model, and add the gears.
	if err := gearCompiler.mergeModels(); err != nil {
		return err
	}
	for i := range gearPlan.Gears {
		if err := gearCompiler.addGear(i); err != nil {
			return err
		}
	}
	tables.KindTables = gearCompiler.gearTables
	return nil
}

// addModel is called by Compile for each model of the family (models that answer the same requests), by its index in the
// plan. It adds the model's pipelines, its thresholds of certainty and its recorded answers. It returns an error if the
// model does not fit the plan's list.
func (compiler *compiler) addModel(modelIndex int) error {
	model, path := &compiler.tables.Models[modelIndex], fmt.Sprintf("deployment[%d]", modelIndex)
	if modelIndex >= len(compiler.plan.Models) || compiler.plan.Models[modelIndex].Model != model.Name {
		return &document.Error{Path: "gear.models", Found: fmt.Sprintf("%d models", len(compiler.plan.Models)), Expected: "those of models, in order"}
	}
	if model.NumPipelines < 1 {
		return &document.Error{Path: path + ".pipelines", Found: "nothing", Expected: "a pipeline on every kind of its devices"}
	}

	// Add its pipelines, with the records of the model.
	compiler.modelIndex[model.Name] = modelIndex
	for pipeline := range model.NumPipelines {
		pipelineIndex := model.FirstPipeline + pipeline
		if err := compiler.checkChains(pipelineIndex, fmt.Sprintf("%s.pipelines[%d]", path, pipeline)); err != nil {
			return err
		}
		compiler.modelPipelines[modelIndex] = append(compiler.modelPipelines[modelIndex], pipelineIndex)
		compiler.gearTables.PipelineModels = append(compiler.gearTables.PipelineModels, model.Name)
		if err := compiler.gearTables.addRecords(&compiler.plan.Models[modelIndex], fmt.Sprintf("gear.models[%d]", modelIndex), pipeline == 0); err != nil {
			return err
		}
	}
	return nil
}

// checkChains returns an error, which names the field path, if the devices of a pipeline cannot be divided into
// chains, each of one device for every stage.
func (compiler *compiler) checkChains(pipelineIndex int32, path string) error {
	chains := compiler.tables.ChainCount(pipelineIndex)
	pipeline := &compiler.tables.Pipelines[pipelineIndex]
	for stage := range pipeline.NumStages {
		if err := formats.ChainError(path, int(stage), int(compiler.tables.Stages[pipeline.FirstStage+stage].NumDevices), int(chains)); err != nil {
			return err
		}
	}
	return nil
}

// mergeModels is called by Compile when all models of the family are added. It makes them one served model, with the SLO,
// percentile and highest rate (MaxQPS, requests per second) of the plan, because a client asks for the family, and the
// gear in force (a cascade of the models for a range of rates) decides which of them answer. It returns an error if the
// plan's values are wrong, or if it has no gears or no samples (the recorded requests from which the simulator draws).
func (compiler *compiler) mergeModels() error {
	gearPlan, tables := compiler.plan, compiler.tables
	percentile, err := policy.ParsePercentile(gearPlan.Percentile)
	if err != nil || gearPlan.SLOUS <= 0 || len(gearPlan.Gears) == 0 || gearPlan.Samples < 1 {
		return &document.Error{Path: "gear", Found: fmt.Sprintf("percentile %q, SLO %v, %d gears, %d samples", gearPlan.Percentile, gearPlan.SLOUS.D(), len(gearPlan.Gears), gearPlan.Samples), Expected: "a percentile, a positive SLO, a gear and a sample"}
	}
	MergeModels(tables, gearPlan.SLOUS.D(), percentile, gearPlan.MaxQPS)
	return nil
}

// MergeModels replaces the models and services of a family in a plan's tables by one, with this SLO, percentile and
// planned rate (requests per second). It returns the pipelines of every model of the family, by the models' former
// indexes. The pipelines stay, and belong to the one model and service then.
func MergeModels(tables *policy.Tables, slo time.Duration, percentile, rps float64) [][]int32 {
	modelPipelines := make([][]int32, len(tables.Models))
	for model := range tables.Models {
		for pipeline, last := tables.PipelinesOf(int32(model)); pipeline < last; pipeline++ {
			modelPipelines[model] = append(modelPipelines[model], pipeline)
			tables.Pipelines[pipeline].Model, tables.Pipelines[pipeline].Service = 0, 0
		}
	}
	tables.Models = []policy.Model{{Name: formats.CascadeName, SLO: slo, Percentile: percentile, RPS: rps, NumPipelines: int32(len(tables.Pipelines))}}
	tables.Services = []policy.Service{{Name: formats.CascadeName, NumPipelines: int32(len(tables.Pipelines))}}
	return modelPipelines
}

// addGear adds a gear of the plan, by its index: the models of its cascade in order, and the rate up to which it is
// used. It returns an error if it has no model.
func (compiler *compiler) addGear(gearIndex int) error {
	gear := Gear{ToQPS: compiler.plan.Gears[gearIndex].ToQPS}
	for stageIndex := range compiler.plan.Gears[gearIndex].Stages {
		stage, err := compiler.compileStage(gearIndex, stageIndex)
		if err != nil {
			return err
		}
		gear.Stages = append(gear.Stages, stage)
	}
	if len(gear.Stages) == 0 {
		return &document.Error{Path: fmt.Sprintf("gear.gears[%d].stages", gearIndex), Found: "an empty list", Expected: "at least one model"}
	}
	compiler.gearTables.Gears = append(compiler.gearTables.Gears, gear)
	return nil
}

// compileStage returns a stage of a gear, by their indexes: a model of the cascade, with the share of requests for
// each replica, and the level of certainty below which an answer goes on to the next stage. The last stage has no
// level. It returns an error for a wrong number of shares or a wrong level.
func (compiler *compiler) compileStage(gearIndex, stageIndex int) (Stage, error) {
	stage, path := &compiler.plan.Gears[gearIndex].Stages[stageIndex], fmt.Sprintf("gear.gears[%d].stages[%d]", gearIndex, stageIndex)
	modelIndex, ok := compiler.modelIndex[stage.Model]
	replicas := 0
	if ok {
		for _, pipeline := range compiler.modelPipelines[modelIndex] {
			replicas += int(compiler.tables.ChainCount(pipeline))
		}
	}

	// Every replica needs a share. A model's replicas are those of all its pipelines, one on each kind of device.
	if !ok || len(stage.Split) != replicas {
		return Stage{}, &document.Error{Path: path, Found: fmt.Sprintf("model %q with %d shares", stage.Model, len(stage.Split)), Expected: "a model of the plan with one share per replica"}
	}

	// Every stage but the last needs a level, from which on an answer is final. 0 in a plan means none.
	pipeline := compiler.modelPipelines[modelIndex][0]
	isLast, hasLevel := stageIndex == len(compiler.plan.Gears[gearIndex].Stages)-1, stage.Level != 0
	if hasLevel == isLast || stage.Level < 0 || stage.Level > len(compiler.gearTables.Thresholds[pipeline]) {
		return Stage{}, &document.Error{Path: path + ".level", Found: fmt.Sprint(stage.Level), Expected: "a level of the model, and none in the last stage"}
	}
	return Stage{Pipeline: pipeline, OtherPipelines: compiler.modelPipelines[modelIndex][1:], ForwardBelow: int32(stage.Level), MinQueue: int32(max(1, stage.MinQueue)), ReplicaShares: stage.Split}, nil
}

// addRecords adds the thresholds of certainty and the recorded answers of a model's pipeline. The further pipelines
// of a model (isFirst is false) share those of its first. path is the field that errors name.
func (tables *Tables) addRecords(model *formats.GearModel, path string, isFirst bool) error {
	// The first pipeline of the model was added just before, so its records are the last ones.
	samples := tables.Records.Samples
	if lastIndex := len(tables.Thresholds) - 1; !isFirst {
		tables.Thresholds = append(tables.Thresholds, tables.Thresholds[lastIndex])
		tables.Records.Levels = append(tables.Records.Levels, tables.Records.Levels[lastIndex])
		tables.Records.Correct = append(tables.Records.Correct, tables.Records.Correct[lastIndex])
		return nil
	}

	// Decode a level and a verdict for every sample. A plan writes each as a character: a level as its position in
	// formats.GearLevels, a right answer as 1.
	if len(model.Levels) != samples || len(model.Correct) != samples || len(model.Thresholds) >= formats.MaxGrid {
		return &document.Error{Path: path, Found: fmt.Sprintf("%d levels, %d answers", len(model.Levels), len(model.Correct)), Expected: fmt.Sprintf("%d of each, one per sample", samples)}
	}
	levels, correct := make([]uint8, samples), make([]bool, samples)
	for sample := range levels {
		level := strings.IndexByte(formats.GearLevels, model.Levels[sample])
		if level < 0 || level > len(model.Thresholds) {
			return &document.Error{Path: path + ".levels", Found: fmt.Sprintf("%q at sample %d", model.Levels[sample], sample), Expected: fmt.Sprintf("a level of 0 to %d", len(model.Thresholds))}
		}
		levels[sample], correct[sample] = uint8(level), model.Correct[sample] == '1'
	}
	tables.Thresholds = append(tables.Thresholds, model.Thresholds)
	tables.Records.Levels = append(tables.Records.Levels, levels)
	tables.Records.Correct = append(tables.Records.Correct, correct)
	return nil
}
