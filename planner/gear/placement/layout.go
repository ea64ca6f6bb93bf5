package placement

import (
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/solver/refine"
)

// Layout is a placement device by device. Devices are numbered within their kind, config by config.
type Layout struct {
	Space   *planspace.Space
	Configs []planspace.Config // without those of no devices
	Chains  []planspace.PlacedChain

	DeviceGroups  []planspace.Config // groups of identical devices: of one config, and with the same chains; without chains they are the configs
	GroupOf       [][]int            // by kind and device
	replicaGroups []replicaGroup     // groups of identical replicas of chains
	splits        map[int]*workSplit // best splits so far, by cascade
	loadCuts      [][]float64        // by solved program and model: the least that a sample adds to the load (seconds)
}

// replicaGroup is a set of identical replicas of a chain. Those of a stage lie evenly on devices of one group, so
// one number says how many samples take each of them.
type replicaGroup struct {
	chain       int   // index in the layout's chains
	stageGroups []int // device group, by stage
	replicas    []int // numbers within the chain
}

// chainOfGroup returns the chain of a replica group.
func (l *Layout) chainOfGroup(group int) *planspace.Chain {
	return l.Chains[l.replicaGroups[group].chain].Chain
}

// NewLayout returns the layout of a placement: configs (how many devices hold which models) and chains (members in
// stages) on them. It numbers the devices, and groups devices, and replicas of chains, that nothing tells apart. A
// linear program over groups has the same optimum as one over single devices, and is much smaller.
//
// With chains, groups come from colour refinement (solver/refine): devices first have a colour by config, and those of
// a colour get different ones as long as they serve other replicas than each other.
func NewLayout(space *planspace.Space, configs []planspace.Config, chains []planspace.PlacedChain) *Layout {
	l := &Layout{Space: space, Configs: configs, Chains: chains, splits: map[int]*workSplit{}}

	// Number the devices. Their first colour, and their group for now, is their config.
	firstDevice := make([]int, len(space.Problem.Kinds))
	var colour []int
	l.GroupOf = make([][]int, len(space.Problem.Kinds))
	for k := range space.Problem.Kinds {
		firstDevice[k] = len(colour)
		for c, conf := range configs {
			if conf.Kind == k {
				l.GroupOf[k] = append(l.GroupOf[k], slices.Repeat([]int{c}, conf.Count)...)
				colour = append(colour, slices.Repeat([]int{c}, conf.Count)...)
			}
		}
	}
	// Without chains the configs themselves are the groups.
	if len(chains) == 0 {
		l.DeviceGroups = configs
		return l
	}

	// Refine the colours. In the end devices of one colour serve equally many replicas of each class, where a class has the
	// replicas of a chain whose devices have the same colours. Each colour becomes a group of devices, which replaces the config
	// in GroupOf, and each class a group of replicas.
	replicas, replicaNumbers := l.listReplicas(firstDevice) // a replica is a tuple of devices, labelled with its chain
	colour, replicaClass := refine.RefineColours(colour, replicas)
	l.groupDevices(colour, firstDevice)
	for i, replica := range replicas {
		isFirstOfClass := replicaClass[i] == len(l.replicaGroups) // classes are numbered in the order of their first replica
		if isFirstOfClass {
			newGroup := replicaGroup{chain: replica.Label}
			newGroup.stageGroups = lists.Map(len(replica.Nodes), func(i int) int { return colour[replica.Nodes[i]] })
			l.replicaGroups = append(l.replicaGroups, newGroup)
		}
		group := &l.replicaGroups[replicaClass[i]]
		group.replicas = append(group.replicas, replicaNumbers[i])
	}
	return l
}

// listReplicas returns the replicas of all chains as tuples of devices, one per stage, for the colour refinement, and
// the number of each replica within its chain. Devices are numbered over all kinds, and firstDevice has the first
// number of each kind.
func (l *Layout) listReplicas(firstDevice []int) (replicas []refine.Tuple, replicaNumbers []int) {
	for c := range l.Chains {
		for n := range l.Chains[c].Replicas() {
			replica := refine.Tuple{Label: c}
			for s := range l.Chains[c].Devices {
				replica.Nodes = append(replica.Nodes, firstDevice[l.Chains[c].Chain.Stages[s].Kind]+l.Chains[c].DeviceOf(s, n))
			}
			replicas, replicaNumbers = append(replicas, replica), append(replicaNumbers, n)
		}
	}
	return replicas, replicaNumbers
}

