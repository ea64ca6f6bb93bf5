package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// instanceFleet holds the instances, with the batches that run on them and their memory. An instance is a server of language models on a device. Its
// index in instances is also the index of its virtual queue.
type instanceFleet struct {
	tables      *policy.Tables // tables of the plan
	queueTables *Tables        // this package's tables of the plan
	classes     []sloClass     // by served model
	operations  servingOperations
	instances   []Instance
	instanceOf  []int32 // by device of the plan: the index of its instance; -1 if it has none
}

// Instance is a server of language models on a device. It holds one network at a time, and runs batches of one request each.
type Instance struct {
	Device            int32         // device of the plan
	isDeviceLost      bool          // its device is lost
	IsSwitchedOff     bool          // Options.NewScaler's rule has switched it off
	LoadedNetwork     int32         // network that is loaded; -1 if none
	LoadingNetwork    int32         // network that is being loaded; -1 if none
	loadStart         time.Duration // start of that load
	LoadFailed        bool          // the last load failed; the next tick tries again
	RunningBatches    []int32       // batch numbers; a batch is one request
	RunningByModel    []int32       // number of running batches by served model
	reservedKVTokens  int64         // tokens of KV memory that the running batches are expected to take
	pendingEvictions  int           // number of evictions that were ordered and have not ended
	memoryEpoch       int32         // number of times that all its KV memory was lost, by a change of network or of the device
	freedTokens       int64         // tokens of the contexts of sessions that have become free so far
	takenTokens       int64         // tokens of free memory that the running batches took when they started
	lostThrough       int64         // the value of freedTokens up to which contexts are lost for good, see sessionTable.noteMemory
	refusalBatchCount int32         // number of running batches at which the server refused one more; 0 if it has not since the last tick
	// Limits that the server itself reported: sequences, and tokens of KV memory.
	maxSequences,
	kvTokens int64
}

// newInstanceFleet returns the instances of a plan, each with its resident network. operations are the serving operations that the options allow.
// Until a server reports its own limits of memory and of requests at once, those of the plan apply.
func newInstanceFleet(planTables *policy.Tables, queueTables *Tables, operations servingOperations) *instanceFleet {
	fleet := &instanceFleet{tables: planTables, queueTables: queueTables, classes: newSLOClasses(planTables, queueTables), operations: operations, instanceOf: make([]int32, len(planTables.Devices))}
	for device := range planTables.Devices {
		fleet.instanceOf[device] = -1
		tableIndex := planTables.InstanceOf(int32(device))
		if tableIndex < 0 {
			continue // the plan has no instance on this device
		}
		fleet.instanceOf[device] = int32(len(fleet.instances))
		newInstance := Instance{
			Device: int32(device), LoadedNetwork: -1, LoadingNetwork: -1, RunningByModel: make([]int32, len(planTables.Models)),
			maxSequences: int64(planTables.Instances[tableIndex].MaxSequences), kvTokens: planTables.Instances[tableIndex].KVTokens,
		}

		// An instance holds one network at a time, so the plan lists at most one that is loaded at the start.
		if residentNetworks := planTables.Resident[device]; len(residentNetworks) > 0 {
			newInstance.LoadedNetwork = residentNetworks[0]
		}
		fleet.instances = append(fleet.instances, newInstance)
	}
	return fleet
}

// IsUp reports whether the instance's device is there and the instance is switched on.
func (in *Instance) IsUp() bool { return !in.isDeviceLost && !in.IsSwitchedOff }

// networkOf returns the network (weights) of a served model, which is a model with one SLO class. Classes of a model share the network.
func (f *instanceFleet) networkOf(model int32) int32 {
	return f.tables.Pipelines[f.tables.Models[model].FirstPipeline].Network
}

// anyModelOf returns the first served model that a network serves. It stands for all of them where their class does not matter.
func (f *instanceFleet) anyModelOf(network int32) int32 {
	for model := range f.tables.Models {
		if f.networkOf(int32(model)) == network {
			return int32(model)
		}
	}
	return 0
}

