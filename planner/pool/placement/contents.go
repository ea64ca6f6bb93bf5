package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// Content is the content of a replica in a device: blocks of a network, on a share of a device of a pool.
type Content struct {
	network               string
	firstBlock, lastBlock int
	pool, Share           int
}

// ContentOf returns the content of stage si of a template.
func ContentOf(p *problem.Problem, t *stages.Template, si int) Content {
	s := &t.Stages[si]
	return Content{p.Models[t.Model].NetworkName(), s.FirstBlock, s.EndBlock, s.Pool, s.Share}
}

// Contents says what devices hold: the replicas of [pool][device][content].
type Contents [][]map[Content]int

// emptyContents returns contents (by pool and device, the blocks and shares that its replicas hold) for all devices of
// a problem, to which addRun adds. The maps of the devices are nil until then.
func emptyContents(p *problem.Problem) Contents {
	contents := make(Contents, len(p.Pools))
	for k := range contents {
		contents[k] = make([]map[Content]int, p.Pools[k].Count)
	}
	return contents
}

// addRun notes that the devices of a run (consecutive devices of the content's pool, with PerDevice equal replicas on
// each) hold the given content. Devices beyond those that the pool has now are gone and do not count. It returns how
// many replicas it noted.
func (h Contents) addRun(stored Content, run problem.DeviceRun) (n int) {
	for j := range run.Replicas {
		device := run.FirstDevice + j/run.PerDevice
		if device >= len(h[stored.pool]) {
			break
		}
		if h[stored.pool][device] == nil {
			h[stored.pool][device] = map[Content]int{}
		}
		h[stored.pool][device][stored]++
		n++
	}
	return n
}

// devicesShortOf returns how many devices have to load something for a new plan: those that do not hold all the replicas
// that wanted has for them.
func (h Contents) devicesShortOf(wanted Contents) (n int) {
	for k := range wanted {
		for d, contents := range wanted[k] {
			if !holdsAll(h[k][d], contents) {
				n++
			}
		}
	}
	return n
}

// holdsAll reports whether a device that holds the replicas held (their number by content) has all the wanted ones among
// them, so that it need not load anything. Both maps may be nil.
func holdsAll(held, wanted map[Content]int) bool {
	for content, n := range wanted {
		if held[content] < n {
			return false
		}
	}
	return true
}

// deviceGroups holds the devices of a pool that are not yet assigned, grouped by what they hold.
type deviceGroups struct {
	contents []map[Content]int // by device
	devices  map[string][]int  // by the name of what they hold
	names    []string          // in the order of the first device of each group
}

// groupDevices groups the devices of a pool by the replicas that they hold, so that a search for a device with some
// contents looks at each kind of contents once. No device is assigned yet.
func (h Contents) groupDevices(pool int) *deviceGroups {
	groups := &deviceGroups{contents: h[pool], devices: map[string][]int{}}
	for d, contents := range h[pool] {
		name := contentName(contents)
		if _, ok := groups.devices[name]; !ok {
			groups.names = append(groups.names, name)
		}
		groups.devices[name] = append(groups.devices[name], d)
	}
	return groups
}

// take removes the first device of a group, given by the name of the contents, from those not yet assigned, and returns
// its index. If none is left, it returns -1.
func (g *deviceGroups) take(name string) int {
	devices := g.devices[name]
	if len(devices) == 0 {
		return -1
	}
	g.devices[name] = devices[1:]
	return devices[0]
}

// takeHolding removes a device that holds all wanted replicas (their number by content), and perhaps others, from those
// not yet assigned, and returns its index. If there is none, it returns -1.
func (g *deviceGroups) takeHolding(wanted map[Content]int) int {
	// All devices of a group hold the same, so look at the first of each.
	for _, name := range g.names {
		if devices := g.devices[name]; len(devices) > 0 && holdsAll(g.contents[devices[0]], wanted) {
			return g.take(name)
		}
	}
	return -1
}

// remaining returns the indexes of the devices that were not taken, in the order in which they should be loaded anew:
// those that hold the fewest contents first. What runs on the others may then go on until they switch.
func (g *deviceGroups) remaining() (devices []int) {
	for _, name := range g.names {
		devices = append(devices, g.devices[name]...)
	}
	slices.SortFunc(devices, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(g.contents[a]), len(g.contents[b])), cmp.Compare(a, b))
	})
	return devices
}

// assignBins decides which device of a pool takes each bin (the replicas, by content, that one device shall run), so
// that few devices have to load anything. It returns the index of the device of each bin. There must be no more bins
// than devices.
func (h Contents) assignBins(pool int, bins []map[Content]int) (assigned []int) {
	// A bin goes to a device that holds just its replicas (-1 if there is none), else to one that holds them among
	// others, else to one of the remaining devices, which has to load something.
	groups := h.groupDevices(pool)
	assigned = lists.Map(len(bins), func(i int) int { return groups.take(contentName(bins[i])) })
	for i, b := range bins {
		if assigned[i] < 0 {
			assigned[i] = groups.takeHolding(b)
		}
	}
	remaining := groups.remaining()
	for i := range bins {
		if assigned[i] < 0 {
			assigned[i], remaining = remaining[0], remaining[1:]
		}
	}
	return assigned
}

