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
	book               *taskTable
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
	places       []int32
	contains     []bool  // by place: whether it belongs to the set
	taskTime     []int64 // by service: device time in ns of a task in a planned batch; 0 if others run it, too
	owedTime     int64   // device time in ns that admitted requests need
	freeTimesSum int64   // scratch: sum of the times at which its devices become free
	lastFreeAt   int64   // scratch: the latest of these times
	liveDevices  int64   // scratch: number of devices that are up
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
	g := &admission{cluster: c, book: c.book, tables: c.tables}
	if !c.options.Admit {
		return g
	}
	f := c.tables

	// Resources are the sets of devices that run a service, and the unions of such sets.
	for s := range f.services {
		contains := make([]bool, len(f.deviceAt))
		for place := range f.deviceAt {
			contains[place] = f.canRun(int32(s), int32(place))
		}
		g.addResource(contains)
	}
	// The list grows in the loop, so that unions are joined with others, too.
	for i := 0; i < len(g.resources); i++ {
		for k := range i {
			contains := slices.Clone(g.resources[i].contains)
			for place, isMember := range g.resources[k].contains {
				contains[place] = contains[place] || isMember
			}
			g.addResource(contains)
		}
	}

	// The work of a service counts in every resource that holds all of the service's devices.
	g.resourcesOf = make([][]int32, len(f.services))
	for r := range g.resources {
		set := &g.resources[r]
		set.taskTime = make([]int64, len(f.services))
		for s := range f.services {
			if set.taskTime[s] = g.taskTimeOn(set, int32(s)); set.taskTime[s] > 0 {
				g.resourcesOf[s] = append(g.resourcesOf[s], int32(r))
			}
		}
	}
	g.apps, g.timeSums = make([]appStats, len(f.source.Models)), make([]float64, len(g.resources))
	for i := range g.apps {
		a := &g.apps[i]
		a.backlogShare, a.claim = initialShare, newRateClaim(f.source.Models[i].RPS)
	}
	return g
}

// addResource adds a set of devices as a resource, whose work admission limits. It does nothing if the set is empty
// or known, or if there are maxResources already, because each costs time at every arrival.
func (g *admission) addResource(contains []bool) {
	if len(g.resources) >= maxResources || slices.ContainsFunc(g.resources, func(set resource) bool { return slices.Equal(set.contains, contains) }) {
		return
	}
	set := resource{contains: contains}
	for place, isMember := range contains {
		if isMember {
			set.places = append(set.places, int32(place))
		}
	}
	if len(set.places) > 0 {
		g.resources = append(g.resources, set)
	}
}

// taskTimeOn returns the device time in ns that a task of a service takes of a resource (a set of devices), in
// planned batches, divided among its devices by their speed. If devices outside the resource run the service, too,
// it returns 0, because the work need not be done here.
func (g *admission) taskTimeOn(set *resource, s int32) int64 {
	rate := 0.0
	for place := range g.tables.deviceAt {
		onPlace := g.tables.serviceOn(s, int32(place))
		if onPlace.times == nil {
			continue
		}
		if !set.contains[place] {
			return 0
		}
		rate += float64(onPlace.maxBatch) / float64(onPlace.times[onPlace.maxBatch-1])
	}
	if rate == 0 {
		return 0
	}
	return max(1, int64(float64(len(set.places))/rate))
}

// admit decides at its arrival whether a request comes in, and adds it to the admitted requests. It needs time left
// on every resource (set of devices) that it will use, also for the requests with later deadlines. If it is
// refused, retryAt is when a request that arrives then is expected to fit.
func (g *admission) admit(now int64, req int32) (admitted bool, retryAt int64) {
	if !g.cluster.options.Admit {
		return true, 0
	}
	q := &g.book.requests[req]
	app := &g.apps[q.app]
	q.owedTime = slices.Grow(q.owedTime[:0], len(g.resources))[:len(g.resources)]

	// Find the position by deadline.
	linePosition := len(g.admittedByDeadline)
	for linePosition > 0 && g.book.requests[g.admittedByDeadline[linePosition-1]].deadline > q.deadline {
		linePosition--
	}

	// Every resource must have time left for it and for the requests behind it.
	for r := range g.resources {
		q.owedTime[r] = app.requestTime.meanOf(r)
		if delay := g.delayUntilFit(now, r, linePosition, q); delay > 0 {
			if retryAt < now+delay {
				retryAt, app.claim.scarceResource = now+delay, int32(r)
			}
			app.refusedAny, app.claim.scarceUntil = true, q.deadline
		}
	}
	if retryAt > 0 {
		return false, retryAt
	}

	// Applications that are short of a resource which it needs come first.
	// virtualLead is how far this application is ahead of its planned rate.
	if virtualLead := g.leadOverScarce(now, q); virtualLead > 0 {
		return false, now + virtualLead
	}
	app.claim.virtualTime, app.claim.scarceResource = app.claim.virtualTime+app.claim.requestGap, -1
	g.addOwedTime(q, 1)
	g.admittedByDeadline = slices.Insert(g.admittedByDeadline, linePosition, req)
	q.admitted = true
	return true, 0
}

