package placement

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
)

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

// Places says on which devices a plan's replicas are: the device runs of [pipeline][stage].
type Places [][][]problem.DeviceRun

// planPacking puts a plan's replicas on physical devices, so that no device holds more than a whole one.
type planPacking struct {
	problem      *problem.Problem
	catalogue    *templates.Catalogue
	plan         *Plan
	heldContents Contents // held already by each device; nil if no plan runs
}

// Place packs the replicas of a plan on devices, and returns the plan and the places. Replicas that share
// whole devices by their sum need not fit them one by one: 1/2 + 1/3 of one device and 1/2 + 1/3 of another
// leave no room for a third of 1/3, say. Then idle devices are taken. If there are none, the least useful
// replica is left out, with a warning. If no replica can be left out, the plan is nil.
//
// A device that already holds content that the plan wants keeps it.
func Place(c *templates.Catalogue, plan *Plan, heldContents Contents) (*Plan, Places, []string) {
	var warnings []string
	for {
		packer := &planPacking{c.Problem, c, plan, heldContents}
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
			c.Problem.Pools[fullPool].Kind, plan.Value, smaller.Value))
		plan = smaller
	}
}

// UnpackablePool returns the pool whose devices a plan does not fit one by one. If it fits all, it returns -1.
func UnpackablePool(c *templates.Catalogue, plan *Plan) int {
	_, pool := (&planPacking{c.Problem, c, plan, nil}).packAll()
	return pool
}

// packAll puts the replicas of the plan on the devices of all pools, and returns the devices of each stage. If
// a pool is too small, it returns the index of that pool, else -1.
func (k *planPacking) packAll() (Places, int) {
	placed := make(Places, len(k.plan.Pipelines))
	for i := range k.plan.Pipelines {
		placed[i] = make([][]problem.DeviceRun, len(k.plan.Pipelines[i].Replicas))
	}
	for pool := range k.problem.Pools {
		if k.problem.Pools[pool].TimeShared {
			k.placeTimeShared(pool, placed)
			continue
		}
		bins, ok := k.packPool(pool)
		if !ok {
			return nil, pool
		}
		for device, b := range bins {
			for _, piece := range b.pieces {
				placed[piece.pipeline][piece.stage] = appendReplicas(placed[piece.pipeline][piece.stage], device, piece.replicas)
			}
		}
	}
	return placed, -1
}

// placeTimeShared places the stages on a time-shared pool: each runs on all of its devices.
func (k *planPacking) placeTimeShared(pool int, placed Places) {
	for ci := range k.plan.Pipelines {
		t := &k.catalogue.Templates[k.plan.Pipelines[ci].Template]
		for si := range t.Stages {
			if t.Stages[si].Pool == pool {
				placed[ci][si] = []problem.DeviceRun{{First: 0, PerDevice: 1, Replicas: k.problem.Pools[pool].Count}}
			}
		}
	}
}

// appendReplicas adds replicas on a device to the runs of a stage. If the last run ends at the device before,
// with as many replicas on each, it becomes longer.
func appendReplicas(runs []problem.DeviceRun, device, replicas int) []problem.DeviceRun {
	if n := len(runs); n > 0 {
		if last := &runs[n-1]; last.PerDevice == replicas && last.First+last.Replicas/replicas == device {
			last.Replicas += replicas
			return runs
		}
	}
	return append(runs, problem.DeviceRun{First: device, PerDevice: replicas, Replicas: replicas})
}

// slotGroup holds the pieces that may share whole devices.
type slotGroup struct {
	slot   SlotKey
	pieces []replicaPiece
}

// packPool packs the replicas on one exclusive pool into bins, one for each device in order. If the pool is too
// small, it returns false.
func (k *planPacking) packPool(pool int) ([]deviceBin, bool) {
	// If a plan runs, first try to pack around what the devices hold.
	groups := k.groupBySlot(pool)
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
	if len(bins) > k.problem.Pools[pool].Count {
		return nil, false
	}
	if k.heldContents != nil {
		return k.assignToHolders(pool, bins), true
	}
	return k.spreadOverNodes(pool, bins), true
}

