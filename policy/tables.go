package policy

import (
	"time"

	"inferplan/formats"
)

// Tables is a plan as flat arrays, which policies, simulator and executor index. Compile makes it, and nobody
// changes it afterwards.
type Tables struct {
	Models    []Model
	Pipelines []Pipeline
	Stages    []Stage
	Devices   []Device
	Links     []Link
	// StageDevices holds the devices of all stages, stage by stage. On time-shared pools a device is in the lists
	// of several stages.
	StageDevices []int32
	// Services are the services that tasks ask for. Without a Control there is one per model, with the same index.
	Services []Service
	// Networks are the networks that devices hold.
	Networks []Network
	// Instances are the instances of language models.
	Instances []Instance
	// Resident has, by device, the networks that are on it from the start.
	Resident [][]int32
	// Memory has, by device, the bytes that networks may take. If it is 0 or there is no list, all of Resident
	// fits and nothing is loaded at run time.
	Memory []int64
	// HandledEvents has a bit (1 << kind) for every event that the policy handles; 0 means all.
	HandledEvents uint32
	// Kinds has the names of the device kinds, in the order of the plan's pools. Behind them are kinds of servers, with the
	// names of their devices, where those on a kind of devices have different numbers of them.
	Kinds []string
	// KindCounts is the number of physical devices of each kind, used or not.
	KindCounts []int32
	// KindTables holds the tables of the plan's kind, or nil. The kind's policies, and the code that answers its
	// requests, get them by their type.
	KindTables any
}

// Model is a served model, or one SLO class of it. It has a queue, an SLO and pipelines of its own.
type Model struct {
	Name          string
	Class         string // SLO class; empty if the model has one class without a name
	SLO           time.Duration
	Percentile    float64 // such as 0.99
	RPS           float64 // planned rate
	FirstPipeline int32
	NumPipelines  int32
	SLOFigure     string // figure of the SLO: formats.FigureTTFT or FigureTPOT; empty for the whole answer
	Priority      int32  // lower is served first
	// WaitSLO is an SLO on the time from the arrival to the first iteration; 0 if there is none.
	WaitSLO time.Duration
	// Prompt and Output are the lengths with which requests to language models are simulated. They are nil if a
	// trace has the lengths.
	Prompt, Output *formats.Lengths
	Sessions       *formats.Sessions
}

// Service is a set of pipelines that all compute the same. A task asks for one service.
type Service struct {
	Name          string
	FirstPipeline int32
	NumPipelines  int32
}

// Network has weights that can be loaded onto a device: a network, a variant of one, or an adapter.
type Network struct {
	Name        string
	Bytes       int64 // bytes of its weights; 0 if unknown
	BaseNetwork int32 // network to which an adapter belongs; -1 if it is no adapter
	// LoadTimes has the times of loading: [device kind][0 warm, 1 cold]. It is nil if they are not known.
	LoadTimes [][2]time.Duration
}

// Instance is a server of language models on a device.
type Instance struct {
	MaxSequences   int32   // sequences that run at once
	TokenBudget    int32   // tokens of one iteration
	ProgressTokens int32   // tokens between two TokenProgress events of a batch
	KVTokens       int64   // tokens of KV memory
	DeviceCount    int32   // physical devices that it takes (tensor parallelism); 0 means one
	Server         *Server // nil if only the interpreter knows it
}

// Key returns the names of the model and its class.
func (m *Model) Key() formats.ModelClass { return formats.ModelClass{Model: m.Name, Class: m.Class} }

// Pipeline is a pooled pipeline of a service.
type Pipeline struct {
	Model      int32 // model that it serves; -1 for several
	Service    int32
	Network    int32
	Batch      int32 // planned batch size
	FirstStage int32
	NumStages  int32
	RPS        float64 // planned rate
}

