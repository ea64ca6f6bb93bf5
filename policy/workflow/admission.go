package workflow

import (
	"math"
	"slices"

	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// admission decides at the entry which requests are admitted. It admits a request if all admitted requests can still be
// in time with it. For every request, the device time owed to requests with earlier deadlines must fit into a share of
// what the devices can do until the request's own tasks must begin.
//
// The time that a request owes is that of its revealed tasks that wait, plus the mean time of what followed its latest
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
	resources          []resource
	resourcesOf        [][]int32  // by service: the resources in which its work counts
	apps               []appStats // by application
	admittedByDeadline []int32    // admitted open requests, in the order of their deadlines
	timeSums           []float64  // scratch
	sortedChains       []int64    // scratch
}

// resource is a set of devices, with the work that only these devices can do.
type resource struct {
	deviceIndexes []int32
	isMember      []bool  // by place: whether it belongs to the set
	taskTime      []int64 // by service: device time in ns of a task in a planned batch; 0 if others run it, too
	owedTime      int64   // device time in ns that admitted requests need
	freeTimesSum  int64   // scratch: sum of the times at which its devices become free
	lastFreeAt    int64   // scratch: the latest of these times
	liveDevices   int64   // scratch: number of devices that are up
}

// appStats holds the statistics that admission keeps of an application.
type appStats struct {
	timeAfter       []resourceMean // by token: device time of what followed it, by resource
	requestTime     resourceMean   // device time of a request, by resource
	chainTimes      []int64        // longest chains of task times of requests that ended lately
	chainCount      int            // number of chains seen so far
	chainQuantile   int64          // quantile of chainTimes: time that a request needs at the end
	backlogShare    float64        // part of the device time before a deadline that backlogs may fill
	endedRequests   float64        // requests that ended since the share was set
	lateRequests    float64        // those of them that were late
	refusedAny      bool           // a request was refused since the share was set
	shareHoldsUntil int64          // the share is not changed before then
	claim           rateClaim
}

// resourceMean is a weighted mean of device times, by resource.
type resourceMean struct {
	samples float64
	sums    []float64
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
	initialShare = .8
	minShare     = .05
	maxShare     = 2
	shareGrowth  = 1.03
	maxLateShare = .01
	// endsPerUpdate is the number of ended requests after which a share may change.
	endsPerUpdate = 100
)

// newAdmission returns admission for a cluster, when a policy is made. A resource is a set of devices with the work
// that no other device can do; admission keeps the owed work of each within its time. If the options do not ask for
// admission, it admits every request.
func newAdmission(c *cluster) *admission {
	g := &admission{cluster: c, registry: c.registry, tables: c.tables}
	if !c.options.Admit {
		return g
	}
	tables := c.tables

	// Resources are the sets of devices that run a service, and the unions of such sets.
	for service := range tables.services {
		contains := make([]bool, len(tables.planDevice))
		for deviceIndex := range tables.planDevice {
			contains[deviceIndex] = tables.canRun(int32(service), int32(deviceIndex))
		}
		g.addResource(contains)
	}
	// The list grows in the loop, so that unions are joined with others, too.
	for i := 0; i < len(g.resources); i++ {
		for k := range i {
			contains := slices.Clone(g.resources[i].isMember)
			for deviceIndex, isMember := range g.resources[k].isMember {
				contains[deviceIndex] = contains[deviceIndex] || isMember
			}
			g.addResource(contains)
		}
	}

	// The work of a service counts in every resource that holds all of the service's devices.
	g.resourcesOf = make([][]int32, len(tables.services))
	for r := range g.resources {
		resource := &g.resources[r]
		resource.taskTime = make([]int64, len(tables.services))
		for service := range tables.services {
			if resource.taskTime[service] = g.taskTimeOn(resource, int32(service)); resource.taskTime[service] > 0 {
				g.resourcesOf[service] = append(g.resourcesOf[service], int32(r))
			}
		}
	}
	g.apps, g.timeSums = make([]appStats, len(tables.planTables.Models)), make([]float64, len(g.resources))
	for i := range g.apps {
		app := &g.apps[i]
		app.backlogShare, app.claim = initialShare, newRateClaim(tables.planTables.Models[i].RPS)
	}
	return g
}

