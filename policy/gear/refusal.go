package gear

import (
	"time"

	"inferplan/policy"
)

// refusalRule decides at the arrival of a request whether it could be in time. Nothing else bounds the queues if
// more requests come than the fastest gear sustains.
//
// It keeps, by device, the work that the open requests still mean: of the model that each waits for, and of the
// models to which it may go on, as often as the plan's samples did; and until when the device's batches run. A new
// request is behind all of that on the replica that has least of it, and has its own way to go. If that takes
// longer than its deadline allows, it is refused at once, so that accepted requests are in time. A last model to
// which few requests go on does not count: the percentile allows for these.
type refusalRule struct {
	workRows       []float64       // work rows: by device, seconds that a request means and that have not begun
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

// noWorkRow is the row of requests that are not open: no work. Every stage has three further rows: of a request
// that waits, of the change when its batch is sent, and of a request in a batch. A request stores the start of its
// row.
const noWorkRow = int32(0)

// waitingRow returns the start of the row of a request that waits at a stage.
func (s *refusalRule) waitingRow(stage int32) int32 { return (3*stage + 1) * int32(len(s.pendingWork)) }

const (
	// Constants of the pace: the weight of a batch, and its bounds.
	paceWeight       = 1. / 64
	minPace, maxPace = .5, 4
)

// missWeight is the weight of an arrival in the share that would miss their deadline.
const missWeight = 1. / 128

// newRefusalRule computes, for every stage of every gear, its work rows and times. A work row has the seconds of
// work on every device that a request at this point still means: waiting, sent, or in a batch. A stage counts for
// the expected time if more requests reach it than the percentile of the SLO leaves out.
func newRefusalRule(p *Policy) *refusalRule {
	n, percentile := len(p.fleet.devices), p.fleet.tables.Models[0].Percentile
	s := &refusalRule{pace: 1, maxMissShare: 2 * (1 - percentile)}
	allRows := make([]float64, (3*len(p.stages)+2)*n)
	s.workRows, s.pendingWork = allRows[:len(allRows)-n], allRows[len(allRows)-n:]
	s.busyUntil, s.measuredStages = make([]time.Duration, n), make([]int32, 0, len(p.gears))
	gearTables, stageShares := TablesOf(p.fleet.tables), []float64(nil)
	for g := range p.gears {
		stageShares = gearTables.stageShares(&p.gears[g], stageShares[:0])
		path, measuredStages := 0.0, int32(0)
		for k := range p.gears[g].Stages {
			s.setWorkRows(p, p.firstStage[g], int32(k), stageShares)

			// Store the times of the stage, for one request and for a full batch.
			aloneTime, fullTime := p.stages[int(p.firstStage[g])+k].minTimes(p)
			s.fullBatchExtra, s.stageTime = append(s.fullBatchExtra, max(0, fullTime-aloneTime).Seconds()), append(s.stageTime, aloneTime.Seconds())
			if k == 0 || stageShares[k] > 1-percentile {
				path += aloneTime.Seconds()
				measuredStages++
			}
		}
		s.gearTime, s.measuredStages = append(s.gearTime, path), append(s.measuredStages, measuredStages)
	}
	return s
}

// setWorkRows computes the three work rows of the k-th stage of a gear: the seconds of work, by device, that a
// request still means when it waits there, what changes when it is sent, and what it means in a batch. stageShares
// has how often the plan's samples reach each stage.
func (s *refusalRule) setWorkRows(p *Policy, firstStage, k int32, stageShares []float64) {
	n, rows := len(s.pendingWork), s.workRows[s.waitingRow(firstStage+k):]
	waitingRow, sentRow, batchRow := rows[:n], rows[n:2*n], rows[2*n:3*n]

	// In a batch, a request means the work of later stages, as often as it reaches them. Waiting, it also means its
	// own.
	for j := k + 1; j < int32(len(stageShares)) && stageShares[k] > 0; j++ {
		p.stages[firstStage+j].addWork(p, batchRow, stageShares[j]/stageShares[k])
	}
	copy(waitingRow, batchRow)
	p.stages[firstStage+k].addWork(p, waitingRow, 1)
	for d := range sentRow {
		sentRow[d] = batchRow[d] - waitingRow[d]
	}
}

// stageShares returns the share of the plan's recorded samples that reach each stage (model) of a gear, because the
// answers before were not certain enough. `shares` is an empty list whose memory is used.
func (t *Tables) stageShares(g *Gear, shares []float64) []float64 {
	for range g.Stages {
		shares = append(shares, 0)
	}
	for i := range t.Records.Samples {
		for k := range g.Stages {
			shares[k]++
			if st := &g.Stages[k]; int32(t.Records.Levels[st.Pipeline][i]) >= st.ForwardBelow {
				break
			}
		}
	}
	for k := range shares {
		shares[k] /= float64(max(1, t.Records.Samples))
	}
	return shares
}

// addWork adds to `work`, by device, the seconds that a share of a request means at a stage: divided among the
// replicas by their weights, in batches of the planned size.
func (s *gearStage) addWork(p *Policy, work []float64, requestShare float64) {
	total := 0.0
	for _, w := range s.weights {
		total += w
	}
	for i, c := range s.chains {
		if total <= 0 {
			break
		}
		pl := &p.fleet.tables.Pipelines[p.fleet.chains[c].pipeline]
		for h, d := range p.fleet.devicesOf(c) {
			batchTime := meanTime(&p.fleet.tables.Stages[pl.FirstStage+int32(h)], int(pl.Batch))
			work[d] += requestShare * s.weights[i] / total * batchTime.Seconds() / float64(pl.Batch)
		}
	}
}

// minTimes returns the least time that a stage of a gear takes over its replicas, for one request alone and for a
// full batch.
func (s *gearStage) minTimes(p *Policy) (aloneTime, fullTime time.Duration) {
	aloneTime, fullTime = -1, -1
	for _, c := range s.chains {
		pl := &p.fleet.tables.Pipelines[p.fleet.chains[c].pipeline]
		chainAlone, chainFull := time.Duration(0), time.Duration(0)
		for h := range pl.NumStages {
			st := &p.fleet.tables.Stages[pl.FirstStage+h]
			chainAlone, chainFull = chainAlone+meanTime(st, 1), chainFull+meanTime(st, int(pl.Batch))
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

// expectedLateness returns by how much a request that comes under the gear in force would miss its deadline. While
// it is at one stage, the work ahead of it at the next goes on. The longer it waits at a stage, the more requests
// share its batch, up to a full one.
func (s *refusalRule) expectedLateness(p *Policy, now, deadline time.Duration) time.Duration {
	// Divide the work of lost devices among the others.
	lostWork := 0.0
	for d := range p.fleet.devices {
		if p.fleet.devices[d].isLost {
			lostWork += s.workAhead(int32(d), now)
		}
	}
	if alive := len(p.fleet.devices) - p.lostDevices; alive > 0 {
		lostWork /= float64(alive)
	}

	// Pass the stages that the percentile measures.
	endsAt, growth := 0.0, 0.0
	for k := range s.measuredStages[p.gear] {
		stage := p.firstStage[p.gear] + k
		wait := s.waitAtStage(p, &p.stages[stage], now) + lostWork
		endsAt = max(endsAt, wait/(1-reservedWaitShare)) + s.stageTime[stage]
		growth = max(growth, min(wait, s.fullBatchExtra[stage]))
	}
	return time.Duration(s.pace*(endsAt+growth)*1e9) - (deadline - now)
}

// waitAtStage returns the seconds that a request waits at a stage of the gear, on the replica where it is least. A
// device that runs a later part of the model may be busy until the request gets there, so the runs at earlier
// devices are subtracted.
func (s *refusalRule) waitAtStage(p *Policy, st *gearStage, now time.Duration) float64 {
	leastWait := -1.0
	for i, c := range st.chains {
		if st.weights[i] <= 0 || p.fleet.chains[c].lostDevices > 0 {
			continue
		}
		chainWait, earlierHops := 0.0, 0.0 // seconds: the wait on this chain, and the runs at its earlier devices
		firstStage := p.fleet.chains[c].firstStage
		for h, d := range p.fleet.devicesOf(c) {
			chainWait = max(chainWait, s.workAhead(d, now)-earlierHops)
			earlierHops += meanTime(&p.fleet.tables.Stages[firstStage+int32(h)], 1).Seconds()
		}
		if leastWait < 0 || chainWait < leastWait {
			leastWait = chainWait
		}
	}
	return max(leastWait, 0)
}

// workAhead returns the seconds of work that a device has before it: the rest of its running batch, and the work
// that open requests still mean for it.
func (s *refusalRule) workAhead(d int32, now time.Duration) float64 {
	if remainingRun := s.busyUntil[d] - now; remainingRun > 0 {
		return s.pendingWork[d] + remainingRun.Seconds()
	}
	return s.pendingWork[d]
}

// certainlyInTime reports, by a quick bound, whether a request is in time at whichever stage it waits: even with
// all the work of the busiest device before it. It may return false for a request that is in time by a little; then
// expectedLateness decides.
func (s *refusalRule) certainlyInTime(p *Policy, now, timeLeft time.Duration) bool {
	const roundingFactor = 1 + 1e-9 // covers rounding
	busiest := 0.0
	for d, w := range s.pendingWork {
		w *= 1e9
		if remainingRun := s.busyUntil[d] - now; remainingRun > 0 {
			w += float64(remainingRun)
		}
		if w > busiest {
			busiest = w
		}
	}
	return s.pace*(busiest*(roundingFactor/(1-reservedWaitShare)+roundingFactor)+1e9*s.gearTime[p.gear]*roundingFactor) < float64(timeLeft)
}

// shouldRefuse reports whether a request that comes now is refused, and by how much it would miss its deadline.
// The percentile allows for some that do: they are accepted while no more than twice as many of the last arrivals
// would miss theirs, so that nothing is refused at the rates that the plan promises.
func (s *refusalRule) shouldRefuse(p *Policy, now, deadline time.Duration) (lateness time.Duration, refused bool) {
	misses := 0.0
	if p.lostDevices > 0 || !s.certainlyInTime(p, now, deadline-now) {
		if lateness = s.expectedLateness(p, now, deadline); lateness > 0 {
			misses = 1
		}
	}
	s.missShare += missWeight * (misses - s.missShare)
	return lateness, lateness > 0 && s.isRefusing()
}

// isRefusing reports whether more of the last arrivals would miss their deadline than the percentile allows for.
func (s *refusalRule) isRefusing() bool { return s.missShare > s.maxMissShare }

// addWaiting adds the work that a request means, on every device, when it begins to wait at a stage. What it meant
// at its stage before is removed.
func (s *refusalRule) addWaiting(r *requestState, stage int32) {
	if r.workRow != noWorkRow {
		s.removeRequest(r)
	}
	n := len(s.pendingWork)
	r.workRow = s.waitingRow(stage)
	row := s.workRows[r.workRow : int(r.workRow)+n]
	for d := range s.pendingWork {
		s.pendingWork[d] += row[d]
	}
}

// removeRequest removes the work that a request still means from all devices, when it moves on or ends.
func (s *refusalRule) removeRequest(r *requestState) {
	n := len(s.pendingWork)
	row := s.workRows[r.workRow : int(r.workRow)+n]
	for d := range s.pendingWork {
		s.pendingWork[d] -= row[d]
	}
	r.workRow = noWorkRow
}

// clearRounding removes the remainders of rounding once no request is open.
func (s *refusalRule) clearRounding() { clear(s.pendingWork) }

// addBatch moves the work of a batch's requests, when the batch is sent, from the rows (work still to come) of
// waiting requests to those of requests in batches. Neighbours in the batch with the same row are moved together,
// which is most of them.
func (s *refusalRule) addBatch(requests []requestState, tasks []int32) {
	// Rows stand in threes: waiting, sent, in a batch. Two rows on is the batch's.
	rowStep := 2 * int32(len(s.pendingWork))
	row, firstOfRun := requests[tasks[0]].workRow, 0
	requests[tasks[0]].workRow += rowStep
	for i := 1; i < len(tasks); i++ {
		r := &requests[tasks[i]]
		if r.workRow != row {
			s.moveToBatch(row, float64(i-firstOfRun))
			row, firstOfRun = r.workRow, i
		}
		r.workRow += rowStep
	}
	s.moveToBatch(row, float64(len(tasks)-firstOfRun))
}

// moveToBatch applies the change of work of `count` requests with this row that are sent in a batch. The row of
// changes stands behind the row of waiting requests.
func (s *refusalRule) moveToBatch(row int32, count float64) {
	n := len(s.pendingWork)
	change := s.workRows[int(row)+n : int(row)+2*n]
	for d := range s.pendingWork {
		s.pendingWork[d] += count * change[d]
	}
}

// addRun adds a run on a device, behind everything that was sent there.
func (s *refusalRule) addRun(device int32, runStart, runEnd time.Duration) {
	s.busyUntil[device] = max(s.busyUntil[device], runStart) + runEnd - runStart
}

// observeRun updates the pace (measured time over planned time) by a batch that has ended. The means are of times,
// not of ratios, so long batches count more: the overhead around the runs of a small model is many times these, and
// says nothing of a large model.
func (s *refusalRule) observeRun(p *Policy, ev *policy.Event) {
	b := &p.fleet.batches[ev.Batch]
	if b.size == 0 {
		return
	}
	plannedTime := meanTime(&p.fleet.tables.Stages[p.fleet.chains[b.chain].firstStage+int32(ev.Hop)], int(b.size))
	elapsed := ev.End - ev.Start
	if elapsed <= 0 || plannedTime <= 0 {
		return
	}
	if s.meanPlanned == 0 {
		s.meanElapsed, s.meanPlanned = plannedTime.Seconds(), plannedTime.Seconds()
	}
	s.meanElapsed += paceWeight * (elapsed.Seconds() - s.meanElapsed)
	s.meanPlanned += paceWeight * (plannedTime.Seconds() - s.meanPlanned)
	s.pace = min(max(s.meanElapsed/s.meanPlanned, minPace), maxPace)
}

// meanTime returns how long a batch occupies a device: on average if the plan knows that, else at most.
func meanTime(st *policy.Stage, size int) time.Duration {
	if len(st.Mean) >= size {
		return st.Mean[size-1]
	}
	return st.Infer[size-1]
}
