package workflow

import (
	"cmp"
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// farFuture is later than any time. Times may be added to it without overflow.
const never = int64(1) << 60

// usualWork is the usual work of a task; work is counted in parts of it.
const unit = int64(1) << 20

// scaleTime returns the time of a work, given the time of the usual work.
func scaled(usual, work int64) int64 {
	if work == unit {
		return usual
	}
	return usual * work >> 20
}

// workFromMillionths turns millionths into parts of usualWork. 0 stands for the usual work.
func workOf(millionths int64) int64 {
	if millionths <= 0 {
		return unit
	}
	return max(1, (millionths*unit+500_000)/1_000_000)
}

// placeRange is a range of places; `end` is not in it.
type span struct{ first, end int32 }

// deviceTables holds what decisions read from the tables. Devices are in the order of their nodes. A place is an index
// in that order.
type fleet struct {
	t        *policy.Tables
	ids      []int32 // device by place
	places   []int32 // place by device
	nodes    []span  // by node: its places
	nodeOf   []int32 // node by place
	kindOf   []int32 // by place: devices of one kind of the tables that run the same services
	services []service
	bytes    []int64 // by network
	near     []int64 // by service: transfer time of its output within a node, in ns
	far      []int64 // the same across nodes
	tolls    []tolls // by service: transfer of its session states
}

// serviceTimes describes a service.
type service struct {
	network int32
	least   int64            // time of one task on the quickest kind of device
	gen     *flow.Generation // nil if it is no language model
	by      []onKind         // by kind of device
}

// kindTimes describes a service on one kind of device.
type onKind struct {
	pipeline, stage int32
	most            int32   // largest batch
	kv              int64   // KV tokens that a language model has memory for
	times           []int64 // [n-1]: time of a batch of n; nil if such devices do not run it
	load            int64   // time in ns to load its network
}

// newDeviceTables reads the tables of a plan.
func newFleet(t *policy.Tables) *fleet {
	f := &fleet{t: t, places: make([]int32, len(t.Devices))}
	for d := range t.Devices {
		f.ids = append(f.ids, int32(d))
	}
	slices.SortStableFunc(f.ids, func(a, b int32) int { return cmp.Compare(t.Devices[a].Node, t.Devices[b].Node) })

	// Number the places, and group them by node.
	for place, id := range f.ids {
		f.places[id] = int32(place)
		if place == 0 || t.Devices[id].Node != t.Devices[f.ids[place-1]].Node {
			f.nodes = append(f.nodes, span{first: int32(place)})
		}
		f.nodes[len(f.nodes)-1].end = int32(place) + 1
		f.nodeOf = append(f.nodeOf, int32(len(f.nodes)-1))
	}

	// Read networks and services.
	kinds := f.numberKinds()
	for n := range t.Networks {
		f.bytes = append(f.bytes, t.Networks[n].Bytes)
	}
	for s := range t.Services {
		f.addService(int32(s), kinds)
	}
	return f
}

// numberKinds gives every place the number of its kind, and returns the number of kinds.
func (f *fleet) numberKinds() int {
	t := f.t
	stages := make([][]int32, len(t.Devices)) // by device: the stages that run on it
	for p := range t.Pipelines {
		for _, d := range t.DevicesOf(t.Pipelines[p].FirstStage) {
			stages[d] = append(stages[d], t.Pipelines[p].FirstStage)
		}
	}
	var firsts []int32 // the first device of each kind
	for _, id := range f.ids {
		kind := slices.IndexFunc(firsts, func(o int32) bool {
			return t.Devices[o].Kind == t.Devices[id].Kind && slices.Equal(stages[o], stages[id])
		})
		if kind < 0 {
			kind, firsts = len(firsts), append(firsts, id)
		}
		f.kindOf = append(f.kindOf, int32(kind))
	}
	return len(firsts)
}

// addService adds a service with the times of its pipelines, one for each kind of device that runs it.
func (f *fleet) addService(s int32, kinds int) {
	t := f.t
	first, n := t.Services[s].FirstPipeline, t.Services[s].NumPipelines
	own := flow.WorkflowsOf(t)

	// One entry for each kind of device.
	sv := service{network: t.Pipelines[first].Network, least: never, gen: own.GenerationOf(s), by: make([]onKind, kinds)}
	for pl := first; pl < first+n; pl++ {
		p := &t.Pipelines[pl]
		var times []int64
		for _, d := range t.Stages[p.FirstStage].Infer {
			times = append(times, int64(d))
		}
		for _, d := range t.DevicesOf(p.FirstStage) {
			kind := t.Devices[d].Kind
			if on := &sv.by[f.kindOf[f.places[d]]]; on.times == nil {
				*on = onKind{pipeline: pl, stage: p.FirstStage, most: p.Batch, times: times}
				if sv.gen != nil {
					on.kv = sv.gen.On[kind].KV
				}
				if l := t.Networks[sv.network].Load; l != nil {
					on.load = int64(l[kind][0])
				}
				sv.least = min(sv.least, times[0])
			}
		}
	}
	f.services = append(f.services, sv)

	// Transfers of outputs and session states.
	var m flow.Move
	if own != nil && int(s) < len(own.Moves) {
		m = own.Moves[s]
	}
	f.near, f.far = append(f.near, int64(m.Near)), append(f.far, int64(m.Far))
	f.tolls = append(f.tolls, newTolls(own.SessionOf(s)))
}

// serviceOn returns a service at a place.
func (f *fleet) on(s, place int32) *onKind { return &f.services[s].by[f.kindOf[place]] }

// canRun returns true if the device at a place can run a service.
func (f *fleet) runs(s, place int32) bool { return f.on(s, place).times != nil }

// batchTime returns how long a batch of n tasks runs, given its largest work.
func (f *fleet) cost(s, place, n int32, work int64) int64 {
	return scaled(f.on(s, place).times[n-1], work)
}

// transferTime returns how long the output of a service takes from one place to another.
func (f *fleet) move(s, from, to int32) int64 {
	switch {
	case from == to:
		return 0
	case f.nodeOf[from] == f.nodeOf[to]:
		return f.near[s]
	}
	return f.far[s]
}
