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
	// Services are what tasks ask for. Without a Control there is one per model,
	// with its index.
	Services []Service
	// Networks are what devices hold.
	Networks []Network
	// Instances are the devices that admit batches of one continuously.
	Instances []Instance
	// Resident has, by device, the networks that are on it from the start.
	Resident [][]int32
	// Memory has, by device, the bytes that networks may take; 0, or no list: all
	// of Resident fits and nothing is loaded at run time.
	Memory []int64
	// Hears has a bit (1 << kind) for every event that the policy wants; 0: all.
	Hears uint32
	// Kinds names the device kinds, in the order of the plan's pools.
	Kinds []string
	// KindCounts is the number of physical devices of each kind, used or not.
	KindCounts []int32
	// Own holds the tables that only the plan's kind knows; nil: it has none. The
	// kind's policies, and what answers its requests, take them by their type.
	Own any
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
	Of            string // figure that the SLO is of, formats.OfTTFT or OfTPOT; empty: end to end
	Priority      int32  // lower goes first
	// Waiting is an SLO on the time from the arrival to the first iteration; 0: none.
	Waiting time.Duration
	// Prompt and Output are what requests to language models are simulated with; nil:
	// a trace brings their lengths.
	Prompt, Output *formats.Lengths
	Sessions       *formats.Sessions
}

// Service is what a task asks for: pipelines that all do the same.
type Service struct {
	Name          string
	FirstPipeline int32
	NumPipelines  int32
}

// Network is what is loaded onto a device: a network, a variant of one, or an
// adapter.
type Network struct {
	Name  string
	Bytes int64 // of its weights; 0: not known
	Base  int32 // the network that an adapter is of; -1: it is none
	// Load is how long loading takes: [device kind][0 warm, 1 cold]; nil: not
	// known.
	Load [][2]time.Duration
}

// Instance is a server of language models on a device.
type Instance struct {
	Sequences int32   // that run at once
	Budget    int32   // tokens of one iteration
	Progress  int32   // tokens between two TokenProgress events of a batch
	KV        int64   // tokens of KV memory
	Devices   int32   // physical devices that it takes (tensor parallelism); 0: one
	Server    *Server // nil: what executes it knows
}

// Key names the model and its class.
func (m *Model) Key() formats.ModelClass { return formats.ModelClass{Model: m.Name, Class: m.Class} }

// Pipeline is a pooled pipeline of a service.
type Pipeline struct {
	Model      int32 // that it serves; -1: several
	Service    int32
	Network    int32
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
	Mean        []time.Duration // [b-1]: what serving takes on average; nil: Infer
	Measured    []int           // batch sizes whose times are not between those of others; nil: those that Infer tells apart
	Idle        time.Duration   // what a run takes more that begins after the device had nothing to do for a while
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
	Instance int32 // into Instances; -1: it runs batches of stages
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
