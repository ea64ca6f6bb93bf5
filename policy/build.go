package policy

// Builder makes tables part by part: kinds, models with their pipelines and stages, then devices with the stages
// on them. A pipeline belongs to the latest model, a stage to the latest pipeline.
type Builder struct {
	t     Tables
	on    [][]int32 // devices by stage
	nodes nodes
}

// nodeWiring has the nodes and links of the devices that are being added.
type nodes struct {
	wired    bool  // SetNodes was called
	kind     int32 // kind of the devices
	perNode  int32
	gbps     float64 // rate of a link in Gbit/s; 0 for devices on the planning host
	count    int32   // number of nodes so far, of all kinds
	host     int32   // node of devices without links; -1 if there is none so far
	last     int32   // latest node of the kind
	up, down int32   // links of that node
}

// AddKind adds a kind with a number of physical devices.
func (b *Builder) Kind(name string, count int) {
	b.t.Kinds, b.t.KindCounts = append(b.t.Kinds, name), append(b.t.KindCounts, int32(count))
}

// AddModel adds a model. Its pipelines come next.
func (b *Builder) Model(m Model) {
	m.FirstPipeline, m.NumPipelines = int32(len(b.t.Pipelines)), 0
	b.t.Models = append(b.t.Models, m)
}

// AddPipeline adds a pipeline to the latest model. Its stages come next.
func (b *Builder) Pipeline(batch int, rps float64) {
	model := len(b.t.Models) - 1
	b.t.Models[model].NumPipelines++
	b.t.Pipelines = append(b.t.Pipelines, Pipeline{Model: int32(model), Batch: int32(batch), RPS: rps, FirstStage: int32(len(b.t.Stages))})
}

// AddStage adds a stage to the latest pipeline and returns its index.
func (b *Builder) Stage(s Stage) int32 {
	p := &b.t.Pipelines[len(b.t.Pipelines)-1]
	s.Pipeline, s.Hop = int32(len(b.t.Pipelines)-1), int16(p.NumStages)
	p.NumStages++
	b.t.Stages, b.on = append(b.t.Stages, s), append(b.on, nil)
	return int32(len(b.t.Stages) - 1)
}

// SetNodes sets the wiring of the latest kind's devices, which are added next, in the order of their numbers:
// perNode devices on each node, whose links have this rate. Without a rate they are on the planning host. Kinds
// without a call of SetNodes have no nodes.
func (b *Builder) Nodes(perNode int, gbps float64) {
	n := &b.nodes
	if !n.wired {
		n.host = -1
	}
	n.wired, n.kind, n.perNode, n.gbps, n.last, n.up, n.down = true, int32(len(b.t.Kinds)-1), int32(max(1, perNode)), gbps, -1, -1, -1
}

// wireDevice sets the node and links of a device.
func (b *Builder) wire(d *Device) {
	n := &b.nodes
	switch {
	case n.gbps == 0:
		if n.host < 0 {
			n.host = n.count
			n.count++
		}
		d.Node = n.host
	case d.GPU/n.perNode != n.last:
		n.last = d.GPU / n.perNode
		n.up = int32(len(b.t.Links))
		n.down = n.up + 1
		n.count++
		b.t.Links = append(b.t.Links, Link{Kind: n.kind, Node: n.last, Up: true, Gbps: n.gbps}, Link{Kind: n.kind, Node: n.last, Gbps: n.gbps})
		fallthrough
	default:
		d.Node = n.count - 1
	}
	d.Uplink, d.Downlink = n.up, n.down
}

// AddDevice adds a device that runs batches of stages, and returns its index.
func (b *Builder) Device(d Device) int32 {
	d.Instance = -1
	if b.nodes.wired {
		b.wire(&d)
	}
	b.t.Devices = append(b.t.Devices, d)
	return int32(len(b.t.Devices) - 1)
}

// PlaceStage puts a stage on a further device.
func (b *Builder) Place(stage, device int32) { b.on[stage] = append(b.on[stage], device) }

// BuildTables returns the tables of everything that was added, with the devices of the stages, a service per model
// and the resident networks of every device.
func (b *Builder) Tables() *Tables {
	t := &b.t
	for s, devices := range b.on {
		t.Stages[s].FirstDevice, t.Stages[s].NumDevices = int32(len(t.StageDevices)), int32(len(devices))
		t.StageDevices = append(t.StageDevices, devices...)
	}
	t.addServices()
	t.addNetworks()
	return t
}
