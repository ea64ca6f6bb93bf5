package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// defaultProgressTokens is the number of tokens between two TokenProgress events.
const defaultProgressTokens = 32

// serverKind is a kind of servers: instances on as many devices of a kind.
type serverKind struct {
	device         string
	tensorParallel int
}

// addServerKinds returns, by kind of servers (a kind of devices, and how many of them a server takes), the index of its
// kind in t.Kinds. Kinds of servers are kinds of their own because their times differ. If servers on one kind of devices
// take different numbers of them, addServerKinds adds a kind for each further number, with the same name and without
// devices beside those of the first.
func (t *Tables) addServerKinds(queuePlan *formats.QueuePlan) map[serverKind]int32 {
	kinds := map[serverKind]int32{}
	isTaken := make([]bool, len(t.Kinds))
	for i := range queuePlan.Instances {
		server := serverKind{queuePlan.Instances[i].Device, queuePlan.Instances[i].TensorParallel}
		first := slices.Index(t.Kinds, server.device)
		if _, isKnown := kinds[server]; isKnown || first < 0 {
			continue
		}
		if kinds[server] = int32(first); isTaken[first] {
			kinds[server] = int32(len(t.Kinds))
			t.Kinds, t.KindCounts = append(t.Kinds, server.device), append(t.KindCounts, 0)
		}
		isTaken[first] = true
	}
	return kinds
}

// KindLabels returns the names of the kinds for people. Kinds with the same name, those of servers that take different
// numbers of devices, are told apart by that number, such as "2 x A100".
func (t *Tables) KindLabels() []string {
	labels := slices.Clone(t.Kinds)
	for device := range t.Devices {
		kind := t.Devices[device].Kind
		isSameName := func(name string) bool { return name == t.Kinds[kind] }
		if first := slices.IndexFunc(t.Kinds, isSameName); slices.ContainsFunc(t.Kinds[first+1:], isSameName) {
			labels[kind] = fmt.Sprintf("%.0f x %s", t.PhysicalDevices(int32(device)), t.Kinds[kind])
		}
	}
	return labels
}

// AddInstances adds the instances of a plan of queues to its shared tables: networks, devices with their servers,
// and a pipeline per model and class that runs on every instance that may run the model.
func (t *Tables) AddInstances(queuePlan *formats.QueuePlan, pools []formats.Pool) error {
	if queuePlan == nil || len(queuePlan.Classes) != len(t.Models) {
		return &document.Error{Path: "queue.classes", Found: "none, or another number than there are in the deployment", Expected: "the classes of the deployment, in order"}
	}
	kinds := t.addServerKinds(queuePlan)

	// Add the networks, with their load times by device kind.
	profile := formats.Profile{LLMs: queuePlan.Models}
	t.Networks = nil
	for i := range queuePlan.Models {
		model := &queuePlan.Models[i]
		network := Network{Name: model.Model, Bytes: model.WeightBytes, BaseNetwork: -1, LoadTimes: make([][2]time.Duration, len(t.Kinds))}
		for k := range model.Instances {
			if instance := &model.Instances[k]; instance.Loads != nil {
				if kind, ok := kinds[serverKind{instance.Device, instance.TensorParallel}]; ok {
					network.LoadTimes[kind] = [2]time.Duration{warmLoadTime(instance.Loads), instance.Loads.ColdUS.D()}
				}
			}
		}
		t.Networks = append(t.Networks, network)
	}

	// Add the instances, each on a device of its own with its first network.
	t.Devices, t.Resident, t.Instances = nil, nil, nil
	for i := range queuePlan.Instances {
		instance := &queuePlan.Instances[i]
		pool := slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == instance.Device })
		if pool < 0 {
			return &document.Error{Path: fmt.Sprintf("queue.instances[%d].device", i), Found: instance.Device, Expected: "a device of the plan's pools"}
		}
		kind, perNode := kinds[serverKind{instance.Device, instance.TensorParallel}], pools[pool].WithDefaults().PerNode

		// Configure its server, with the host's memory that unloaded networks may use: the instances on a host, each of which
		// takes TensorParallel devices, have equal parts of it.
		server, err := t.serverOf(instance, &profile, fmt.Sprintf("queue.instances[%d]", i))
		if err != nil {
			return err
		}
		server.WarmBytes = math.MaxInt64 // no limit
		for _, host := range queuePlan.Hosts {
			if host.Device == instance.Device {
				server.WarmBytes = host.MemoryBytes / int64(max(1, perNode/instance.TensorParallel))
			}
		}

		// Add its device, which holds the first network at the start.
		firstNetwork := t.networkOf(instance.Model)
		cost := &server.Costs[firstNetwork]
		t.Devices = append(t.Devices, Device{Kind: kind, Share: 1, GPU: int32(instance.FirstDevice), Node: int32(instance.FirstDevice / max(1, perNode)), Uplink: -1, Downlink: -1, Instance: int32(i)})
		t.Instances = append(t.Instances, Instance{
			MaxSequences: cost.MaxSequences, TokenBudget: int32(instance.TokenBudget), ProgressTokens: defaultProgressTokens, KVTokens: cost.KVTokens, DeviceCount: int32(instance.TensorParallel), Server: server,
		})
		t.Resident = append(t.Resident, []int32{firstNetwork})
	}
	t.addQueuePipelines(queuePlan)
	return nil
}

