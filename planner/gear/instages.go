package gear

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/stages"
)

// setBlocks sets the problem's blocks (its models block by block), so that members of the family may run in stages over
// several devices. It does so only if that can help and is allowed: if there are several kinds of devices, or a member
// that does not fit on one device, and such a member was measured block by block. Else the problem has no blocks, and
// all models run whole.
func (f *resolvedWorkload) setBlocks() error {
	p := f.problem
	maxStages := f.input.Values.WholeNumber("max-partitions") // 1 forbids stages
	if maxStages == 1 {
		return nil
	}
	var tooLarge []string // members that do not fit on a device, if there is one kind
	for m := range p.Models {
		if len(f.pools) == 1 && p.Kinds[0].Memory > 0 && p.Models[m].Variants[0].Memory > p.Kinds[0].Memory {
			tooLarge = append(tooLarge, p.Models[m].Name)
		}
	}
	if len(f.pools) == 1 && len(tooLarge) == 0 {
		return nil
	}

	// Pools and models. A model with several blocks can be cut. With one kind of devices only those count that do not fit whole.
	blocks := &stages.Problem{MaxPartitions: maxStages, SeparateHosts: f.input.Cluster.Host != formats.HostShared}
	for i := range f.pools {
		pool := &f.pools[i]
		blocks.Pools = append(blocks.Pools, stages.Pool{Kind: pool.Device, Count: pool.Count, MaxShares: 1, PerNode: max(1, pool.PerNode), Gbps: pool.NICRate(), Memory: int64(pool.Memory)})
	}
	cuttable := false
	for m, pm := range f.modelProfiles {
		model, err := f.blocksOf(m)
		if err != nil {
			return err
		}
		blocks.Models = append(blocks.Models, model)
		cuttable = cuttable || len(model.CutBytes) > 0 && (len(f.pools) > 1 || slices.Contains(tooLarge, pm.Model))
	}
	if !cuttable {
		return nil
	}

	// Merge blocks, if the user asks for fewer.
	if blockCount := f.input.Values.WholeNumber("blocks"); blockCount > 0 {
		blocks.PrePartition(blockCount)
	}
	p.Blocks = blocks
	return nil
}

// blocksOf returns model m of the family block by block, as the search for stages needs it: costs by pool, bytes of the
// weights by block, and bytes of a sample that cross each cut between blocks. It also sets the workload's cuts of the
// model, which the plan document names. A model that was not measured block by block is a single block of 0 bytes,
// which cannot be cut.
func (f *resolvedWorkload) blocksOf(m int) (model stages.Model, err error) {
	pm := f.modelProfiles[m]
	model = stages.Model{Name: pm.Model, ShareCosts: make([][]stages.ShareCosts, len(f.pools))}
	if len(pm.Blocks) <= 1 || !f.measuredByBlock(pm) {
		model.Weights = make([]int64, 1)
		return model, nil
	}
	index := slices.IndexFunc(f.input.Profile.Models, func(o formats.ProfileModel) bool { return o.Model == pm.Model })
	if model.ShareCosts, err = stages.MeasuredCosts(pm, f.pools, f.input.Values.WholeNumber("max-batch"), f.input.FileName("profile"), fmt.Sprintf("models[%d]", index)); err != nil {
		return model, err
	}
	// Which tensors cross a cut, and in which type, depends on whether some pool has network cards.
	network := slices.ContainsFunc(f.pools, func(p formats.Pool) bool { return p.NICRate() > 0 })
	for i := range pm.Blocks {
		model.Weights = append(model.Weights, pm.Blocks[i].WeightBytes)
		if i+1 < len(pm.Blocks) {
			c := stages.CutAfterBlock(&pm.Blocks[i], network, f.input.Values.Word("cut-dtype"))
			f.blockCuts[m], model.CutBytes = append(f.blockCuts[m], c), append(model.CutBytes, c.Bytes)
		}
	}
	return model, nil
}

// measuredByBlock reports whether every measurement of a whole device that a model has on the cluster's kinds of
// devices gives the time of each of its blocks. Only then can the model be cut into stages.
func (f *resolvedWorkload) measuredByBlock(pm *formats.ProfileModel) bool {
	for i := range pm.Measurements {
		measurement := &pm.Measurements[i]
		inCluster := slices.ContainsFunc(f.pools, func(p formats.Pool) bool { return p.Device == measurement.Device })
		if inCluster && isOnWholeDevice(measurement) && len(measurement.Blocks) != len(pm.Blocks) {
			return false
		}
	}
	return true
}

// chainPipeline returns, for the plan document, the pipeline of a placed chain (a member in stages, each on devices of
// its own) that gets the given samples per second. Its latency is that of the largest batch through all stages and
// transfers, in microseconds. Its rate is that of its slowest stage, and the rate of a stage the samples that it gets,
// up to what its devices have time for. The speed of the network is stated as an assumption.
func (f *resolvedWorkload) chainPipeline(p *cascades.Problem, placement *planspace.PlacedChain, samples float64) formats.Pipeline {
	chain := placement.Chain
	pipeline := formats.Pipeline{Batch: chain.MaxBatch, RPS: math.Inf(1)}

	// Each stage with its times, and the cut behind it.
	for i := range chain.Stages {
		chainStage, devices := &chain.Stages[i], placement.Devices[i]
		wholeDevice := &p.Blocks.Models[chain.Model].ShareCosts[chainStage.Kind][0] // index v-1 has the costs on 1/v of a device
		busyDevices := samples * chainStage.SecondsPerSample
		stage := formats.Stage{Blocks: [2]int{chainStage.FirstBlock, chainStage.EndBlock}, Device: f.pools[chainStage.Kind].Device, Share: 1, Replicas: len(devices), GPUs: busyDevices, Placement: replicaPlacements(devices)}
		wholeDevice.WriteStage(&stage, f.modelProfiles[chain.Model], chain.MaxBatch)
		stage.BlockUS = nil // the times of the stage suffice
		pipeline.LatencyUS += stage.InferUS[chain.MaxBatch-1]
		stage.RPS = min(float64(stage.Replicas), busyDevices) / chainStage.SecondsPerSample
		pipeline.RPS = min(pipeline.RPS, stage.RPS)
		if chainStage.TransferTimes != nil {
			cut := f.blockCuts[chain.Model][chainStage.EndBlock-1]
			stage.Cut = &formats.Cut{Tensors: cut.Tensors, DType: cut.DType, Bytes: cut.Bytes}
			for _, t := range chainStage.TransferTimes {
				stage.Cut.TransferUS = append(stage.Cut.TransferUS, document.Micros(t))
			}
			pipeline.LatencyUS += stage.Cut.TransferUS[chain.MaxBatch-1]
		}
		pipeline.Stages = append(pipeline.Stages, stage)
	}
	f.run.AssumeNetwork(f.input.Cluster)
	return pipeline
}
