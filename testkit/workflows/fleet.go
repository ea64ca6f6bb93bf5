package workflows

import (
	"fmt"
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/workflow"
)

// Services of the applications.
const (
	ViT int32 = iota
	OPT
	SD
	LLM
	Card // the first of numCards

)

// numCards is how many knowledge cards there are.
const numCards = 26

// model holds the costs of a service.
type model struct {
	name         string
	gigabytes    float64
	first, slope float64 // seconds of a batch of one, and per further member
	most         int
	near, far    time.Duration // of its output
}

// A tensor moves within a node and across; text goes through the front end.
const (
	tensorNear = 200 * time.Microsecond
	tensorFar  = time.Millisecond
	text       = 3 * time.Millisecond
)

// Loads from host memory: a fixed part, in seconds, and gigabytes per second.
const (
	loadFixed = .1
	loadRate  = 12
)

// models are the services in order.
func models() []model {
	list := []model{
		{"vit-l-14", 0.6, 0.012, 0.003, 32, tensorNear, tensorFar},
		{"opt-6.7b", 13.3, 0.60, 0.010, 16, tensorNear, tensorFar},
		{"stable-diffusion-1.5", 2.6, 2.0, 1.0, 8, text, text},
		{"llama-2-7b", 13.5, 1.65, 0.026, 16, text, text},
	}
	for i := range numCards {
		list = append(list, model{fmt.Sprintf("card-%d", i+1), 2.63, 0.70, 0.008, 16, text, text})
	}
	return list
}

// Names of the applications, in the order of their models.
var Names = []string{"GILL", "KNOWLEDGECARD", "DEBATE"}

// Fleet describes the devices that serve the applications.
type Fleet struct {
	Devices   int
	Gigabytes float64 // of memory for networks
	PerNode   int     // devices; 0 stands for 8
	// LoadFixed and LoadRate are the seconds of a load and its gigabytes per
	// second; LoadRate 0 stands for .1 s and 12 GB/s, from host memory.
	LoadFixed, LoadRate float64
	Instant             bool // loads take no time
	// Resident has, by device, the services that are there from the start.
	Resident [][]int32
	// The last Others devices are of another kind, whose batches and loads take Factor
	// times as long, and which do not run the language models where Small is true.
	Others int
	Factor float64
	Small  bool
	// Generations has the language models run iteration by iteration, with as many
	// sequences at once as their fixed batches have tasks. A copy takes KV memory for as
	// many beside its weights.
	Generations bool
	// Session is the state that the language model of KNOWLEDGECARD and DEBATE keeps of a request.
	Session flow.SessionState
}

// Tables are the tables of a fleet. Every device can run every service.
func (f Fleet) Tables() *policy.Tables {
	perNode := f.PerNode
	if perNode == 0 {
		perNode = 8
	}
	if f.LoadRate == 0 {
		f.LoadFixed, f.LoadRate = loadFixed, loadRate
	}
	t := &policy.Tables{Kinds: []string{"device"}, KindCounts: []int32{int32(f.Devices - f.Others)}, HandledEvents: workflow.HandledEvents}
	if f.Others > 0 {
		t.Kinds, t.KindCounts = append(t.Kinds, "other"), append(t.KindCounts, int32(f.Others))
	}
	for _, name := range Names {
		t.Models = append(t.Models, policy.Model{Name: name, SLO: time.Hour, Percentile: .99})
	}
	var all []int32
	for d := range f.Devices {
		all = append(all, int32(d))
		kind := int32(0)
		if d >= f.Devices-f.Others {
			kind = 1
		}
		t.Devices = append(t.Devices, policy.Device{Kind: kind, Share: 1, GPU: int32(d), Node: int32(d / perNode), Uplink: -1, Downlink: -1, Instance: -1})
		t.Memory = append(t.Memory, int64(f.Gigabytes*1e9))
		var resident []int32
		if d < len(f.Resident) {
			resident = f.Resident[d]
		}
		t.Resident = append(t.Resident, resident)
	}
	t.StageDevices = all
	own := &flow.WorkflowTables{}
	for i, m := range models() {
		s := int32(i)
		first := int32(len(t.Pipelines))
		net := policy.Network{Name: m.name, Bytes: int64(m.gigabytes * 1e9), BaseNetwork: -1}
		own.LanguageModels = append(own.LanguageModels, f.generation(s, m.most))
		if on := own.LanguageModels[s].Engines; len(on) > 0 {
			net.Bytes += on[0].KVTokens * own.LanguageModels[s].KVBytes
		}
		for kind := range t.Kinds {
			net.LoadTimes = append(net.LoadTimes, f.addKind(t, s, kind, &m))
		}
		t.Networks = append(t.Networks, net)
		t.Services = append(t.Services, policy.Service{Name: m.name, FirstPipeline: first, NumPipelines: int32(len(t.Pipelines)) - first})
		own.TransferTimes = append(own.TransferTimes, flow.TransferTime{SameNode: m.near, OtherNode: m.far})
		if s == LLM && f.Session.Bytes > 0 {
			own.SessionStates = make([]flow.SessionState, s+1)
			own.SessionStates[s] = f.Session
		}
	}
	if !f.Generations {
		own.LanguageModels = nil
	}
	t.KindTables = own
	return t
}

// generation is a service as a language model, where it is one and the fleet runs such.
func (f *Fleet) generation(s int32, most int) flow.LanguageModel {
	g := generationOf(s)
	if !f.Generations || g == nil {
		return flow.LanguageModel{}
	}
	if f.Others > 0 {
		return g.on(most, 1, f.Factor)
	}
	return g.on(most, 1)
}

// addKind adds the pipeline of a service on a kind of devices, unless that does not
// run it, and gives the time of its load there.
func (f *Fleet) addKind(t *policy.Tables, s int32, kind int, m *model) [2]time.Duration {
	slower, n, from := 1.0, int32(f.Devices-f.Others), int32(0)
	if kind > 0 {
		slower, n, from = f.Factor, int32(f.Others), n
	}
	load := seconds(slower * (f.LoadFixed + m.gigabytes/f.LoadRate))
	if f.Instant {
		load = 0
	}
	if kind == 0 || !f.Small || s != LLM && s != OPT {
		at := int32(len(t.Stages))
		stage := policy.Stage{Pipeline: at, FirstDevice: from, NumDevices: n, LastBlock: 1}
		for n := range m.most {
			stage.Infer = append(stage.Infer, seconds(slower*(m.first+m.slope*float64(n))))
		}
		if g := generationOf(s); f.Generations && g != nil {
			stage.Infer = g.times(m.most, slower)
		}
		t.Stages = append(t.Stages, stage)
		t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: -1, Service: s, Network: s, Batch: int32(m.most), FirstStage: at, NumStages: 1})
	}
	return [2]time.Duration{load, load}
}

// Move is how long an output takes between devices of the fleet's tables, for
// sim.Config.MoveTime.
func Move(t *policy.Tables) func(service, from, to int32) time.Duration {
	own := flow.WorkflowTablesOf(t)
	return func(service, from, to int32) time.Duration { return own.OutputTransferTime(t, service, from, to) }
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