// delayUntilFit returns by how many ns later a resource would have time for a request at a position of the admitted
// ones, and for all requests behind it. If there is time now, it returns 0. A request that shares a resource with no
// other one always fits.
//
//	earlierOwed <= backlogShare · deviceTimeUntil(deadline - chainQuantile)      for each of these requests
func (g *admission) delayUntilFit(now int64, r, linePosition int, q *request) (delay int64) {
	set := &g.resources[r]
	if q.owedTime[r] == 0 || set.owedTime <= 0 {
		return 0
	}
	g.updateFreeTimes(now, set)
	owed := set.owedTime + q.owedTime[r]
	for i := len(g.admittedByDeadline); i >= linePosition; i-- {
		other := q
		if i > linePosition {
			other = &g.book.requests[g.admittedByDeadline[i-1]]
		}
		app := &g.apps[other.app]
		if other.owedTime[r] == 0 { // it needs nothing here
			continue
		}
		earlierOwed := owed - other.owedTime[r]
		if excessTime := float64(earlierOwed) - app.backlogShare*float64(g.deviceTimeUntil(now, set, other.deadline-app.chainQuantile)); earlierOwed > 0 && excessTime > 0 {
			delay = max(delay, 1, int64(excessTime/((1+app.backlogShare)*float64(max(1, set.liveDevices)))))
		}
		if i > linePosition {
			owed -= other.owedTime[r]
		}
	}
	return delay
}

// updateFreeTimes computes when the devices of a resource (a set of devices) become free: their sum, the latest,
// and how many are up. deviceTimeUntil reads these.
func (g *admission) updateFreeTimes(now int64, set *resource) {
	set.freeTimesSum, set.lastFreeAt, set.liveDevices = 0, now, 0
	for _, place := range set.places {
		if freeAt := g.deviceFreeAt(now, place); freeAt < farFuture {
			set.freeTimesSum, set.lastFreeAt, set.liveDevices = set.freeTimesSum+freeAt, max(set.lastFreeAt, freeAt), set.liveDevices+1
		}
	}
}

// deviceFreeAt returns when a device has finished what it runs. If the device is down, it returns farFuture.
// Running sequences of a language model count as if the device did what remains of them at its full batch, and
// nothing else. An idle device is free now.
func (g *admission) deviceFreeAt(now int64, place int32) int64 {
	d := &g.cluster.devices[place]
	switch {
	case d.down:
		return farFuture
	case !d.busy:
		return now
	case g.tables.isLanguageModel(d.service):
		freeAt, n := now, int32(len(d.batch))
		onPlace := g.tables.serviceOn(d.service, place)
		for _, id := range d.batch {
			k := &g.book.tasks[id]
			remainingPart := k.sequence.remainingPart - float64(now-d.progressCountedAt)/float64(g.tables.batchTime(k.service, place, n, k.work))
			freeAt += int64(max(0, remainingPart) * float64(scaleTime(onPlace.times[onPlace.maxBatch-1], k.work)) / float64(onPlace.maxBatch))
		}
		return freeAt
	}
	return max(now, d.batchEndsAt)
}

// deviceTimeUntil returns the device time in ns that a resource (a set of devices) offers from when each device is
// free up to a deadline. If all are free by then, a formula suffices.
func (g *admission) deviceTimeUntil(now int64, set *resource, deadline int64) int64 {
	if deadline >= set.lastFreeAt {
		return set.liveDevices*deadline - set.freeTimesSum
	}
	sum := int64(0)
	for _, place := range set.places {
		sum += max(0, deadline-g.deviceFreeAt(now, place))
	}
	return sum
}

// updateOwedTime computes anew the device time that an admitted request owes each resource (set of devices), after
// a segment of it was revealed: that of its waiting tasks, and the mean of what followed its latest token (kind of
// task).
func (g *admission) updateOwedTime(q *request) {
	if !q.admitted {
		return
	}
	g.addOwedTime(q, -1)
	clear(q.owedTime)
	for _, id := range q.revealedTasks {
		if k := &g.book.tasks[id]; k.state == taskUnplaced || k.state == taskQueued {
			for _, r := range g.resourcesOf[k.service] {
				q.owedTime[r] += scaleTime(g.resources[r].taskTime[k.service], k.work)
			}
		}
	}
	token := q.tokens[len(q.tokens)-1]
	if list := g.apps[q.app].timeAfter; int(token) < len(list) {
		for r := range q.owedTime {
			q.owedTime[r] += list[token].meanOf(r)
		}
	}
	g.addOwedTime(q, 1)
}

// addOwedTime adds the time that a request owes to the resources (sign 1), or subtracts it (-1).
func (g *admission) addOwedTime(q *request, sign int64) {
	for r, owedHere := range q.owedTime {
		g.resources[r].owedTime += sign * owedHere
	}
}

