package policy

// Builder makes tables part by part: kinds, models with their pipelines and stages, then devices with the stages
// on them. A pipeline belongs to the latest model, a stage to the latest pipeline.
type Builder struct {
	tables       Tables
	stageDevices [][]int32 // devices by stage
	wiring       nodeWiring
}

// nodeWiring has the nodes and links of the devices that are being added.
type nodeWiring struct {
	hasWiring        bool  // SetNodes was called
	kind             int32 // kind of the devices
	perNode          int32
	gbps             float64 // rate of a link in Gbit/s; 0 for devices on the planning host
	count            int32   // number of nodes so far, of all kinds
	hostNode         int32   // node of devices without links; -1 if there is none so far
	lastNode         int32   // latest node of the kind
	uplink, downlink int32   // links of that node
}

// AddKind adds a kind with a number of physical devices.
func (b *Builder) AddKind(name string, count int) {
	b.tables.Kinds, b.tables.KindCounts = append(b.tables.Kinds, name), append(b.tables.KindCounts, int32(count))
}

// AddModel adds a model. Its pipelines come next.
func (b *Builder) AddModel(m Model) {
	m.FirstPipeline, m.NumPipelines = int32(len(b.tables.Pipelines)), 0
	b.tables.Models = append(b.tables.Models, m)
}

// AddPipeline adds a pipeline to the latest model. Its stages come next.
func (b *Builder) AddPipeline(batch int, rps float64) {
	model := len(b.tables.Models) - 1
	b.tables.Models[model].NumPipelines++
	b.tables.Pipelines = append(b.tables.Pipelines, Pipeline{Model: int32(model), Batch: int32(batch), RPS: rps, FirstStage: int32(len(b.tables.Stages))})
}

// AddStage adds a stage to the latest pipeline and returns its index. The stage's hop is its place in that
// pipeline, from 0. Its devices are added later, by PlaceStage.
func (b *Builder) AddStage(s Stage) int32 {
	p := &b.tables.Pipelines[len(b.tables.Pipelines)-1]
	s.Pipeline, s.Hop = int32(len(b.tables.Pipelines)-1), int16(p.NumStages)
	p.NumStages++
	b.tables.Stages, b.stageDevices = append(b.tables.Stages, s), append(b.stageDevices, nil)
	return int32(len(b.tables.Stages) - 1)
}

// SetNodes sets the wiring of the latest kind's devices, which are added next, in the order of their numbers:
// perNode devices on each node, whose links have this rate. Without a rate they are on the planning host. Kinds
// without a call of SetNodes have no nodes.
func (b *Builder) SetNodes(perNode int, gbps float64) {
	n := &b.wiring
	if !n.hasWiring {
		n.hostNode = -1
	}
	n.hasWiring, n.kind, n.perNode, n.gbps, n.lastNode, n.uplink, n.downlink = true, int32(len(b.tables.Kinds)-1), int32(max(1, perNode)), gbps, -1, -1, -1
}

// wireDevice sets the node and the links of a device that is added to a pool. Devices are put on nodes in order,
// perNode each; a new node gets an uplink and a downlink. Devices of a pool without a network card (0 Gbps) share
// one node that has no links.
func (b *Builder) wireDevice(d *Device) {
	n := &b.wiring
	switch {
	case n.gbps == 0:
		if n.hostNode < 0 {
			n.hostNode = n.count
			n.count++
		}
		d.Node = n.hostNode
	case d.GPU/n.perNode != n.lastNode:
		n.lastNode = d.GPU / n.perNode
		n.uplink = int32(len(b.tables.Links))
		n.downlink = n.uplink + 1
		n.count++
		b.tables.Links = append(b.tables.Links, Link{Kind: n.kind, Node: n.lastNode, IsUplink: true, Gbps: n.gbps}, Link{Kind: n.kind, Node: n.lastNode, Gbps: n.gbps})
		fallthrough
	default:
		d.Node = n.count - 1
	}
	d.Uplink, d.Downlink = n.uplink, n.downlink
}

// AddDevice adds a device that runs batches of stages, and returns its index. Its Instance is -1: it runs stages,
// and no server of language models.
func (b *Builder) AddDevice(d Device) int32 {
	d.Instance = -1
	if b.wiring.hasWiring {
		b.wireDevice(&d)
	}
	b.tables.Devices = append(b.tables.Devices, d)
	return int32(len(b.tables.Devices) - 1)
}

// PlaceStage puts a stage on a further device.
func (b *Builder) PlaceStage(stage, device int32) {
	b.stageDevices[stage] = append(b.stageDevices[stage], device)
}

// BuildTables returns the tables of everything that was added, with the devices of the stages, a service per model
// and the resident networks of every device.
func (b *Builder) BuildTables() *Tables {
	t := &b.tables
	for s, devices := range b.stageDevices {
		t.Stages[s].FirstDevice, t.Stages[s].NumDevices = int32(len(t.StageDevices)), int32(len(devices))
		t.StageDevices = append(t.StageDevices, devices...)
	}
	t.addServices()
	t.addNetworks()
	return t
}
