package gear

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/solver/refine"
)

// deviceLayout is a placement device by device. Devices are numbered within their kind, config by config.
type layout struct {
	x       *fleet
	configs []Config // without those of no devices
	chains  []PlacedChain

	cells  []Config       // groups of identical devices: of one config, and with the same chains; without chains they are the configs
	cellOf [][]int        // by kind and device
	lanes  []lane         // groups of identical replicas of chains
	loads  map[int]*split // best splits so far, by cascade
	cuts   [][]float64    // by solved program and model: the least that a sample adds to the load (seconds)
}

// replicaGroup is a set of identical replicas of a chain. Those of a stage lie evenly on devices of one group, so
// one number says how many samples take each of them.
type lane struct {
	chain    int   // index in the layout's chains
	cells    []int // device group, by stage
	replicas []int // numbers within the chain
}

// chainOfGroup returns the chain of a replica group.
func (l *layout) chainOf(lane int) *Chain { return l.chains[l.lanes[lane].chain].Chain }

// newLayout numbers the devices and finds the groups of identical devices and replicas, by colour refinement
// (solver/refine). A linear program over groups has the same optimum as one over single devices.
func (x *fleet) layoutOf(configs []Config, chains []PlacedChain) *layout {
	l := &layout{x: x, configs: configs, chains: chains, loads: map[int]*split{}}

	// Number the devices. Their first colour is their config.
	first := make([]int, len(x.p.Kinds))
	var colour []int
	l.cellOf = make([][]int, len(x.p.Kinds))
	for k := range x.p.Kinds {
		first[k] = len(colour)
		for c, conf := range configs {
			if conf.Kind == k {
				l.cellOf[k] = append(l.cellOf[k], slices.Repeat([]int{c}, conf.Count)...)
				colour = append(colour, slices.Repeat([]int{c}, conf.Count)...)
			}
		}
	}
	if len(chains) == 0 {
		l.cells = configs
		return l
	}

	// List the replicas of all chains as tuples of devices, numbered over all kinds.
	var replicas []refine.Tuple // by chain
	var number []int            // of each replica, within its chain
	for c := range chains {
		for n := range chains[c].Replicas() {
			r := refine.Tuple{Label: c}
			for s := range chains[c].Devices {
				r.Nodes = append(r.Nodes, first[chains[c].Chain.Stages[s].Kind]+chains[c].device(s, n))
			}
			replicas, number = append(replicas, r), append(number, n)
		}
	}

	// Refine the colours, and make a device group of each.
	colour, alike := refine.Classes(colour, replicas)
	for k := range l.cellOf {
		for d := range l.cellOf[k] {
			at, old := colour[first[k]+d], l.cellOf[k][d]
			for at >= len(l.cells) { // colours are numbered in the order of the devices
				l.cells = append(l.cells, Config{Kind: k, Set: configs[old].Set})
			}
			l.cells[at].Count++
			l.cellOf[k][d] = at
		}
	}

	// Make a group of each class of replicas.
	for i, r := range replicas {
		if alike[i] == len(l.lanes) { // classes are numbered in the order of the replicas
			n := lane{chain: r.Label}
			for _, d := range r.Nodes {
				n.cells = append(n.cells, colour[d])
			}
			l.lanes = append(l.lanes, n)
		}
		at := &l.lanes[alike[i]]
		at.replicas = append(at.replicas, number[i])
	}
	return l
}

// replicaShares turns a split over groups into one over replicas, by model: those of the whole model kind by kind,
// and then those of its chains. Members of a group get equal shares.
func (l *layout) shares(s *split) [][]float64 {
	out := make([][]float64, len(l.x.p.Models))
	for m := range out {
		// Whole models.
		for k := range l.cellOf {
			for _, c := range l.cellOf[k] {
				if cell := &l.cells[c]; cell.Set&(1<<m) != 0 {
					share := 0.0
					if s.shares[c] != nil {
						share = s.shares[c][m] / float64(cell.Count)
					}
					out[m] = append(out[m], share)
				}
			}
		}

		// Chains.
		for c := range l.chains {
			if l.chains[c].Chain.Model != m {
				continue
			}
			one := make([]float64, l.chains[c].Replicas())
			for at := range l.lanes {
				if lane := &l.lanes[at]; lane.chain == c {
					for _, n := range lane.replicas {
						one[n] = s.lanes[at] / float64(len(lane.replicas))
					}
				}
			}
			out[m] = append(out[m], one...)
		}
		toShares(out[m])
	}
	return out
}

