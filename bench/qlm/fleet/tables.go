package fleet

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"inferplan/bench/qlm/instance"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// hosted is a model on an A100 with what it weighs and how many sequences it runs.
type hosted struct {
	llm.Model
	weights float64 // bytes
}

var hostedModels = [2]hosted{
	{with(instance.Mistral7B, 64), 14.5e9},
	{with(instance.Vicuna13B, 32), 26.0e9},
}

func with(m llm.Model, sequences int32) llm.Model {
	m.Sequences = sequences
	return m
}

// Rates of weights and KV, in bytes a second.
const (
	fromHost    = 23.6e9
	fromStorage = 3.62e9
)

// budget is the tokens of an iteration.
const budget = 2048

// calibrated has the estimators of the hosted models, and of mega prompts on the
// first.
type calibrated struct {
	plain [2]vqueue.RCT
	mega  vqueue.RCT
}

// calibrate drains queues: 1200 rows of the trace from row 6000 on, every eleventh,
// and 300 mega prompts.
func (d *Data) calibrate() (*calibrated, error) {
	var list []llm.Request
	for i, n := 6000, 0; i < len(d.Conversations) && n < 1200; i, n = i+11, n+1 {
		r := d.Conversations[i]
		r.At = 0
		list = append(list, r)
	}
	c := &calibrated{}
	for i := range hostedModels {
		r, err := drained(&hostedModels[i].Model, list)
		if err != nil {
			return nil, err
		}
		c.plain[i] = *r
	}
	r, err := drained(&hostedModels[0].Model, d.Mega[:min(300, len(d.Mega))])
	if err != nil {
		return nil, err
	}
	c.mega = *r
	return c, nil
}

// drained is the estimator fitted to a queue that an instance drains.
func drained(m *llm.Model, list []llm.Request) (*vqueue.RCT, error) {
	out, _, err := llm.Serve(llm.Options{Budget: budget, Block: 16}, *m, list)
	if err != nil {
		return nil, fmt.Errorf("draining a queue: %w", err)
	}
	r, err := vqueue.Calibrate(instance.Timed(list, out), instance.Batch(out))
	if err != nil {
		return nil, err
	}
	alone, _, err := llm.Serve(llm.Options{Budget: budget, Block: 16}, *m, []llm.Request{{Prompt: int32(r.PromptMean), Output: int32(r.OutputMean)}})
	if err != nil {
		return nil, err
	}
	r.Alone = (alone[0].End - alone[0].First).Seconds() / math.Max(1, r.OutputMean-1)
	return r, nil
}

// work is the instance's time that requests take by the estimators, in seconds.
func (w *Workload) work(c *calibrated, list []arrivals.Request) float64 {
	total := 0.0
	for _, r := range list {
		at := w.Models[int(r.Model)/len(Classes)] % 2
		e := &c.plain[at]
		if w.MegaPrompt > 0 && r.PromptTokens >= w.MegaPrompt {
			e = &c.mega
		}
		total += e.Alpha*float64(r.PromptTokens) + e.Beta*float64(r.OutputTokens)
	}
	return total
}

// tables are a fleet of A100s. Instance d begins with model d modulo their number;
// three models wait in the host's memory beside each.
func (w *Workload) tables(c *calibrated, instances int) *policy.Tables {
	t := &policy.Tables{Kinds: []string{"A100"}, KindCounts: []int32{int32(instances)}}
	own := &vqueue.Tables{}
	t.Own = own
	for n, of := range w.Models {
		h := &hostedModels[of%2]
		name := "model-" + strconv.Itoa(of)
		t.Networks = append(t.Networks, policy.Network{Name: name, Bytes: 1, Base: -1, Load: [][2]time.Duration{{
			time.Duration(h.weights / fromHost * 1e9), time.Duration(h.weights / fromStorage * 1e9),
		}}})
		for _, slo := range Classes {
			at := int32(len(t.Models))
			m := policy.Model{Name: name, Class: fmt.Sprint(slo), SLO: slo, FirstPipeline: at, NumPipelines: 1}
			t.Models = append(t.Models, m)
			t.Services = append(t.Services, policy.Service{Name: m.Key().String(), FirstPipeline: at, NumPipelines: 1})
			t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: at, Service: at, Network: int32(n), Batch: 1, FirstStage: at, NumStages: 1})
			t.Stages = append(t.Stages, policy.Stage{Pipeline: at, FirstDevice: 0, NumDevices: int32(instances), LastBlock: 1, Infer: []time.Duration{time.Second}})
			mega := c.plain[of%2]
			if of == 0 && w.MegaPrompt > 0 {
				mega = c.mega
				own.Mega = append(own.Mega, w.MegaPrompt)
			} else {
				own.Mega = append(own.Mega, 0)
			}
			own.RCT = append(own.RCT, c.plain[of%2], mega)
		}
	}
	for d := range instances {
		server := &policy.Server{Block: 16, SwapGBps: fromHost / 1e9, Hidden: 0.7, Warm: 3}
		for _, of := range w.Models {
			h := &hostedModels[of%2]
			server.Costs = append(server.Costs, policy.ServerCost{Iteration: h.Iteration, KV: h.KV, KVBytes: h.KVBytes, Sequences: h.Sequences})
		}
		t.StageDevices = append(t.StageDevices, int32(d))
		t.Devices = append(t.Devices, policy.Device{Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: int32(d)})
		first := &server.Costs[d%len(w.Models)]
		t.Instances = append(t.Instances, policy.Instance{Sequences: first.Sequences, Budget: budget, Progress: 32, KV: first.KV, Server: server})
		t.Resident = append(t.Resident, []int32{int32(d % len(w.Models))})
	}
	return t
}