// addResource adds a set of devices as a resource, whose work admission limits. It does nothing if the set is empty
// or known, or if there are maxResources already, because each costs time at every arrival.
func (a *admission) addResource(contains []bool) {
	if len(a.resources) >= maxResources || slices.ContainsFunc(a.resources, func(set resource) bool { return slices.Equal(set.isMember, contains) }) {
		return
	}
	set := resource{isMember: contains}
	for deviceIndex, isMember := range contains {
		if isMember {
			set.deviceIndexes = append(set.deviceIndexes, int32(deviceIndex))
		}
	}
	if len(set.deviceIndexes) > 0 {
		a.resources = append(a.resources, set)
	}
}

// taskTimeOn returns the device time in ns that a task of a service takes of a resource (a set of devices), in
// planned batches, divided among its devices by their speed. If devices outside the resource run the service, too,
// it returns 0, because the work need not be done here.
func (a *admission) taskTimeOn(resource *resource, service int32) int64 {
	rate := 0.0
	for deviceIndex := range a.tables.planDevice {
		kindProfile := a.tables.profileOn(service, int32(deviceIndex))
		if kindProfile.batchTimes == nil {
			continue
		}
		if !resource.isMember[deviceIndex] {
			return 0
		}
		rate += float64(kindProfile.maxBatch) / float64(kindProfile.batchTimes[kindProfile.maxBatch-1])
	}
	if rate == 0 {
		return 0
	}
	return max(1, int64(float64(len(resource.deviceIndexes))/rate))
}

// admit decides at its arrival whether a request comes in, and adds it to the admitted requests. It needs time left
// on every resource (set of devices) that it will use, also for the requests with later deadlines. If it is
// refused, retryAt is when a request that arrives then is expected to fit.
func (a *admission) admit(now int64, requestNumber int32) (admitted bool, retryAt int64) {
	if !a.cluster.options.Admit {
		return true, 0
	}
	request := &a.registry.requests[requestNumber]
	app := &a.apps[request.app]
	request.owedTime = slices.Grow(request.owedTime[:0], len(a.resources))[:len(a.resources)]

	// Find the position by deadline.
	linePosition := len(a.admittedByDeadline)
	for linePosition > 0 && a.registry.requests[a.admittedByDeadline[linePosition-1]].deadline > request.deadline {
		linePosition--
	}

	// Every resource must have time left for it and for the requests behind it.
	for r := range a.resources {
		request.owedTime[r] = app.requestTime.meanOf(r)
		if delay := a.delayUntilFit(now, r, linePosition, request); delay > 0 {
			if retryAt < now+delay {
				retryAt, app.claim.scarceResource = now+delay, int32(r)
			}
			app.refusedAny, app.claim.scarceUntil = true, request.deadline
		}
	}
	if retryAt > 0 {
		return false, retryAt
	}

	// Applications that are short of a resource which it needs come first.
	// virtualLead is how far this application is ahead of its planned rate.
	if virtualLead := a.leadOverShortApps(now, request); virtualLead > 0 {
		return false, now + virtualLead
	}
	app.claim.virtualTime, app.claim.scarceResource = app.claim.virtualTime+app.claim.requestGap, -1
	a.addOwedTime(request, 1)
	a.admittedByDeadline = slices.Insert(a.admittedByDeadline, linePosition, requestNumber)
	request.admitted = true
	return true, 0
}

