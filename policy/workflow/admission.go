package workflow

import (
	"math"
	"slices"

	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// admission decides at the entry which requests are admitted. It admits a request if all admitted requests can still be
// in time with it. For every request, the device time that requests with earlier deadlines need must fit into a share of
// what the devices can do until the request's own tasks must begin.
//
// The time that a request needs is that of its revealed tasks that wait, plus the mean time of what followed its latest
// task in requests that have ended. It is counted as device time in planned batches. Devices that several services share
// are one resource with one backlog.
//
// The share adapts to the requests that end late: batches are not always full, loads take time, and work is not spread
// evenly.
type admission struct {
	cluster            *cluster
	registry           *registry
	tables             *deviceTables
	predictions        *predict.TransitionTable
	resources          []resource // sets of devices
	resourcesOf        [][]int32  // by service: the resources in which its work counts
	apps               []appStats // by application
	admittedByDeadline []int32    // numbers of the admitted open requests, in the order of their deadlines
	timeSums           []float64  // scratch, by resource
	sortedChains       []int64    // scratch
}

// resource is a set of devices, with the work that only these devices can do.
type resource struct {
	deviceIndexes []int32
	isMember      []bool  // by device index: whether the device belongs to the set
	taskTime      []int64 // by service: device time in ns of a task in a planned batch; 0 if other devices run it, too
	neededTime    int64   // device time in ns that admitted requests still need
	freeTimesSum  int64   // scratch: sum of the times in ns at which its devices become free
	lastFreeAt    int64   // scratch: the latest of these times
	liveDevices   int64   // scratch: number of devices that are up
}

// appStats holds the statistics that admission keeps of an application. Times are in ns.
type appStats struct {
	timeAfter       []resourceMean // by kind of task: mean device time of what followed such a task, by resource
	requestTime     resourceMean   // mean device time of a request, by resource
	chainTimes      []int64        // ring of the latest requests' longest chains of task times
	chainCount      int            // number of chains seen so far
	chainQuantile   int64          // quantile of chainTimes: the time that a request needs even if nothing delays it
	backlogShare    float64        // part of the device time before a deadline that backlogs may fill
	endedRequests   float64        // number of admitted requests that have ended since backlogShare was set
	lateRequests    float64        // number of those that were late
	refusedAny      bool           // a request was refused since backlogShare was set
	shareHoldsUntil int64          // backlogShare is not changed before then
	claim           rateClaim
}

// resourceMean is a weighted mean of device times, for each resource (set of devices).
type resourceMean struct {
	samples float64   // weight of all samples
	sums    []float64 // by resource: weighted sum of device times in ns
}

const (
	// maxResources bounds the number of resources.
	maxResources = 64
	// maxSamples is the weight of a mean at most; then later requests count more.
	maxSamples = 2000
	// maxChains is the number of chains that a quantile is taken over, and chainQuantileLevel its level.
	maxChains          = 128
	chainQuantileLevel = .9
	// A backlog share begins at initialShare. It grows by shareGrowth while at most half of maxLateShare of the
	// admitted requests end late, and shrinks if more than maxLateShare do.
	initialShare = .7
	minShare     = .05
	maxShare     = 2
	shareGrowth  = 1.06
	maxLateShare = .01
	// endsPerUpdate is the number of ended requests after which a share may change.
	endsPerUpdate = 100
	// minShareFactor bounds from below the factor by which a share shrinks at once.
	minShareFactor = .7
	// A quantile is updated at each of the first chainsPerUpdate chains, and then at every chainsPerUpdate-th, because sorting takes time.
	chainsPerUpdate = 16
)

// newAdmission returns the admission of requests to a cluster, when a policy is made. A resource is a set of devices. Its work is that of the
// services that run on no other device; admission keeps the device time that this work needs within the time that the devices have.
// Without Options.Admit every request is admitted.
func newAdmission(c *cluster) *admission {
	admission := &admission{cluster: c, registry: c.registry, tables: c.tables}
	if !c.options.Admit {
		return admission
	}
	tables := c.tables

	// Resources are the sets of devices that run a service, and the unions of such sets.
	for service := range tables.services {
		runsService := make([]bool, len(tables.planDevice))
		for deviceIndex := range tables.planDevice {
			runsService[deviceIndex] = tables.canRun(int32(service), int32(deviceIndex))
		}
		admission.addResource(runsService)
	}
	// The list grows in the loop, so that unions are joined with others, too. addResource passes over sets that are known, and adds none beyond
	// maxResources, so the loop ends.
	for resourceIndex := 0; resourceIndex < len(admission.resources); resourceIndex++ {
		for earlierIndex := range resourceIndex {
			union := slices.Clone(admission.resources[resourceIndex].isMember)
			for deviceIndex, isMember := range admission.resources[earlierIndex].isMember {
				union[deviceIndex] = union[deviceIndex] || isMember
			}
			admission.addResource(union)
		}
	}

	// The work of a service counts in every resource that holds all of the service's devices. In others its taskTime is 0.
	admission.resourcesOf = make([][]int32, len(tables.services))
	for resourceIndex := range admission.resources {
		resource := &admission.resources[resourceIndex]
		resource.taskTime = make([]int64, len(tables.services))
		for service := range tables.services {
			resource.taskTime[service] = admission.taskTimeOn(resource, int32(service))
			if resource.taskTime[service] > 0 {
				admission.resourcesOf[service] = append(admission.resourcesOf[service], int32(resourceIndex))
			}
		}
	}

	// Applications are the models of the plan. The part of the device time that their backlogs may fill begins at initialShare.
	admission.apps, admission.timeSums = make([]appStats, len(tables.planTables.Models)), make([]float64, len(admission.resources))
	for appIndex := range admission.apps {
		app := &admission.apps[appIndex]
		app.backlogShare, app.claim = initialShare, newRateClaim(tables.planTables.Models[appIndex].RPS)
	}
	return admission
}

// addResource adds a set of devices, given by whether each device is a member, as a resource whose work admission limits.
// It does nothing if the set is empty or known, or if there are maxResources already, because each resource costs time at every arrival.
func (a *admission) addResource(isMember []bool) {
	if len(a.resources) >= maxResources || slices.ContainsFunc(a.resources, func(set resource) bool { return slices.Equal(set.isMember, isMember) }) {
		return
	}
	set := resource{isMember: isMember}
	for deviceIndex, belongs := range isMember {
		if belongs {
			set.deviceIndexes = append(set.deviceIndexes, int32(deviceIndex))
		}
	}
	if len(set.deviceIndexes) > 0 {
		a.resources = append(a.resources, set)
	}
}

// taskTimeOn returns the device time in ns that a task of a service costs a resource (a set of devices): the number of its devices, divided
// by the tasks per ns that they run together in full batches of the planned size.
// If devices outside the resource run the service, too, it returns 0, because the work need not be done here.
func (a *admission) taskTimeOn(resource *resource, service int32) int64 {
	rate := 0.0 // tasks per ns of all devices that run the service
	for deviceIndex := range a.tables.planDevice {
		kindProfile := a.tables.profileOn(service, int32(deviceIndex))
		if kindProfile.batchTimes == nil {
			continue
		}
		if !resource.isMember[deviceIndex] {
			return 0 // this device could do the work, too
		}
		rate += float64(kindProfile.maxBatch) / float64(kindProfile.fullBatchTime())
	}
	if rate == 0 {
		return 0
	}
	return max(1, int64(float64(len(resource.deviceIndexes))/rate))
}

// admit decides whether an arriving request is served, and if so adds it to the admitted requests.
// Each resource (set of devices) that the request will use needs time left for it and for the admitted requests with later deadlines.
// If it is refused, retryAt is the time, in ns, at which such a request is expected to fit.
// Without Options.Admit every request is admitted.
//
// It is called when a request arrives.
func (a *admission) admit(now int64, requestNumber int32) (admitted bool, retryAt int64) {
	if !a.cluster.options.Admit {
		return true, 0
	}
	request := &a.registry.requests[requestNumber]
	app := &a.apps[request.app]
	request.neededTime = slices.Grow(request.neededTime[:0], len(a.resources))[:len(a.resources)]

	// Find the position by deadline.
	position := len(a.admittedByDeadline)
	for position > 0 && a.registry.requests[a.admittedByDeadline[position-1]].deadline > request.deadline {
		position--
	}

	// Every resource must have time left for it and for the requests behind it. Its tasks are not known yet, so it needs the mean time of
	// its application's requests. The scarcest resource is the one that has time for it last.
	scarcestResource := noResource
	for resourceIndex := range a.resources {
		request.neededTime[resourceIndex] = app.requestTime.meanOf(resourceIndex)
		if delay := a.delayUntilFit(now, resourceIndex, position, request); delay > 0 && retryAt < now+delay {
			retryAt, scarcestResource = now+delay, int32(resourceIndex)
		}
	}
	if scarcestResource != noResource {
		app.refusedAny = true
		app.claim.recordRefusal(scarcestResource, request.deadline)
		return false, retryAt
	}

	// An application that was refused a resource which this request needs comes first, if it has got less of its planned rate. So this
	// application waits until its lead over that one is used up.
	a.limitSavedClaim(request)
	if lead := a.leadOverShortApps(now, request); lead > 0 {
		return false, now + lead
	}

	// Admit it.
	app.claim.recordAdmission()
	a.changeNeededTime(request, addition)
	a.admittedByDeadline = slices.Insert(a.admittedByDeadline, position, requestNumber)
	request.admitted = true
	return true, 0
}

// delayUntilFit returns by how many ns later a resource (a set of devices) would have time for a request at position among the admitted
// ones, which are sorted by deadline, and for all requests behind it. If there is time now, it returns 0. A client that is refused may ask
// again after that time. A request that shares the resource with no other one always fits.
//
//	earlierNeed <= backlogShare · deviceTimeUntil(deadline - chainQuantile)      for each of these requests
//
// earlierNeed is the device time that requests with earlier deadlines need. backlogShare is the part of the time of devices that such a
// backlog may fill, and chainQuantile the time that a request takes even if nothing delays it. So it has to begin that long before its
// deadline, and its own need is no part of earlierNeed.
func (a *admission) delayUntilFit(now int64, resourceIndex, position int, request *request) (delay int64) {
	resource := &a.resources[resourceIndex]
	if request.neededTime[resourceIndex] == 0 || resource.neededTime <= 0 {
		return 0
	}

	// Go through these requests from the latest deadline to the earliest. neededUpTo is the device time that all requests
	// up to the present one need, which the devices serve in the order of deadlines.
	a.updateFreeTimes(now, resource)
	neededUpTo := resource.neededTime + request.neededTime[resourceIndex]
	for i := len(a.admittedByDeadline); i >= position; i-- { // i == position stands for the new request
		other := request
		if i > position {
			other = &a.registry.requests[a.admittedByDeadline[i-1]]
		}
		app := &a.apps[other.app]
		if other.neededTime[resourceIndex] == 0 {
			continue // it needs nothing of this resource, so it cannot be late because of it
		}

		// If the new request comes a second later, every live device has done a second of the earlier work by then. Its deadline is a second later,
		// too, so that a device offers backlogShare of a second more. Together they shrink the excess by 1+backlogShare per device. The deadlines
		// of the requests behind it do not move; for these that is an estimate.
		earlierNeed := neededUpTo - other.neededTime[resourceIndex]
		offeredTime := app.backlogShare * float64(a.deviceTimeUntil(now, resource, other.deadline-app.chainQuantile))
		if excessTime := float64(earlierNeed) - offeredTime; earlierNeed > 0 && excessTime > 0 {
			delay = max(delay, 1, int64(excessTime/((1+app.backlogShare)*float64(max(1, resource.liveDevices)))))
		}
		if i > position {
			neededUpTo -= other.neededTime[resourceIndex]
		}
	}
	return delay
}

// updateFreeTimes computes when the devices of a resource (a set of devices) become free: the sum of these times, the latest of them, and
// the number of devices that are up. delayUntilFit calls it once, so that deviceTimeUntil need not look at every device for every request.
func (a *admission) updateFreeTimes(now int64, resource *resource) {
	resource.freeTimesSum, resource.lastFreeAt, resource.liveDevices = 0, now, 0
	for _, deviceIndex := range resource.deviceIndexes {
		if freeAt := a.deviceFreeAt(now, deviceIndex); freeAt < farFuture {
			resource.freeTimesSum += freeAt
			resource.lastFreeAt = max(resource.lastFreeAt, freeAt)
			resource.liveDevices++
		}
	}
}

// deviceFreeAt returns when a device has finished the batch that it runs, in ns. An idle device is free now.
// If the device is down, it returns farFuture. The sequences of a language model count as if the device did what remains of them in full
// batches, and nothing else.
func (a *admission) deviceFreeAt(now int64, deviceIndex int32) int64 {
	device := &a.cluster.devices[deviceIndex]
	switch {
	case device.isDown:
		return farFuture
	case !device.isBusy:
		return now
	case a.tables.isLanguageModel(device.runningService):
		freeAt, sequenceCount := now, int32(len(device.runningTasks))
		kindProfile := a.tables.profileOn(device.runningService, deviceIndex)
		for _, taskID := range device.runningTasks {
			task := &a.registry.tasks[taskID]
			// What remains of the sequence now, and its part of the time of a full batch.
			remainingPart := task.sequence.remainingPart - float64(now-device.progressCountedAt)/float64(a.tables.batchTime(task.service, deviceIndex, sequenceCount, task.workFactor))
			freeAt += int64(max(0, remainingPart) * float64(scaleTime(kindProfile.fullBatchTime(), task.workFactor)) / float64(kindProfile.maxBatch))
		}
		return freeAt
	}
	return max(now, device.batchEndsAt)
}

// deviceTimeUntil returns the device time in ns that a resource (a set of devices) offers until a deadline: the sum over its devices of the
// time from when the device is free. If all are free by the deadline, a formula suffices.
func (a *admission) deviceTimeUntil(now int64, resource *resource, deadline int64) int64 {
	if deadline >= resource.lastFreeAt {
		// The sum of deadline - freeAt over the devices that are up.
		return resource.liveDevices*deadline - resource.freeTimesSum
	}
	sum := int64(0)
	for _, deviceIndex := range resource.deviceIndexes {
		sum += max(0, deadline-a.deviceFreeAt(now, deviceIndex))
	}
	return sum
}

// updateNeededTime computes anew the device time that an admitted request needs of each resource (set of devices), after a segment of its tasks
// was revealed: the time of its waiting tasks, and the mean time of what followed its latest kind of task in earlier requests.
func (a *admission) updateNeededTime(request *request) {
	if !request.admitted {
		return
	}

	// Sum up the tasks that wait.
	a.changeNeededTime(request, subtraction)
	clear(request.neededTime)
	for _, taskID := range request.revealedTasks {
		if task := &a.registry.tasks[taskID]; task.progress == taskUnplaced || task.progress == taskQueued {
			for _, resourceIndex := range a.resourcesOf[task.service] {
				request.neededTime[resourceIndex] += scaleTime(a.resources[resourceIndex].taskTime[task.service], task.workFactor)
			}
		}
	}

	// Add what is expected to follow the latest task.
	kindNumber := request.taskKinds[len(request.taskKinds)-1]
	if meansByKind := a.apps[request.app].timeAfter; int(kindNumber) < len(meansByKind) {
		for resourceIndex := range request.neededTime {
			request.neededTime[resourceIndex] += meansByKind[kindNumber].meanOf(resourceIndex)
		}
	}
	a.changeNeededTime(request, addition)
}

// Directions in which the needed time of resources changes.
const (
	addition    = 1
	subtraction = -1
)

// changeNeededTime adds the time that a request needs of each resource (set of devices) to the time that all admitted requests need there,
// or subtracts it, as direction says.
func (a *admission) changeNeededTime(request *request, direction int64) {
	for resourceIndex, deviceTime := range request.neededTime {
		a.resources[resourceIndex].neededTime += direction * deviceTime
	}
}

// changeTaskTime is called when a task starts, and subtracts its device time from what its request needs of each resource (set of devices).
// It is called with addition when a started task comes back without a result and waits again.
func (a *admission) changeTaskTime(task *task, direction int64) {
	if task.requestNumber < 0 || !a.registry.requests[task.requestNumber].admitted {
		return
	}
	request := &a.registry.requests[task.requestNumber]
	for _, resourceIndex := range a.resourcesOf[task.service] {
		deviceTime := direction * scaleTime(a.resources[resourceIndex].taskTime[task.service], task.workFactor)
		request.neededTime[resourceIndex] += deviceTime
		a.resources[resourceIndex].neededTime += deviceTime
	}
}

// recordAnswer removes a request that has been answered from the admitted ones, and learns from it: the device time that its tasks took,
// its longest chain of tasks that read each other, and whether it was late.
func (a *admission) recordAnswer(now int64, requestNumber int32) {
	request := &a.registry.requests[requestNumber]
	if !request.admitted {
		return
	}

	// Find the longest chain of tasks that read each other, by their times in full batches. Tasks come behind their inputs, so that
	// earliestEnd, which is free for use once the request has ended, can hold the longest chain up to each task.
	chainTime := int64(0)
	for _, taskID := range request.revealedTasks {
		task := &a.registry.tasks[taskID]
		task.earliestEnd = 0
		for _, input := range task.inputs {
			if input >= 0 {
				task.earliestEnd = max(task.earliestEnd, a.registry.tasks[input].earliestEnd)
			}
		}
		task.earliestEnd += a.plannedTaskTime(task.service, task.workFactor)
		chainTime = max(chainTime, task.earliestEnd)
	}

	// Learn from it, and remove it.
	a.learnPath(request.app, request.taskKinds, chainTime, 1)
	a.removeRequest(requestNumber)
	a.adjustShare(now, request, now > request.deadline)
}

// removeRequest removes a request that has ended or was dropped from the admitted ones, with the device time that it still needs.
// The list is sorted by deadline, and several requests may have the same one.
func (a *admission) removeRequest(requestNumber int32) {
	request := &a.registry.requests[requestNumber]
	if !request.admitted {
		return
	}
	a.changeNeededTime(request, subtraction)
	request.admitted = false
	position, _ := slices.BinarySearchFunc(a.admittedByDeadline, request.deadline, func(other int32, deadline int64) int {
		return int(max(-1, min(1, a.registry.requests[other].deadline-deadline))) // the sign of the difference
	})
	position += slices.Index(a.admittedByDeadline[position:], requestNumber)
	a.admittedByDeadline = slices.Delete(a.admittedByDeadline, position, position+1)
}

// adjustShare counts an admitted request that has ended, late or in time. After endsPerUpdate of them the backlog share of its application,
// which is the part of the device time that admitted work may take, is set anew: it grows if few were late and some were refused, and
// shrinks if many were late. It is called when a request was answered, or dropped after its deadline.
func (a *admission) adjustShare(now int64, request *request, late bool) {
	app := &a.apps[request.app]
	app.endedRequests++
	if late {
		app.lateRequests++
	}
	if app.endedRequests < endsPerUpdate || now < app.shareHoldsUntil {
		return
	}
	lateShare := app.lateRequests / app.endedRequests
	switch {
	case lateShare > maxLateShare:
		app.backlogShare = max(minShare, app.backlogShare*max(minShareFactor, 1-lateShare))
	case app.refusedAny && lateShare <= maxLateShare/2:
		app.backlogShare = min(maxShare, app.backlogShare*shareGrowth)
	}

	// Begin to count anew. The share holds for as long as a request has time, because requests admitted by the old share still end.
	app.endedRequests, app.lateRequests, app.refusedAny = 0, 0, false
	app.shareHoldsUntil = now + request.deadline - request.arrivedAt
}

// plannedTaskTime returns the time in ns of a task of a service in a full planned batch, on the first kind of device that runs it.
// If no kind does, it returns 0.
func (a *admission) plannedTaskTime(service int32, workFactor int64) int64 {
	profile := &a.tables.services[service]
	i := slices.IndexFunc(profile.byKind, func(onKind kindProfile) bool { return onKind.batchTimes != nil })
	if i < 0 {
		return 0
	}
	return scaleTime(profile.byKind[i].fullBatchTime(), workFactor)
}

// learnRecordedPath learns from a path before the first request. A path is the sequence of tasks that the share requestShare of an
// application's recorded requests had. Learnt are the device time of the tasks and their longest chain, in which each reads the one before
// it. taskKinds has the kinds of the tasks in the prediction table.
func (a *admission) learnRecordedPath(app int32, taskKinds []int32, recordedPath *flow.RecordedPath, requestShare float64) {
	// Find the longest chain of its tasks. endTimes has the longest chain up to each task. A task names an input by how many tasks back it
	// is; 0 stands for the client's input.
	endTimes, chainTime := make([]int64, len(recordedPath.Tasks)), int64(0)
	for taskIndex := range recordedPath.Tasks {
		task := &recordedPath.Tasks[taskIndex]
		for _, offset := range task.Reads {
			if offset > 0 && int(offset) <= taskIndex {
				endTimes[taskIndex] = max(endTimes[taskIndex], endTimes[taskIndex-int(offset)])
			}
		}
		endTimes[taskIndex] += a.plannedTaskTime(task.Service, factorFromMillionths(task.Work))
		chainTime = max(chainTime, endTimes[taskIndex])
	}

	// All paths together count as half as many samples as the ring of chains holds (maxChains), so that real requests soon outweigh them.
	a.learnPath(app, taskKinds, chainTime, requestShare*maxChains/2)
}

// learnPath counts `count` requests of an application (appIndex) whose tasks were of the given kinds, in order: the device time of what
// followed each kind, that of the whole request, and its longest chain of task times in ns.
// Kinds of tasks (service, work, inputs) are numbers of the prediction table, which calls them tokens.
// It is called for each request that is answered, with count 1, and for recorded paths before the first request.
func (a *admission) learnPath(appIndex int32, taskKinds []int32, chainTime int64, count float64) {
	// Go backwards. timeSums is the device time, by resource, of the tasks behind the present one, and in the end that of the whole request.
	app := &a.apps[appIndex]
	clear(a.timeSums)
	for _, kindNumber := range slices.Backward(taskKinds) {
		for int(kindNumber) >= len(app.timeAfter) {
			app.timeAfter = append(app.timeAfter, resourceMean{})
		}
		app.timeAfter[kindNumber].addSamples(a.timeSums, count)
		taskKind := a.predictions.Token(kindNumber)
		for _, resourceIndex := range a.resourcesOf[taskKind.Service] {
			a.timeSums[resourceIndex] += float64(scaleTime(a.resources[resourceIndex].taskTime[taskKind.Service], factorFromMillionths(taskKind.Work)))
		}
	}

	app.requestTime.addSamples(a.timeSums, count)

	// Keep the latest chains in a ring, in which a new one replaces the oldest.
	for range int(math.Ceil(count)) {
		if len(app.chainTimes) < maxChains {
			app.chainTimes = append(app.chainTimes, chainTime)
		} else {
			app.chainTimes[app.chainCount%maxChains] = chainTime
		}
		app.chainCount++
	}

	// Update the quantile, but not at every chain, because sorting takes time. Recorded paths, which count several times, are few.
	if app.chainCount%chainsPerUpdate == 1 || app.chainCount < chainsPerUpdate || count > 1 {
		a.sortedChains = append(a.sortedChains[:0], app.chainTimes...)
		slices.Sort(a.sortedChains)
		app.chainQuantile = a.sortedChains[int(chainQuantileLevel*float64(len(a.sortedChains)))]
	}
}

// meanOf returns the mean device time in ns for a resource (a set of devices). Without samples it returns 0.
func (m *resourceMean) meanOf(resourceIndex int) int64 {
	if m.samples == 0 {
		return 0
	}
	return int64(m.sums[resourceIndex] / m.samples)
}

// addSamples adds `count` samples of the same values: deviceTimes has one device time for each resource.
// Beyond a weight of maxSamples, older samples lose weight, so that the mean follows changes.
func (m *resourceMean) addSamples(deviceTimes []float64, count float64) {
	if m.sums == nil {
		m.sums = make([]float64, len(deviceTimes))
	}
	if m.samples+count > maxSamples { // lower the weight of the older samples so that the sum is maxSamples
		retainedPart := max(0, maxSamples-count) / (m.samples + count)
		for resourceIndex := range m.sums {
			m.sums[resourceIndex] *= retainedPart
		}
		m.samples *= retainedPart
	}

	// Add the new samples.
	for resourceIndex := range deviceTimes {
		m.sums[resourceIndex] += count * deviceTimes[resourceIndex]
	}
	m.samples += count
}
