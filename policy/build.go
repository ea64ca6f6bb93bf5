package policy

// Builder makes tables part by part: kinds, models with their pipelines and
// stages, then devices with the stages that are on them. A pipeline is of the
// latest model, a stage of the latest pipeline.
type Builder struct {
	t  Tables
	on [][]int32 // devices by stage
}

// Kind adds a kind with a number of physical devices.
func (b *Builder) Kind(name string, count int) {
	b.t.Kinds, b.t.KindCounts = append(b.t.Kinds, name), append(b.t.KindCounts, int32(count))
}

// Model adds a model, whose pipelines come next.
func (b *Builder) Model(m Model) {
	m.FirstPipeline, m.NumPipelines = int32(len(b.t.Pipelines)), 0
	b.t.Models = append(b.t.Models, m)
}

// Pipeline adds a pipeline, whose stages come next.
func (b *Builder) Pipeline(batch int, rps float64) {
	model := len(b.t.Models) - 1
	b.t.Models[model].NumPipelines++
	b.t.Pipelines = append(b.t.Pipelines, Pipeline{Model: int32(model), Batch: int32(batch), RPS: rps, FirstStage: int32(len(b.t.Stages))})
}

// Stage adds a stage and returns its index.
func (b *Builder) Stage(s Stage) int32 {
	p := &b.t.Pipelines[len(b.t.Pipelines)-1]
	s.Pipeline, s.Hop = int32(len(b.t.Pipelines)-1), int16(p.NumStages)
	p.NumStages++
	b.t.Stages, b.on = append(b.t.Stages, s), append(b.on, nil)
	return int32(len(b.t.Stages) - 1)
}

// Device adds a device that runs batches of stages, and returns its index.
func (b *Builder) Device(d Device) int32 {
	d.Instance = -1
	b.t.Devices = append(b.t.Devices, d)
	return int32(len(b.t.Devices) - 1)
}

// Place puts a stage on a further device.
func (b *Builder) Place(stage, device int32) { b.on[stage] = append(b.on[stage], device) }

// Tables are the tables of all that was added, with the devices of the stages, a
// service per model and what is resident on every device.
func (b *Builder) Tables() *Tables {
	t := &b.t
	for s, devices := range b.on {
		t.Stages[s].FirstDevice, t.Stages[s].NumDevices = int32(len(t.StageDevices)), int32(len(devices))
		t.StageDevices = append(t.StageDevices, devices...)
	}
	t.addServices()
	t.addNetworks()
	return t
}
