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

// Topologies returns the topologies, in order.
func Topologies() []Topology { return []Topology{TopologyNodes, TopologyStages} }

// CompileOn compiles a plan like Compile, with the given topology: links of nodes, as they are, or of stages, as
// PPipe's model has them.
func CompileOn(plan *formats.Plan, network Topology) (*Tables, error) {
	t, err := Compile(plan)
	if err != nil || network == TopologyNodes {
		return t, err
	}
	if network != TopologyStages {
		return nil, fmt.Errorf("compiling the plan: network %q, expected one of %v", network, Topologies())
	}
	if err := t.replaceLinks(plan); err != nil {
		return nil, fmt.Errorf("compiling the plan: %w", err)
	}
	return t, nil
}

// replaceLinks replaces the links between nodes by links of the stages' devices (TopologyStages). It returns an
// error for a pool whose devices serve several stages in turn, because no link would belong to one.
func (t *Tables) replaceLinks(plan *formats.Plan) error {
	rates := make([]float64, len(plan.Pools))
	for i := range plan.Pools {
		p := &plan.Pools[i]
		rates[i] = p.NICRate()
		if rates[i] > 0 && p.TimeShared() {
			return &document.Error{Path: fmt.Sprintf("pools[%d].sharing", i), Found: strconv.Quote(p.Sharing), Expected: strconv.Quote(formats.SharingExclusive) + " on a pool with a NIC",
				Hint: "on a time-shared pool no device belongs to one stage"}
		}
	}

	// Remove the links, and give each device with a NIC a node of its own.
	t.Links = nil
	for d := range t.Devices {
		dev := &t.Devices[d]
		if rates[dev.Kind] > 0 {
			dev.Node, dev.Uplink, dev.Downlink = int32(d), -1, -1
		}
	}

	// Add the links of the stages.
	for pl := range t.Pipelines {
		p := &t.Pipelines[pl]
		for s := p.FirstStage; s < p.FirstStage+p.NumStages; s++ {
			var nextStage int32 = -1
			if s+1 < p.FirstStage+p.NumStages {
				nextStage = s + 1
			}
			t.linkStage(plan, rates, s, nextStage, s > p.FirstStage)
		}
	}

	// Devices without a NIC share one node, with a number that no other node has.
	for d := range t.Devices {
		if dev := &t.Devices[d]; rates[dev.Kind] == 0 {
			dev.Node = int32(len(t.Devices))
		}
	}
	return nil
}

// linkStage adds the links of one stage's devices: a downlink for each if it receives transfers, and an uplink for
// each group of devices, as many as a node has. For the last stage of a pipeline nextStage is -1, and there are no
// uplinks.
func (t *Tables) linkStage(plan *formats.Plan, rates []float64, stage, nextStage int32, receives bool) {
	devices := t.DevicesOf(stage)
	kind := t.Devices[devices[0]].Kind
	if rates[kind] == 0 {
		return
	}

	// Downlinks: one for each device.
	if receives {
		for _, d := range devices {
			t.Devices[d].Downlink = int32(len(t.Links))
			t.Links = append(t.Links, Link{Kind: kind, Node: d, Gbps: rates[kind]})
		}
	}

	// Uplinks: one for each group.
	if nextStage < 0 {
		return
	}
	nextKind := t.Devices[t.DevicesOf(nextStage)[0]].Kind
	group := max(1, plan.Pools[kind].PerNode, plan.Pools[nextKind].PerNode) * int(t.Devices[devices[0]].Share)
	for i, d := range devices {
		if i%group == 0 {
			t.Links = append(t.Links, Link{Kind: kind, Node: d, IsUplink: true, Gbps: rates[kind]})
		}
		t.Devices[d].Uplink = int32(len(t.Links)) - 1
	}
}
