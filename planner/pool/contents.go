package pool

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/stages"
)

// replicaContent is the content of a replica in a device: blocks of a network, on a share of a device of a pool.
type replicaContent struct {
	network               string
	firstBlock, lastBlock int
	pool, share           int
}

// contentOf returns the content of stage si of a template.
func (p *Problem) contentOf(t *stages.Template, si int) replicaContent {
	s := &t.Stages[si]
	return replicaContent{p.Models[t.Model].NetworkName(), s.FirstBlock, s.EndBlock, s.Pool, s.Share}
}

// heldContents says what devices hold: the replicas of [pool][device][content].
type heldContents [][]map[replicaContent]int

// emptyContents returns the contents of devices before anything runs.
func (p *Problem) emptyContents() heldContents {
	h := make(heldContents, len(p.Pools))
	for k := range h {
		h[k] = make([]map[replicaContent]int, p.Pools[k].Count)
	}
	return h
}

// addRun puts replicas on the devices of a run, as far as the pool still has them. It returns how many it put.
func (h heldContents) addRun(stored replicaContent, run DeviceRun) (n int) {
	for j := range run.Replicas {
		device := run.First + j/run.PerDevice
		if device >= len(h[stored.pool]) {
			break
		}
		if h[stored.pool][device] == nil {
			h[stored.pool][device] = map[replicaContent]int{}
		}
		h[stored.pool][device][stored]++
		n++
	}
	return n
}

// devicesShortOf returns how many devices hold less of some content than they are wanted to hold.
func (h heldContents) devicesShortOf(wanted heldContents) (n int) {
	for k := range wanted {
		for d, contents := range wanted[k] {
			for stored, replicas := range contents {
				if h[k][d][stored] < replicas {
					n++
					break
				}
			}
		}
	}
	return n
}

// assignBins assigns the bins of a pool, given by their contents, to devices, and returns the device of each
// bin. A bin goes to a device that holds just that content, else to one that holds it among other things, else
// to one of the remaining devices, which has to load something.
func (h heldContents) assignBins(pool int, bins []map[replicaContent]int) (assigned []int) {
	assigned = slices.Repeat([]int{-1}, len(bins))

	// Group the devices by what they hold.
	groups := map[string][]int{} // devices by what they hold
	var names []string
	for d, contents := range h[pool] {
		contentKey := contentName(contents)
		if _, ok := groups[contentKey]; !ok {
			names = append(names, contentKey)
		}
		groups[contentKey] = append(groups[contentKey], d)
	}
	assign := func(i int, contentKey string) {
		assigned[i] = groups[contentKey][0]
		groups[contentKey] = groups[contentKey][1:]
	}

	// First the devices that hold just the content of the bin.
	for i, b := range bins {
		if contentKey := contentName(b); len(groups[contentKey]) > 0 {
			assign(i, contentKey)
		}
	}
	isHeldBy := func(b, c map[replicaContent]int) bool {
		for contentKey, n := range b {
			if c[contentKey] < n {
				return false
			}
		}
		return true
	}

	// Then those that hold it among other things.
	for i, b := range bins {
		if assigned[i] >= 0 {
			continue
		}
		for _, contentKey := range names {
			if len(groups[contentKey]) > 0 && isHeldBy(b, h[pool][groups[contentKey][0]]) {
				assign(i, contentKey)
				break
			}
		}
	}
	var remaining []int
	for _, contentKey := range names {
		remaining = append(remaining, groups[contentKey]...)
	}
	// Then idle devices first: what runs on the others may go on until they switch.
	slices.SortFunc(remaining, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(h[pool][a]), len(h[pool][b])), cmp.Compare(a, b))
	})
	for i := range bins {
		if assigned[i] < 0 {
			assigned[i], remaining = remaining[0], remaining[1:]
		}
	}
	return assigned
}

