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

// linkRate returns the network rate between two pools in Gbit/s: that of the slower network card, of the only one,
// or 0 if neither pool has one.
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

// transferTime returns the time of a batch over a link, rounded to nanoseconds.
func transferTime(bytes int64, gbps float64, batch int) time.Duration {
	if gbps <= 0 {
		return 0
	}
	us := float64(bytes) * 8 / (gbps * 1000)
	return time.Duration(math.Round(us * float64(batch) * 1000))
}

// cutBytes returns the bytes of a sample that cross after a block by today's profile, as the data type dtype.
func cutBytes(b *formats.Block, dtype string) formats.CutBytes {
	if dtype == "FP16" {
		return b.CutBytesFP16
	}
	return b.CutBytesFP32
}

// nicRate returns how many samples per second one replica can pass through the network card of its pool, if they
// pass between pools a and b (pool is one of them) and so many replicas share the card. It is infinite without a
// network.
func nicRate(bytes int64, a, b, pool *formats.Pool, sharers int) float64 {
	gbps := linkRate(a, b)
	if pool.NICRate() == 0 || gbps == 0 || bytes == 0 {
		return math.Inf(1)
	}
	perSample := float64(bytes) * 8 / (gbps * 1e9) // seconds
	return 1 / perSample / float64(sharers)
}

// devicesPerNIC returns how many devices share a NIC of a pool: those of a node, or, if the pool is one
// node, those that pass something in the plan.
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

// CheckCut compares how tensors pass from stage s of a pipeline to the next with today's profile and cluster:
// their size, names, data type and time, and that there is a network. The profile must have the model.
func (c *Checker) CheckCut(m *formats.Deployed, pl *formats.Pipeline, s *formats.Stage, current *StageCosts, path string) {
	b := &c.ProfileModel(m.Model).Blocks[s.Blocks[1]-1]
	cutPath := path + ".cut"
	size := cutBytes(b, s.Cut.DType)
	switch bytes := size.Bytes(); {
	case !size.IsKnown():
		c.AddError("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), "a size in the profile", "the profile does not know what crosses after block %d of %s", s.Blocks[1]-1, m.Model)
	case s.Cut.Bytes < bytes:
		c.AddError("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), fmt.Sprint(bytes), "the cut after block %d of %s is larger, and its crossing takes longer than planned", s.Blocks[1]-1, m.Model)
	case size.IsKnown() && bytes != s.Cut.Bytes:
		c.AddWarning("cut", cutPath+".bytes", fmt.Sprint(s.Cut.Bytes), fmt.Sprint(bytes), "the cut after block %d of %s has another size", s.Blocks[1]-1, m.Model)
	}

	// There must be a network between the kinds.
	if next := nextStage(pl, s); next != nil && next.Device != s.Device && c.Cluster.Host != formats.HostShared {
		if from, to := c.Pool(s.Device), c.Pool(next.Device); from != nil && to != nil && linkRate(from, to) == 0 {
			c.AddError("cut", cutPath, s.Device+" to "+next.Device, "a network, or host: shared in the cluster", "nothing passes from %s to %s: neither has nic_gbps", s.Device, next.Device)
		}
	}

	// The same tensors must cross, in a type that keeps the answers.
	var names []string
	for _, t := range b.Cut {
		names = append(names, t.Name)
	}
	if len(names) > 0 && len(s.Cut.Tensors) > 0 && !slices.Equal(names, s.Cut.Tensors) {
		c.AddError("cut", cutPath+".tensors", strings.Join(s.Cut.Tensors, ", "), strings.Join(names, ", "), "other tensors cross after block %d of %s", s.Blocks[1]-1, m.Model)
	}
	if s.Cut.DType == "FP16" && b.FP16 != nil && b.FP16.Top1Agreement < 0.99 {
		c.AddError("fp16", cutPath+".dtype", "FP16", "FP32", "crossing after block %d of %s in float16 changes %.2g %% of the answers",
			s.Blocks[1]-1, m.Model, 100*(1-b.FP16.Top1Agreement))
	}

	// The transfer should take as long as planned.
	if n := len(s.Cut.TransferUS); n == pl.Batch && Differs(s.Cut.TransferUS[n-1].D(), current.Transfer) {
		c.AddWarning("transfer", fmt.Sprintf("%s.transfer_us[%d]", cutPath, n-1), s.Cut.TransferUS[n-1].String(), document.Micros(current.Transfer).String(),
			"the crossing after block %d of %s takes %s today", s.Blocks[1]-1, m.Model, ChangeText(s.Cut.TransferUS[n-1].D(), current.Transfer))
	}
}
