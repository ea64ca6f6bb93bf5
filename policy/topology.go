package policy

import (
	"fmt"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Topology says which devices share which links.
type Topology string

const (
	// TopologyNodes is the network of the cluster document: one NIC per node, shared by all devices on it,
	// whatever their pipeline.
	TopologyNodes Topology = "nodes"
	// TopologyStages is the network that the simulator of PPipe's public artifact assumes: stages share no links.
	// The devices of a sending stage share uplinks in groups, in the order of their indexes. A group has as many
	// shares as the larger node of its own and the next stage's pool. Every receiving device has a downlink of its
	// own. Transfers within a node are no faster than others.
	TopologyStages Topology = "stages"
)

// Topologies returns the topologies that CompileOn takes, the usual one first.
func Topologies() []Topology { return []Topology{TopologyNodes, TopologyStages} }

// CompileOn compiles a plan like Compile, with links of the given topology: TopologyNodes, those of the cluster, or
// TopologyStages, those that PPipe's simulator assumes. It returns an error for another topology, or a plan that does not
// fit it.
func CompileOn(plan *formats.Plan, topology Topology) (*Tables, error) {
	tables, err := Compile(plan)
	if err != nil || topology == TopologyNodes {
		return tables, err
	}
	if topology != TopologyStages {
		return nil, fmt.Errorf("compiling the plan: network %q, expected one of %v", topology, Topologies())
	}
	if err := tables.replaceLinks(plan); err != nil {
		return nil, fmt.Errorf("compiling the plan: %w", err)
	}
	return tables, nil
}

// replaceLinks replaces the links between nodes by links of the stages' devices (TopologyStages). It returns an
// error for a pool whose devices serve several stages in turn, because no link would belong to one.
func (t *Tables) replaceLinks(plan *formats.Plan) error {
	rates := make([]float64, len(plan.Pools))
	for i := range plan.Pools {
		pool := &plan.Pools[i]
		rates[i] = pool.NICRate()
		if rates[i] > 0 && pool.TimeShared() {
			return &document.Error{Path: fmt.Sprintf("pools[%d].sharing", i), Found: strconv.Quote(pool.Sharing), Expected: strconv.Quote(formats.SharingExclusive) + " on a pool with a NIC",
				Hint: "on a time-shared pool no device belongs to one stage"}
		}
	}

	// Remove the links, and give each device with a NIC a node of its own.
	t.Links = nil
	for deviceIndex := range t.Devices {
		device := &t.Devices[deviceIndex]
		if rates[device.Kind] > 0 {
			device.Node, device.Uplink, device.Downlink = int32(deviceIndex), -1, -1
		}
	}

	// Add the links of the stages.
	for pipelineIndex := range t.Pipelines {
		pipeline := &t.Pipelines[pipelineIndex]
		for stage := pipeline.FirstStage; stage < pipeline.FirstStage+pipeline.NumStages; stage++ {
			var nextStage int32 = -1
			if stage+1 < pipeline.FirstStage+pipeline.NumStages {
				nextStage = stage + 1
			}
			receives := stage > pipeline.FirstStage // clients send to the first stage without a link
			t.linkStage(plan, rates, stage, nextStage, receives)
		}
	}

	// Devices without a NIC share one node, with a number that no other node has.
	for deviceIndex := range t.Devices {
		if device := &t.Devices[deviceIndex]; rates[device.Kind] == 0 {
			device.Node = int32(len(t.Devices))
		}
	}
	return nil
}

// linkStage adds the links of one stage's devices: a downlink for each device if the stage receives transfers, and an
// uplink for each group of devices that share one. As in the simulator of PPipe's public artifact, a group has as many
// physical devices as the larger node of the pools of the sending and the receiving stage. rates has the NIC rates by
// device kind, in Gbit/s. For the last stage of a pipeline nextStage is -1, and there are no uplinks. replaceLinks has
// given each device a node of its own with the device's number; a link belongs to that of its (first) device.
func (t *Tables) linkStage(plan *formats.Plan, rates []float64, stage, nextStage int32, receives bool) {
	devices := t.DevicesOf(stage)
	kind := t.Devices[devices[0]].Kind
	if rates[kind] == 0 {
		return
	}

	// Downlinks: one for each device.
	if receives {
		for _, device := range devices {
			t.Devices[device].Downlink = int32(len(t.Links))
			t.Links = append(t.Links, Link{Kind: kind, Node: device, Gbps: rates[kind]})
		}
	}

	// Uplinks: one for each group. A physical device is divided into Share devices.
	if nextStage < 0 {
		return
	}
	nextKind := t.Devices[t.DevicesOf(nextStage)[0]].Kind
	groupSize := max(1, plan.Pools[kind].PerNode, plan.Pools[nextKind].PerNode) * int(t.Devices[devices[0]].Share)
	for i, device := range devices {
		if i%groupSize == 0 {
			t.Links = append(t.Links, Link{Kind: kind, Node: device, IsUplink: true, Gbps: rates[kind]})
		}
		t.Devices[device].Uplink = int32(len(t.Links)) - 1
	}
}