// delayUntilFit returns by how many ns later a resource would have time for a request at a position of the admitted
// ones, and for all requests behind it. If there is time now, it returns 0. A request that shares a resource with no
// other one always fits.
//
//	earlierOwed <= backlogShare · deviceTimeUntil(deadline - chainQuantile)      for each of these requests
func (a *admission) delayUntilFit(now int64, r, linePosition int, request *request) (delay int64) {
	resource := &a.resources[r]
	if request.owedTime[r] == 0 || resource.owedTime <= 0 {
		return 0
	}
	a.updateFreeTimes(now, resource)
	owed := resource.owedTime + request.owedTime[r]
	for i := len(a.admittedByDeadline); i >= linePosition; i-- {
		other := request
		if i > linePosition {
			other = &a.registry.requests[a.admittedByDeadline[i-1]]
		}
		app := &a.apps[other.app]
		if other.owedTime[r] == 0 { // it needs nothing here
			continue
		}
		earlierOwed := owed - other.owedTime[r]
		if excessTime := float64(earlierOwed) - app.backlogShare*float64(a.deviceTimeUntil(now, resource, other.deadline-app.chainQuantile)); earlierOwed > 0 && excessTime > 0 {
			delay = max(delay, 1, int64(excessTime/((1+app.backlogShare)*float64(max(1, resource.liveDevices)))))
		}
		if i > linePosition {
			owed -= other.owedTime[r]
		}
	}
	return delay
}

// updateFreeTimes computes when the devices of a resource (a set of devices) become free: their sum, the latest,
// and how many are up. deviceTimeUntil reads these.
func (a *admission) updateFreeTimes(now int64, resource *resource) {
	resource.freeTimesSum, resource.lastFreeAt, resource.liveDevices = 0, now, 0
	for _, deviceIndex := range resource.deviceIndexes {
		if freeAt := a.deviceFreeAt(now, deviceIndex); freeAt < farFuture {
			resource.freeTimesSum, resource.lastFreeAt, resource.liveDevices = resource.freeTimesSum+freeAt, max(resource.lastFreeAt, freeAt), resource.liveDevices+1
		}
	}
}

// deviceFreeAt returns when a device has finished what it runs. If the device is down, it returns farFuture.
// Running sequences of a language model count as if the device did what remains of them at its full batch, and
// nothing else. An idle device is free now.
func (a *admission) deviceFreeAt(now int64, deviceIndex int32) int64 {
	device := &a.cluster.devices[deviceIndex]
	switch {
	case device.isDown:
		return farFuture
	case !device.isBusy:
		return now
	case a.tables.isLanguageModel(device.runningService):
		freeAt, n := now, int32(len(device.runningTasks))
		kindProfile := a.tables.profileOn(device.runningService, deviceIndex)
		for _, taskID := range device.runningTasks {
			task := &a.registry.tasks[taskID]
			remainingPart := task.sequence.remainingPart - float64(now-device.progressCountedAt)/float64(a.tables.batchTime(task.service, deviceIndex, n, task.relativeWork))
			freeAt += int64(max(0, remainingPart) * float64(scaleTime(kindProfile.batchTimes[kindProfile.maxBatch-1], task.relativeWork)) / float64(kindProfile.maxBatch))
		}
		return freeAt
	}
	return max(now, device.batchEndsAt)
}

// deviceTimeUntil returns the device time in ns that a resource (a set of devices) offers from when each device is
// free up to a deadline. If all are free by then, a formula suffices.
func (a *admission) deviceTimeUntil(now int64, resource *resource, deadline int64) int64 {
	if deadline >= resource.lastFreeAt {
		return resource.liveDevices*deadline - resource.freeTimesSum
	}
	sum := int64(0)
	for _, deviceIndex := range resource.deviceIndexes {
		sum += max(0, deadline-a.deviceFreeAt(now, deviceIndex))
	}
	return sum
}

// updateOwedTime computes anew the device time that an admitted request owes each resource (set of devices), after
// a segment of it was revealed: that of its waiting tasks, and the mean of what followed its latest token (kind of
// task).
func (a *admission) updateOwedTime(request *request) {
	if !request.admitted {
		return
	}
	a.addOwedTime(request, -1)
	clear(request.owedTime)
	for _, taskID := range request.revealedTasks {
		if task := &a.registry.tasks[taskID]; task.progress == taskUnplaced || task.progress == taskQueued {
			for _, r := range a.resourcesOf[task.service] {
				request.owedTime[r] += scaleTime(a.resources[r].taskTime[task.service], task.relativeWork)
			}
		}
	}
	token := request.taskKinds[len(request.taskKinds)-1]
	if list := a.apps[request.app].timeAfter; int(token) < len(list) {
		for r := range request.owedTime {
			request.owedTime[r] += list[token].meanOf(r)
		}
	}
	a.addOwedTime(request, 1)
}

