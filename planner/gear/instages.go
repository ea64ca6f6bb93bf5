package gear

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/stages"
)

// setBlocks sets the problem's blocks, so that members may run in stages over several devices. It does so only if
// that can help: if there are several kinds of devices, or a member that does not fit on one device.
func (f *resolved) inStages() error {
	p := f.problem
	most := f.opt.MaxPartitions
	if most == 1 {
		return nil
	}
	var large []string // members that do not fit on a device, if there is one kind
	for m := range p.Models {
		if len(f.pools) == 1 && p.Kinds[0].Memory > 0 && p.Models[m].On[0].Memory > p.Kinds[0].Memory {
			large = append(large, p.Models[m].Name)
		}
	}
	if len(f.pools) == 1 && len(large) == 0 {
		return nil
	}

	// Pools.
	b := &stages.Problem{MaxPartitions: most, Apart: f.in.Cluster.Host != formats.HostShared}
	network := slices.ContainsFunc(f.pools, func(p formats.Pool) bool { return p.NICRate() > 0 })
	for i := range f.pools {
		at := &f.pools[i]
		b.Pools = append(b.Pools, stages.Pool{Kind: at.Device, Count: at.Count, MaxShares: 1, PerNode: max(1, at.PerNode), Gbps: at.NICRate(), Memory: int64(at.Memory)})
	}

	// Models. One that was not measured block by block is a single block.
	cuttable := false
	for m, pm := range f.profile {
		one := stages.Model{Name: pm.Model, Costs: make([][]stages.Share, len(f.pools))}
		if len(pm.Blocks) > 1 && f.blockwise(pm) {
			at := slices.IndexFunc(f.in.Profile.Models, func(o formats.ProfileModel) bool { return o.Model == pm.Model })
			var err error
			if one.Costs, err = stages.Costs(pm, f.pools, f.opt.MaxBatch, f.in.File("profile"), fmt.Sprintf("models[%d]", at)); err != nil {
				return err
			}
			for i := range pm.Blocks {
				one.Weights = append(one.Weights, pm.Blocks[i].WeightBytes)
				if i+1 < len(pm.Blocks) {
					c := stages.CutAfter(&pm.Blocks[i], network, f.opt.CutDType)
					f.cuts[m], one.CutBytes = append(f.cuts[m], c), append(one.CutBytes, c.Bytes)
				}
			}
			cuttable = cuttable || len(f.pools) > 1 || slices.Contains(large, pm.Model)
		} else {
			one.Weights = make([]int64, 1)
		}
		b.Models = append(b.Models, one)
	}
	if !cuttable {
		return nil
	}

	// Merge blocks, if the user asks for fewer.
	if f.opt.Blocks > 0 {
		by := stages.ByTime
		if f.opt.BlocksBy == "bytes" {
			by = stages.ByBytes
		}
		b.PrePartition(f.opt.Blocks, by)
	}
	p.Blocks = b
	return nil
}

// measuredByBlock reports whether every measurement of a model on the cluster's devices is by block.
func (f *resolved) blockwise(pm *formats.ProfileModel) bool {
	for i := range pm.Measurements {
		ms := &pm.Measurements[i]
		here := slices.ContainsFunc(f.pools, func(p formats.Pool) bool { return p.Device == ms.Device })
		if here && ms.Share <= 1 && len(ms.Blocks) != len(pm.Blocks) {
			return false
		}
	}
	return true
}

// chainPipeline returns the pipeline of a placed chain that gets the given samples per second.
func (f *resolved) chainPipeline(placement *PlacedChain, samples float64) formats.Pipeline {
	c := placement.Chain
	out := formats.Pipeline{Batch: c.Batch, RPS: math.Inf(1)}

	// Each stage with its times, and the cut behind it.
	for i := range c.Stages {
		s, devices := &c.Stages[i], placement.Devices[i]
		st := formats.Stage{Blocks: [2]int{s.First, s.Last}, Device: f.pools[s.Kind].Device, Share: 1, Replicas: len(devices), GPUs: samples * s.per, Placement: placed(devices)}
		f.problem.Blocks.Models[c.Model].Costs[s.Kind][0].Write(&st, f.profile[c.Model], c.Batch)
		st.BlockUS = nil
		out.LatencyUS += st.InferUS[c.Batch-1]
		st.RPS = min(float64(st.Replicas), st.GPUs) / s.per
		out.RPS = min(out.RPS, st.RPS)
		if s.Transfer != nil {
			cut := f.cuts[c.Model][s.Last-1]
			st.Cut = &formats.Cut{Tensors: cut.Tensors, DType: cut.DType, Bytes: cut.Bytes}
			for _, t := range s.Transfer {
				st.Cut.TransferUS = append(st.Cut.TransferUS, document.Micros(t))
			}
			out.LatencyUS += st.Cut.TransferUS[c.Batch-1]
		}
		out.Stages = append(out.Stages, st)
	}
	f.run.AssumeHosts(f.in.Cluster)
	return out
}
