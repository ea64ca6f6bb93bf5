package gear

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/solver/refine"
)

// deviceLayout is a placement device by device. Devices are numbered within their kind, config by config.
type deviceLayout struct {
	space   *planSpace
	configs []Config // without those of no devices
	chains  []PlacedChain

	deviceGroups  []Config           // groups of identical devices: of one config, and with the same chains; without chains they are the configs
	groupOf       [][]int            // by kind and device
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
func (l *deviceLayout) chainOfGroup(group int) *Chain {
	return l.chains[l.replicaGroups[group].chain].Chain
}

// newLayout numbers the devices of a placement (configs) and finds groups: devices that nothing tells apart,
// and replicas of chains (members in stages) that nothing tells apart, by colour refinement (solver/refine). A
// linear program over groups has the same optimum as one over single devices.
func (space *planSpace) newLayout(configs []Config, chains []PlacedChain) *deviceLayout {
	l := &deviceLayout{space: space, configs: configs, chains: chains, splits: map[int]*workSplit{}}

	// Number the devices. Their first colour is their config.
	firstDevice := make([]int, len(space.problem.Kinds))
	var colour []int
	l.groupOf = make([][]int, len(space.problem.Kinds))
	for k := range space.problem.Kinds {
		firstDevice[k] = len(colour)
		for c, conf := range configs {
			if conf.Kind == k {
				l.groupOf[k] = append(l.groupOf[k], slices.Repeat([]int{c}, conf.Count)...)
				colour = append(colour, slices.Repeat([]int{c}, conf.Count)...)
			}
		}
	}
	// Without chains the configs themselves are the groups.
	if len(chains) == 0 {
		l.deviceGroups = configs
		return l
	}

	// Refine the colours by the replicas of all chains, and make a group of each colour and class.
	replicas, replicaNumbers := l.listReplicas(firstDevice)
	colour, replicaClass := refine.RefineColours(colour, replicas)
	l.groupDevices(colour, firstDevice)
	for i, replica := range replicas {
		if replicaClass[i] == len(l.replicaGroups) { // classes are numbered in the order of the replicas
			n := replicaGroup{chain: replica.Label}
			for _, d := range replica.Nodes {
				n.stageGroups = append(n.stageGroups, colour[d])
			}
			l.replicaGroups = append(l.replicaGroups, n)
		}
		group := &l.replicaGroups[replicaClass[i]]
		group.replicas = append(group.replicas, replicaNumbers[i])
	}
	return l
}

// listReplicas returns the replicas of all chains as tuples of devices, numbered over all kinds, and the number of
// each replica within its chain. firstDevice has the first number of each kind.
func (l *deviceLayout) listReplicas(firstDevice []int) (replicas []refine.Tuple, replicaNumbers []int) {
	for c := range l.chains {
		for n := range l.chains[c].Replicas() {
			replica := refine.Tuple{Label: c}
			for s := range l.chains[c].Devices {
				replica.Nodes = append(replica.Nodes, firstDevice[l.chains[c].Chain.Stages[s].Kind]+l.chains[c].deviceOf(s, n))
			}
			replicas, replicaNumbers = append(replicas, replica), append(replicaNumbers, n)
		}
	}
	return replicas, replicaNumbers
}

// groupDevices makes a device group of each colour (devices of one colour are alike) and notes, by device, its
// group. Colours are numbered in the order of the devices, so each new one is the next group.
func (l *deviceLayout) groupDevices(colour, firstDevice []int) {
	for k := range l.groupOf {
		for d := range l.groupOf[k] {
			group, config := colour[firstDevice[k]+d], l.groupOf[k][d]
			for group >= len(l.deviceGroups) {
				l.deviceGroups = append(l.deviceGroups, Config{Kind: k, ModelSet: l.configs[config].ModelSet})
			}
			l.deviceGroups[group].Count++
			l.groupOf[k][d] = group
		}
	}
}

// replicaShares turns a split of work over groups (alike devices or replicas) into shares of single replicas,
// by model: those of the whole model kind by kind, and then those of its chains. Members of a group get equal
// shares.
func (l *deviceLayout) replicaShares(split *workSplit) [][]float64 {
	shares := make([][]float64, len(l.space.problem.Models))
	for m := range shares {
		for k := range l.groupOf {
			shares[m] = append(shares[m], l.wholeShares(split, m, k)...)
		}
		for c := range l.chains {
			if l.chains[c].Chain.Model == m {
				shares[m] = append(shares[m], l.chainShares(split, c)...)
			}
		}
		normaliseShares(shares[m])
	}
	return shares
}

// wholeShares returns the shares of model m's samples that its replicas on the devices of kind k get, for whole
// models. A group without any work has no shares, and its replicas get 0.
func (l *deviceLayout) wholeShares(split *workSplit, m, k int) (shares []float64) {
	for _, c := range l.groupOf[k] {
		group := &l.deviceGroups[c]
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

// chainShares returns the shares of the samples that the replicas of chain c get, in the order of the replicas.
func (l *deviceLayout) chainShares(split *workSplit, c int) []float64 {
	shares := make([]float64, l.chains[c].Replicas())
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

// runTimeTables returns the run-time tables of a placement and the pipelines of every model: one for each kind
// that holds the model, and one for each chain.
func runTimeTables(p *Problem, configs []Config, chains []PlacedChain) (policy.Tables, [][]int32) {
	maxBatch, _ := batchesAndSpeeds(p)
	var builder policy.Builder
	firstDevice := addDevices(&builder, p, len(chains) > 0)
	placeStage := func(stage int32, kind int, devices []int) {
		for _, d := range slices.Sorted(slices.Values(devices)) {
			builder.PlaceStage(stage, firstDevice[kind]+int32(d))
		}
	}

	// Pipelines of whole models, kind by kind, then those of chains.
	for m := range p.Models {
		builder.AddModel(policy.Model{Name: p.Models[m].Name})
		for k, n := range maxBatch {
			if devices := devicesWith(configs, k, m); len(devices) > 0 {
				builder.AddPipeline(n[m], 0)
				v := p.Models[m].Variants[k]
				stage := policy.Stage{LastBlock: 1, Infer: v.MedianTimes[:n[m]]}
				if v.MeanTimes != nil {
					stage.Mean = v.MeanTimes[:n[m]]
				}
				placeStage(builder.AddStage(stage), k, devices)
			}
		}
		for c := range chains {
			if chains[c].Chain.Model == m {
				addChainPipeline(&builder, &chains[c], placeStage)
			}
		}
	}
	tables := builder.BuildTables()
	return *tables, gear.MergeModels(tables, p.SLO, p.Percentile, 0)
}

// addDevices adds the devices to the run-time tables, and with withLinks their nodes and network links, which
// only chains use. It returns the number of the first device of every kind.
func addDevices(b *policy.Builder, p *Problem, withLinks bool) (firstDevice []int32) {
	nextDevice := int32(0)
	for k, kind := range p.Kinds {
		b.AddKind(kind.Name, kind.Devices)
		link := int32(-1)
		if withLinks {
			b.SetNodes(p.Blocks.Pools[k].PerNode, p.Blocks.Pools[k].Gbps)
			link = 0
		}
		firstDevice = append(firstDevice, nextDevice)
		for d := range kind.Devices {
			nextDevice = 1 + b.AddDevice(policy.Device{Kind: int32(k), Share: 1, GPU: int32(d), Uplink: link, Downlink: link})
		}
	}
	return firstDevice
}

// addChainPipeline adds the pipeline of a placed chain to the run-time tables: its stages with their times, the
// transfers between them, and their devices.
func addChainPipeline(b *policy.Builder, chainPlacement *PlacedChain, placeStage func(stage int32, kind int, devices []int)) {
	chain := chainPlacement.Chain
	b.AddPipeline(chain.MaxBatch, 0)
	for s := range chain.Stages {
		stage := &chain.Stages[s]
		tableStage := policy.Stage{FirstBlock: int32(stage.FirstBlock), LastBlock: int32(stage.EndBlock), Infer: stage.MedianTimes, Mean: stage.MeanTimes}
		if s > 0 {
			previous := &chain.Stages[s-1]
			if tableStage.CutBytes = previous.CutBytes; len(previous.TransferTimes) > 0 && slices.Max(previous.TransferTimes) > 0 {
				tableStage.Xfer = previous.TransferTimes
			}
		}
		placeStage(b.AddStage(tableStage), stage.Kind, chainPlacement.Devices[s])
	}
}

// chainLayouts returns layouts of a placement in which the chosen chains run on devices that hold their stages.
// In the first layout all chains have their widest shape (numbers of devices by stage). In each other one, one
// chain has another shape, because more devices may not be the best.
func (space *planSpace) chainLayouts(configs []Config) []*deviceLayout {
	// List the chains whose stages all have a device, with their possible shapes.
	var chains []PlacedChain
	var shapes [][][]int
	for c, chain := range space.chosenChains {
		chainPlacement := PlacedChain{Chain: chain}
		var maxDevices []int
		for s := range chain.Stages {
			list := devicesWith(configs, chain.Stages[s].Kind, space.stageBits[c][s])
			chainPlacement.Devices, maxDevices = append(chainPlacement.Devices, list), append(maxDevices, len(list))
		}
		if slices.Min(maxDevices) > 0 {
			chains, shapes = append(chains, chainPlacement), append(shapes, chain.stageShapes(maxDevices))
		}
	}

	// layoutWith returns the layout in which one chain has the shape at an index and the others their widest.
	layoutWith := func(changed, shapeIndex int) *deviceLayout {
		var reshaped []PlacedChain
		for c := range chains {
			chainPlacement, counts := PlacedChain{Chain: chains[c].Chain}, shapes[c][0]
			if c == changed {
				counts = shapes[c][shapeIndex]
			}
			for s, n := range counts {
				chainPlacement.Devices = append(chainPlacement.Devices, chains[c].Devices[s][:n])
			}
			reshaped = append(reshaped, chainPlacement)
		}
		return space.newLayout(configs, reshaped)
	}
	list := []*deviceLayout{layoutWith(-1, 0)}
	for c := range chains {
		for n := 1; n < len(shapes[c]); n++ {
			list = append(list, layoutWith(c, n))
		}
	}
	return list
}
