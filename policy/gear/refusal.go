package gear

import (
	"time"

	"inferplan/policy"
)

// refusalRule decides at the arrival of a request whether it could be in time. Nothing else bounds the queues if
// more requests come than the fastest gear sustains.
//
// It keeps, by device, the work that the open requests are expected to cause: at the model that each waits for, and at
// the models to which it may go on, as often as the plan's samples did; and until when the device's batches run. A new
// request is behind all of that on the replica that has least of it, and has its own way to go. If that takes
// longer than its deadline allows, it is refused at once, so that accepted requests are in time. A last model to
// which few requests go on does not count: the percentile allows for these.
type refusalRule struct {
	workRows       []float64       // work rows: by device, expected seconds of a request's work that has not begun
	stageTime      []float64       // by stage, seconds: time of a request with nothing ahead of it
	gearTime       []float64       // by gear, seconds: sum of stageTime over the stages that the percentile measures
	fullBatchExtra []float64       // by stage, seconds: how much longer a full batch takes than a request alone
	measuredStages []int32         // by gear: number of stages that the percentile measures
	pendingWork    []float64       // by device, seconds of work that has not begun
	busyUntil      []time.Duration // by device: end of its batches
	pace           float64         // actual times of batches relative to planned ones
	meanElapsed    float64         // seconds, mean of the last batches
	meanPlanned    float64         // seconds, planned mean of the same batches
	missShare      float64         // share of the last arrivals that would miss their deadline
	maxMissShare   float64         // share above which requests are refused
}

// noWorkRow is the start, in workRows, of the row of requests that are not open: no work. Every stage of every gear has
// three further rows, one behind the other: of a request that waits, of the change when its batch is sent, and of a
// request in a batch. A request stores the start of its row.
const noWorkRow = int32(0)

// waitingRowStart returns the start, in workRows, of the row of a request that waits at a stage (an index in
// Policy.gearStages).
func (s *refusalRule) waitingRowStart(stage int32) int32 {
	return (3*stage + 1) * int32(len(s.pendingWork))
}

// rowAt returns the work row that starts there in workRows: the seconds of work by device.
func (s *refusalRule) rowAt(rowStart int32) []float64 {
	return s.workRows[rowStart : int(rowStart)+len(s.pendingWork)]
}

const (
	// Constants of the pace: the weight of a batch, and its bounds.
	paceWeight       = 1. / 64
	minPace, maxPace = .5, 4
)

// missWeight is the weight of an arrival in the share that would miss their deadline.
const missWeight = 1. / 128

// newRefusalRule returns the rule by which late requests are refused, with no open requests. For every stage of every
// gear (a model of its cascade) it computes the work rows, which say how much work on every device a request there is
// expected to cause, and the times of a batch of one and of a full batch. gearTime adds up the times of the stages that
// the percentile of the SLO measures: the first stage, and every one that more requests reach than the percentile
// leaves out.
func newRefusalRule(gearPolicy *Policy) *refusalRule {
	devices, percentile := len(gearPolicy.fleet.devices), gearPolicy.fleet.tables.Models[0].Percentile

	// The pace, the measured times of batches over the planned ones, begins at 1. The rule may let through twice as many late
	// requests as the percentile allows for.
	rule := &refusalRule{pace: 1, maxMissShare: 2 * (1 - percentile)}

	// Make the arrays, in one piece of memory: a row without work, three rows for each stage (of a request that waits, of
	// the change when its batch is sent, and of a request in a batch), and pendingWork behind them, which is as long as a
	// row.
	allRows := make([]float64, (3*len(gearPolicy.gearStages)+2)*devices)
	rule.workRows, rule.pendingWork = allRows[:len(allRows)-devices], allRows[len(allRows)-devices:]
	rule.busyUntil, rule.measuredStages = make([]time.Duration, devices), make([]int32, 0, len(gearPolicy.gears))

	// Compute the rows and times of each gear's stages.
	gearTables, stageShares := TablesOf(gearPolicy.fleet.tables), []float64(nil)
	for gearIndex := range gearPolicy.gears {
		stageShares = gearTables.stageShares(&gearPolicy.gears[gearIndex], stageShares[:0])
		gearTime, measuredStages := 0.0, int32(0)
		firstStage := gearPolicy.firstStage[gearIndex] // index of the gear's first stage among those of all gears
		for stageIndex := range gearPolicy.gears[gearIndex].Stages {
			rule.setWorkRows(gearPolicy, firstStage, int32(stageIndex), stageShares)

			// Store the times of the stage, for one request and for a full batch.
			aloneTime, fullTime := gearPolicy.gearStages[int(firstStage)+stageIndex].minTimes(gearPolicy)
			rule.stageTime = append(rule.stageTime, aloneTime.Seconds())
			rule.fullBatchExtra = append(rule.fullBatchExtra, max(0, fullTime-aloneTime).Seconds())
			if stageIndex == 0 || stageShares[stageIndex] > 1-percentile {
				gearTime += aloneTime.Seconds()
				measuredStages++
			}
		}
		rule.gearTime = append(rule.gearTime, gearTime)
		rule.measuredStages = append(rule.measuredStages, measuredStages)
	}
	return rule
}