// Stage is one stage of a pipeline.
type Stage struct {
	Pipeline        int32
	Hop             int16 // position in the pipeline
	FirstDevice     int32 // index into StageDevices
	NumDevices      int32
	FirstBlock      int32           // first block of its range
	LastBlock       int32           // end of the block range, exclusive
	Infer           []time.Duration // time of batch b, at [b-1]
	Mean            []time.Duration // mean time of batch b when serving, at [b-1]; nil means Infer
	MeasuredBatches []int           // batch sizes whose times are not interpolated; nil means those at which Infer changes
	IdlePenalty     time.Duration   // additional time of a run that begins after the device was idle for a while
	Xfer            []time.Duration // transfer of batch b into this stage, at [b-1]; nil for the first stage and on one host
	CutBytes        int64           // bytes per sample of the incoming tensors
	FP16In          bool            // the incoming tensors are transferred as float16
}

// Device is something that runs one batch at a time: a whole device or a share of one.
type Device struct {
	Kind     int32 // index into Kinds
	Share    int32 // v of the share 1/v
	GPU      int32 // physical device within the pool
	Slot     int32 // number of the share within that device
	Node     int32 // node of the device; devices of one node need no NIC between them
	Uplink   int32 // index into Links; -1 on one host
	Downlink int32
	Instance int32 // index into Instances; -1 if it runs batches of stages
}

// Link is one direction of a node's NIC.
type Link struct {
	Kind     int32
	Node     int32
	IsUplink bool
	Gbps     float64 // rate in Gbit/s
}

// DevicesOf returns the devices that run a stage, by indexes in Devices.
func (t *Tables) DevicesOf(stage int32) []int32 {
	stageRow := &t.Stages[stage]
	return t.StageDevices[stageRow.FirstDevice : stageRow.FirstDevice+stageRow.NumDevices]
}

// PipelinesOf returns the indexes [first, last) in Pipelines of a model's pipelines.
func (t *Tables) PipelinesOf(model int32) (first, last int32) {
	modelRow := &t.Models[model]
	return modelRow.FirstPipeline, modelRow.FirstPipeline + modelRow.NumPipelines
}

// TransferBetween returns how long the cut tensors of a batch of a size (batch) take into a stage from the device
// sender to the device receiver. Within a node it returns 0.
func (t *Tables) TransferBetween(stage, batch, sender, receiver int32) time.Duration {
	stageRow := &t.Stages[stage]
	if stageRow.Xfer == nil || t.Devices[sender].Uplink >= 0 && t.Devices[sender].Node == t.Devices[receiver].Node {
		return 0
	}
	return stageRow.Xfer[batch-1]
}

// MaxBatch returns the largest planned batch size of all pipelines.
func (t *Tables) MaxBatch() int32 {
	largest := int32(1)
	for i := range t.Pipelines {
		largest = max(largest, t.Pipelines[i].Batch)
	}
	return largest
}

// MaxStages returns the number of stages of the pipeline that has most.
func (t *Tables) MaxStages() int32 {
	longest := int32(1)
	for i := range t.Pipelines {
		longest = max(longest, t.Pipelines[i].NumStages)
	}
	return longest
}

// ChainCount returns the number of replicas of a pipeline: the devices of the stage that has most. A device of a
// stage with fewer is in several chains, and all devices of a stage are in equally many.
func (t *Tables) ChainCount(pipeline int32) int32 {
	pipelineRow, replicas := &t.Pipelines[pipeline], int32(0)
	for stage := pipelineRow.FirstStage; stage < pipelineRow.FirstStage+pipelineRow.NumStages; stage++ {
		replicas = max(replicas, t.Stages[stage].NumDevices)
	}
	return replicas
}

// ChainDevice returns the device of a stage in a chain (replica) of a pipeline. hop is the stage's position in the pipeline.
func (t *Tables) ChainDevice(pipeline, chain, hop int32) int32 {
	stage := t.Pipelines[pipeline].FirstStage + hop
	return t.DevicesOf(stage)[chain/(t.ChainCount(pipeline)/t.Stages[stage].NumDevices)]
}