// addOwedTime adds the time that a request owes to the resources (sign 1), or subtracts it (-1).
func (a *admission) addOwedTime(request *request, sign int64) {
	for r, owedHere := range request.owedTime {
		a.resources[r].owedTime += sign * owedHere
	}
}

// settleOwedTime is called when a task of an admitted request starts: it subtracts the task's time from what the
// request owes its resources, sets of devices (sign 1). If the task waits again, the time is added back (-1).
func (a *admission) settleOwedTime(task *task, sign int64) {
	if task.requestNumber < 0 || !a.registry.requests[task.requestNumber].admitted {
		return
	}
	request := &a.registry.requests[task.requestNumber]
	for _, r := range a.resourcesOf[task.service] {
		w := sign * scaleTime(a.resources[r].taskTime[task.service], task.relativeWork)
		request.owedTime[r] -= w
		a.resources[r].owedTime -= w
	}
}

// recordAnswer removes a request that has been answered from the admitted ones, and learns from it: the device time
// that its tasks took, its longest chain of tasks, and whether it was late.
func (a *admission) recordAnswer(now int64, requestNumber int32) {
	request := &a.registry.requests[requestNumber]
	if !request.admitted {
		return
	}

	// The longest chain of task times, in planned batches.
	chain := int64(0)
	for _, taskID := range request.revealedTasks {
		task := &a.registry.tasks[taskID]
		task.earliestEnd = 0
		for _, input := range task.inputs {
			if input >= 0 {
				task.earliestEnd = max(task.earliestEnd, a.registry.tasks[input].earliestEnd)
			}
		}
		task.earliestEnd += a.plannedTaskTime(task.service, task.relativeWork)
		chain = max(chain, task.earliestEnd)
	}
	a.learnPath(request.app, request.taskKinds, chain, 1)
	a.removeRequest(requestNumber)
	a.adjustShare(now, request, now > request.deadline)
}

// removeRequest removes a request that has ended or was dropped from the admitted ones, with the device time that
// it still owed. The list is sorted by deadline; several requests may have the same one.
func (a *admission) removeRequest(requestNumber int32) {
	request := &a.registry.requests[requestNumber]
	if !request.admitted {
		return
	}
	a.addOwedTime(request, -1)
	request.admitted = false
	linePosition, _ := slices.BinarySearchFunc(a.admittedByDeadline, request.deadline, func(other int32, deadline int64) int {
		return int(max(-1, min(1, a.registry.requests[other].deadline-deadline)))
	})
	linePosition += slices.Index(a.admittedByDeadline[linePosition:], requestNumber)
	a.admittedByDeadline = slices.Delete(a.admittedByDeadline, linePosition, linePosition+1)
}

// adjustShare counts an admitted request that has ended, late or in time. After endsPerUpdate of them the share of
// its application grows if few were late and some were refused, and shrinks if many were late. The share is the
// part of the device time that admitted work may take. After a change it holds for one time budget, until its
// effect is seen.
func (a *admission) adjustShare(now int64, request *request, late bool) {
	app := &a.apps[request.app]
	if app.endedRequests++; late {
		app.lateRequests++
	}
	if app.endedRequests < endsPerUpdate || now < app.shareHoldsUntil {
		return
	}
	share := app.lateRequests / app.endedRequests
	switch {
	case share > maxLateShare:
		app.backlogShare = max(minShare, app.backlogShare*max(.7, 1-share))
	case app.refusedAny && share <= maxLateShare/2:
		app.backlogShare = min(maxShare, app.backlogShare*shareGrowth)
	}
	app.endedRequests, app.lateRequests, app.refusedAny, app.shareHoldsUntil = 0, 0, false, now+request.deadline-request.arrivedAt
}