// setWorkRows is called when the rule is made, for each stage of each gear (a cascade of models). firstStage is the index
// of the gear's first stage in Policy.gearStages, and stageIndex counts from there. It computes the three work rows of
// the stage: the seconds of work, by device, that a request is expected to cause from then on when it waits there, how
// these change when its batch is sent, and those when it is in a batch. stageShares has, by stage of this gear, the share
// of the plan's samples that reach it.
func (s *refusalRule) setWorkRows(gearPolicy *Policy, firstStage, stageIndex int32, stageShares []float64) {
	devices, rowStart := int32(len(s.pendingWork)), s.waitingRowStart(firstStage+stageIndex)
	waitingRow, sentRow, batchRow := s.rowAt(rowStart), s.rowAt(rowStart+devices), s.rowAt(rowStart+2*devices)

	// The batch that runs now is counted by busyUntil. So a request in it adds the work of later stages only, each with the
	// probability that a request of this stage goes on so far.
	for laterStage := stageIndex + 1; laterStage < int32(len(stageShares)) && stageShares[stageIndex] > 0; laterStage++ {
		reachProbability := stageShares[laterStage] / stageShares[stageIndex]
		gearPolicy.gearStages[firstStage+laterStage].addExpectedWork(gearPolicy, batchRow, reachProbability)
	}

	// A request that waits adds the work of this stage, too, which it surely causes.
	copy(waitingRow, batchRow)
	gearPolicy.gearStages[firstStage+stageIndex].addExpectedWork(gearPolicy, waitingRow, 1)
	for device := range sentRow {
		sentRow[device] = batchRow[device] - waitingRow[device]
	}
}

// stageShares returns the share of the plan's recorded samples that reach each stage (model) of a gear, because the
// answers before were not certain enough. `shares` is an empty list whose memory is used.
func (tables *Tables) stageShares(gear *Gear, shares []float64) []float64 {
	for range gear.Stages {
		shares = append(shares, 0)
	}
	for sample := range tables.Records.Samples {
		for stageIndex := range gear.Stages {
			shares[stageIndex]++
			if stage := &gear.Stages[stageIndex]; int32(tables.Records.Levels[stage.Pipeline][sample]) >= stage.ForwardBelow {
				break
			}
		}
	}
	for stageIndex := range shares {
		shares[stageIndex] /= float64(max(1, tables.Records.Samples))
	}
	return shares
}

// addExpectedWork adds to `work`, by device, the expected seconds of work that a request causes at a stage of a gear
// which it reaches with the given probability: divided among the replicas by their weights, and among the requests of
// a batch of the planned size.
func (s *gearStage) addExpectedWork(gearPolicy *Policy, work []float64, reachProbability float64) {
	totalWeight := 0.0
	for _, weight := range s.weights {
		totalWeight += weight
	}
	if totalWeight <= 0 {
		return
	}
	for replica, chain := range s.chains {
		pipeline := &gearPolicy.fleet.tables.Pipelines[gearPolicy.fleet.chains[chain].pipeline]
		for hop, device := range gearPolicy.fleet.devicesOf(chain) {
			batchTime := meanTime(&gearPolicy.fleet.tables.Stages[pipeline.FirstStage+int32(hop)], int(pipeline.Batch))
			work[device] += reachProbability * s.weights[replica] / totalWeight * batchTime.Seconds() / float64(pipeline.Batch)
		}
	}
}

