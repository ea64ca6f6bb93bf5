package pool

import (
	"cmp"
	"fmt"
	"slices"
)

// DeviceRun puts replicas on consecutive devices of a pool: PerDevice on each device from First on.
type DeviceRun struct{ First, PerDevice, Replicas int }

// replicaPiece is a number of equal replicas, each of which takes 1/share of a device.
type replicaPiece struct {
	pipeline, stage int // indexes into the plan's pipelines and into their stages
	share           int
	replicas        int
}

// deviceBin is the content of one device.
type deviceBin struct {
	freeParts int // parts of the device that are free
	pieces    []replicaPiece
}

// placement says on which devices a plan's replicas are: the device runs of [pipeline][stage].
type placement [][][]DeviceRun

// planPacking puts a plan's replicas on physical devices, so that no device holds more than a whole one.
type planPacking struct {
	*templateCatalogue
	plan         *replicaPlan
	heldContents heldContents // held already by each device; nil if no plan runs
}

// placePlan packs a plan. Replicas that share whole devices by their sum need not fit them one by one: 1/2 + 1/3
// of one device and 1/2 + 1/3 of another leave no room for a third of 1/3, say. Then idle devices are taken. If
// there are none, the least useful replica is left out, with a warning. If no replica can be left out, the plan
// is nil.
//
// A device that already holds content that the plan wants keeps it.
func (c *templateCatalogue) placePlan(plan *replicaPlan, heldContents heldContents) (*replicaPlan, placement, []string) {
	var warnings []string
	for {
		packer := &planPacking{c, plan, heldContents}
		placed, fullPool := packer.packAll()
		if fullPool < 0 {
			return plan, placed, warnings
		}
		smaller := packer.withoutReplica(fullPool)
		if smaller == nil {
			return nil, nil, warnings
		}
		warnings = append(warnings, fmt.Sprintf(
			"shares of %s do not fit its devices one by one: a replica was left out, the objective went from %.6g to %.6g",
			c.Pools[fullPool].Kind, plan.value, smaller.value))
		plan = smaller
	}
}

// unpackablePool returns the pool whose devices a plan does not fit one by one. If it fits all, it returns -1.
func (c *templateCatalogue) unpackablePool(plan *replicaPlan) int {
	_, pool := (&planPacking{c, plan, nil}).packAll()
	return pool
}

// packAll packs all pools. It returns the pool that is too small, or -1 if all fit.
func (k *planPacking) packAll() (placement, int) {
	placed := make(placement, len(k.plan.pipelines))
	for i := range k.plan.pipelines {
		placed[i] = make([][]DeviceRun, len(k.plan.pipelines[i].replicas))
	}
	for pool := range k.Pools {
		bins, ok := k.packPool(pool, placed)
		if !ok {
			return nil, pool
		}

		// Merge equal pieces on consecutive devices to runs.
		for device, b := range bins {
			for _, piece := range b.pieces {
				stageRuns := &placed[piece.pipeline][piece.stage]
				if n := len(*stageRuns); n > 0 && (*stageRuns)[n-1].PerDevice == piece.replicas &&
					(*stageRuns)[n-1].First+(*stageRuns)[n-1].Replicas/piece.replicas == device {
					(*stageRuns)[n-1].Replicas += piece.replicas
				} else {
					*stageRuns = append(*stageRuns, DeviceRun{device, piece.replicas, piece.replicas})
				}
			}
		}
	}
	return placed, -1
}

// slotGroup holds the pieces that may share whole devices.
type slotGroup struct {
	slot   slotKey
	pieces []replicaPiece
}

// packPool packs one pool. If the pool is too small, it returns false. Stages on a time-shared pool run on all
// of its devices: their runs are written to out at once.
func (k *planPacking) packPool(pool int, placed placement) ([]deviceBin, bool) {
	// Group the pieces by slot.
	var groups []slotGroup
	groupOfSlot := map[slotKey]int{}
	for ci := range k.plan.pipelines {
		pipeline := &k.plan.pipelines[ci]
		t := &k.templates[pipeline.template]
		for si := range t.Stages {
			s := &t.Stages[si]
			if s.Pool != pool {
				continue
			}
			if k.Pools[pool].TimeShared {
				placed[ci][si] = []DeviceRun{{0, 1, k.Pools[pool].Count}}
				continue
			}
			slot := slotKey{pool: pool}
			if k.Rounding == Slot {
				slot = slotKey{pipeline.model, si, pool}
			}
			group, known := groupOfSlot[slot]
			if !known {
				group = len(groups)
				groups, groupOfSlot[slot] = append(groups, slotGroup{slot: slot}), group
			}
			groups[group].pieces = append(groups[group].pieces, replicaPiece{ci, si, s.Share, pipeline.replicas[si]})
		}
	}
	slices.SortFunc(groups, func(a, b slotGroup) int {
		return cmp.Or(cmp.Compare(a.slot.model, b.slot.model), cmp.Compare(a.slot.slot, b.slot.slot))
	})

	// If a plan runs, first try to pack around what the devices hold.
	if k.heldContents != nil {
		if bins := k.packAroundHeld(pool, groups); bins != nil {
			return bins, true
		}
	}

	// Else pack each group by itself.
	var bins []deviceBin
	for _, g := range groups {
		bins = append(bins, packPieces(g.pieces)...)
	}
	if len(bins) > k.Pools[pool].Count {
		return nil, false
	}
	if k.heldContents != nil {
		return k.assignToHolders(pool, bins), true
	}
	return k.spreadOverNodes(pool, bins), true
}

