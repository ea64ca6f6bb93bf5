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
	hasWiring        bool    // SetNodes was called
	kind             int32   // kind of the devices
	perNode          int32   // devices on a node
	gbps             float64 // rate of a link in Gbit/s; 0 for devices on the planning host
	nodes            int32   // number of nodes so far, of all kinds
	hostNode         int32   // node of devices without links; -1 if there is none so far
	lastNode         int32   // latest node, by its number among those of the kind; -1 if there is none
	uplink, downlink int32   // links of that node
}

// AddKind adds a kind of devices with its name and its number of physical devices.
func (b *Builder) AddKind(name string, count int) {
	b.tables.Kinds = append(b.tables.Kinds, name)
	b.tables.KindCounts = append(b.tables.KindCounts, int32(count))
}

// AddModel adds a model to the tables. Its pipelines are added next.
func (b *Builder) AddModel(model Model) {
	model.FirstPipeline, model.NumPipelines = int32(len(b.tables.Pipelines)), 0
	b.tables.Models = append(b.tables.Models, model)
}

// AddPipeline adds a pipeline with a planned batch size and rate (requests per second) to the latest model. Its
// stages are added next.
func (b *Builder) AddPipeline(batch int, rps float64) {
	model := len(b.tables.Models) - 1
	b.tables.Models[model].NumPipelines++
	b.tables.Pipelines = append(b.tables.Pipelines, Pipeline{Model: int32(model), Batch: int32(batch), RPS: rps, FirstStage: int32(len(b.tables.Stages))})
}

// AddStage adds a stage to the latest pipeline and returns its index. The stage's hop is its place in that
// pipeline, from 0. Its devices are added later, by PlaceStage.
func (b *Builder) AddStage(stage Stage) int32 {
	pipeline := &b.tables.Pipelines[len(b.tables.Pipelines)-1]
	stage.Pipeline, stage.Hop = int32(len(b.tables.Pipelines)-1), int16(pipeline.NumStages)
	pipeline.NumStages++
	b.tables.Stages = append(b.tables.Stages, stage)
	b.stageDevices = append(b.stageDevices, nil)
	return int32(len(b.tables.Stages) - 1)
}

// SetNodes sets the wiring of the latest kind's devices, which are added next, in the order of their numbers:
// perNode devices on each node, whose links have this rate. Without a rate they are on the planning host. Kinds
// without a call of SetNodes have no nodes.
func (b *Builder) SetNodes(perNode int, gbps float64) {
	wiring := &b.wiring
	if !wiring.hasWiring {
		wiring.hostNode = -1
	}
	wiring.hasWiring = true
	wiring.kind = int32(len(b.tables.Kinds) - 1)
	wiring.perNode, wiring.gbps = int32(max(1, perNode)), gbps
	wiring.lastNode, wiring.uplink, wiring.downlink = -1, -1, -1 // the kind has no node and no link yet
}

// wireDevice sets the node and the links of a device that is added to a pool (the devices of one kind). Devices are put
// on nodes in order, perNode each; a new node gets an uplink and a downlink. A device knows its node by a number over
// all pools, but a link knows its node by the number within its pool. Devices of a pool without a network card (0 Gbps)
// share one node, and have no links (-1, as SetNodes left them).
func (b *Builder) wireDevice(device *Device) {
	wiring := &b.wiring

	if wiring.gbps == 0 {
		// Without a network card it is on the host's node.
		if wiring.hostNode < 0 {
			wiring.hostNode = wiring.nodes
			wiring.nodes++
		}
		device.Node = wiring.hostNode
	} else {
		// The first device of a node adds the node with its two links. device.GPU is the device's number in its pool.
		nodeInPool := device.GPU / wiring.perNode
		if nodeInPool != wiring.lastNode {
			wiring.lastNode = nodeInPool
			wiring.uplink = int32(len(b.tables.Links))
			wiring.downlink = wiring.uplink + 1
			wiring.nodes++
			b.tables.Links = append(b.tables.Links, Link{Kind: wiring.kind, Node: nodeInPool, IsUplink: true, Gbps: wiring.gbps}, Link{Kind: wiring.kind, Node: nodeInPool, Gbps: wiring.gbps})
		}
		device.Node = wiring.nodes - 1 // the latest node
	}
	device.Uplink, device.Downlink = wiring.uplink, wiring.downlink
}

// AddDevice adds a device that runs batches of stages, and returns its index. Its Instance is -1: it runs stages,
// and no server of language models.
func (b *Builder) AddDevice(device Device) int32 {
	device.Instance = -1
	if b.wiring.hasWiring {
		b.wireDevice(&device)
	}
	b.tables.Devices = append(b.tables.Devices, device)
	return int32(len(b.tables.Devices) - 1)
}

// PlaceStage adds a device to those that run a stage.
func (b *Builder) PlaceStage(stage, device int32) {
	b.stageDevices[stage] = append(b.stageDevices[stage], device)
}

// BuildTables returns the tables of everything that was added, with the devices of the stages, a service per model
// and the resident networks of every device.
func (b *Builder) BuildTables() *Tables {
	tables := &b.tables
	for stage, devices := range b.stageDevices {
		tables.Stages[stage].FirstDevice = int32(len(tables.StageDevices))
		tables.Stages[stage].NumDevices = int32(len(devices))
		tables.StageDevices = append(tables.StageDevices, devices...)
	}
	tables.addServices()
	tables.addNetworks()
	return tables
}