// minTimes returns the least time that a stage of a gear takes on any of its replicas, for one request alone and for a
// full batch. Without replicas both are 0.
func (s *gearStage) minTimes(gearPolicy *Policy) (aloneTime, fullTime time.Duration) {
	aloneTime, fullTime = -1, -1
	for _, chain := range s.chains {
		pipeline := &gearPolicy.fleet.tables.Pipelines[gearPolicy.fleet.chains[chain].pipeline]

		// Sum the times of the chain's stages.
		chainAlone, chainFull := time.Duration(0), time.Duration(0)
		for hop := range pipeline.NumStages {
			stage := &gearPolicy.fleet.tables.Stages[pipeline.FirstStage+hop]
			chainAlone += meanTime(stage, 1)
			chainFull += meanTime(stage, int(pipeline.Batch))
		}
		if aloneTime < 0 || chainAlone < aloneTime {
			aloneTime = chainAlone
		}
		if fullTime < 0 || chainFull < fullTime {
			fullTime = chainFull
		}
	}
	return max(aloneTime, 0), max(fullTime, 0)
}

// reservedWaitShare is the part of the waiting time that is kept in reserve: others may be served ahead of a
// request, and batches may take longer than planned.
const reservedWaitShare = .1

// expectedLateness returns by how much a request that comes under the gear in force would miss its deadline; negative
// if it would be in time. It is called at an arrival, unless isSurelyInTime has the answer. The expected time is that
// of the stages that the percentile of the SLO measures (measuredStages: so many requests reach them that the
// percentile does not leave these out). It is multiplied by the pace, the measured times of batches over the planned
// ones.
func (s *refusalRule) expectedLateness(gearPolicy *Policy, now, deadline time.Duration) time.Duration {
	// Divide the work of lost devices among the others.
	lostWork := 0.0
	for device := range gearPolicy.fleet.devices {
		if gearPolicy.fleet.devices[device].isLost {
			lostWork += s.workAhead(int32(device), now)
		}
	}
	if alive := len(gearPolicy.fleet.devices) - gearPolicy.lostDevices; alive > 0 {
		lostWork /= float64(alive)
	}

	// Follow the request, in seconds from now, through these stages. The devices of a stage work on what is ahead of the
	// request while it is at the stage before. So it starts when it has left that stage and the work ahead is done,
	// whichever is later. That work may take longer than expected: a tenth of the wait is reserved for that
	// (reservedWaitShare).
	//
	// The longer the request waits at a stage, the more requests share its batch, up to a full one. batchGrowth is how
	// much longer its fullest batch takes than one of it alone: at most as long as the wait in which the batch filled, and
	// at most fullBatchExtra.
	leavesAt, batchGrowth := 0.0, 0.0
	for stageIndex := range s.measuredStages[gearPolicy.gear] {
		stage := gearPolicy.firstStage[gearPolicy.gear] + stageIndex
		wait := s.waitAtStage(gearPolicy, &gearPolicy.gearStages[stage], now) + lostWork
		leavesAt = max(leavesAt, wait/(1-reservedWaitShare)) + s.stageTime[stage]
		batchGrowth = max(batchGrowth, min(wait, s.fullBatchExtra[stage]))
	}
	return time.Duration(s.pace*(leavesAt+batchGrowth)*1e9) - (deadline - now)
}

