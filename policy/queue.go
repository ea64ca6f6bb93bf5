package policy

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// defaultProgressTokens is the number of tokens between two TokenProgress events.
const defaultProgressTokens = 32

// AddInstances adds the instances of a plan of queues to its shared tables: networks, devices with their servers,
// and a pipeline per model and class that runs on every instance that may run the model.
func (t *Tables) AddInstances(q *formats.QueuePlan, pools []formats.Pool) error {
	if q == nil || len(q.Classes) != len(t.Models) {
		return &document.Error{Path: "queue.classes", Found: "none, or another number than there are in the deployment", Expected: "the classes of the deployment, in order"}
	}
	kinds := map[string]int32{}
	for i, name := range t.Kinds {
		kinds[name] = int32(i)
	}

	// Add the networks, with their load times by device kind.
	profile := formats.Profile{LLMs: q.Models}
	t.Networks = nil
	for i := range q.Models {
		m := &q.Models[i]
		n := Network{Name: m.Model, Bytes: m.WeightBytes, BaseNetwork: -1, LoadTimes: make([][2]time.Duration, len(t.Kinds))}
		for k := range m.Instances {
			if in := &m.Instances[k]; in.Loads != nil {
				if kind, ok := kinds[in.Device]; ok {
					n.LoadTimes[kind] = [2]time.Duration{warmLoadTime(in.Loads), in.Loads.ColdUS.D()}
				}
			}
		}
		t.Networks = append(t.Networks, n)
	}

	// Add the instances, each on a device of its own with its first network.
	t.Devices, t.Resident, t.Instances = nil, nil, nil
	for i := range q.Instances {
		in := &q.Instances[i]
		kind, ok := kinds[in.Device]
		if !ok {
			return &document.Error{Path: fmt.Sprintf("queue.instances[%d].device", i), Found: in.Device, Expected: "a device of the plan's pools"}
		}
		pool := pools[kind].WithDefaults()

		// Configure its server, with the host's memory that unloaded networks may use.
		server, err := t.serverOf(in, &profile, fmt.Sprintf("queue.instances[%d]", i))
		if err != nil {
			return err
		}
		server.WarmBytes = math.MaxInt64 // no limit
		for _, h := range q.Hosts {
			if h.Device == in.Device {
				server.WarmBytes = h.MemoryBytes / int64(max(1, pool.PerNode/in.TensorParallel))
			}
		}

		// Add its device, which holds the first network at the start.
		start := t.networkOf(in.Model)
		cost := &server.Costs[start]
		t.Devices = append(t.Devices, Device{Kind: kind, Share: 1, GPU: int32(in.FirstDevice), Node: int32(in.FirstDevice / max(1, pool.PerNode)), Uplink: -1, Downlink: -1, Instance: int32(i)})
		t.Instances = append(t.Instances, Instance{
			MaxSequences: cost.MaxSequences, TokenBudget: int32(in.TokenBudget), ProgressTokens: defaultProgressTokens, KVTokens: cost.KVTokens, DeviceCount: int32(in.TensorParallel), Server: server,
		})
		t.Resident = append(t.Resident, []int32{start})
	}
	t.addQueuePipelines(q)
	return nil
}

// warmLoadTime returns the time of loading a model from the host's memory: that of waking a server that sleeps with
// it, if that was measured.
func warmLoadTime(l *formats.ModelLoads) time.Duration {
	if l.WakeUS > 0 {
		return l.WakeUS.D()
	}
	return l.WarmUS.D()
}

// serverOf returns the server of an instance in a plan of queues, with the costs of each network that it may run,
// from the profile. It returns an error if the profile lacks the KV capacity of one.
func (t *Tables) serverOf(in *formats.QueueInstance, profile *formats.Profile, path string) (*Server, error) {
	s := &Server{
		Costs: make([]ServerCost, len(t.Networks)), PrefixCache: !in.NoPrefixCache,
		ByPriority: in.Scheduling == formats.SchedulePriority, SwapKV: in.Preemption == formats.PreemptBySwap,
	}
	for k, model := range in.Models {
		m, cost := profile.LLMOn(model, in.Device, in.TensorParallel)
		if cost == nil || cost.KVTokens == 0 {
			return nil, &document.Error{Path: fmt.Sprintf("%s.models[%d]", path, k), Found: model + " without a KV capacity", Expected: "kv_tokens of the model on the instance's devices", Hint: "read it from the server"}
		}
		c := ServerCost{Iteration: cost.Iteration, KVTokens: cost.KVTokens, KVTokenBytes: m.KVBytesPerToken, MaxSequences: int32(in.Sequences[k])}
		if cost.Loads != nil {
			c.UnloadTime = cost.Loads.LeavesUS().D()
		}
		s.Costs[t.networkOf(model)] = c
		s.BlockTokens, s.SwapGBps = max(s.BlockTokens, int32(cost.BlockTokens)), max(s.SwapGBps, cost.SwapGBps)
	}
	return s, nil
}

// addQueuePipelines adds a pipeline of one stage for every model and class. Its devices are the instances that may
// run the model.
func (t *Tables) addQueuePipelines(q *formats.QueuePlan) {
	t.Pipelines, t.Stages, t.StageDevices, t.Services = nil, nil, nil, nil
	for i := range t.Models {
		m := &t.Models[i]
		k := &q.Classes[i]
		m.Prompt, m.Output, m.Sessions = k.Prompt, k.Output, k.Sessions
		m.SLOFigure, m.Priority, m.WaitSLO, m.FirstPipeline, m.NumPipelines = k.Figure, int32(k.Priority), k.WaitingUS.D(), int32(i), 1
		network := t.networkOf(m.Name)
		stage := Stage{Pipeline: int32(i), FirstDevice: int32(len(t.StageDevices)), LastBlock: 1, Infer: []time.Duration{1}}
		for d := range t.Devices {
			if c := &t.Instances[d].Server.Costs[network]; c.KVTokens > 0 {
				t.StageDevices = append(t.StageDevices, int32(d))
				stage.NumDevices++
				stage.Infer[0] = max(stage.Infer[0], c.Iteration.PrefillTime(int32(max(1, k.PromptMean)), 0)+time.Duration(max(1, k.OutputMean)*float64(c.Iteration.TokenTime(1, k.PromptMean))))
			}
		}
		t.Stages = append(t.Stages, stage)
		t.Pipelines = append(t.Pipelines, Pipeline{Model: int32(i), Service: int32(i), Network: network, Batch: 1, FirstStage: int32(i), NumStages: 1, RPS: m.RPS})
		t.Services = append(t.Services, Service{Name: m.Key().String(), FirstPipeline: int32(i), NumPipelines: 1})
	}
}