// kindOf returns the kind of an instance's device.
func (f *instanceFleet) kindOf(instance *Instance) int32 {
	return f.tables.Devices[instance.Device].Kind
}

// estimatorIndex returns the index in Tables.RCT of the estimator of a served model, for regular requests or mega prompts (many times
// longer), on a kind of device.
func (f *instanceFleet) estimatorIndex(model int32, isMegaPrompt bool, kind int32) int {
	return estimatorIndex(len(f.tables.Kinds), model, isMegaPrompt, kind)
}

// isMegaPrompt reports whether a request is a mega prompt: its prompt has at least as many tokens as the plan's limit for its model says.
func (f *instanceFleet) isMegaPrompt(request *Request) bool {
	return f.queueTables.MegaTokens[request.Model] > 0 && request.promptTokens >= f.queueTables.MegaTokens[request.Model]
}

// EstimatorOn returns the estimator of completion times of a served model on an instance, for regular requests or mega prompts (many times longer).
func (f *instanceFleet) EstimatorOn(instance *Instance, model int32, isMegaPrompt bool) *RCT {
	return f.queueTables.Estimator(len(f.tables.Kinds), model, isMegaPrompt, f.kindOf(instance))
}

// isAllowed reports whether the plan lets an instance serve a network. The lists of devices are sorted. Without lists it may serve any.
func (f *instanceFleet) isAllowed(instance *Instance, network int32) bool {
	if f.queueTables.AllowedDevices == nil {
		return true
	}
	_, allowed := slices.BinarySearch(f.queueTables.AllowedDevices[network], instance.Device)
	return allowed
}

// CanServe reports whether the plan lets an instance serve a network and has an estimator for it there.
func (f *instanceFleet) CanServe(instance *Instance, network int32) bool {
	return f.isAllowed(instance, network) && f.EstimatorOn(instance, f.anyModelOf(network), false).Batch > 0
}

// ServesModel reports whether an instance serves a model: it can serve its network, and no cap of 0 keeps the model away.
func (f *instanceFleet) ServesModel(instance *Instance, model int32) bool {
	return f.CanServe(instance, f.networkOf(model)) && (f.queueTables.Caps == nil || f.queueTables.Caps[int(instance.Device)*len(f.tables.Models)+int(model)] != 0)
}

// kvNeed returns the tokens of KV memory that are reserved for a request while it runs: its prompt and the mean answer of its model, or its
// own limit of the answer if that is less.
func (f *instanceFleet) kvNeed(request *Request) int64 {
	// The mean answer is that of the first kind of device on which the model has an estimator: answers are as long on all kinds. Without an
	// estimator the mean is 0, and no instance serves the model.
	answerTokens, kindCount := int32(0), len(f.tables.Kinds)
	for kind := 0; kind < kindCount && answerTokens == 0; kind++ {
		answerTokens = int32(f.queueTables.Estimator(kindCount, request.Model, regularRequest, int32(kind)).OutputMean)
	}
	if request.maxTokens > 0 {
		answerTokens = min(answerTokens, request.maxTokens)
	}
	return int64(request.promptTokens) + int64(answerTokens)
}

// MaxRunning returns how many requests may run at once on an instance if one of a model is among them.
// Each served model with running requests may allow fewer than the instance does, because of its SLO on the time per token.
func (f *instanceFleet) MaxRunning(instance *Instance, model int32) int64 {
	maxCount, _ := f.Capacity(instance, f.networkOf(model))
	if f.queueTables.MaxSequences == nil {
		return maxCount
	}
	for otherModel, runningCount := range instance.RunningByModel {
		// 0 is no limit. The new request counts as one that runs.
		modelLimit := f.queueTables.MaxSequences[otherModel*len(f.tables.Kinds)+int(f.kindOf(instance))]
		isAmongThem := runningCount > 0 || otherModel == int(model)
		if modelLimit > 0 && isAmongThem {
			maxCount = min(maxCount, int64(modelLimit))
		}
	}
	return maxCount
}

