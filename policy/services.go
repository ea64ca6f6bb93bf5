package policy

import "slices"

// addServices gives every model a service (what a task asks for) with the same index, for plans in which requests
// have one task.
func (t *Tables) addServices() {
	for modelIndex := range t.Models {
		model := &t.Models[modelIndex]
		t.Services = append(t.Services, Service{Name: model.Key().String(), FirstPipeline: model.FirstPipeline, NumPipelines: model.NumPipelines})
		for pipeline := model.FirstPipeline; pipeline < model.FirstPipeline+model.NumPipelines; pipeline++ {
			t.Pipelines[pipeline].Service = int32(modelIndex)
		}
	}
}

// addNetworks adds a network for every model's name, which its SLO classes share, and lists the networks that the
// placement puts on each device.
func (t *Tables) addNetworks() {
	t.Resident = make([][]int32, len(t.Devices))
	for pipelineIndex := range t.Pipelines {
		pipeline := &t.Pipelines[pipelineIndex]
		pipeline.Network = t.networkOf(t.Models[pipeline.Model].Name)
		for stage := pipeline.FirstStage; stage < pipeline.FirstStage+pipeline.NumStages; stage++ {
			for _, device := range t.DevicesOf(stage) {
				if !slices.Contains(t.Resident[device], pipeline.Network) {
					t.Resident[device] = append(t.Resident[device], pipeline.Network)
				}
			}
		}
	}
}

// networkOf returns the index of the network (a model's weights) with a name. If there is none, it adds one.
func (t *Tables) networkOf(name string) int32 {
	for network := range t.Networks {
		if t.Networks[network].Name == name {
			return int32(network)
		}
	}
	t.Networks = append(t.Networks, Network{Name: name, BaseNetwork: -1})
	return int32(len(t.Networks) - 1)
}

// InstanceOf returns the instance (a server of language models) on a device. If the device runs batches of stages
// instead, it returns -1.
func (t *Tables) InstanceOf(device int32) int32 {
	if len(t.Instances) == 0 {
		return -1
	}
	return t.Devices[device].Instance
}
