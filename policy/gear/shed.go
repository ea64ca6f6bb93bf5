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
type shedder struct {
	work        []float64       // work rows: by device, seconds that a request means and that have not begun
	stageTime   []float64       // by stage, seconds: time of a request with nothing ahead of it
	gearTime    []float64       // by gear, seconds: sum of stageTime over the stages that the percentile measures
	growth      []float64       // by stage, seconds: how much longer a full batch takes than a request alone
	count       []int32         // by gear: number of stages that the percentile measures
	waiting     []float64       // by device, seconds of work that has not begun
	busy        []time.Duration // by device: end of its batches
	pace        float64         // actual times of batches relative to planned ones
	meanTook    float64         // seconds, mean of the last batches
	meanPlanned float64         // seconds, planned mean of the same batches
	missing     float64         // share of the last arrivals that would miss their deadline
	most        float64         // share above which requests are refused
}

// noWorkRow is the row of requests that are not open: no work. Every stage has three further rows: of a request
// that waits, of the change when its batch is sent, and of a request in a batch. A request stores the start of its
// row.
const away = int32(0)

// waitingRow returns the start of the row of a request that waits at a stage.
func (s *shedder) waits(stage int32) int32 { return (3*stage + 1) * int32(len(s.waiting)) }

const (
	// Constants of the pace: the weight of a batch, and its bounds.
	paceStep            = 1. / 64
	leastPace, mostPace = .5, 4
)

// missWeight is the weight of an arrival in the share that would miss their deadline.
const missStep = 1. / 128

// newRefusalRule computes the work rows of every stage of every gear.
func newShedder(p *Policy) *shedder {
	n := len(p.devices)
	s := &shedder{pace: 1, most: 2 * (1 - p.t.Models[0].Percentile)}
	all := make([]float64, (3*len(p.stages)+2)*n)
	s.work, s.waiting = all[:len(all)-n], all[len(all)-n:]
	s.busy, s.count = make([]time.Duration, n), make([]int32, 0, len(p.gears))
	own, shares := Of(p.t), []float64(nil)

	// stageShares has how often the plan's samples reach each stage.
	for g := range p.gears {
		reach := own.reach(&p.gears[g], shares[:0])
		shares = reach
		path, count := 0.0, int32(0)
		for k := range p.gears[g].Stages {
			rows := s.work[s.waits(p.first[g]+int32(k)):]
			here, less, next := rows[:n], rows[n:2*n], rows[2*n:3*n]

			// In a batch, a request means the work of later stages, as often as it reaches them. Waiting, it also
			// means its own.
			for j := k + 1; j < len(reach); j++ {
				if reach[k] > 0 {
					p.stages[int(p.first[g])+j].addWork(p, next, reach[j]/reach[k])
				}
			}
			copy(here, next)
			p.stages[int(p.first[g])+k].addWork(p, here, 1)
			for d := range less {
				less[d] = next[d] - here[d]
			}

			// Store the times of the stage, for one request and for a full batch.
			one, full := p.stages[int(p.first[g])+k].soonest(p)
			s.growth, s.stageTime = append(s.growth, max(0, full-one).Seconds()), append(s.stageTime, one.Seconds())
			if k == 0 || reach[k] > 1-p.t.Models[0].Percentile {
				path += one.Seconds()
				count++
			}
		}
		s.gearTime, s.count = append(s.gearTime, path), append(s.count, count)
	}
	return s
}

// stageShares returns the share of the samples that reach each stage of a gear, in the memory of an empty list.
func (t *Tables) reach(g *Gear, n []float64) []float64 {
	for range g.Stages {
		n = append(n, 0)
	}
	for i := range t.Records.Samples {
		for k := range g.Stages {
			n[k]++
			if st := &g.Stages[k]; int32(t.Records.Levels[st.Pipeline][i]) >= st.Below {
				break
			}
		}
	}
	for k := range n {
		n[k] /= float64(max(1, t.Records.Samples))
	}
	return n
}