// settleOwedTime is called when a task of an admitted request starts: it subtracts the task's time from what the
// request owes its resources, sets of devices (sign 1). If the task waits again, the time is added back (-1).
func (g *admission) settleOwedTime(k *task, sign int64) {
	if k.req < 0 || !g.book.requests[k.req].admitted {
		return
	}
	q := &g.book.requests[k.req]
	for _, r := range g.resourcesOf[k.service] {
		w := sign * scaleTime(g.resources[r].taskTime[k.service], k.work)
		q.owedTime[r] -= w
		g.resources[r].owedTime -= w
	}
}

// recordAnswer removes a request that has been answered from the admitted ones, and learns from it: the device time
// that its tasks took, its longest chain of tasks, and whether it was late.
func (g *admission) recordAnswer(now int64, req int32) {
	q := &g.book.requests[req]
	if !q.admitted {
		return
	}

	// The longest chain of task times, in planned batches.
	chain := int64(0)
	for _, id := range q.revealedTasks {
		k := &g.book.tasks[id]
		k.earliestEnd = 0
		for _, in := range k.inputs {
			if in >= 0 {
				k.earliestEnd = max(k.earliestEnd, g.book.tasks[in].earliestEnd)
			}
		}
		k.earliestEnd += g.plannedTaskTime(k.service, k.work)
		chain = max(chain, k.earliestEnd)
	}
	g.learnTokens(q.app, q.tokens, chain, 1)
	g.removeRequest(req)
	g.adjustShare(now, q, now > q.deadline)
}

// removeRequest removes a request that has ended or was dropped from the admitted ones, with the device time that
// it still owed. The list is sorted by deadline; several requests may have the same one.
func (g *admission) removeRequest(req int32) {
	q := &g.book.requests[req]
	if !q.admitted {
		return
	}
	g.addOwedTime(q, -1)
	q.admitted = false
	linePosition, _ := slices.BinarySearchFunc(g.admittedByDeadline, q.deadline, func(other int32, deadline int64) int {
		return int(max(-1, min(1, g.book.requests[other].deadline-deadline)))
	})
	linePosition += slices.Index(g.admittedByDeadline[linePosition:], req)
	g.admittedByDeadline = slices.Delete(g.admittedByDeadline, linePosition, linePosition+1)
}

// adjustShare counts an admitted request that has ended, late or in time. After endsPerUpdate of them the share of
// its application grows if few were late and some were refused, and shrinks if many were late. The share is the
// part of the device time that admitted work may take. After a change it holds for one time budget, until its
// effect is seen.
func (g *admission) adjustShare(now int64, q *request, late bool) {
	a := &g.apps[q.app]
	if a.endedRequests++; late {
		a.lateRequests++
	}
	if a.endedRequests < endsPerUpdate || now < a.shareHoldsUntil {
		return
	}
	share := a.lateRequests / a.endedRequests
	switch {
	case share > maxLateShare:
		a.backlogShare = max(minShare, a.backlogShare*max(.7, 1-share))
	case a.refusedAny && share <= maxLateShare/2:
		a.backlogShare = min(maxShare, a.backlogShare*shareGrowth)
	}
	a.endedRequests, a.lateRequests, a.refusedAny, a.shareHoldsUntil = 0, 0, false, now+q.deadline-q.arrivedAt
}

// plannedTaskTime returns the time of a task in a full planned batch, on the first kind of device that runs it.
func (g *admission) plannedTaskTime(s int32, work int64) int64 {
	sv := &g.tables.services[s]
	i := slices.IndexFunc(sv.onKinds, func(onKind kindTimes) bool { return onKind.times != nil })
	if i < 0 {
		return 0
	}
	return scaleTime(sv.onKinds[i].times[sv.onKinds[i].maxBatch-1], work)
}

// learnRecordedPath learns, before the first request, from a recorded path that a share of the requests took: the
// device time and the longest chain of its tasks. It counts as many samples as the share of half of the ring of
// chains, so that real requests soon outweigh it.
func (g *admission) learnRecordedPath(app int32, path []int32, recordedPath *flow.RecordedPath, requestShare float64) {
	endTimes, chain := make([]int64, len(recordedPath.Tasks)), int64(0)
	for i := range recordedPath.Tasks {
		t := &recordedPath.Tasks[i]
		for _, offset := range t.Reads {
			if offset > 0 && int(offset) <= i {
				endTimes[i] = max(endTimes[i], endTimes[i-int(offset)])
			}
		}
		endTimes[i] += g.plannedTaskTime(t.Service, workFromMillionths(t.Work))
		chain = max(chain, endTimes[i])
	}
	g.learnTokens(app, path, chain, requestShare*maxChains/2)
}

// learnTokens counts a path that `count` requests took: the device time after each of its tokens, and the longest
// chain of task times. A token is the number of a kind of task (service, work, inputs).
func (g *admission) learnTokens(app int32, tokens []int32, chain int64, count float64) {
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