// warmLoadTime returns the time of loading a model from the host's memory: that of waking a server that sleeps with
// it, if that was measured.
func warmLoadTime(loads *formats.ModelLoads) time.Duration {
	if loads.WakeUS > 0 {
		return loads.WakeUS.D()
	}
	return loads.WarmUS.D()
}

// serverOf returns the server of an instance in a plan of queues, with the costs of each network that it may run,
// from the profile. It returns an error, which names the field path, if the profile lacks the KV capacity of one.
func (t *Tables) serverOf(instance *formats.QueueInstance, profile *formats.Profile, path string) (*Server, error) {
	server := &Server{
		Costs: make([]ServerCost, len(t.Networks)), PrefixCache: !instance.NoPrefixCache,
		ByPriority: instance.Scheduling == formats.SchedulePriority, SwapKV: instance.Preemption == formats.PreemptBySwap,
	}
	for k, model := range instance.Models {
		llm, cost := profile.LLMOn(model, instance.Device, instance.TensorParallel)
		if cost == nil || cost.KVTokens == 0 {
			return nil, &document.Error{Path: fmt.Sprintf("%s.models[%d]", path, k), Found: model + " without a KV capacity", Expected: "kv_tokens of the model on the instance's devices", Hint: "read it from the server"}
		}

		// Enter the costs of the network.
		networkCost := ServerCost{Iteration: cost.Iteration, KVTokens: cost.KVTokens, KVTokenBytes: llm.KVBytesPerToken, MaxSequences: int32(instance.Sequences[k])}
		if cost.Loads != nil {
			networkCost.UnloadTime = cost.Loads.LeavesUS().D()
		}
		server.Costs[t.networkOf(model)] = networkCost
		server.BlockTokens = max(server.BlockTokens, int32(cost.BlockTokens))
		server.SwapGBps = max(server.SwapGBps, cost.SwapGBps)
	}
	return server, nil
}

// addQueuePipelines adds a pipeline of one stage for every model and class. Its devices are the instances that may
// run the model.
func (t *Tables) addQueuePipelines(queuePlan *formats.QueuePlan) {
	t.Pipelines, t.Stages, t.StageDevices, t.Services = nil, nil, nil, nil
	for i := range t.Models {
		model := &t.Models[i]
		class := &queuePlan.Classes[i]
		model.Prompt, model.Output, model.Sessions = class.Prompt, class.Output, class.Sessions
		model.SLOFigure, model.Priority, model.WaitSLO = class.Figure, int32(class.Priority), class.WaitingUS.D()
		model.FirstPipeline, model.NumPipelines = int32(i), 1

		// Its only stage runs on every instance that may run the network. The time of the stage is that of a mean prompt and
		// answer alone on the slowest of these, and at least a nanosecond.
		network := t.networkOf(model.Name)
		stage := Stage{Pipeline: int32(i), FirstDevice: int32(len(t.StageDevices)), LastBlock: 1, Infer: []time.Duration{1}}
		for device := range t.Devices {
			if cost := &t.Instances[device].Server.Costs[network]; cost.KVTokens > 0 {
				t.StageDevices = append(t.StageDevices, int32(device))
				stage.NumDevices++
				promptTime := cost.Iteration.PrefillTime(int32(max(1, class.PromptMean)), 0)
				answerTime := time.Duration(max(1, class.OutputMean) * float64(cost.Iteration.TokenTime(1, class.PromptMean)))
				stage.Infer[0] = max(stage.Infer[0], promptTime+answerTime)
			}
		}
		t.Stages = append(t.Stages, stage)
		t.Pipelines = append(t.Pipelines, Pipeline{Model: int32(i), Service: int32(i), Network: network, Batch: 1, FirstStage: int32(i), NumStages: 1, RPS: model.RPS})
		t.Services = append(t.Services, Service{Name: model.Key().String(), FirstPipeline: int32(i), NumPipelines: 1})
	}
}