// addWork adds the work of a share of a request at a stage to the devices, in batches of the planned size.
func (s *stage) addWork(p *Policy, work []float64, share float64) {
	total := 0.0
	for _, w := range s.weights {
		total += w
	}
	for i, c := range s.chains {
		if total <= 0 {
			break
		}
		pl := &p.t.Pipelines[p.chains[c].pipeline]
		for h, d := range p.devicesOf(c) {
			took := meanTime(&p.t.Stages[pl.FirstStage+int32(h)], int(pl.Batch))
			work[d] += share * s.weights[i] / total * took.Seconds() / float64(pl.Batch)
		}
	}
}

// minTimes returns the least time that a stage takes for one request alone, and for a full batch.
func (s *stage) soonest(p *Policy) (one, full time.Duration) {
	one, full = -1, -1
	for _, c := range s.chains {
		pl := &p.t.Pipelines[p.chains[c].pipeline]
		alone, many := time.Duration(0), time.Duration(0)
		for h := range pl.NumStages {
			st := &p.t.Stages[pl.FirstStage+h]
			alone, many = alone+meanTime(st, 1), many+meanTime(st, int(pl.Batch))
		}
		if one < 0 || alone < one {
			one = alone
		}
		if full < 0 || many < full {
			full = many
		}
	}
	return max(one, 0), max(full, 0)
}

// reservedWaitShare is the part of the waiting time that is kept in reserve: others may be served ahead of a
// request, and batches may take longer than planned.
const slack = .1

// expectedLateness returns by how much a request that comes under the gear in force would miss its deadline. While
// it is at one stage, the work ahead of it at the next goes on. The longer it waits at a stage, the more requests
// share its batch, up to a full one.
func (s *shedder) over(p *Policy, now, deadline time.Duration) time.Duration {
	// Divide the work of lost devices among the others.
	lost := 0.0
	for d := range p.devices {
		if p.devices[d].down {
			lost += s.ahead(int32(d), now)
		}
	}
	if alive := len(p.devices) - p.gone; alive > 0 {
		lost /= float64(alive)
	}

	// Pass the stages that the percentile measures.
	ends, growth := 0.0, 0.0
	for k := range s.count[p.gear] {
		stage := p.first[p.gear] + k
		wait := s.wait(p, &p.stages[stage], now) + lost
		ends = max(ends, wait/(1-slack)) + s.stageTime[stage]
		growth = max(growth, min(wait, s.growth[stage]))
	}
	return time.Duration(s.pace*(ends+growth)*1e9) - (deadline - now)
}

// waitAtStage returns the seconds that a request waits at a stage, on the replica where it is least. A device that
// runs a later part of the model may be busy until the request gets there.
func (s *shedder) wait(p *Policy, st *stage, now time.Duration) float64 {
	least := -1.0
	for i, c := range st.chains {
		if st.weights[i] <= 0 || p.chains[c].lost > 0 {
			continue
		}
		longest, before := 0.0, 0.0 // seconds: the wait on this chain, and the runs at its earlier devices
		first := p.chains[c].stage
		for h, d := range p.devicesOf(c) {
			longest = max(longest, s.ahead(d, now)-before)
			before += meanTime(&p.t.Stages[first+int32(h)], 1).Seconds()
		}
		if least < 0 || longest < least {
			least = longest
		}
	}
	return max(least, 0)
}

// workAhead returns the seconds of work that a device has before it.
func (s *shedder) ahead(d int32, now time.Duration) float64 {
	if left := s.busy[d] - now; left > 0 {
		return s.waiting[d] + left.Seconds()
	}
	return s.waiting[d]
}

// certainlyInTime reports whether a request is in time at whichever stage it waits: even with all the work of the
// busiest device before it. It may return false for a request that is in time by a little.
func (s *shedder) surely(p *Policy, now, within time.Duration) bool {
	const more = 1 + 1e-9 // covers rounding
	most := 0.0
	for d, w := range s.waiting {
		w *= 1e9
		if left := s.busy[d] - now; left > 0 {
			w += float64(left)
		}
		if w > most {
			most = w
		}
	}
	return s.pace*(most*(more/(1-slack)+more)+1e9*s.gearTime[p.gear]*more) < float64(within)
}