// waitAtStage returns the seconds that a request waits at a stage of a gear, on the replica where it is least. A
// device that runs a later part of the model may be busy until the request gets there, so the runs at earlier devices
// are subtracted.
func (s *refusalRule) waitAtStage(gearPolicy *Policy, stage *gearStage, now time.Duration) float64 {
	leastWait := -1.0
	for replica, chain := range stage.chains {
		if stage.weights[replica] <= 0 || gearPolicy.fleet.chains[chain].lostDevices > 0 {
			continue
		}

		// Find the longest wait on this chain: the work of each device, less the time until the request gets there.
		chainWait, earlierHops := 0.0, 0.0 // seconds: the wait on this chain, and the runs at its earlier devices
		firstStage := gearPolicy.fleet.chains[chain].firstStage
		for hop, device := range gearPolicy.fleet.devicesOf(chain) {
			chainWait = max(chainWait, s.workAhead(device, now)-earlierHops)
			earlierHops += meanTime(&gearPolicy.fleet.tables.Stages[firstStage+int32(hop)], 1).Seconds()
		}
		if leastWait < 0 || chainWait < leastWait {
			leastWait = chainWait
		}
	}
	return max(leastWait, 0)
}

// workAhead returns the seconds of work that a device has before it: the rest of its running batches, and the work
// that open requests are expected to cause on it.
func (s *refusalRule) workAhead(device int32, now time.Duration) float64 {
	if remainingRun := s.busyUntil[device] - now; remainingRun > 0 {
		return s.pendingWork[device] + remainingRun.Seconds()
	}
	return s.pendingWork[device]
}

// isSurelyInTime reports, by a quick bound, whether a request with so much time left is in time at whichever stage it
// waits: even with all the work of the busiest device before it. It may return false for a request that is in time by
// a little; then expectedLateness decides.
func (s *refusalRule) isSurelyInTime(gearPolicy *Policy, now, timeLeft time.Duration) bool {
	const roundingFactor = 1 + 1e-9 // covers rounding
	busiest := 0.0                  // nanoseconds of work of the busiest device
	for device, work := range s.pendingWork {
		work *= 1e9 // from seconds
		if remainingRun := s.busyUntil[device] - now; remainingRun > 0 {
			work += float64(remainingRun)
		}
		if work > busiest {
			busiest = work
		}
	}

	// The bound follows expectedLateness. No wait there is longer than the work of the busiest device. Work at one stage
	// goes on while the request is at another, so the waits are not added up: the longest counts once, divided by 1 -
	// reservedWaitShare. The growth of its batch is at most that wait, so it counts once more. Then come the runs of the
	// request itself (gearTime), and the pace (measured times over planned ones) multiplies all.
	const waitAndGrowth = roundingFactor/(1-reservedWaitShare) + roundingFactor
	return s.pace*(busiest*waitAndGrowth+1e9*s.gearTime[gearPolicy.gear]*roundingFactor) < float64(timeLeft)
}

// shouldRefuse is called for each request that arrives. It returns by how much the request would miss its deadline, and
// whether it is refused. It counts the request in missShare, the moving share of the arrivals that would miss their
// deadline. The percentile of the SLO allows for some of these: they are accepted while their share is at most twice as
// large as it allows (maxMissShare), so that nothing is refused at the rates that the plan promises.
func (s *refusalRule) shouldRefuse(gearPolicy *Policy, now, deadline time.Duration) (lateness time.Duration, refused bool) {
	// The quick bound holds only while no device is lost, because the work of lost devices moves to others.
	misses := 0.0
	if gearPolicy.lostDevices > 0 || !s.isSurelyInTime(gearPolicy, now, deadline-now) {
		lateness = s.expectedLateness(gearPolicy, now, deadline)
		if lateness > 0 {
			misses = 1
		}
	}
	s.missShare += missWeight * (misses - s.missShare)
	return lateness, lateness > 0 && s.isRefusing()
}

// isRefusing reports whether more of the last arrivals would miss their deadline than the percentile allows for.
func (s *refusalRule) isRefusing() bool { return s.missShare > s.maxMissShare }

// addWaiting is called when a request begins to wait at a stage (an index in Policy.gearStages). It adds the work that
// the request is expected to cause from there on to pendingWork, in place of what it had added at its stage before.
func (s *refusalRule) addWaiting(request *requestState, stage int32) {
	if request.workRow != noWorkRow {
		s.removeRequest(request)
	}
	request.workRow = s.waitingRowStart(stage)
	row := s.rowAt(request.workRow)
	for device := range s.pendingWork {
		s.pendingWork[device] += row[device]
	}
}

