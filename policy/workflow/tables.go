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
func scaleTime(usual, relativeWork int64) int64 {
	if relativeWork == usualWork {
		return usual
	}
	return usual * relativeWork >> 20
}

// workFromMillionths turns a work in millionths of the usual, as events have it, into units of usualWork (2^20),
// rounded. 0 stands for the usual work.
func workFromMillionths(millionths int64) int64 {
	if millionths <= 0 {
		return usualWork
	}
	return max(1, (millionths*usualWork+500_000)/1_000_000)
}

// deviceRange is a range of places; `end` is not in it.
type deviceRange struct{ first, end int32 }

// deviceTables holds what decisions read from the tables. Devices are in the order of their nodes. A place is an index
// in that order.
type deviceTables struct {
	planTables     *policy.Tables
	planDevice     []int32       // device by place
	deviceIndexOf  []int32       // place by device
	nodes          []deviceRange // by node: its places
	nodeOf         []int32       // node by place
	kindOf         []int32       // by place: devices of one kind of the tables that run the same services
	services       []serviceProfile
	networkBytes   []int64         // by network
	sameNodeTimes  []int64         // by service: transfer time of its output within a node, in ns
	otherNodeTimes []int64         // the same across nodes
	stateTransfers []stateTransfer // by service: transfer of its session states
}

// serviceProfile describes a service.
type serviceProfile struct {
	network       int32
	minTaskTime   int64               // time of one task on the quickest kind of device
	languageModel *flow.LanguageModel // nil if it is no language model
	byKind        []kindProfile       // by kind of device
}

// kindProfile describes a service on one kind of device.
type kindProfile struct {
	pipeline, stage int32
	maxBatch        int32   // largest batch
	kvTokens        int64   // KV tokens that a language model has memory for
	batchTimes      []int64 // [n-1]: time of a batch of n; nil if such devices do not run it
	loadTime        int64   // time in ns to load its network
}

// newDeviceTables reads the tables of a plan in the form that the policy uses. A place is the index of a device
// when devices are sorted by node, so that the devices of a node are neighbours.
func newDeviceTables(planTables *policy.Tables) *deviceTables {
	tables := &deviceTables{planTables: planTables, deviceIndexOf: make([]int32, len(planTables.Devices))}
	for d := range planTables.Devices {
		tables.planDevice = append(tables.planDevice, int32(d))
	}
	slices.SortStableFunc(tables.planDevice, func(a, b int32) int { return cmp.Compare(planTables.Devices[a].Node, planTables.Devices[b].Node) })

	// Number the places, and group them by node.
	for deviceIndex, planDevice := range tables.planDevice {
		tables.deviceIndexOf[planDevice] = int32(deviceIndex)
		if deviceIndex == 0 || planTables.Devices[planDevice].Node != planTables.Devices[tables.planDevice[deviceIndex-1]].Node {
			tables.nodes = append(tables.nodes, deviceRange{first: int32(deviceIndex)})
		}
		tables.nodes[len(tables.nodes)-1].end = int32(deviceIndex) + 1
		tables.nodeOf = append(tables.nodeOf, int32(len(tables.nodes)-1))
	}

	// Read networks and services.
	kinds := tables.numberKinds()
	for n := range planTables.Networks {
		tables.networkBytes = append(tables.networkBytes, planTables.Networks[n].Bytes)
	}
	for service := range planTables.Services {
		tables.addService(int32(service), kinds)
	}
	return tables
}

// numberKinds gives every place the number of its kind, and returns the number of kinds. Devices are of one kind if
// they have the same hardware and run the same stages, so that all their times are equal.
func (t *deviceTables) numberKinds() int {
	planTables := t.planTables
	stages := make([][]int32, len(planTables.Devices)) // by device: the stages that run on it
	for p := range planTables.Pipelines {
		for _, d := range planTables.DevicesOf(planTables.Pipelines[p].FirstStage) {
			stages[d] = append(stages[d], planTables.Pipelines[p].FirstStage)
		}
	}
	var firsts []int32 // the first device of each kind
	for _, planDevice := range t.planDevice {
		kind := slices.IndexFunc(firsts, func(o int32) bool {
			return planTables.Devices[o].Kind == planTables.Devices[planDevice].Kind && slices.Equal(stages[o], stages[planDevice])
		})
		if kind < 0 {
			kind, firsts = len(firsts), append(firsts, planDevice)
		}
		t.kindOf = append(t.kindOf, int32(kind))
	}
	return len(firsts)
}