// runTimeTables returns the run-time tables of a placement and the pipelines of every model: one for each kind
// that holds the model, and one for each chain.
func tablesOf(p *Problem, configs []Config, chains []PlacedChain) (policy.Tables, [][]int32) {
	batch, _ := speedsOf(p)
	var b policy.Builder
	first := addDevices(&b, p, len(chains) > 0)
	place := func(stage int32, kind int, devices []int) {
		for _, d := range slices.Sorted(slices.Values(devices)) {
			b.Place(stage, first[kind]+int32(d))
		}
	}

	// Pipelines of whole models, kind by kind, then those of chains.
	for m := range p.Models {
		b.Model(policy.Model{Name: p.Models[m].Name})
		for k, n := range batch {
			if devices := devicesWith(configs, k, m); len(devices) > 0 {
				b.Pipeline(n[m], 0)
				v := p.Models[m].On[k]
				st := policy.Stage{LastBlock: 1, Infer: v.Times[:n[m]]}
				if v.Means != nil {
					st.Mean = v.Means[:n[m]]
				}
				place(b.Stage(st), k, devices)
			}
		}
		for c := range chains {
			if chains[c].Chain.Model == m {
				addChain(&b, &chains[c], place)
			}
		}
	}
	t := b.Tables()
	return *t, gear.ServeOne(t, p.SLO, p.Percentile, 0)
}

// addDevices adds the devices, and, if withLinks is true, their nodes and links. It returns the number of the
// first device of every kind.
func addDevices(b *policy.Builder, p *Problem, linked bool) (first []int32) {
	next := int32(0)
	for k, kind := range p.Kinds {
		b.Kind(kind.Name, kind.Devices)
		link := int32(-1)
		if linked {
			b.Nodes(p.Blocks.Pools[k].PerNode, p.Blocks.Pools[k].Gbps)
			link = 0
		}
		first = append(first, next)
		for d := range kind.Devices {
			next = 1 + b.Device(policy.Device{Kind: int32(k), Share: 1, GPU: int32(d), Uplink: link, Downlink: link})
		}
	}
	return first
}

// addChainPipeline adds the pipeline of a chain.
func addChain(b *policy.Builder, placed *PlacedChain, place func(stage int32, kind int, devices []int)) {
	chain := placed.Chain
	b.Pipeline(chain.Batch, 0)
	for s := range chain.Stages {
		part := &chain.Stages[s]
		st := policy.Stage{FirstBlock: int32(part.First), LastBlock: int32(part.Last), Infer: part.Times, Mean: part.Means}
		if s > 0 {
			before := &chain.Stages[s-1]
			if st.CutBytes = before.Bytes; len(before.Transfer) > 0 && slices.Max(before.Transfer) > 0 {
				st.Xfer = before.Transfer
			}
		}
		place(b.Stage(st), part.Kind, placed.Devices[s])
	}
}

// chainLayouts returns the layouts of the chosen chains on devices that hold their stages. In the first layout all
// chains have their widest shape. In each other layout one chain has another shape.
func (x *fleet) layouts(configs []Config) []*layout {
	// List the chains whose stages all have a device, with their possible shapes.
	var chains []PlacedChain
	var options [][][]int
	for c, chain := range x.run {
		placed := PlacedChain{Chain: chain}
		var most []int
		for s := range chain.Stages {
			list := devicesWith(configs, chain.Stages[s].Kind, x.bit[c][s])
			placed.Devices, most = append(placed.Devices, list), append(most, len(list))
		}
		if slices.Min(most) > 0 {
			chains, options = append(chains, placed), append(options, chain.shapes(most))
		}
	}

	// layoutWith returns the layout in which one chain has the shape at an index and the others their widest.
	shape := func(at, pick int) *layout {
		var out []PlacedChain
		for c := range chains {
			placed, counts := PlacedChain{Chain: chains[c].Chain}, options[c][0]
			if c == at {
				counts = options[c][pick]
			}
			for s, n := range counts {
				placed.Devices = append(placed.Devices, chains[c].Devices[s][:n])
			}
			out = append(out, placed)
		}
		return x.layoutOf(configs, out)
	}
	list := []*layout{shape(-1, 0)}
	for c := range chains {
		for n := 1; n < len(options[c]); n++ {
			list = append(list, shape(c, n))
		}
	}
	return list
}
