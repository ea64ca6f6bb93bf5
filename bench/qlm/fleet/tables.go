package fleet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// Families of models, and kinds of instances.
const (
	mistral = iota
	vicuna
	llama
	families
)

const (
	a100 = iota
	a10
	fourA100
	numKinds
)

var kindNames = [numKinds]string{"A100", "A10", "4xA100"}

// weights are those of a family, in bytes.
var weights = [families]float64{14.5e9, 26.0e9, 138e9}

// smallMistral is Mistral-7B on an A10: no measurement, but that of a RTX 4090 scaled
// by the cards' bandwidths and peak rates, with the KV memory that 24 GB leave.
var smallMistral = llm.Model{Iteration: formats.Iteration{BaseNS: 25.7e6, SequenceNS: 64000, ContextNS: 234, PromptNS: 107700, HingeTokens: 192, AttentionNS: 2}, KVTokens: 42700, TokenBytes: 131072}

// hosted has the costs of a family on a kind of instance. It is nil if the family does not fit.
var hosted = [families][numKinds]*llm.Model{
	mistral: {a100: with(instance.Mistral7B, 64), a10: with(smallMistral, 32)},
	vicuna:  {a100: with(instance.Vicuna13B, 32)},
	llama:   {fourA100: with(instance.Llama70BX4, 64)},
}

func with(m llm.Model, sequences int32) *llm.Model {
	m.MaxSequences = sequences
	return &m
}

// family is that of a model.
func family(of int) int {
	if of >= firstBig {
		return llama
	}
	return of % 2
}

// Rates of weights and KV, in bytes a second and device.
const (
	fromHost    = 23.6e9
	fromStorage = 3.62e9
)

// budget is the tokens of an iteration.
const budget = 2048

// calibrated has the estimators of families by kind, and of mega prompts for the
// first on A100.
type calibrated struct {
	plain [families][numKinds]*vqueue.RCT
	mega  vqueue.RCT
}

// calibrate drains queues: 1200 rows of the trace from row 6000 on, every eleventh,
// or as many lengths of ShareGPT, and 300 mega prompts.
func (d *Data) calibrate(w *Workload) (*calibrated, error) {
	rows, from, step := d.Conversations, 6000, 11
	switch {
	case w.ShareGPT:
		rows = d.Chats
	case w.Code:
		rows, from, step = d.Code, 0, 2
	}
	var list []llm.Request
	for i, n := from, 0; i < len(rows) && n < 1200; i, n = i+step, n+1 {
		r := rows[i]
		r.ArrivedAt = 0
		list = append(list, r)
	}
	c := &calibrated{}
	for f := range hosted {
		for k, m := range hosted[f] {
			if m == nil {
				continue
			}
			var err error
			if c.plain[f][k], err = drained(m, list); err != nil {
				return nil, err
			}
		}
	}
	r, err := drained(hosted[mistral][a100], d.Mega[:min(300, len(d.Mega))])
	if err != nil {
		return nil, err
	}
	c.mega = *r
	return c, nil
}

// drained is the estimator fitted to a queue that an instance drains, as far as a
// plan has it.
func drained(m *llm.Model, list []llm.Request) (*vqueue.RCT, error) {
	out, _, err := llm.ServeAll(llm.Options{TokenBudget: budget, BlockTokens: 16}, *m, list)
	if err != nil {
		return nil, fmt.Errorf("draining a queue: %w", err)
	}
	r, err := vqueue.Calibrate(instance.Timed(list, out), instance.Batch(out))
	if err != nil {
		return nil, err
	}
	alone, _, err := llm.ServeAll(llm.Options{TokenBudget: budget, BlockTokens: 16}, *m, []llm.Request{{Prompt: int32(r.PromptMean), Output: int32(r.OutputMean)}})
	if err != nil {
		return nil, err
	}
	r.DecodeAlone = (alone[0].LastToken - alone[0].FirstToken).Seconds() / math.Max(1, r.OutputMean-1)
	return r, nil
}

// kinds has the kind of every instance of a case: A10s come last but for those of
// four A100s.
func (c *Case) kinds() []int {
	out := slices.Repeat([]int{a100}, c.Instances-c.A10-c.Big)
	return slices.Concat(out, slices.Repeat([]int{a10}, c.A10), slices.Repeat([]int{fourA100}, c.Big))
}

// load is the work that requests bring per second over what the instances do: each
// request counts as a part of the kinds that can run its model.
func (c *Case) load(e *calibrated, list []arrivals.Request) float64 {
	rate := [families]float64{} // instances of the first kind that runs it
	for _, k := range c.kinds() {
		for f := range rate {
			if r := e.plain[f][k]; r != nil {
				own, _ := r.Work(1)
				first, _ := e.plain[f][firstKind(f)].Work(1)
				rate[f] += first / own
			}
		}
	}
	total := 0.0
	for _, r := range list {
		f := family(c.Workload.Models[int(r.Model)/len(Classes)])
		x := e.plain[f][firstKind(f)]
		if c.Workload.MegaPrompt > 0 && r.PromptTokens >= c.Workload.MegaPrompt {
			x = &e.mega
		}
		total += (x.Alpha*float64(r.PromptTokens) + x.Beta*float64(r.OutputTokens)) / rate[f]
	}
	return c.RPS / float64(len(list)) * total
}

