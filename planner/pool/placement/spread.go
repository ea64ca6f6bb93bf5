package placement

import (
	"fmt"
	"slices"

	"inferplan/planner/lists"
)

// calmLink is the part of its time up to which a busy link justifies no swap. In the recorded cases links below
// it made no model wait, and models on one node disturb each other.
const calmLink = 0.7

// nicLoad is the part of its time for which each direction of a NIC is busy: up, down.
type nicLoad [2]float64

// busier returns the load of the busier direction.
func (t nicLoad) busier() float64 { return max(t[0], t[1]) }

// overload returns by how much a network card is overloaded: the sum, over its two directions, of the square of the
// part of its time for which it is busy beyond calmLink. It is 0 if neither direction is busier. Swaps lower the sum.
func (t nicLoad) overload() (sum float64) {
	for _, busy := range t {
		if busy > calmLink {
			sum += (busy - calmLink) * (busy - calmLink)
		}
	}
	return sum
}

// trafficOf returns how busy the pieces (numbers of replicas of a stage) on a device keep the network card of its node
// at the rates of the plan: seconds of sending and of receiving per second.
func (k *planPacking) trafficOf(b *deviceBin) (load nicLoad) {
	for _, piece := range b.pieces {
		pipeline := &k.plan.Pipelines[piece.pipeline]
		stageList := k.catalogue.Templates[pipeline.Template].Stages

		// The requests/s that pass these replicas, and the seconds for which one occupies the card on its way from
		// stage i to the next, and whether it occupies that of the sender and of the receiver.
		rps := pipeline.RPS / float64(pipeline.Replicas[piece.stage]) * float64(piece.replicas)
		crossing := func(i int) (seconds float64, sends, receives bool) {
			return k.problem.LinkTime(stageList[i].Pool, stageList[i+1].Pool, k.problem.Models[pipeline.Model].CutBytes[stageList[i].EndBlock-1])
		}
		if piece.stage+1 < len(stageList) {
			if seconds, sends, _ := crossing(piece.stage); sends {
				load[0] += rps * seconds
			}
		}
		if piece.stage > 0 {
			if seconds, _, receives := crossing(piece.stage - 1); receives {
				load[1] += rps * seconds
			}
		}
	}
	return load
}

// nodeKind is a set of nodes whose devices have equal loads.
type nodeKind struct {
	loads    []int   // indexes of the loads of the devices, sorted
	nodeLoad nicLoad // sum of the loads
	nodes    []int
}

// nodeBalancer swaps devices between the nodes of a pool. Devices and nodes of equal loads are looked at once,
// so the work hardly grows with the pool.
type nodeBalancer struct {
	loadOfDevice  []int // by device: index of its load
	distinctLoads []nicLoad
	nodeDevices   [][]int // by node
	nodeKinds     []nodeKind
	kindByLoads   map[string]int // by the text of the loads: index of the kind
}

// spreadOverNodes orders bins (the replicas of one device each) over the devices of a pool, of which each PerNode in a
// row are a node and share its network card, so that no card is overloaded while another could take load off it. If the
// pool has no network, nodes have one device each, or the bins fill only one node, it returns the bins as they are.
func (k *planPacking) spreadOverNodes(pool int, bins []deviceBin) []deviceBin {
	p := &k.problem.Pools[pool]
	if p.Gbps <= 0 || p.PerNode < 2 || len(bins) <= p.PerNode {
		return bins
	}
	loads := lists.Filled(len(bins), func(i int) nicLoad { return k.trafficOf(&bins[i]) })
	spread := make([]deviceBin, 0, len(bins))
	for _, b := range balanceNodes(loads, p.PerNode) {
		spread = append(spread, bins[b])
	}
	return spread
}

// balanceNodes orders devices over nodes of perNode devices, which share a network card. loads has, by device, the part
// of time for which it keeps each direction of the card busy. Overloaded nodes swap devices with others as long as that
// takes load off busy cards and leaves the busier of the two nodes with no more than before. Other devices stay where
// they are. It returns the devices' indexes, node by node.
func balanceNodes(loads []nicLoad, perNode int) []int {
	// Number the different loads, so that nodes whose devices have equal loads can be seen to be alike.
	balancer := &nodeBalancer{kindByLoads: map[string]int{}}
	for _, load := range loads {
		loadIndex := slices.Index(balancer.distinctLoads, load)
		if loadIndex < 0 {
			loadIndex, balancer.distinctLoads = len(balancer.distinctLoads), append(balancer.distinctLoads, load)
		}
		balancer.loadOfDevice = append(balancer.loadOfDevice, loadIndex)
	}

	// Divide the devices into nodes as they come, then swap the best pair as long as one is worth it.
	for node := range slices.Chunk(lists.Indexes(len(loads)), perNode) {
		balancer.nodeDevices = append(balancer.nodeDevices, node)
		balancer.addNode(len(balancer.nodeDevices) - 1)
	}
	for balancer.swapBest() {
	}
	return slices.Concat(balancer.nodeDevices...)
}

