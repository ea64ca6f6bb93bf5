package policy

import "slices"

// addServices gives every model a service (what a task asks for) with the same index, for plans in which requests
// have one task.
func (t *Tables) addServices() {
	for m := range t.Models {
		mo := &t.Models[m]
		t.Services = append(t.Services, Service{Name: mo.Key().String(), FirstPipeline: mo.FirstPipeline, NumPipelines: mo.NumPipelines})
		for p := mo.FirstPipeline; p < mo.FirstPipeline+mo.NumPipelines; p++ {
			t.Pipelines[p].Service = int32(m)
		}
	}
}

// addNetworks adds a network for every model's name, which its SLO classes share, and lists the networks that the
// placement puts on each device.
func (t *Tables) addNetworks() {
	t.Resident = make([][]int32, len(t.Devices))
	for p := range t.Pipelines {
		pl := &t.Pipelines[p]
		pl.Network = t.networkOf(t.Models[pl.Model].Name)
		for s := pl.FirstStage; s < pl.FirstStage+pl.NumStages; s++ {
			for _, d := range t.DevicesOf(s) {
				if !slices.Contains(t.Resident[d], pl.Network) {
					t.Resident[d] = append(t.Resident[d], pl.Network)
				}
			}
		}
	}
}

// networkOf returns the index of the network (a model's weights) of a name. If there is none, it adds one.
func (t *Tables) networkOf(name string) int32 {
	for n := range t.Networks {
		if t.Networks[n].Name == name {
			return int32(n)
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