// plannedTaskTime returns the time of a task in a full planned batch, on the first kind of device that runs it.
func (a *admission) plannedTaskTime(service int32, relativeWork int64) int64 {
	profile := &a.tables.services[service]
	i := slices.IndexFunc(profile.byKind, func(onKind kindProfile) bool { return onKind.batchTimes != nil })
	if i < 0 {
		return 0
	}
	return scaleTime(profile.byKind[i].batchTimes[profile.byKind[i].maxBatch-1], relativeWork)
}

// learnRecordedPath learns, before the first request, from a recorded path that a share of the requests took: the
// device time and the longest chain of its tasks. It counts as many samples as the share of half of the ring of
// chains, so that real requests soon outweigh it.
func (a *admission) learnRecordedPath(app int32, path []int32, recordedPath *flow.RecordedPath, requestShare float64) {
	endTimes, chain := make([]int64, len(recordedPath.Tasks)), int64(0)
	for i := range recordedPath.Tasks {
		t := &recordedPath.Tasks[i]
		for _, offset := range t.Reads {
			if offset > 0 && int(offset) <= i {
				endTimes[i] = max(endTimes[i], endTimes[i-int(offset)])
			}
		}
		endTimes[i] += a.plannedTaskTime(t.Service, workFromMillionths(t.Work))
		chain = max(chain, endTimes[i])
	}
	a.learnPath(app, path, chain, requestShare*maxChains/2)
}

// learnPath counts a path that `count` requests took: the device time after each of its tokens, and the longest
// chain of task times. A token is the number of a kind of task (service, work, inputs).
func (g *admission) learnPath(app int32, tokens []int32, chain int64, count float64) {
	a := &g.apps[app]
	clear(g.timeSums)
	for _, token := range slices.Backward(tokens) {
		for int(token) >= len(a.timeAfter) {
			a.timeAfter = append(a.timeAfter, resourceMean{})
		}
		a.timeAfter[token].addSamples(g.timeSums, count)
		t := g.predictions.Token(token)
		for _, r := range g.resourcesOf[t.Service] {
			g.timeSums[r] += float64(scaleTime(g.resources[r].taskTime[t.Service], workFromMillionths(t.Work)))
		}
	}

	// Keep the latest chains in a ring, and their quantile.
	a.requestTime.addSamples(g.timeSums, count)
	for range int(math.Ceil(count)) {
		if len(a.chainTimes) < maxChains {
			a.chainTimes = append(a.chainTimes, chain)
		} else {
			a.chainTimes[a.chainCount%maxChains] = chain
		}
		a.chainCount++
	}
	// Sorting takes time, so the quantile is updated every 16 chains once there are some.
	if a.chainCount%16 == 1 || a.chainCount < 16 || count > 1 {
		g.sortedChains = append(g.sortedChains[:0], a.chainTimes...)
		slices.Sort(g.sortedChains)
		a.chainQuantile = g.sortedChains[int(chainQuantileLevel*float64(len(g.sortedChains)))]
	}
}

// meanOf returns the mean for a resource. Without samples it returns 0.
func (m *resourceMean) meanOf(r int) int64 {
	if m.samples == 0 {
		return 0
	}
	return int64(m.sums[r] / m.samples)
}

// addSamples adds `count` samples of the same values, one value for each resource. Beyond maxSamples, older samples
// lose weight, so that the mean follows changes.
func (m *resourceMean) addSamples(x []float64, count float64) {
	if m.sums == nil {
		m.sums = make([]float64, len(x))
	}
	if m.samples+count > maxSamples {
		keptPart := max(0, maxSamples-count) / (m.samples + count)
		for r := range m.sums {
			m.sums[r] *= keptPart
		}
		m.samples *= keptPart
	}
	for r := range x {
		m.sums[r] += count * x[r]
	}
	m.samples += count
}
