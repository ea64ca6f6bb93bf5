package workflow

import (
	"cmp"
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// never is later than any time, and may be added to a time.
const never = int64(1) << 60

// unit is a task's usual work.
const unit = int64(1) << 20

// scaled is a usual time at a work in parts of unit.
func scaled(usual, work int64) int64 {
	if work == unit {
		return usual
	}
	return usual * work >> 20
}

// workOf turns millionths into parts of unit; 0 is the usual.
func workOf(millionths int64) int64 {
	if millionths <= 0 {
		return unit
	}
	return max(1, (millionths*unit+500_000)/1_000_000)
}

// span is a range of places.
type span struct{ first, end int32 }

// fleet is the part of the tables that decisions read, with devices in the order
// of their nodes: a place is an index in that order.
type fleet struct {
	t        *policy.Tables
	ids      []int32 // device by place
	places   []int32 // place by device
	nodes    []span  // places by node
	nodeOf   []int32 // by place
	kindOf   []int32 // by place: devices of one kind of the tables that run the same services
	services []service
	bytes    []int64 // by network
	near     []int64 // by service: of its output
	far      []int64
	tolls    []tolls // by service: of its states of sessions
}

type service struct {
	network int32
	least   int64            // time of one task on the quickest kind of device
	gen     *flow.Generation // nil: no language model
	by      []onKind         // by kind of device
}

// onKind is a service on a kind of device.
type onKind struct {
	pipeline, stage int32
	most            int32   // largest batch
	kv              int64   // tokens of KV memory of a language model
	times           []int64 // of a batch of n at [n-1]; nil: such devices do not run it
	load            int64
}

func newFleet(t *policy.Tables) *fleet {
	f := &fleet{t: t, places: make([]int32, len(t.Devices))}
	for d := range t.Devices {
		f.ids = append(f.ids, int32(d))
	}
	slices.SortStableFunc(f.ids, func(a, b int32) int { return cmp.Compare(t.Devices[a].Node, t.Devices[b].Node) })
	for place, id := range f.ids {
		f.places[id] = int32(place)
		if place == 0 || t.Devices[id].Node != t.Devices[f.ids[place-1]].Node {
			f.nodes = append(f.nodes, span{first: int32(place)})
		}
		f.nodes[len(f.nodes)-1].end = int32(place) + 1
		f.nodeOf = append(f.nodeOf, int32(len(f.nodes)-1))
	}
	kinds := f.numberKinds()
	for n := range t.Networks {
		f.bytes = append(f.bytes, t.Networks[n].Bytes)
	}
	for s := range t.Services {
		f.addService(int32(s), kinds)
	}
	return f
}

// numberKinds gives every place the number of its kind, and returns how many kinds there are.
func (f *fleet) numberKinds() int {
	t := f.t
	stages := make([][]int32, len(t.Devices)) // that run on a device
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

// addService takes the times of a service's pipelines, one for each kind of device
// that runs it.
func (f *fleet) addService(s int32, kinds int) {
	t := f.t
	first, n := t.Services[s].FirstPipeline, t.Services[s].NumPipelines
	own := flow.WorkflowsOf(t)
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
	var m flow.Move
	if own != nil && int(s) < len(own.Moves) {
		m = own.Moves[s]
	}
	f.near, f.far = append(f.near, int64(m.Near)), append(f.far, int64(m.Far))
	f.tolls = append(f.tolls, newTolls(own.SessionOf(s)))
}

// on is a service at a place.
func (f *fleet) on(s, place int32) *onKind { return &f.services[s].by[f.kindOf[place]] }

// runs tells whether a place can run a service.
func (f *fleet) runs(s, place int32) bool { return f.on(s, place).times != nil }

// cost is how long a batch runs whose largest work is given.
func (f *fleet) cost(s, place, n int32, work int64) int64 {
	return scaled(f.on(s, place).times[n-1], work)
}

// move is how long a service's output takes between places.
func (f *fleet) move(s, from, to int32) int64 {
	switch {
	case from == to:
		return 0
	case f.nodeOf[from] == f.nodeOf[to]:
		return f.near[s]
	}
	return f.far[s]
}