// removeRequest removes the work that a request is still expected to cause from pendingWork, when it moves on or ends.
func (s *refusalRule) removeRequest(request *requestState) {
	row := s.rowAt(request.workRow)
	for device := range s.pendingWork {
		s.pendingWork[device] -= row[device]
	}
	request.workRow = noWorkRow
}

// clearRounding sets the pending work of all devices to 0, once no request is open: what is left is rounding.
func (s *refusalRule) clearRounding() { clear(s.pendingWork) }

// addBatch is called when a batch is sent. It changes the work that its requests (tasks: their slots) add to pendingWork
// from that of waiting requests to that of requests in batches, and moves each request on to the row of the latter.
// Neighbours in the batch with the same row are counted together, which is most of them.
func (s *refusalRule) addBatch(requests []requestState, tasks []int32) {
	// The rows of a stage stand in threes: waiting, sent, in a batch. So the row in a batch is two rows on.
	rowStep := 2 * int32(len(s.pendingWork))

	// Count the requests of each run of neighbours with the same row; firstOfRun is the position of its first.
	row, firstOfRun := requests[tasks[0]].workRow, 0
	requests[tasks[0]].workRow += rowStep
	for i := 1; i < len(tasks); i++ {
		request := &requests[tasks[i]]
		if request.workRow != row {
			s.moveToBatch(row, float64(i-firstOfRun))
			row, firstOfRun = request.workRow, i
		}
		request.workRow += rowStep
	}
	s.moveToBatch(row, float64(len(tasks)-firstOfRun))
}

// moveToBatch changes the pending work of the devices for `count` requests that waited at the same stage and are sent
// in a batch: their work there is no longer pending. waitingRow is where their work row starts in workRows.
func (s *refusalRule) moveToBatch(waitingRow int32, count float64) {
	change := s.rowAt(waitingRow + int32(len(s.pendingWork))) // the row of changes is the next one
	for device := range s.pendingWork {
		s.pendingWork[device] += count * change[device]
	}
}

// addRun is called when a batch is sent, for each of its hops. It adds the planned run to a device, behind everything
// that was sent there: the device is busy for as long as the run takes.
func (s *refusalRule) addRun(device int32, runStart, runEnd time.Duration) {
	s.busyUntil[device] = max(s.busyUntil[device], runStart) + runEnd - runStart
}

// observeRun is called for the event BatchFinished. It updates the pace, measured time over planned time, by a run that
// has ended. The means are of times, not of ratios, so that long batches count more: with a small model the overhead
// around a run is many times the run itself, and says nothing of a large model.
func (s *refusalRule) observeRun(gearPolicy *Policy, ev *policy.Event) {
	batch := &gearPolicy.fleet.batches[ev.Batch]
	if batch.size == 0 {
		return
	}
	plannedTime := meanTime(&gearPolicy.fleet.tables.Stages[gearPolicy.fleet.chains[batch.chain].firstStage+int32(ev.Hop)], int(batch.size))
	elapsed := ev.End - ev.Start
	if elapsed <= 0 || plannedTime <= 0 {
		return
	}
	if s.meanPlanned == 0 { // the first run: start from a pace of 1
		s.meanElapsed, s.meanPlanned = plannedTime.Seconds(), plannedTime.Seconds()
	}
	s.meanElapsed += paceWeight * (elapsed.Seconds() - s.meanElapsed)
	s.meanPlanned += paceWeight * (plannedTime.Seconds() - s.meanPlanned)
	s.pace = min(max(s.meanElapsed/s.meanPlanned, minPace), maxPace)
}

// meanTime returns how long a batch of a size occupies a device at a stage: on average if the plan knows that, else at most.
func meanTime(stage *policy.Stage, size int) time.Duration {
	if len(stage.Mean) >= size {
		return stage.Mean[size-1]
	}
	return stage.Infer[size-1]
}
