package workflow

import (
	"cmp"
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// farFuture is later than any time. Times may be added to it without overflow.
const farFuture = int64(1) << 60

// usualWork is the usual work of a task; work is counted in parts of it.
const usualWork = int64(1) << 20

// scaleTime returns the time of a task with a given work, given the time of the usual one. Work is in units of
// 1/2^20 of the usual (usualWork).
func scaleTime(usual, work int64) int64 {
	if work == usualWork {
		return usual
	}
	return usual * work >> 20
}

// workFromMillionths turns a work in millionths of the usual, as events have it, into units of usualWork (2^20),
// rounded. 0 stands for the usual work.
func workFromMillionths(millionths int64) int64 {
	if millionths <= 0 {
		return usualWork
	}
	return max(1, (millionths*usualWork+500_000)/1_000_000)
}

// placeRange is a range of places; `end` is not in it.
type placeRange struct{ first, end int32 }

// deviceTables holds what decisions read from the tables. Devices are in the order of their nodes. A place is an index
// in that order.
type deviceTables struct {
	source         *policy.Tables
	deviceAt       []int32      // device by place
	placeOf        []int32      // place by device
	nodes          []placeRange // by node: its places
	nodeOf         []int32      // node by place
	kindOf         []int32      // by place: devices of one kind of the tables that run the same services
	services       []serviceTimes
	bytes          []int64         // by network
	sameNodeTime   []int64         // by service: transfer time of its output within a node, in ns
	otherNodeTime  []int64         // the same across nodes
	stateTransfers []stateTransfer // by service: transfer of its session states
}

// serviceTimes describes a service.
type serviceTimes struct {
	network     int32
	minTaskTime int64               // time of one task on the quickest kind of device
	generation  *flow.LanguageModel // nil if it is no language model
	onKinds     []kindTimes         // by kind of device
}

// kindTimes describes a service on one kind of device.
type kindTimes struct {
	pipeline, stage int32
	maxBatch        int32   // largest batch
	kvTokens        int64   // KV tokens that a language model has memory for
	times           []int64 // [n-1]: time of a batch of n; nil if such devices do not run it
	loadTime        int64   // time in ns to load its network
}

// newDeviceTables reads the tables of a plan in the form that the policy uses. A place is the index of a device
// when devices are sorted by node, so that the devices of a node are neighbours.
func newDeviceTables(t *policy.Tables) *deviceTables {
	f := &deviceTables{source: t, placeOf: make([]int32, len(t.Devices))}
	for d := range t.Devices {
		f.deviceAt = append(f.deviceAt, int32(d))
	}
	slices.SortStableFunc(f.deviceAt, func(a, b int32) int { return cmp.Compare(t.Devices[a].Node, t.Devices[b].Node) })

	// Number the places, and group them by node.
	for place, id := range f.deviceAt {
		f.placeOf[id] = int32(place)
		if place == 0 || t.Devices[id].Node != t.Devices[f.deviceAt[place-1]].Node {
			f.nodes = append(f.nodes, placeRange{first: int32(place)})
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

// numberKinds gives every place the number of its kind, and returns the number of kinds. Devices are of one kind if
// they have the same hardware and run the same stages, so that all their times are equal.
func (f *deviceTables) numberKinds() int {
	t := f.source
	stages := make([][]int32, len(t.Devices)) // by device: the stages that run on it
	for p := range t.Pipelines {
		for _, d := range t.DevicesOf(t.Pipelines[p].FirstStage) {
			stages[d] = append(stages[d], t.Pipelines[p].FirstStage)
		}
	}
	var firsts []int32 // the first device of each kind
	for _, id := range f.deviceAt {
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

// addService adds a service with the network that it needs, its batch times and load time on each kind of device
// that runs it, and the times to transfer its outputs and session states.
func (f *deviceTables) addService(s int32, kinds int) {
	t := f.source
	first, n := t.Services[s].FirstPipeline, t.Services[s].NumPipelines
	workflows := flow.WorkflowTablesOf(t)

	// One entry for each kind of device.
	entry := serviceTimes{network: t.Pipelines[first].Network, minTaskTime: farFuture, generation: workflows.LanguageModelOf(s), onKinds: make([]kindTimes, kinds)}
	for pl := first; pl < first+n; pl++ {
		p := &t.Pipelines[pl]
		var times []int64
		for _, d := range t.Stages[p.FirstStage].Infer {
			times = append(times, int64(d))
		}
		for _, d := range t.DevicesOf(p.FirstStage) {
			kind := t.Devices[d].Kind
			if onKind := &entry.onKinds[f.kindOf[f.placeOf[d]]]; onKind.times == nil {
				*onKind = kindTimes{pipeline: pl, stage: p.FirstStage, maxBatch: p.Batch, times: times}
				if entry.generation != nil {
					onKind.kvTokens = entry.generation.Engines[kind].KVTokens
				}
				if loadTimes := t.Networks[entry.network].LoadTimes; loadTimes != nil {
					onKind.loadTime = int64(loadTimes[kind][0])
				}
				entry.minTaskTime = min(entry.minTaskTime, times[0])
			}
		}
	}
	f.services = append(f.services, entry)

	// Transfers of outputs and session states.
	var m flow.TransferTime
	if workflows != nil && int(s) < len(workflows.TransferTimes) {
		m = workflows.TransferTimes[s]
	}
	f.sameNodeTime, f.otherNodeTime = append(f.sameNodeTime, int64(m.SameNode)), append(f.otherNodeTime, int64(m.OtherNode))
	f.stateTransfers = append(f.stateTransfers, newStateTransfer(workflows.SessionStateOf(s)))
}

// serviceOn returns a service at a place.
func (f *deviceTables) serviceOn(s, place int32) *kindTimes {
	return &f.services[s].onKinds[f.kindOf[place]]
}

// canRun returns true if the device at a place can run a service.
func (f *deviceTables) canRun(s, place int32) bool { return f.serviceOn(s, place).times != nil }

// batchTime returns how long a batch of n tasks runs, given its largest work.
func (f *deviceTables) batchTime(s, place, n int32, work int64) int64 {
	return scaleTime(f.serviceOn(s, place).times[n-1], work)
}

// transferTime returns how long the output of a service takes from one place to another.
func (f *deviceTables) transferTime(s, from, to int32) int64 {
	switch {
	case from == to:
		return 0
	case f.nodeOf[from] == f.nodeOf[to]:
		return f.sameNodeTime[s]
	}
	return f.otherNodeTime[s]
}

// isLanguageModel returns true if a service is a language model.
func (f *deviceTables) isLanguageModel(service int32) bool {
	return service >= 0 && f.services[service].generation != nil
}

// tokensOf returns the KV tokens that a task of a service and work will hold. For other services it returns 0.
func (f *deviceTables) tokensOf(service int32, work int64) int64 {
	g := f.services[service].generation
	if g == nil {
		return 0
	}
	return max(1, scaleTime(int64(g.Prompt+g.Output+.5), work))
}

// fitsOneMore returns true if a batch of n tasks, which will hold `kv` tokens, takes one more task of a work. An empty
// batch always does.
func (f *deviceTables) fitsOneMore(service, place, n int32, kv, work int64) bool {
	if n == 0 {
		return true
	}
	onPlace := f.serviceOn(service, place)
	return n < onPlace.maxBatch && (!f.isLanguageModel(service) || kv+f.tokensOf(service, work) <= onPlace.kvTokens)
}

// loadTime returns how long a load of a network takes at a place (device), in ns: index 0 of the table, the time
// from host memory. If it is not known, it returns 0.
func (f *deviceTables) loadTime(network, place int32) int64 {
	if times := f.source.Networks[network].LoadTimes; times != nil {
		return int64(times[f.source.Devices[f.deviceAt[place]].Kind][0])
	}
	return 0
}