// withoutReplica returns the plan without that replica on a pool whose loss hurts least.
func (k *planPacking) withoutReplica(pool int) *replicaPlan {
	var bestPlan *replicaPlan
	for ci := range k.plan.pipelines {
		t := &k.templates[k.plan.pipelines[ci].template]
		for si := range t.Stages {
			if t.Stages[si].Pool != pool || k.Pools[pool].TimeShared || k.plan.pipelines[ci].replicas[si] == 0 || t.Stages[si].Share == 1 {
				continue
			}
			pipelines := slices.Clone(k.plan.pipelines)
			pipelines[ci].replicas = slices.Clone(pipelines[ci].replicas)
			pipelines[ci].replicas[si]--
			smaller := k.recomputePlan(pipelines)
			if smaller != nil && (bestPlan == nil || smaller.value > bestPlan.value || smaller.value == bestPlan.value && smaller.weightedSum > bestPlan.weightedSum) {
				bestPlan = smaller
			}
		}
	}
	return bestPlan
}

// packPieces puts pieces into as few bins as a bounded search finds. Devices filled by one kind of replica come
// first.
func packPieces(pieces []replicaPiece) []deviceBin {
	partsPerDevice := 1
	for _, piece := range pieces {
		partsPerDevice = lcm(partsPerDevice, piece.share)
	}
	var bins []deviceBin
	var singles []replicaPiece
	for _, piece := range pieces {
		// Whole devices of one piece; the rest are single replicas.
		for ; piece.replicas >= piece.share; piece.replicas -= piece.share {
			whole := piece
			whole.replicas = piece.share
			bins = append(bins, deviceBin{0, []replicaPiece{whole}})
		}
		for range piece.replicas {
			single := piece
			single.replicas = 1
			singles = append(singles, single)
		}
	}
	slices.SortStableFunc(singles, func(a, b replicaPiece) int { return cmp.Compare(a.share, b.share) }) // largest first
	neededParts := 0
	for _, piece := range singles {
		neededParts += partsPerDevice / piece.share
	}
	minBins := (neededParts + partsPerDevice - 1) / partsPerDevice

	// Try the fewest bins, then one more each time.
	for n := minBins; ; n++ {
		openBins := make([]deviceBin, n)
		for i := range openBins {
			openBins[i].freeParts = partsPerDevice
		}
		steps := 20000
		if fillBins(openBins, singles, partsPerDevice, &steps) {
			for i := range openBins {
				if len(openBins[i].pieces) > 0 {
					bins = append(bins, deviceBin{openBins[i].freeParts, mergePieces(openBins[i].pieces)})
				}
			}
			return bins
		}
	}
}

// fillBins is a depth-first search that puts the pieces into the open bins. Equal bins are tried once, and equal
// pieces in order.
func fillBins(openBins []deviceBin, remaining []replicaPiece, partsPerDevice int, steps *int) bool {
	if len(remaining) == 0 {
		return true
	}
	if *steps--; *steps < 0 {
		return false
	}
	pieceParts := partsPerDevice / remaining[0].share
	for i := range openBins {
		if openBins[i].freeParts < pieceParts {
			continue
		}
		if slices.ContainsFunc(openBins[:i], func(b deviceBin) bool { return b.freeParts == openBins[i].freeParts }) {
			continue
		}
		openBins[i].freeParts -= pieceParts
		openBins[i].pieces = append(openBins[i].pieces, remaining[0])
		if fillBins(openBins, remaining[1:], partsPerDevice, steps) {
			return true
		}
		openBins[i].freeParts += pieceParts
		openBins[i].pieces = openBins[i].pieces[:len(openBins[i].pieces)-1]
	}
	return false
}

// mergePieces adds up the replicas of the same stage on one device.
func mergePieces(parts []replicaPiece) []replicaPiece {
	var merged []replicaPiece
	for _, piece := range parts {
		i := slices.IndexFunc(merged, func(o replicaPiece) bool { return o.pipeline == piece.pipeline && o.stage == piece.stage })
		if i < 0 {
			merged = append(merged, piece)
			continue
		}
		merged[i].replicas += piece.replicas
	}
	return merged
}

// lcm returns the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