// AtCap reports whether as many requests of a served model run on an instance as the plan's cap allows at once. Without a cap it returns false.
func (f *instanceFleet) AtCap(instance *Instance, model int32) bool {
	if f.queueTables.Caps == nil {
		return false
	}
	maxCount := f.queueTables.Caps[int(instance.Device)*len(f.tables.Models)+int(model)]
	return maxCount >= 0 && instance.RunningByModel[model] >= maxCount
}

// Capacity returns how many sequences (requests at once) and tokens of KV memory an instance takes with a network: the figures of the plan
// if it has some, else those that the server last reported.
func (f *instanceFleet) Capacity(instance *Instance, network int32) (sequences, kvTokens int64) {
	if server := f.tables.Instances[f.tables.InstanceOf(instance.Device)].Server; server != nil {
		serverCosts := &server.Costs[network]
		return int64(serverCosts.MaxSequences), serverCosts.KVTokens
	}
	return instance.maxSequences, instance.kvTokens
}

// CanTakeRequest reports whether an instance takes one more request now: its class is below its cap there, and the
// number of requests and the KV memory stay within the limits. An instance that refused a request at some number of running batches
// takes none at that number. An empty instance takes any request, because no request may wait for ever for memory
// that an estimate says is too small.
func (f *instanceFleet) CanTakeRequest(instance *Instance, request *Request) bool {
	runningCount, maxCount := int64(len(instance.RunningBatches)), f.MaxRunning(instance, request.Model)
	switch {
	case f.AtCap(instance, request.Model):
		return false
	case runningCount == 0:
		return true
	case instance.refusalBatchCount > 0 && runningCount >= int64(instance.refusalBatchCount):
		return false
	}

	// Without a figure of the KV memory (0) only the number of requests is limited.
	_, kvTokens := f.Capacity(instance, f.networkOf(request.Model))
	return runningCount < maxCount && (kvTokens == 0 || instance.reservedKVTokens+f.kvNeed(request) <= kvTokens)
}

// isFull reports whether an instance takes no further request of its network, whatever the request's size: as many run as its limit says,
// its KV memory is exceeded, or it has refused a request at this number of running batches. An empty instance is never full.
func (f *instanceFleet) isFull(instance *Instance) bool {
	runningCount := int64(len(instance.RunningBatches))
	if runningCount == 0 {
		return false
	}
	sequences, kvTokens := f.Capacity(instance, instance.LoadedNetwork)
	hasRefused := instance.refusalBatchCount > 0 && runningCount >= int64(instance.refusalBatchCount)
	exceedsMemory := kvTokens > 0 && instance.reservedKVTokens > kvTokens
	return runningCount >= sequences || hasRefused || exceedsMemory
}

// residence returns the mean time from start to answer of a model's requests on an instance with a full batch.
func (f *instanceFleet) residence(instance *Instance, model int32) time.Duration {
	mean, _ := f.EstimatorOn(instance, model, false).Residence(1)
	return time.Duration(mean * float64(time.Second))
}

// LeadTime returns how long before its deadline a request of a model has to start on an instance, in the mean: the time from its start to
// its milestone, the point to which its SLO applies.
func (f *instanceFleet) LeadTime(instance *Instance, model int32) time.Duration {
	mean, _ := f.EstimatorOn(instance, model, false).timeToMilestone(f.classes[model].milestone)
	return time.Duration(mean * float64(time.Second))
}

// ChangeTime returns how long an instance takes to load a network and, later, to unload it. A change of networks includes one load and one unload.
func (f *instanceFleet) ChangeTime(instance *Instance, network int32) time.Duration {
	// Load times are by kind of device, and by tier: from host memory, or from storage without warm starts.
	duration, load := time.Duration(0), f.tables.Networks[network].LoadTimes
	if server := f.tables.Instances[f.tables.InstanceOf(instance.Device)].Server; server != nil {
		duration = server.Costs[network].UnloadTime
	}
	if kind := int(f.kindOf(instance)); kind < len(load) {
		const warmLoad, coldLoad = 0, 1 // from host memory, and from storage
		loadTier := coldLoad
		if f.operations[WarmStart] {
			loadTier = warmLoad
		}
		duration += load[kind][loadTier]
	}
	return duration
}