// addNode adds a node, by its index, to the kind of those whose devices have the same loads, or to a new kind. Nodes of
// a kind are alike, so swaps are tried between kinds only. It is called for each node at first, and again after a swap
// has changed its devices.
func (s *nodeBalancer) addNode(node int) {
	// The indexes of its devices' loads, and their sum.
	var nodeLoad nicLoad
	loads := lists.Map(len(s.nodeDevices[node]), func(i int) int { return s.loadOfDevice[s.nodeDevices[node][i]] })
	slices.Sort(loads)
	for _, load := range loads {
		nodeLoad[0] += s.distinctLoads[load][0]
		nodeLoad[1] += s.distinctLoads[load][1]
	}

	// The kind of nodes with these loads.
	key := fmt.Sprint(loads)
	kind, ok := s.kindByLoads[key]
	if !ok {
		kind = len(s.nodeKinds)
		s.kindByLoads[key], s.nodeKinds = kind, append(s.nodeKinds, nodeKind{loads: loads, nodeLoad: nodeLoad})
	}
	s.nodeKinds[kind].nodes = append(s.nodeKinds[kind].nodes, node)
}

// nodeSwap is a swap of two devices between nodes of two kinds.
type nodeSwap struct {
	fromKind, toKind     int
	givenLoad, takenLoad int
	gain                 float64 // overload that it removes
}

// minLoadGain is the gain that a swap must exceed, and the part by which it must exceed that of another.
const minLoadGain = 1e-9

// swapBest swaps those two devices of different nodes by which the overload of their network cards falls most. If no
// swap lowers it, it changes nothing and returns false. balanceNodes calls it until then.
func (s *nodeBalancer) swapBest() bool {
	// The best swap from an overloaded kind of nodes to any other kind. -1: none yet.
	best := nodeSwap{fromKind: -1, gain: minLoadGain}
	for i := range s.nodeKinds {
		if len(s.nodeKinds[i].nodes) == 0 || s.nodeKinds[i].nodeLoad.overload() == 0 {
			continue
		}
		for j := range s.nodeKinds {
			if i != j && len(s.nodeKinds[j].nodes) > 0 {
				s.improveSwap(&best, i, j)
			}
		}
	}
	if best.fromKind < 0 {
		return false
	}

	// Swap, between one node of each kind, one device of each load, and put the nodes into the kinds of their new loads.
	busyNode, otherNode := s.removeNode(best.fromKind), s.removeNode(best.toKind)
	busyDevices, otherDevices := s.nodeDevices[busyNode], s.nodeDevices[otherNode]
	hasLoad := func(load int) func(int) bool { return func(device int) bool { return s.loadOfDevice[device] == load } }
	given, taken := slices.IndexFunc(busyDevices, hasLoad(best.givenLoad)), slices.IndexFunc(otherDevices, hasLoad(best.takenLoad))
	busyDevices[given], otherDevices[taken] = otherDevices[taken], busyDevices[given]
	s.addNode(busyNode)
	s.addNode(otherNode)
	return true
}

// improveSwap tries all swaps of a device between a busy node and another one, given by the kinds of the nodes (equal
// loads of devices). It replaces best by a swap that removes more overload of network cards.
func (s *nodeBalancer) improveSwap(best *nodeSwap, busyKind, otherKind int) {
	busy, other := &s.nodeKinds[busyKind], &s.nodeKinds[otherKind]
	for _, givenLoad := range slices.Compact(slices.Clone(busy.loads)) {
		for _, takenLoad := range slices.Compact(slices.Clone(other.loads)) {
			if gain := s.swapGain(busy, other, givenLoad, takenLoad); gain > best.gain*(1+minLoadGain) {
				*best = nodeSwap{busyKind, otherKind, givenLoad, takenLoad, gain}
			}
		}
	}
}

// swapGain returns how much overload of network cards it removes if a node of kindA gives a device with one load to a
// node of kindB and takes one with another load; the loads are indexes in distinctLoads. If the busier of the two nodes
// would have more load than before, it returns 0, so that the overload does not just change places.
func (s *nodeBalancer) swapGain(kindA, kindB *nodeKind, givenLoad, takenLoad int) float64 {
	var loadA, loadB nicLoad
	for direction := range loadA {
		change := s.distinctLoads[takenLoad][direction] - s.distinctLoads[givenLoad][direction]
		loadA[direction], loadB[direction] = kindA.nodeLoad[direction]+change, kindB.nodeLoad[direction]-change
	}
	if max(loadA.busier(), loadB.busier()) > max(kindA.nodeLoad.busier(), kindB.nodeLoad.busier()) {
		return 0
	}
	return kindA.nodeLoad.overload() + kindB.nodeLoad.overload() - loadA.overload() - loadB.overload()
}

// removeNode takes the last node out of a kind, because a swap changes its loads, and returns it.
func (s *nodeBalancer) removeNode(kind int) int {
	k := &s.nodeKinds[kind]
	node := k.nodes[len(k.nodes)-1]
	k.nodes = k.nodes[:len(k.nodes)-1]
	return node
}
