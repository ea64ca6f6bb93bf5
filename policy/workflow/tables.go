package workflow

import (
	"cmp"
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// farFuture is later than any time. Times may be added to it without overflow.
const farFuture = int64(1) << 60

// Factors of times are integers in fixed point, so that sums are exact: fixedOne stands for 1.
// The work factor of a task is its time divided by the time that the profile of its service says: a task of twice the usual length has 2*fixedOne.
const (
	fixedBits = 20
	fixedOne  = int64(1) << fixedBits
)

// scaleTime returns the time of a task, given the time of a usual task of its service and the task's work factor in fixed point.
func scaleTime(usual, workFactor int64) int64 {
	if workFactor == fixedOne {
		return usual
	}
	return usual * workFactor >> fixedBits
}

// factorFromMillionths converts the work of a task from the unit of events, millionths of a usual task, to a work factor in fixed
// point, rounded. 0 or less stands for a usual task.
func factorFromMillionths(millionths int64) int64 {
	if millionths <= 0 {
		return fixedOne
	}
	return max(1, (millionths*fixedOne+500_000)/1_000_000)
}

// deviceRange is a range of device indexes: `first` is in it, `end` is not.
type deviceRange struct{ first, end int32 }

// deviceTables holds what decisions read of the tables of a plan, in the order in which they need it.
// A device index is the position of a device when devices are sorted by node. A plan device is its index in the tables of the plan.
type deviceTables struct {
	planTables     *policy.Tables
	planDevice     []int32          // by device index: the plan device
	deviceIndexOf  []int32          // by plan device: the device index
	nodes          []deviceRange    // by node: the devices of the node
	nodeOf         []int32          // by device index: its node, an index in nodes
	kindOf         []int32          // by device index: its kind; devices of a kind run the same services equally fast
	services       []serviceProfile // by service
	networkBytes   []int64          // by network: its size
	sameNodeTimes  []int64          // by service: time in ns to transfer its output to another device of the node
	otherNodeTimes []int64          // by service: time in ns to transfer its output to another node
	stateTransfers []stateTransfer  // by service: transfer of its session states
}

// serviceProfile holds the times of a service, a model with the work that is usual for it.
type serviceProfile struct {
	network       int32               // network that a device has to hold to run it
	minTaskTime   int64               // time in ns of one usual task on the quickest kind of device
	languageModel *flow.LanguageModel // nil if it is no language model
	byKind        []kindProfile       // by kind of device
}

// kindProfile holds the times of a service on one kind of device.
type kindProfile struct {
	pipeline, stage int32   // pipeline of the plan that runs the service there, and the only stage of that
	maxBatch        int32   // largest batch
	kvTokens        int64   // KV tokens that a language model has memory for
	batchTimes      []int64 // [n-1]: time in ns of a batch of n usual tasks; nil if such devices do not run the service
	loadTime        int64   // time in ns to load its network
}

// newDeviceTables returns the tables of a plan in the form in which the policy reads them.
// It sorts the devices by node, so that the devices of a node are neighbours. The position of a device in that order is its device index.
func newDeviceTables(planTables *policy.Tables) *deviceTables {
	tables := &deviceTables{planTables: planTables, deviceIndexOf: make([]int32, len(planTables.Devices))}
	for planDevice := range planTables.Devices {
		tables.planDevice = append(tables.planDevice, int32(planDevice))
	}
	slices.SortStableFunc(tables.planDevice, func(deviceA, deviceB int32) int {
		return cmp.Compare(planTables.Devices[deviceA].Node, planTables.Devices[deviceB].Node)
	})

	// Number the devices in that order, and group them by node.
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
	for network := range planTables.Networks {
		tables.networkBytes = append(tables.networkBytes, planTables.Networks[network].Bytes)
	}
	for service := range planTables.Services {
		tables.addService(int32(service), kinds)
	}
	return tables
}

// numberKinds sets kindOf, the kind of every device, and returns the number of kinds.
// Devices are of one kind if they have the same hardware and run the same stages of the plan, so that all their times are equal.
func (t *deviceTables) numberKinds() int {
	planTables := t.planTables
	stages := make([][]int32, len(planTables.Devices)) // by device: the stages that run on it
	for pipelineIndex := range planTables.Pipelines {
		for _, planDevice := range planTables.DevicesOf(planTables.Pipelines[pipelineIndex].FirstStage) {
			stages[planDevice] = append(stages[planDevice], planTables.Pipelines[pipelineIndex].FirstStage)
		}
	}
	var firstOfKind []int32 // the first device of each kind
	for _, planDevice := range t.planDevice {
		kind := slices.IndexFunc(firstOfKind, func(otherDevice int32) bool {
			return planTables.Devices[otherDevice].Kind == planTables.Devices[planDevice].Kind && slices.Equal(stages[otherDevice], stages[planDevice])
		})
		if kind < 0 {
			kind, firstOfKind = len(firstOfKind), append(firstOfKind, planDevice)
		}
		t.kindOf = append(t.kindOf, int32(kind))
	}
	return len(firstOfKind)
}

// warmLoad is the index of a load from host memory in the load times of the plan.
const warmLoad = 0

// addService adds the profile of a service of the plan: the network that it needs, its batch times and load time on each kind of device that
// runs it, and the times to transfer its outputs and session states. kinds is the number of kinds of devices.
// A pipeline of a service has one stage, its first.
func (t *deviceTables) addService(service int32, kinds int) {
	planTables := t.planTables
	firstPipeline, pipelineCount := planTables.Services[service].FirstPipeline, planTables.Services[service].NumPipelines
	workflows := flow.WorkflowTablesOf(planTables)

	// The profile starts with the network of the first pipeline, which all pipelines of a service share. A plan without workflows has no
	// language models.
	entry := serviceProfile{network: planTables.Pipelines[firstPipeline].Network, minTaskTime: farFuture, languageModel: workflows.LanguageModelOf(service), byKind: make([]kindProfile, kinds)}
	for pipelineIndex := firstPipeline; pipelineIndex < firstPipeline+pipelineCount; pipelineIndex++ {
		pipeline := &planTables.Pipelines[pipelineIndex]
		var times []int64
		for _, batchTime := range planTables.Stages[pipeline.FirstStage].Infer {
			times = append(times, int64(batchTime))
		}
		// Its devices of one kind have the same times, so the first of them fills the entry of the kind. Tables of the plan are by its kind of
		// hardware; kinds of this policy (kindOf) also differ by the stages that the devices run.
		for _, planDevice := range planTables.DevicesOf(pipeline.FirstStage) {
			planKind := planTables.Devices[planDevice].Kind
			if profile := &entry.byKind[t.kindOf[t.deviceIndexOf[planDevice]]]; profile.batchTimes == nil {
				*profile = kindProfile{pipeline: pipelineIndex, stage: pipeline.FirstStage, maxBatch: pipeline.Batch, batchTimes: times}
				if entry.languageModel != nil {
					profile.kvTokens = entry.languageModel.Engines[planKind].KVTokens
				}
				if loadTimes := planTables.Networks[entry.network].LoadTimes; loadTimes != nil {
					profile.loadTime = int64(loadTimes[planKind][warmLoad])
				}
				entry.minTaskTime = min(entry.minTaskTime, times[0])
			}
		}
	}
	t.services = append(t.services, entry)

	// Transfers of outputs and session states.
	var transfer flow.TransferTime
	if workflows != nil && int(service) < len(workflows.TransferTimes) {
		transfer = workflows.TransferTimes[service]
	}
	t.sameNodeTimes, t.otherNodeTimes = append(t.sameNodeTimes, int64(transfer.SameNode)), append(t.otherNodeTimes, int64(transfer.OtherNode))
	t.stateTransfers = append(t.stateTransfers, newStateTransfer(workflows.SessionStateOf(service)))
}

// fullBatchTime returns how long, in ns, the largest batch of usual tasks takes.
func (k *kindProfile) fullBatchTime() int64 { return k.batchTimes[k.maxBatch-1] }

// profileOn returns the times of a service on a device. batchTimes is nil there if the device cannot run the service.
func (t *deviceTables) profileOn(service, deviceIndex int32) *kindProfile {
	return &t.services[service].byKind[t.kindOf[deviceIndex]]
}

// canRun returns true if a device can run a service, once it has loaded the network of that.
func (t *deviceTables) canRun(service, deviceIndex int32) bool {
	return t.profileOn(service, deviceIndex).batchTimes != nil
}

// batchTime returns how long, in ns, a batch of batchSize tasks of a service runs on a device. workFactor is that of the longest task, which sets
// the time of the batch; fixedOne stands for tasks of the usual length.
func (t *deviceTables) batchTime(service, deviceIndex, batchSize int32, workFactor int64) int64 {
	return scaleTime(t.profileOn(service, deviceIndex).batchTimes[batchSize-1], workFactor)
}

// transferTime returns how long, in ns, the output of a task of a service takes from one device to another. It is 0 on the same device.
func (t *deviceTables) transferTime(service, fromDevice, toDevice int32) int64 {
	switch {
	case fromDevice == toDevice:
		return 0
	case t.nodeOf[fromDevice] == t.nodeOf[toDevice]:
		return t.sameNodeTimes[service]
	}
	return t.otherNodeTimes[service]
}

// isLanguageModel returns true if a service is a language model, whose tasks run as sequences. It returns false for -1, which is no service.
func (t *deviceTables) isLanguageModel(service int32) bool {
	return service >= 0 && t.services[service].languageModel != nil
}

// tokensOf returns the tokens of KV memory that a task of a language model will hold: the mean prompt and output, scaled by the task's
// work factor. For a service that is no language model it returns 0.
func (t *deviceTables) tokensOf(service int32, workFactor int64) int64 {
	languageModel := t.services[service].languageModel
	if languageModel == nil {
		return 0
	}
	return max(1, scaleTime(int64(languageModel.Prompt+languageModel.Output+.5), workFactor))
}

// fitsOneMore returns true if a batch of batchSize tasks of a service on a device has space for one more task: the batch is below its largest size
// and, for a language model, the KV tokens of all tasks fit into the device's memory. kvTokens is the number of tokens that these tasks will hold,
// and workFactor is that of the task. An empty batch takes any task.
func (t *deviceTables) fitsOneMore(service, deviceIndex, batchSize int32, kvTokens, workFactor int64) bool {
	if batchSize == 0 {
		return true
	}
	kindProfile := t.profileOn(service, deviceIndex)
	return batchSize < kindProfile.maxBatch && (!t.isLanguageModel(service) || kvTokens+t.tokensOf(service, workFactor) <= kindProfile.kvTokens)
}

// loadTime returns how long, in ns, a device takes to load a network from host memory.
// If the plan has no load times, it returns 0.
func (t *deviceTables) loadTime(network, deviceIndex int32) int64 {
	if times := t.planTables.Networks[network].LoadTimes; times != nil {
		return int64(times[t.planTables.Devices[t.planDevice[deviceIndex]].Kind][warmLoad])
	}
	return 0
}