// groupBySlot returns the replicas on a pool as pieces (replicas of one stage), grouped by what may share a
// device: under the slot rule those of one stage position of one model, else all.
func (k *planPacking) groupBySlot(pool int) []slotGroup {
	var groups []slotGroup
	groupOfSlot := map[SlotKey]int{}
	for ci := range k.plan.Pipelines {
		pipeline := &k.plan.Pipelines[ci]
		t := &k.catalogue.Templates[pipeline.Template]
		for si := range t.Stages {
			s := &t.Stages[si]
			if s.Pool != pool {
				continue
			}
			slot := SlotKey{Pool: pool}
			if k.problem.Rounding == problem.Slot {
				slot = SlotKey{pipeline.Model, si, pool}
			}
			group, known := groupOfSlot[slot]
			if !known {
				group = len(groups)
				groups, groupOfSlot[slot] = append(groups, slotGroup{slot: slot}), group
			}
			groups[group].pieces = append(groups[group].pieces, replicaPiece{ci, si, s.Share, pipeline.Replicas[si]})
		}
	}
	slices.SortFunc(groups, func(a, b slotGroup) int {
		return cmp.Or(cmp.Compare(a.slot.Model, b.slot.Model), cmp.Compare(a.slot.Stage, b.slot.Stage))
	})
	return groups
}

// withoutReplica returns the plan without one replica on a pool: the one without which the plan keeps the
// highest value. Only replicas on shares of a device count, as whole ones always fit. If none can go, it
// returns nil.
func (k *planPacking) withoutReplica(pool int) *Plan {
	var bestPlan *Plan
	for ci := range k.plan.Pipelines {
		t := &k.catalogue.Templates[k.plan.Pipelines[ci].Template]
		for si := range t.Stages {
			if t.Stages[si].Pool != pool || k.problem.Pools[pool].TimeShared || k.plan.Pipelines[ci].Replicas[si] == 0 || t.Stages[si].Share == 1 {
				continue
			}
			pipelines := slices.Clone(k.plan.Pipelines)
			pipelines[ci].Replicas = slices.Clone(pipelines[ci].Replicas)
			pipelines[ci].Replicas[si]--
			smaller := Recompute(k.catalogue, pipelines)
			if smaller != nil && (bestPlan == nil || smaller.Value > bestPlan.Value || smaller.Value == bestPlan.Value && smaller.WeightedSum > bestPlan.WeightedSum) {
				bestPlan = smaller
			}
		}
	}
	return bestPlan
}

// packPieces puts pieces (replicas of one stage each) into as few bins, one for each device, as a bounded
// search finds. Devices that replicas of one stage fill come first, then the others from the search. If the
// steps end, one more bin is tried.
func packPieces(pieces []replicaPiece) []deviceBin {
	bins, singles := splitPieces(pieces)
	partsPerDevice, neededParts := 1, 0
	for _, piece := range pieces {
		partsPerDevice = problem.CommonParts(partsPerDevice, piece.share)
	}
	for _, piece := range singles {
		neededParts += partsPerDevice / piece.share
	}

	// Try the fewest bins, then one more each time.
	openBins := make([]deviceBin, (neededParts+partsPerDevice-1)/partsPerDevice)
	for {
		for i := range openBins {
			openBins[i] = deviceBin{freeParts: partsPerDevice}
		}
		steps := maxFillSteps
		if fillBins(openBins, singles, partsPerDevice, &steps) {
			break
		}
		openBins = append(openBins, deviceBin{})
	}
	for i := range openBins {
		if len(openBins[i].pieces) > 0 {
			bins = append(bins, deviceBin{openBins[i].freeParts, mergePieces(openBins[i].pieces)})
		}
	}
	return bins
}

// splitPieces divides pieces (replicas of one stage each) into whole devices that a piece fills by itself and
// the other replicas one by one, those of the largest share first.
func splitPieces(pieces []replicaPiece) (whole []deviceBin, singles []replicaPiece) {
	for _, piece := range pieces {
		single, full := piece, piece
		single.replicas, full.replicas = 1, piece.share
		for range piece.replicas / piece.share {
			whole = append(whole, deviceBin{0, []replicaPiece{full}})
		}
		for range piece.replicas % piece.share {
			singles = append(singles, single)
		}
	}
	slices.SortStableFunc(singles, func(a, b replicaPiece) int { return cmp.Compare(a.share, b.share) })
	return whole, singles
}

// maxFillSteps bounds the steps of one search for bins.
const maxFillSteps = 20000

// fillBins puts the remaining pieces into the open bins by a depth-first search, and reports whether all fit.
// Of bins with equal room it tries the first only. The search ends without an answer, false, when the steps are
// used up.
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
