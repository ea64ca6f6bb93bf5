package recompute

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// linkRate returns the network rate between two pools in Gbit/s: that of the slower network card. If only one pool has a card, it is that
// card's rate; if neither has, 0.
func linkRate(a, b *formats.Pool) float64 {
	switch ra, rb := a.NICRate(), b.NICRate(); {
	case ra == 0:
		return rb
	case rb == 0:
		return ra
	default:
		return min(ra, rb)
	}
}

// transferTime returns the time of a batch over a link, rounded to nanoseconds, for the given bytes of one sample. A rate of 0 stands for
// no network, and takes no time.
func transferTime(bytes int64, gbps float64, batch int) time.Duration {
	if gbps <= 0 {
		return 0
	}
	sampleMicros := float64(bytes) * 8 / (gbps * 1000) // 1 Gbit/s is 1000 bits in a microsecond
	return time.Duration(math.Round(sampleMicros * float64(batch) * 1000))
}

// cutBytes returns the bytes of a sample that cross after a block by today's profile, as the data type dtype.
func cutBytes(b *formats.Block, dtype string) formats.CutBytes {
	if dtype == "FP16" {
		return b.CutBytesFP16
	}
	return b.CutBytesFP32
}

// nicRate returns how many samples per second one replica can pass through the network card of its pool, when samples of the given bytes
// pass between pools a and b (pool is one of them) and `sharers` replicas share the card. It is infinite if nothing crosses a network.
func nicRate(bytes int64, a, b, pool *formats.Pool, sharers int) float64 {
	gbps := linkRate(a, b)
	if pool.NICRate() == 0 || gbps == 0 || bytes == 0 {
		return math.Inf(1)
	}
	perSample := float64(bytes) * 8 / (gbps * 1e9) // seconds
	return 1 / perSample / float64(sharers)
}

// devicesPerNIC returns how many devices share a network card of a pool. Each node has one card. If the pool has several nodes, all devices
// of a node count. If it is a single node, only devices count that run stages of pipelines with several stages, because the others pass
// nothing on; without any such device, all of the node count.
func (w *CurrentCosts) devicesPerNIC(pool *formats.Pool) int {
	perNode := max(pool.PerNode, 1)
	if pool.Count > perNode {
		return perNode
	}
	passingDevices := map[int]bool{}
	for s := range w.Plan.Stages() {
		for _, run := range s.Placement {
			for i := range run.DeviceCount() {
				if s.Device == pool.Device && len(s.Pipeline.Stages) > 1 {
					passingDevices[run.FirstDevice+i] = true
				}
			}
		}
	}
	if len(passingDevices) == 0 {
		return perNode
	}
	return min(perNode, len(passingDevices))
}

// nextStage returns the stage after s, or nil if s is the last one.
func nextStage(pl *formats.Pipeline, s *formats.Stage) *formats.Stage {
	for i := range pl.Stages[1:] {
		if &pl.Stages[i] == s {
			return &pl.Stages[i+1]
		}
	}
	return nil
}

// CheckCut compares how tensors pass from stage s of a pipeline to the next with today's profile and cluster: their size, names, data
// type and time, and that there is a network. Differences are added to the findings. current has the stage's costs of today, path is its
// place in the plan. The profile must have model m.
func (c *Checker) CheckCut(deployed *formats.Deployed, pl *formats.Pipeline, s *formats.Stage, current *StageCosts, path string) {
	lastBlock := &c.ProfileModel(deployed.Model).Blocks[s.Blocks[1]-1]
	cutPath := path + ".cut"
	size := cutBytes(lastBlock, s.Cut.DType)
	switch bytes := size.Bytes(); {
	case !size.IsKnown():
		c.AddError("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), "a size in the profile", "the profile does not know what crosses after block %d of %s", s.Blocks[1]-1, deployed.Model)
	case s.Cut.Bytes < bytes:
		c.AddError("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), fmt.Sprint(bytes), "the cut after block %d of %s is larger, and its crossing takes longer than planned", s.Blocks[1]-1, deployed.Model)
	case size.IsKnown() && bytes != s.Cut.Bytes:
		c.AddWarning("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), fmt.Sprint(bytes), "the cut after block %d of %s has another size", s.Blocks[1]-1, deployed.Model)
	}

	// There must be a network between the kinds.
	if next := nextStage(pl, s); next != nil && next.Device != s.Device && c.Cluster.Host != formats.HostShared {
		if fromPool, toPool := c.Pool(s.Device), c.Pool(next.Device); fromPool != nil && toPool != nil && linkRate(fromPool, toPool) == 0 {
			c.AddError("cut", cutPath, s.Device+" to "+next.Device, "a network, or host: shared in the cluster", "nothing passes from %s to %s: neither has nic_gbps", s.Device, next.Device)
		}
	}

	// The same tensors must cross, in a type that keeps the answers.
	var names []string
	for _, t := range lastBlock.Cut {
		names = append(names, t.Name)
	}
	if len(names) > 0 && len(s.Cut.Tensors) > 0 && !slices.Equal(names, s.Cut.Tensors) {
		c.AddError("cut", cutPath+".tensors", strings.Join(s.Cut.Tensors, ", "), strings.Join(names, ", "), "other tensors cross after block %d of %s", s.Blocks[1]-1, deployed.Model)
	}
	if s.Cut.DType == "FP16" && lastBlock.FP16 != nil && lastBlock.FP16.Top1Agreement < 0.99 {
		c.AddError("fp16", cutPath+".dtype", "FP16", "FP32", "crossing after block %d of %s in float16 changes %.2g %% of the answers",
			s.Blocks[1]-1, deployed.Model, 100*(1-lastBlock.FP16.Top1Agreement))
	}

	// The transfer should take as long as planned.
	if n := len(s.Cut.TransferUS); n == pl.Batch && Differs(s.Cut.TransferUS[n-1].D(), current.Transfer) {
		c.AddWarning("transfer", fmt.Sprintf("%s.transfer_us[%d]", cutPath, n-1), s.Cut.TransferUS[n-1].String(), document.Micros(current.Transfer).String(),
			"the crossing after block %d of %s takes %s today", s.Blocks[1]-1, deployed.Model, ChangeText(s.Cut.TransferUS[n-1].D(), current.Transfer))
	}
}