// addService adds a service with the network that it needs, its batch times and load time on each kind of device
// that runs it, and the times to transfer its outputs and session states.
func (t *deviceTables) addService(service int32, kinds int) {
	planTables := t.planTables
	firstPipeline, pipelineCount := planTables.Services[service].FirstPipeline, planTables.Services[service].NumPipelines
	workflows := flow.WorkflowTablesOf(planTables)

	// One entry for each kind of device.
	entry := serviceProfile{network: planTables.Pipelines[firstPipeline].Network, minTaskTime: farFuture, languageModel: workflows.LanguageModelOf(service), byKind: make([]kindProfile, kinds)}
	for pipelineIndex := firstPipeline; pipelineIndex < firstPipeline+pipelineCount; pipelineIndex++ {
		pipeline := &planTables.Pipelines[pipelineIndex]
		var times []int64
		for _, d := range planTables.Stages[pipeline.FirstStage].Infer {
			times = append(times, int64(d))
		}
		for _, planDevice := range planTables.DevicesOf(pipeline.FirstStage) {
			kind := planTables.Devices[planDevice].Kind
			if onKind := &entry.byKind[t.kindOf[t.deviceIndexOf[planDevice]]]; onKind.batchTimes == nil {
				*onKind = kindProfile{pipeline: pipelineIndex, stage: pipeline.FirstStage, maxBatch: pipeline.Batch, batchTimes: times}
				if entry.languageModel != nil {
					onKind.kvTokens = entry.languageModel.Engines[kind].KVTokens
				}
				if loadTimes := planTables.Networks[entry.network].LoadTimes; loadTimes != nil {
					onKind.loadTime = int64(loadTimes[kind][0])
				}
				entry.minTaskTime = min(entry.minTaskTime, times[0])
			}
		}
	}
	t.services = append(t.services, entry)

	// Transfers of outputs and session states.
	var m flow.TransferTime
	if workflows != nil && int(service) < len(workflows.TransferTimes) {
		m = workflows.TransferTimes[service]
	}
	t.sameNodeTimes, t.otherNodeTimes = append(t.sameNodeTimes, int64(m.SameNode)), append(t.otherNodeTimes, int64(m.OtherNode))
	t.stateTransfers = append(t.stateTransfers, newStateTransfer(workflows.SessionStateOf(service)))
}

// profileOn returns a service at a place.
func (t *deviceTables) profileOn(service, deviceIndex int32) *kindProfile {
	return &t.services[service].byKind[t.kindOf[deviceIndex]]
}

// canRun returns true if the device at a place can run a service.
func (t *deviceTables) canRun(service, deviceIndex int32) bool {
	return t.profileOn(service, deviceIndex).batchTimes != nil
}

// batchTime returns how long a batch of n tasks runs, given its largest work.
func (t *deviceTables) batchTime(service, deviceIndex, n int32, relativeWork int64) int64 {
	return scaleTime(t.profileOn(service, deviceIndex).batchTimes[n-1], relativeWork)
}

// transferTime returns how long the output of a service takes from one place to another.
func (t *deviceTables) transferTime(service, from, to int32) int64 {
	switch {
	case from == to:
		return 0
	case t.nodeOf[from] == t.nodeOf[to]:
		return t.sameNodeTimes[service]
	}
	return t.otherNodeTimes[service]
}

// isLanguageModel returns true if a service is a language model.
func (t *deviceTables) isLanguageModel(service int32) bool {
	return service >= 0 && t.services[service].languageModel != nil
}

// tokensOf returns the KV tokens that a task of a service and work will hold. For other services it returns 0.
func (t *deviceTables) tokensOf(service int32, relativeWork int64) int64 {
	g := t.services[service].languageModel
	if g == nil {
		return 0
	}
	return max(1, scaleTime(int64(g.Prompt+g.Output+.5), relativeWork))
}

// fitsOneMore returns true if a batch of n tasks, which will hold `kv` tokens, takes one more task of a work. An empty
// batch always does.
func (t *deviceTables) fitsOneMore(service, deviceIndex, n int32, kv, relativeWork int64) bool {
	if n == 0 {
		return true
	}
	kindProfile := t.profileOn(service, deviceIndex)
	return n < kindProfile.maxBatch && (!t.isLanguageModel(service) || kv+t.tokensOf(service, relativeWork) <= kindProfile.kvTokens)
}

// loadTime returns how long a load of a network takes at a place (device), in ns: index 0 of the table, the time
// from host memory. If it is not known, it returns 0.
func (t *deviceTables) loadTime(network, deviceIndex int32) int64 {
	if times := t.planTables.Networks[network].LoadTimes; times != nil {
		return int64(times[t.planTables.Devices[t.planDevice[deviceIndex]].Kind][0])
	}
	return 0
}
