package policy

import (
	"time"

	"inferplan/formats"
)

// Tables is a plan as flat arrays: what policies, simulator and executor index
// into. Compile makes it; nobody changes it afterwards.
type Tables struct {
	Models    []Model
	Pipelines []Pipeline
	Stages    []Stage
	Devices   []Device
	Links     []Link
	// StageDevices holds the devices of all stages, stage after stage; on
	// time-shared pools a device is in the lists of several stages.
	StageDevices []int32
	// Kinds names the device kinds, in the order of the plan's pools.
	Kinds []string
	// KindCounts is the number of physical devices of each kind, used or not.
	KindCounts []int32
	// Gears is set where a cascade of models serves Models[0]; nil otherwise.
	Gears *Gears
}

// Model is a served model, or one SLO class of it: what has a queue, an SLO and
// pipelines of its own.
type Model struct {
	Name          string
	Class         string // SLO class; empty: the model has one, without a name
	SLO           time.Duration
	Percentile    float64 // 0.99
	RPS           float64 // planned
	FirstPipeline int32
	NumPipelines  int32
}

// Key names the model and its class.
func (m *Model) Key() formats.ModelClass { return formats.ModelClass{Model: m.Name, Class: m.Class} }

// Pipeline is a pooled pipeline of a model.
type Pipeline struct {
	Model      int32
	Batch      int32 // planned
	FirstStage int32
	NumStages  int32
	RPS        float64
}

// Stage is one stage of a pipeline.
type Stage struct {
	Pipeline    int32
	Hop         int16 // position in the pipeline
	FirstDevice int32 // into StageDevices
	NumDevices  int32
	FirstBlock  int32
	LastBlock   int32           // exclusive
	Infer       []time.Duration // [b-1]: at batch b
	Xfer        []time.Duration // [b-1]: transfer into this stage; nil for the first and on one host
	CutBytes    int64           // per sample into this stage
	FP16In      bool            // the incoming cut crosses as float16
}

// Device is something that runs one batch at a time: a whole device or a
// share of one.
type Device struct {
	Kind     int32 // into Kinds
	Share    int32 // v of 1/v
	GPU      int32 // physical device within the pool
	Slot     int32 // which share of that device
	Node     int32 // devices of one node reach each other without a NIC
	Uplink   int32 // into Links; -1 on one host
	Downlink int32
}

// Link is one direction of a node's NIC.
type Link struct {
	Kind int32
	Node int32
	Up   bool
	Gbps float64
}

// DevicesOf returns the devices of a stage.
func (t *Tables) DevicesOf(stage int32) []int32 {
	s := &t.Stages[stage]
	return t.StageDevices[s.FirstDevice : s.FirstDevice+s.NumDevices]
}

// PipelinesOf returns the indexes [first, last) of a model's pipelines.
func (t *Tables) PipelinesOf(model int32) (first, last int32) {
	m := &t.Models[model]
	return m.FirstPipeline, m.FirstPipeline + m.NumPipelines
}

// TransferBetween is how long the cut tensors of a batch take into a stage from
// device from to device to: nothing within a node.
func (t *Tables) TransferBetween(stage, batch, from, to int32) time.Duration {
	s := &t.Stages[stage]
	if s.Xfer == nil || t.Devices[from].Uplink >= 0 && t.Devices[from].Node == t.Devices[to].Node {
		return 0
	}
	return s.Xfer[batch-1]
}

// MaxBatch is the largest planned batch.
func (t *Tables) MaxBatch() int32 {
	most := int32(1)
	for i := range t.Pipelines {
		most = max(most, t.Pipelines[i].Batch)
	}
	return most
}

// MaxStages is the number of stages of the longest pipeline.
func (t *Tables) MaxStages() int32 {
	most := int32(1)
	for i := range t.Pipelines {
		most = max(most, t.Pipelines[i].NumStages)
	}
	return most
}