// contentName returns a text for the replicas, by content, that a device holds. It is equal for equal replicas of one
// pool, and so names groups of devices.
func contentName(replicas map[Content]int) string {
	parts := make([]string, 0, len(replicas))
	for content, n := range replicas {
		parts = append(parts, fmt.Sprintf("%s/%d-%d/%d*%d", content.network, content.firstBlock, content.lastBlock, content.Share, n))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// assignToHolders returns one bin (the replicas to run on a device) for each device of a pool, in their order: the given
// bins, so that devices which already hold the content of a bin get it, and empty ones for the other devices. It is
// called if a plan runs around which the new one could not be packed.
func (k *planPacking) assignToHolders(pool int, bins []deviceBin) []deviceBin {
	// The replicas of each bin by content (blocks of a network on a share): pieces of several stages may be equal.
	wanted := make([]map[Content]int, len(bins))
	for i := range bins {
		wanted[i] = map[Content]int{}
		for _, piece := range bins[i].pieces {
			wanted[i][ContentOf(k.problem, &k.catalogue.Templates[k.plan.Pipelines[piece.pipeline].Template], piece.stage)] += piece.replicas
		}
	}
	ordered := make([]deviceBin, k.problem.Pools[pool].Count)
	for i, device := range k.heldContents.assignBins(pool, wanted) {
		ordered[device] = bins[i]
	}
	return ordered
}

// wantedPiece is a piece with its slot and content.
type wantedPiece struct {
	replicaPiece
	slot    SlotKey
	content Content
}

// reusePacking packs one pool around what its devices hold.
type reusePacking struct {
	rounding        problem.Rounding
	deviceContents  []map[Content]int // by device
	wantedPieces    []wantedPiece
	wantedByContent map[Content][]int // indexes of wantedPieces
	partsPerDevice  int               // parts of a device that free space is counted in
	bins            []deviceBin       // by device
	ownerSlots      []SlotKey         // by device: the slot whose pieces it has
	emptyDevices    []int
}

// packAroundHeld packs the replicas of a plan into the devices of a pool so that few devices have to load anything, if a
// plan runs. First each device keeps what it holds and the plan wants. Then the rest fills free parts of such devices
// and empty ones. groups holds the replicas as pieces (replicas of one stage), by slot: those of one group may share
// devices, under the slot rule those of one stage position of a model. It returns a bin of pieces for each device. If
// that needs more devices than there are, it returns nil, and the caller packs anew.
func (k *planPacking) packAroundHeld(pool int, groups []slotGroup) []deviceBin {
	n := k.problem.Pools[pool].Count
	reuse := &reusePacking{rounding: k.problem.Rounding, deviceContents: k.heldContents[pool], wantedByContent: map[Content][]int{}, partsPerDevice: 1, bins: make([]deviceBin, n), ownerSlots: make([]SlotKey, n)}

	// The pieces that the plan wants. Each of their replicas takes 1/share of a device. Space is counted in so many parts of a
	// device that all replicas take whole numbers of them.
	for _, g := range groups {
		for _, piece := range g.pieces {
			content := ContentOf(k.problem, &k.catalogue.Templates[k.plan.Pipelines[piece.pipeline].Template], piece.stage)
			reuse.wantedByContent[content] = append(reuse.wantedByContent[content], len(reuse.wantedPieces))
			reuse.wantedPieces = append(reuse.wantedPieces, wantedPiece{piece, g.slot, content})
			reuse.partsPerDevice = problem.CommonParts(reuse.partsPerDevice, piece.share)
		}
	}

	// Place them: first the replicas that devices hold, then the rest. Both may put replicas of one stage on the same device,
	// which are merged into one piece at the end.
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

// putReplicas puts n replicas of a wanted piece (replicas of one stage) on a device. It subtracts them from those of the
// piece that remain to be placed and from the free parts of the device, and notes the slot that the device now serves.
func (s *reusePacking) putReplicas(device int, wanted *wantedPiece, n int) {
	placed := wanted.replicaPiece
	placed.replicas = n
	s.bins[device].pieces = append(s.bins[device].pieces, placed)
	s.bins[device].freeParts -= n * s.partsPerDevice / wanted.share
	s.ownerSlots[device] = wanted.slot
	wanted.replicas -= n
}

// reuseHeld puts on each device those replicas that it holds already and the plan wants, so that they need not be
// loaded. Devices of which most is wanted come first, so that replicas stay together where they are. Under the slot
// rule a device keeps replicas of one slot only (one stage position of one model).
func (s *reusePacking) reuseHeld() {
	// The contents of each device in a fixed order, which a map lacks.
	contents := make([][]Content, len(s.bins))
	for device, held := range s.deviceContents {
		contents[device] = slices.SortedFunc(maps.Keys(held), compareContents)
	}

	// Of each content, share the replicas that a device holds out among the pieces that want it.
	for _, device := range s.devicesByUse() {
		for _, content := range contents[device] {
			heldReplicas := s.deviceContents[device][content]
			for _, i := range s.wantedByContent[content] {
				wanted := &s.wantedPieces[i]
				if len(s.bins[device].pieces) > 0 && !s.mayJoin(device, wanted) {
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

// compareContents orders contents of one pool.
func compareContents(a, b Content) int {
	return cmp.Or(cmp.Compare(a.network, b.network), cmp.Compare(a.firstBlock, b.firstBlock), cmp.Compare(a.lastBlock, b.lastBlock), cmp.Compare(a.Share, b.Share))
}

// devicesByUse returns the indexes of the devices in the order in which reuseHeld takes them: those first of which the
// largest part (in the parts that free space is counted in) holds replicas that the plan wants.
func (s *reusePacking) devicesByUse() []int {
	// The replicas of each content that the plan wants, and from them the useful parts of each device.
	wantedReplicas := map[Content]int{}
	for i := range s.wantedPieces {
		wantedReplicas[s.wantedPieces[i].content] += s.wantedPieces[i].replicas
	}
	usefulParts := make([]int, len(s.bins))
	for device, held := range s.deviceContents {
		for content, n := range held {
			usefulParts[device] += min(n, wantedReplicas[content]) * s.partsPerDevice / content.Share
		}
	}
	byUse := lists.Indexes(len(s.bins))
	slices.SortStableFunc(byUse, func(a, b int) int { return cmp.Compare(usefulParts[b], usefulParts[a]) })
	return byUse
}

// mayJoin reports whether a piece may stand beside what is on a device: under the slot rule only one slot does.
func (s *reusePacking) mayJoin(device int, wanted *wantedPiece) bool {
	return s.rounding != problem.Slot || s.ownerSlots[device] == wanted.slot
}

// placeRest places the replicas that no device holds already. It is called after reuseHeld, which placed the others. A
// piece is a number of replicas of one stage. First, replicas of a piece that fill whole devices go to empty devices. Then
// the other replicas are placed one by one, those that take the largest part of a device first. If there are too few
// devices, it returns false.
func (s *reusePacking) placeRest() bool {
	for device := range s.bins {
		if len(s.bins[device].pieces) == 0 {
			s.emptyDevices = append(s.emptyDevices, device)
		}
	}

	// Whole devices of one piece: as many replicas as share, each of 1/share of a device, fill one. putReplicas lowers the
	// number of replicas that remain of the piece.
	for i := range s.wantedPieces {
		wanted := &s.wantedPieces[i]
		for wanted.replicas >= wanted.share {
			if len(s.emptyDevices) == 0 {
				return false
			}
			s.putReplicas(s.emptyDevices[0], wanted, wanted.share)
			s.emptyDevices = s.emptyDevices[1:]
		}
	}

	// Single replicas, on a device in use with enough free parts, else on an empty one. The largest come first, which take
	// 1/share of a device with the least share. The sort makes the indexes in s.wantedByContent invalid, but only reuseHeld
	// uses these. isLoading has, by device, whether it loads something new.
	slices.SortStableFunc(s.wantedPieces, func(a, b wantedPiece) int { return cmp.Compare(a.share, b.share) })
	isLoading := make([]bool, len(s.bins))
	for i := range s.wantedPieces {
		wanted := &s.wantedPieces[i]
		for wanted.replicas > 0 {
			target := s.partlyFreeDevice(wanted, isLoading)
			if target < 0 && len(s.emptyDevices) == 0 {
				return false
			}
			if target < 0 {
				target, s.emptyDevices = s.emptyDevices[0], s.emptyDevices[1:]
			}
			s.putReplicas(target, wanted, 1)
			isLoading[target] = true
		}
	}
	return true
}

// partlyFreeDevice returns the index of a device in use that has room for one replica of a piece and may hold it: the
// first that loads something anyway (isLoading, by device), so that no further device has to, else the first of all. If
// there is none, it returns -1. Space is counted in parts of a device, of which a replica on 1/share of it takes
// partsPerDevice/share.
func (s *reusePacking) partlyFreeDevice(wanted *wantedPiece, isLoading []bool) int {
	free := -1
	replicaParts := s.partsPerDevice / wanted.share
	for device := range s.bins {
		bin := &s.bins[device]
		isInUse := len(bin.pieces) > 0
		if !isInUse || bin.freeParts < replicaParts || !s.mayJoin(device, wanted) {
			continue
		}
		if isLoading[device] {
			return device
		}
		if free < 0 {
			free = device
		}
	}
	return free
}
