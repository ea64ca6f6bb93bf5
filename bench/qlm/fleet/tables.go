package fleet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/bench/qlm/instance"
	"inferplan/formats"
	"inferplan/formats/document"
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
func family(model int) int {
	if model >= firstBig {
		return llama
	}
	return model % 2
}

// Rates of weights and KV, in bytes a second and device.
const (
	fromHost    = 23.6e9
	fromStorage = 3.62e9
)

// calibrated has the estimators of families by kind, and of mega prompts for the first on A100.
type calibrated struct {
	plain [families][numKinds]*vqueue.RCT
	mega  *vqueue.RCT
}

// calibrate drains queues: 1200 rows of the trace from row 6000 on, every eleventh, or as many lengths of ShareGPT, and 300 mega
// prompts.
func (d *Data) calibrate(w *Workload) (*calibrated, error) {
	rows, from, step := d.Conversations, 6000, 11
	switch {
	case w.Talks == mooncake:
		rows, from, step = d.Mooncake, 0, 5
	case w.ShareGPT || w.Talks == shareGPT:
		rows = d.Chats
	case w.Code:
		rows, from, step = d.Code, 0, 2
	}
	list := Sample(rows, from, step)
	c := &calibrated{}
	var err error
	for f := range hosted {
		for k, m := range hosted[f] {
			if m == nil {
				continue
			}
			if c.plain[f][k], err = drained(m, list); err != nil {
				return nil, err
			}
		}
	}
	c.mega, err = drained(hosted[mistral][a100], d.Mega[:min(300, len(d.Mega))])
	return c, err
}

// Sample returns the lengths of at most 1200 rows: every so many from one on.
func Sample(rows []llm.Request, from, step int) []llm.Request {
	var list []llm.Request
	for i := from; i < len(rows) && len(list) < 1200; i += step {
		list = append(list, llm.Request{Prompt: rows[i].Prompt, Output: rows[i].Output})
	}
	return list
}

// drained is the estimator fitted to a queue that an instance drains, as far as a plan has it.
func drained(m *llm.Model, list []llm.Request) (*vqueue.RCT, error) {
	q := instance.Queue{Model: *m, Options: instance.Options}
	r, err := q.Calibrate(list)
	if err != nil {
		return nil, err
	}
	alone, _, err := q.Drain([]llm.Request{{Prompt: int32(r.PromptMean), Output: int32(r.OutputMean)}})
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

// devices returns how many GPUs an instance of a kind has.
func devices(kind int) float64 {
	if kind == fourA100 {
		return 4
	}
	return 1
}

// loads returns how long the weights of a family are loaded on a kind, from the host's memory and from storage.
func loads(family, kind int) *formats.ModelLoads {
	at := func(rate float64) document.Micros {
		return document.Micros(time.Duration(weights[family] / rate / devices(kind) * 1e9))
	}
	return &formats.ModelLoads{WarmUS: at(fromHost), ColdUS: at(fromStorage)}
}

// tables are the fleet of a case. Instance d begins with the d-th, modulo their number, of the models that it can run; three
// models, each of which counts as a byte, wait in the host's memory beside each.
func (c *Case) tables(e *calibrated) (*policy.Tables, error) {
	w, plan := c.Workload, &formats.QueuePlan{}
	t := &policy.Tables{Kinds: kindNames[:], KindCounts: make([]int32, numKinds)}
	queues := &vqueue.Tables{}
	for n, model := range w.Models {
		f := family(model)
		profile := formats.LLMProfile{Model: modelName(model), WeightBytes: 1}
		for k, m := range hosted[f] {
			if m != nil {
				profile.KVBytesPerToken = m.TokenBytes
				profile.Instances = append(profile.Instances, formats.LLMInstance{Device: kindNames[k], TensorParallel: 1, Iteration: m.Iteration, KVTokens: m.KVTokens, BlockTokens: 16, SwapGBps: fromHost / 1e9, Loads: loads(f, k)})
			}
		}
		plan.Models = append(plan.Models, profile)
		for class := range Classes {
			slo := w.slo(class)
			t.Models = append(t.Models, policy.Model{Name: modelName(model), Class: fmt.Sprint(slo), SLO: slo, RPS: c.RPS * w.popularity()[n] * w.shares()[class]})
			plan.Classes = append(plan.Classes, formats.QueueClass{})
			c.estimate(e, queues, model)
		}
	}

	// The instances, with what each can run.
	pools := make([]formats.Pool, numKinds)
	for k, name := range kindNames {
		plan.Hosts = append(plan.Hosts, formats.QueueHost{Device: name, MemoryBytes: 3})
		pools[k] = formats.Pool{Device: name, PerNode: 1}
	}
	queues.AllowedDevices = make([][]int32, len(w.Models))
	for d, k := range c.kinds() {
		t.KindCounts[k]++
		pools[k].Count++
		in := formats.QueueInstance{Device: kindNames[k], FirstDevice: d, TensorParallel: 1, TokenBudget: int(instance.Options.TokenBudget), NoPrefixCache: w.Talks == ""}
		for n, model := range w.Models {
			if m := hosted[family(model)][k]; m != nil {
				in.Models, in.Sequences = append(in.Models, modelName(model)), append(in.Sequences, int(m.MaxSequences))
				queues.AllowedDevices[n] = append(queues.AllowedDevices[n], int32(d))
			}
		}
		in.Model = in.Models[d%len(in.Models)]
		plan.Instances = append(plan.Instances, in)
	}
	if err := t.AddInstances(plan, pools); err != nil {
		return nil, err
	}
	for i := range t.Instances {
		t.Instances[i].Server.HiddenSwapShare = 0.7
	}
	t.KindTables = queues
	return t, nil
}

func modelName(model int) string { return "model-" + strconv.Itoa(model) }

// estimate adds the estimators of a served model, plain and of mega prompts.
func (c *Case) estimate(e *calibrated, queues *vqueue.Tables, model int) {
	w := c.Workload
	for _, mega := range []bool{false, true} {
		for k := range numKinds {
			r := vqueue.RCT{}
			if p := e.plain[family(model)][k]; p != nil {
				r = *p
			}
			if mega && model == 0 && w.MegaPrompt > 0 && k == a100 {
				r = *e.mega
			}
			queues.RCT = append(queues.RCT, r)
		}
	}
	mega := int32(0)
	if model == 0 {
		mega = w.MegaPrompt
	}
	queues.MegaTokens = append(queues.MegaTokens, mega)
}