// groupDevices makes a device group of each colour (devices of one colour are alike) and replaces, in GroupOf, the
// config of each device by its group. firstDevice has, by kind, the position of its first device in colour. Colours are
// numbered in the order of the devices, so each new one is the next group.
func (l *Layout) groupDevices(colour, firstDevice []int) {
	for k := range l.GroupOf {
		for d := range l.GroupOf[k] {
			group, config := colour[firstDevice[k]+d], l.GroupOf[k][d]
			for group >= len(l.DeviceGroups) {
				l.DeviceGroups = append(l.DeviceGroups, planspace.Config{Kind: k, ModelSet: l.Configs[config].ModelSet})
			}
			l.DeviceGroups[group].Count++
			l.GroupOf[k][d] = group
		}
	}
}

// ReplicaShares turns a split of work over groups (alike devices or replicas of chains) into shares of each model's
// samples by replica, as gears have them: first the replicas of the whole model, kind by kind, and then those of its
// chains. The replicas of a group get equal shares, and the shares of a model sum to 1.
func (l *Layout) ReplicaShares(split *workSplit) [][]float64 {
	shares := make([][]float64, len(l.Space.Problem.Models))
	for m := range shares {
		for k := range l.GroupOf {
			shares[m] = append(shares[m], l.wholeShares(split, m, k)...)
		}
		for c := range l.Chains {
			if l.Chains[c].Chain.Model == m {
				shares[m] = append(shares[m], l.chainShares(split, c)...)
			}
		}
		cascades.Normalise(shares[m])
	}
	return shares
}

// wholeShares returns the shares of model m's samples that the devices of kind k with the whole model get, in the order
// of the devices. In a split without shares for a group of alike devices, these get 0.
func (l *Layout) wholeShares(split *workSplit, m, k int) (shares []float64) {
	for _, c := range l.GroupOf[k] {
		group := &l.DeviceGroups[c]
		if group.ModelSet&(1<<m) == 0 {
			continue
		}
		share := 0.0
		if split.groupShares[c] != nil {
			share = split.groupShares[c][m] / float64(group.Count)
		}
		shares = append(shares, share)
	}
	return shares
}

// chainShares returns the shares of a member's samples that the replicas of chain c (the member in stages) get, in the
// order of the replicas. All replicas of a group get the same.
func (l *Layout) chainShares(split *workSplit, c int) []float64 {
	shares := make([]float64, l.Chains[c].Replicas())
	for i := range l.replicaGroups {
		group := &l.replicaGroups[i]
		if group.chain != c {
			continue
		}
		for _, n := range group.replicas {
			shares[n] = split.replicaGroupShares[i] / float64(len(group.replicas))
		}
	}
	return shares
}

// chainLayouts returns the layouts of a placement (configs: how many devices hold which models and stages) that are
// worth ranking, in which the chosen chains run on devices that hold their stages. In the first layout all chains have
// their widest shape (numbers of devices by stage). In each other one, one chain has another shape, because more
// devices may not be the best.
func chainLayouts(space *planspace.Space, configs []planspace.Config) []*Layout {
	// List the chains whose stages all have a device, with their possible shapes.
	var chains []planspace.PlacedChain
	var shapes [][][]int
	for c, chain := range space.ChosenChains {
		chainPlacement := planspace.PlacedChain{Chain: chain}
		var maxDevices []int
		for s := range chain.Stages {
			list := planspace.DevicesWith(configs, chain.Stages[s].Kind, space.StageBits[c][s])
			chainPlacement.Devices, maxDevices = append(chainPlacement.Devices, list), append(maxDevices, len(list))
		}
		if slices.Min(maxDevices) > 0 {
			chains, shapes = append(chains, chainPlacement), append(shapes, chain.StageShapes(maxDevices))
		}
	}

	// layoutWith returns the layout in which the chain `changed` has the shape at an index and the others their widest. With -1
	// all have their widest.
	layoutWith := func(changed, shapeIndex int) *Layout {
		var reshaped []planspace.PlacedChain
		for c := range chains {
			chainPlacement, counts := planspace.PlacedChain{Chain: chains[c].Chain}, shapes[c][0]
			if c == changed {
				counts = shapes[c][shapeIndex]
			}
			chainPlacement.Devices = lists.Map(len(counts), func(s int) []int { return chains[c].Devices[s][:counts[s]] })
			reshaped = append(reshaped, chainPlacement)
		}
		return NewLayout(space, configs, reshaped)
	}
	list := []*Layout{layoutWith(-1, 0)}
	for c := range chains {
		for n := 1; n < len(shapes[c]); n++ {
			list = append(list, layoutWith(c, n))
		}
	}
	return list
}