// contentName returns a text that is equal for equal contents.
func contentName(c map[replicaContent]int) string {
	parts := make([]string, 0, len(c))
	for k, n := range c {
		parts = append(parts, fmt.Sprintf("%s/%d-%d/%d*%d", k.network, k.firstBlock, k.lastBlock, k.share, n))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// assignToHolders orders the bins of a pool by the devices that they are assigned to. Devices between them get
// empty bins.
func (k *planPacking) assignToHolders(pool int, bins []deviceBin) []deviceBin {
	wanted := make([]map[replicaContent]int, len(bins))
	for i := range bins {
		wanted[i] = map[replicaContent]int{}
		for _, piece := range bins[i].pieces {
			wanted[i][k.contentOf(&k.templates[k.plan.pipelines[piece.pipeline].template], piece.stage)] += piece.replicas
		}
	}
	ordered := make([]deviceBin, k.Pools[pool].Count)
	for i, device := range k.heldContents.assignBins(pool, wanted) {
		ordered[device] = bins[i]
	}
	return ordered
}

// wantedPiece is a piece with its slot and content.
type wantedPiece struct {
	replicaPiece
	slot    slotKey
	content replicaContent
}

// reusePacking packs one pool around what its devices hold.
type reusePacking struct {
	planPacking
	deviceContents  []map[replicaContent]int // by device
	wantedPieces    []wantedPiece
	wantedByContent map[replicaContent][]int // indexes of wantedPieces
	partsPerDevice  int                      // parts of a device that free space is counted in
	bins            []deviceBin              // by device
	ownerSlots      []slotKey                // by device: the slot whose pieces it has
	emptyDevices    []int
}

// packAroundHeld packs a pool so that devices keep the contents that they hold. First every device keeps what it
// holds and the plan wants. Then the rest fills empty devices and free parts of the others. If that needs more
// devices than there are, it returns nil.
func (k *planPacking) packAroundHeld(pool int, groups []slotGroup) []deviceBin {
	n := k.Pools[pool].Count
	reuse := &reusePacking{planPacking: *k, deviceContents: k.heldContents[pool], wantedByContent: map[replicaContent][]int{}, partsPerDevice: 1, bins: make([]deviceBin, n), ownerSlots: make([]slotKey, n)}

	// The pieces that the plan wants.
	for _, g := range groups {
		for _, piece := range g.pieces {
			content := k.contentOf(&k.templates[k.plan.pipelines[piece.pipeline].template], piece.stage)
			reuse.wantedByContent[content] = append(reuse.wantedByContent[content], len(reuse.wantedPieces))
			reuse.wantedPieces = append(reuse.wantedPieces, wantedPiece{piece, g.slot, content})
			reuse.partsPerDevice = lcm(reuse.partsPerDevice, piece.share)
		}
	}
	for device := range reuse.bins {
		reuse.bins[device].freeParts = reuse.partsPerDevice
	}
	reuse.reuseHeld()
	if !reuse.placeRest() {
		return nil
	}
	for device := range reuse.bins {
		reuse.bins[device].pieces = mergePieces(reuse.bins[device].pieces)
	}
	return reuse.bins
}

// putReplicas puts n replicas of a wanted piece on a device.
func (s *reusePacking) putReplicas(device int, wanted *wantedPiece, n int) {
	placed := wanted.replicaPiece
	placed.replicas = n
	s.bins[device].pieces = append(s.bins[device].pieces, placed)
	s.bins[device].freeParts -= n * s.partsPerDevice / wanted.share
	s.ownerSlots[device] = wanted.slot
	wanted.replicas -= n
}

// reuseHeld leaves on devices what they hold and the plan wants. The devices of which most is wanted come first.
func (s *reusePacking) reuseHeld() {
	// Replicas that are wanted of each content.
	remaining := map[replicaContent]int{}
	for i := range s.wantedPieces {
		remaining[s.wantedPieces[i].content] += s.wantedPieces[i].replicas
	}

	// How much of each device is useful.
	contents := make([][]replicaContent, len(s.bins))
	byUseful := indexesBelow(len(s.bins))
	useful := make([]int, len(s.bins))
	for device, c := range s.deviceContents {
		for content := range c {
			contents[device] = append(contents[device], content)
			useful[device] += min(c[content], remaining[content]) * s.partsPerDevice / content.share
		}
		slices.SortFunc(contents[device], func(a, b replicaContent) int {
			return cmp.Or(cmp.Compare(a.network, b.network), cmp.Compare(a.firstBlock, b.firstBlock), cmp.Compare(a.lastBlock, b.lastBlock), cmp.Compare(a.share, b.share))
		})
	}
	slices.SortStableFunc(byUseful, func(a, b int) int { return cmp.Compare(useful[b], useful[a]) })

	// Keep what is wanted, under the slot rule for one slot per device only.
	for _, device := range byUseful {
		for _, content := range contents[device] {
			heldReplicas := s.deviceContents[device][content]
			for _, i := range s.wantedByContent[content] {
				wanted := &s.wantedPieces[i]
				if s.Rounding == Slot && len(s.bins[device].pieces) > 0 && s.ownerSlots[device] != wanted.slot {
					continue
				}
				if reused := min(heldReplicas, wanted.replicas); reused > 0 {
					s.putReplicas(device, wanted, reused)
					heldReplicas -= reused
				}
			}
		}
	}
}

// placeRest places the remaining replicas: first whole devices of one piece, then the largest replicas into free
// parts, on devices that load something anyway before others. If there are too few devices, it returns false.
// Whole devices of one piece.
func (s *reusePacking) placeRest() bool {
	for device := range s.bins {
		if len(s.bins[device].pieces) == 0 {
			s.emptyDevices = append(s.emptyDevices, device)
		}
	}
	for i := range s.wantedPieces {
		wanted := &s.wantedPieces[i]
		for ; wanted.replicas >= wanted.share; s.emptyDevices = s.emptyDevices[1:] {
			if len(s.emptyDevices) == 0 {
				return false
			}
			s.putReplicas(s.emptyDevices[0], wanted, wanted.share)
		}
	}

	// Single replicas, the largest first.
	slices.SortStableFunc(s.wantedPieces, func(a, b wantedPiece) int { return cmp.Compare(a.share, b.share) })
	isLoading := make([]bool, len(s.bins))
	for i := range s.wantedPieces {
		wanted := &s.wantedPieces[i]
		for wanted.replicas > 0 {
			target := -1
			for device := range s.bins {
				if len(s.bins[device].pieces) > 0 && s.bins[device].freeParts >= s.partsPerDevice/wanted.share && (s.Rounding != Slot || s.ownerSlots[device] == wanted.slot) &&
					(target < 0 || isLoading[device] && !isLoading[target]) {
					target = device
				}
			}
			if target < 0 {
				if len(s.emptyDevices) == 0 {
					return false
				}
				target, s.emptyDevices = s.emptyDevices[0], s.emptyDevices[1:]
			}
			s.putReplicas(target, wanted, 1)
			isLoading[target] = true
		}
	}
	return true
}