// shouldRefuse reports whether a request that comes now is refused, and by how much it would miss its deadline.
// The percentile allows for some that do: they are accepted while no more than twice as many of the last arrivals
// would miss theirs, so that nothing is refused at the rates that the plan promises.
func (s *shedder) refuses(p *Policy, now, deadline time.Duration) (over time.Duration, yes bool) {
	misses := 0.0
	if p.gone > 0 || !s.surely(p, now, deadline-now) {
		if over = s.over(p, now, deadline); over > 0 {
			misses = 1
		}
	}
	s.missing += missStep * (misses - s.missing)
	return over, over > 0 && s.refusing()
}

// isRefusing reports whether more of the last arrivals would miss their deadline than the percentile allows for.
func (s *shedder) refusing() bool { return s.missing > s.most }

// addWaiting adds the work of a request that begins to wait at a stage.
func (s *shedder) comes(r *request, stage int32) {
	if r.work != away {
		s.ends(r)
	}
	n := len(s.waiting)
	r.work = s.waits(stage)
	more := s.work[r.work : int(r.work)+n]
	for d := range s.waiting {
		s.waiting[d] += more[d]
	}
}

// removeRequest removes the work of a request.
func (s *shedder) ends(r *request) {
	n := len(s.waiting)
	less := s.work[r.work : int(r.work)+n]
	for d := range s.waiting {
		s.waiting[d] -= less[d]
	}
	r.work = away
}

// clearRounding removes the remainders of rounding once no request is open.
func (s *shedder) idle() { clear(s.waiting) }

// addBatch moves the requests of a batch that is sent to the rows of requests in batches. Most of them come from
// one row, so that runs of the same row are moved together.
func (s *shedder) goes(requests []request, tasks []int32) {
	next := 2 * int32(len(s.waiting))
	from, first := requests[tasks[0]].work, 0
	requests[tasks[0]].work += next
	for i := 1; i < len(tasks); i++ {
		r := &requests[tasks[i]]
		if r.work != from {
			s.leave(from, float64(i-first))
			from, first = r.work, i
		}
		r.work += next
	}
	s.leave(from, float64(len(tasks)-first))
}

// moveToBatch applies the change of work of `count` requests with this row that are sent in a batch.
func (s *shedder) leave(from int32, many float64) {
	n := len(s.waiting)
	change := s.work[int(from)+n : int(from)+2*n]
	for d := range s.waiting {
		s.waiting[d] += many * change[d]
	}
}

// addRun adds a run on a device, behind everything that was sent there.
func (s *shedder) runs(device int32, from, to time.Duration) {
	s.busy[device] = max(s.busy[device], from) + to - from
}

// observeRun updates the pace by the time of a batch. Batches count by their length: the time around the runs of a
// small model is many times these, and says nothing of a large model.
func (s *shedder) ran(p *Policy, ev *policy.Event) {
	b := &p.batches[ev.Batch]
	if b.size == 0 {
		return
	}
	planned := meanTime(&p.t.Stages[p.chains[b.chain].stage+int32(ev.Hop)], int(b.size))
	took := ev.End - ev.Start
	if took <= 0 || planned <= 0 {
		return
	}
	if s.meanPlanned == 0 {
		s.meanTook, s.meanPlanned = planned.Seconds(), planned.Seconds()
	}
	s.meanTook += paceStep * (took.Seconds() - s.meanTook)
	s.meanPlanned += paceStep * (planned.Seconds() - s.meanPlanned)
	s.pace = min(max(s.meanTook/s.meanPlanned, leastPace), mostPace)
}

// meanTime returns how long a batch occupies a device: on average if the plan knows that, else at most.
func meanTime(st *policy.Stage, size int) time.Duration {
	if len(st.Mean) >= size {
		return st.Mean[size-1]
	}
	return st.Infer[size-1]
}
