package placement

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/lists"
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

// Place packs the replicas of a plan on devices, and returns the plan, the device runs of each stage, and warnings.
// Replicas that share whole devices by their sum need not fit them one by one: 1/2 + 1/3 of one device and 1/2 + 1/3 of
// another leave no room for a third of 1/3, say. Then idle devices are taken. If there are none, the replica without
// which the plan keeps most of its value is left out, with a warning, and the plan returned is the smaller one. If no
// replica can be left out, the plan is nil.
//
// heldContents has the replicas that each device holds already; nil if no plan runs. Devices keep those that the plan
// wants, as far as that is possible.
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

// packAll puts the replicas of the plan on the devices of all pools, and returns the device runs of each stage and -1.
// If they do not fit the devices of a pool one by one, it returns no places and the index of that pool.
func (k *planPacking) packAll() (Places, int) {
	// Bins hold pieces (replicas of one stage) by device. Places are by stage, so that each is a list of device runs.
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

// placeTimeShared sets, in placed, the places of the stages on a time-shared pool: each stage of the plan there has one
// replica on every device, and the stages take turns.
func (k *planPacking) placeTimeShared(pool int, placed Places) {
	for ci := range k.plan.Pipelines {
		t := &k.catalogue.Templates[k.plan.Pipelines[ci].Template]
		for si := range t.Stages {
			if t.Stages[si].Pool == pool {
				placed[ci][si] = []problem.DeviceRun{{FirstDevice: 0, PerDevice: 1, Replicas: k.problem.Pools[pool].Count}}
			}
		}
	}
}

// appendReplicas returns the device runs of a stage (consecutive devices with equal numbers of replicas) with some
// replicas on one more device. If the last run ends at the device before, with as many replicas on each, it becomes
// longer, so that places stay short. Devices must come in rising order.
func appendReplicas(runs []problem.DeviceRun, device, replicas int) []problem.DeviceRun {
	if n := len(runs); n > 0 {
		if last := &runs[n-1]; last.PerDevice == replicas && last.FirstDevice+last.Replicas/replicas == device {
			last.Replicas += replicas
			return runs
		}
	}
	return append(runs, problem.DeviceRun{FirstDevice: device, PerDevice: replicas, Replicas: replicas})
}

// slotGroup holds the pieces that may share whole devices.
type slotGroup struct {
	slot   SlotKey
	pieces []replicaPiece
}

// packPool packs the plan's replicas on one exclusive pool into bins, one for each device in order: the replicas that
// run on it. Devices beyond the bins stay idle. If the search for a packing finds none that fits the pool, it returns
// false.
func (k *planPacking) packPool(pool int) ([]deviceBin, bool) {
	// If a plan runs, first try to pack around what the devices hold.
	groups := k.groupBySlot(pool)
	if k.heldContents != nil {
		if bins := k.packAroundHeld(pool, groups); bins != nil {
			return bins, true
		}
	}

	// Else pack each group (of replicas that may share devices) by itself, and choose the devices of the bins: those that
	// hold their content or, if no plan runs, so that no network card of a node is overloaded.
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

// groupBySlot returns the plan's replicas on a pool as pieces (a number of replicas of one stage), in groups that may
// share devices: under the slot rule those of one slot (stage position of one model), else all in one group. Groups are
// ordered by model and stage.
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
			slot := SlotKey{Pool: pool} // the same for all, if any stages may share a device
			if k.problem.Rounding == problem.Slot {
				slot = SlotKey{pipeline.Model, si, pool}
			}
			group, hasGroup := groupOfSlot[slot]
			if !hasGroup {
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

// withoutReplica returns the plan without one replica on a pool, where its replicas do not fit the devices one by one:
// the replica without which the plan keeps the highest value and, of those that are equal in that, the largest weighted
// sum of rates. Only replicas on shares of a device count, as whole ones always fit. If none can go (a floor would be
// missed, say), it returns nil.
func (k *planPacking) withoutReplica(pool int) *Plan {
	var bestPlan *Plan
	for ci := range k.plan.Pipelines {
		t := &k.catalogue.Templates[k.plan.Pipelines[ci].Template]
		for si := range t.Stages {
			if t.Stages[si].Pool != pool || k.problem.Pools[pool].TimeShared || k.plan.Pipelines[ci].Replicas[si] == 0 || t.Stages[si].Share == 1 {
				continue
			}

			// The plan with a replica less of this stage, with rates computed anew; nil if it breaks a limit.
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

// packPieces puts pieces (a number of replicas of one stage each), which may all share devices, into as few bins, one
// for each device, as a bounded search finds. Bins that replicas of one stage fill come first, then the others from the
// search. The bins may be more than the pool has devices: the caller checks that.
func packPieces(pieces []replicaPiece) []deviceBin {
	// Devices that replicas of one stage fill need no search. singles holds the other replicas one by one.
	bins, singles := splitPieces(pieces)

	// A replica takes 1/share of a device. Count space in so many parts per device that this is always a whole number of
	// parts: 6 for halves and thirds.
	partsPerDevice, neededParts := 1, 0
	for _, piece := range pieces {
		partsPerDevice = problem.CommonParts(partsPerDevice, piece.share)
	}
	neededParts += lists.Sum(len(singles), func(i int) int { return partsPerDevice / singles[i].share })

	// Try as many bins as the sum of the parts fills, then one more each time that the search fails or its steps run out.
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

// splitPieces divides pieces (a number of replicas of one stage each) into bins of whole devices that a piece fills by
// itself, and the other replicas one by one, those that take the largest part of a device first.
func splitPieces(pieces []replicaPiece) (wholeDevices []deviceBin, singles []replicaPiece) {
	for _, piece := range pieces {
		// A replica takes 1/share of a device, so as many replicas as share fill one.
		replicasPerDevice := piece.share
		single, deviceFill := piece, piece
		single.replicas, deviceFill.replicas = 1, replicasPerDevice
		for range piece.replicas / replicasPerDevice {
			wholeDevices = append(wholeDevices, deviceBin{freeParts: 0, pieces: []replicaPiece{deviceFill}})
		}
		singles = append(singles, slices.Repeat([]replicaPiece{single}, piece.replicas%replicasPerDevice)...)
	}
	slices.SortStableFunc(singles, func(a, b replicaPiece) int { return cmp.Compare(a.share, b.share) })
	return wholeDevices, singles
}

// maxFillSteps bounds the steps of one search for bins.
const maxFillSteps = 20000

// fillBins puts the remaining pieces (single replicas, the largest first) into the open bins by a depth-first search,
// and reports whether all fit. If they do, the bins hold them; else the bins are as before. partsPerDevice is the number
// of parts in which the free space of a device is counted. Each call takes one of steps: when they are used up, the
// search ends with false, though a packing may exist.
func fillBins(openBins []deviceBin, remaining []replicaPiece, partsPerDevice int, steps *int) bool {
	if len(remaining) == 0 {
		return true
	}
	if *steps--; *steps < 0 {
		return false
	}
	pieceParts := partsPerDevice / remaining[0].share // as a replica takes 1/share of a device
	for i := range openBins {
		if openBins[i].freeParts < pieceParts {
			continue
		}
		// Of bins with equal free parts try the first only: the others would lead to the same packings.
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

// mergePieces returns the pieces (numbers of replicas of a stage) on one device with one piece for each stage of each
// pipeline: the replicas of equal ones are added up.
func mergePieces(pieces []replicaPiece) []replicaPiece {
	var merged []replicaPiece
	for _, piece := range pieces {
		i := slices.IndexFunc(merged, func(other replicaPiece) bool { return other.pipeline == piece.pipeline && other.stage == piece.stage })
		if i < 0 {
			merged = append(merged, piece)
			continue
		}
		merged[i].replicas += piece.replicas
	}
	return merged
}

// SlotKey names a slot: the replicas that may share whole devices under the slot rule.
type SlotKey struct{ Model, Stage, Pool int }
