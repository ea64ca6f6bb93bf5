package trials

import (
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// runTimeTables returns the tables of a placement as the run-time policy reads them, without gears, and the indexes of
// the pipelines of every model: one for each kind that holds the whole model, and one for each chain (the model in
// stages). The policy serves a family as a single model that requests ask for, so in these tables all pipelines belong
// to one.
func runTimeTables(p *cascades.Problem, configs []planspace.Config, chains []planspace.PlacedChain) (policy.Tables, [][]int32) {
	maxBatch, _ := cascades.BatchesAndSpeeds(p)
	var builder policy.Builder
	firstDevice := addDevices(&builder, p, len(chains) > 0)
	// placeStage puts a replica of a stage on each of some devices, which are numbered within their kind.
	placeStage := func(stage int32, kind int, devices []int) {
		for _, d := range slices.Sorted(slices.Values(devices)) {
			builder.PlaceStage(stage, firstDevice[kind]+int32(d))
		}
	}

	// Pipelines of whole models, kind by kind, then those of chains.
	for m := range p.Models {
		builder.AddModel(policy.Model{Name: p.Models[m].Name})
		for k := range p.Kinds {
			if devices := planspace.DevicesWith(configs, k, m); len(devices) > 0 {
				largestBatch := maxBatch[k][m]
				builder.AddPipeline(largestBatch, 0)
				v := p.Models[m].Variants[k]
				stage := policy.Stage{LastBlock: 1, Infer: v.MedianTimes[:largestBatch]}
				if v.MeanTimes != nil {
					stage.Mean = v.MeanTimes[:largestBatch]
				}
				placeStage(builder.AddStage(stage), k, devices)
			}
		}
		for c := range chains {
			if chains[c].Chain.Model == m {
				addChainPipeline(&builder, &chains[c], placeStage)
			}
		}
	}
	// Merge the models of the family into one. MergeModels changes the tables, and returns the pipelines by former model.
	tables := builder.BuildTables()
	const rate = 0 // TablesWith sets it with the gears
	modelPipelines := gear.MergeModels(tables, p.SLO, p.Percentile, rate)
	return *tables, modelPipelines
}

// addDevices adds the devices of all kinds to the run-time tables, and with withLinks their nodes and network links,
// which only chains (members in stages) use. It returns, by kind, the number of its first device in the tables.
func addDevices(b *policy.Builder, p *cascades.Problem, withLinks bool) (firstDevice []int32) {
	nextDevice := int32(0)
	for k, kind := range p.Kinds {
		b.AddKind(kind.Name, kind.Devices)
		link := int32(-1) // no link
		if withLinks {
			pool := &p.Blocks.Pools[k]
			b.SetNodes(pool.PerNode, pool.Gbps)
			link = 0 // AddDevice replaces it by the links of the device's node, or -1 without a network card
		}
		firstDevice = append(firstDevice, nextDevice)
		for d := range kind.Devices {
			nextDevice = 1 + b.AddDevice(policy.Device{Kind: int32(k), Share: 1, GPU: int32(d), Uplink: link, Downlink: link})
		}
	}
	return firstDevice
}

// addChainPipeline adds the pipeline of a placed chain (a member in stages, on devices) to the run-time tables: its
// stages with their times by batch size and the transfers between them. It calls placeStage to put each stage on its
// devices, which are numbered within their kind.
func addChainPipeline(b *policy.Builder, chainPlacement *planspace.PlacedChain, placeStage func(stage int32, kind int, devices []int)) {
	chain := chainPlacement.Chain
	b.AddPipeline(chain.MaxBatch, 0)
	for s := range chain.Stages {
		stage := &chain.Stages[s]
		tableStage := policy.Stage{FirstBlock: int32(stage.FirstBlock), LastBlock: int32(stage.EndBlock), Infer: stage.MedianTimes, Mean: stage.MeanTimes}
		if s > 0 {
			previous := &chain.Stages[s-1]
			if tableStage.CutBytes = previous.CutBytes; len(previous.TransferTimes) > 0 && slices.Max(previous.TransferTimes) > 0 {
				tableStage.Xfer = previous.TransferTimes
			}
		}
		placeStage(b.AddStage(tableStage), stage.Kind, chainPlacement.Devices[s])
	}
}