// firstKind is the first kind that runs a family.
func firstKind(f int) int {
	return slices.IndexFunc(hosted[f][:], func(m *llm.Model) bool { return m != nil })
}

// tables are the fleet of a case. Instance d begins with the d-th, modulo their
// number, of the models that it can run; three models wait in the host's memory
// beside each.
func (c *Case) tables(e *calibrated) *policy.Tables {
	w := c.Workload
	t := &policy.Tables{Kinds: kindNames[:], KindCounts: make([]int32, numKinds)}
	own := &vqueue.Tables{}
	t.KindTables = own
	for n, of := range w.Models {
		f := family(of)
		name := "model-" + strconv.Itoa(of)
		network := policy.Network{Name: name, Bytes: 1, BaseNetwork: -1}
		for k := range numKinds {
			devices := 1.0
			if k == fourA100 {
				devices = 4
			}
			network.LoadTimes = append(network.LoadTimes, [2]time.Duration{time.Duration(weights[f] / fromHost / devices * 1e9), time.Duration(weights[f] / fromStorage / devices * 1e9)})
		}
		t.Networks = append(t.Networks, network)
		for class := range Classes {
			at := int32(len(t.Models))
			slo := w.slo(class)
			m := policy.Model{Name: name, Class: fmt.Sprint(slo), SLO: slo, RPS: c.RPS * w.popularity()[n] * w.shares()[class], FirstPipeline: at, NumPipelines: 1}
			t.Models = append(t.Models, m)
			t.Services = append(t.Services, policy.Service{Name: m.Key().String(), FirstPipeline: at, NumPipelines: 1})
			t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: at, Service: at, Network: int32(n), Batch: 1, FirstStage: at, NumStages: 1})
			c.estimate(e, own, of)
		}
	}
	c.instances(t)
	c.stages(t)
	return t
}

// estimate adds the estimators of a served model, plain and of mega prompts.
func (c *Case) estimate(e *calibrated, own *vqueue.Tables, of int) {
	w := c.Workload
	for _, mega := range []bool{false, true} {
		for k := range numKinds {
			r := vqueue.RCT{}
			if p := e.plain[family(of)][k]; p != nil {
				r = *p
			}
			if mega && of == 0 && w.MegaPrompt > 0 && k == a100 {
				r = e.mega
			}
			if off := c.Off; off > 0 {
				r.Alpha, r.Beta, r.Intercept, r.Decode = off*r.Alpha, off*r.Beta, off*r.Intercept, off*r.Decode
			}
			own.RCT = append(own.RCT, r)
		}
	}
	mega := int32(0)
	if of == 0 {
		mega = w.MegaPrompt
	}
	own.MegaTokens = append(own.MegaTokens, mega)
}

// instances adds the instances of a case.
func (c *Case) instances(t *policy.Tables) {
	for d, k := range c.kinds() {
		server := &policy.Server{BlockTokens: 16, SwapGBps: fromHost / 1e9, HiddenSwapShare: 0.7, WarmBytes: 3, ByPriority: c.Policy.Priority}
		var can []int32
		for n, of := range c.Workload.Models {
			h := hosted[family(of)][k]
			if h == nil {
				server.Costs = append(server.Costs, policy.ServerCost{})
				continue
			}
			can = append(can, int32(n))
			server.Costs = append(server.Costs, policy.ServerCost{Iteration: h.Iteration, KVTokens: h.KVTokens, KVTokenBytes: h.TokenBytes, MaxSequences: h.MaxSequences})
		}
		start := can[d%len(can)]
		t.KindCounts[k]++
		t.Devices = append(t.Devices, policy.Device{Kind: int32(k), Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: int32(d)})
		t.Instances = append(t.Instances, policy.Instance{MaxSequences: server.Costs[start].MaxSequences, TokenBudget: budget, ProgressTokens: 32, KVTokens: server.Costs[start].KVTokens, Server: server})
		t.Resident = append(t.Resident, []int32{start})
	}
	own := vqueue.TablesOf(t)
	own.AllowedDevices = make([][]int32, len(t.Networks))
	for n := range t.Networks {
		for d := range t.Devices {
			if t.Instances[d].Server.Costs[n].KVTokens > 0 {
				own.AllowedDevices[n] = append(own.AllowedDevices[n], int32(d))
			}
		}
	}
}

// stages adds a stage for every served model, on the devices that run it.
func (c *Case) stages(t *policy.Tables) {
	own := vqueue.TablesOf(t)
	for m := range t.Models {
		devices := own.AllowedDevices[t.Pipelines[m].Network]
		t.Stages = append(t.Stages, policy.Stage{Pipeline: int32(m), FirstDevice: int32(len(t.StageDevices)), NumDevices: int32(len(devices)), LastBlock: 1, Infer: []time.Duration{time.Second}})
		t.StageDevices = append(t.StageDevices, devices...)
	}
}
