package gear

import (
	"time"

	"inferplan/policy"
)

// shedder tells at its arrival whether a request could be in time. Nothing else
// bounds the queues once more comes than the fastest gear holds.
//
// It keeps, by device, the work that the requests under way still mean: of the model
// that each waits for, and of those that it may go on to, as often as the samples planned
// on did; and until when its batches run. What comes next is behind all of that on the
// replica that has least of it, and has its own way to go. Where that is longer than its
// time, it is refused at once; what was taken keeps its promise. A request that few
// others follow to the last model is not measured by that one: the percentile allows for
// it.
type shedder struct {
	work        []float64       // rows of devices: seconds that a request means, still to begin
	stageTime   []float64       // by stage, seconds: of a request that nothing is ahead of
	gearTime    []float64       // by gear, seconds: the same of the stages that the percentile measures
	growth      []float64       // by stage, seconds: how much longer a full batch takes than a request alone
	count       []int32         // by gear: its stages that the percentile measures
	waiting     []float64       // by device, seconds
	busy        []time.Duration // by device: until when its batches run
	pace        float64         // what batches take, of what was planned: took over planned
	meanTook    float64         // seconds, of the last batches
	meanPlanned float64         // seconds, of the same batches as planned
	missing     float64         // share of the last arrivals that would miss their deadline
	most        float64         // of that share: above it requests are refused
}

// Every stage has three rows of work: of a request that waits, what changes when its
// batch goes, and of a request in a batch. A request says where its row begins. The first
// row, of nothing, is that of requests that are not under way.
const away = int32(0)

// waits is where the row of a request that waits at a stage begins.
func (s *shedder) waits(stage int32) int32 { return (3*stage + 1) * int32(len(s.waiting)) }

// Of the pace: the weight of a batch, and how far it may be off.
const (
	paceStep            = 1. / 64
	leastPace, mostPace = .5, 4
)

// missStep is the weight of an arrival in the share that would miss their deadline.
const missStep = 1. / 128

// newShedder computes how much work every stage of every gear gives the devices.
func newShedder(p *Policy) *shedder {
	n := len(p.devices)
	s := &shedder{pace: 1, most: 2 * (1 - p.t.Models[0].Percentile)}
	all := make([]float64, (3*len(p.stages)+2)*n)
	s.work, s.waiting = all[:len(all)-n], all[len(all)-n:]
	s.busy, s.count = make([]time.Duration, n), make([]int32, 0, len(p.gears))
	own, shares := Of(p.t), []float64(nil)
	for g := range p.gears {
		reach := own.reach(&p.gears[g], shares[:0])
		shares = reach
		path, count := 0.0, int32(0)
		for k := range p.gears[g].Stages {
			rows := s.work[s.waits(p.first[g]+int32(k)):]
			here, less, next := rows[:n], rows[n:2*n], rows[2*n:3*n]
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

// reach is the share of the samples that come to every stage of a gear, in a list that
// is empty.
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

// addWork adds what a share of a request at a stage costs the devices, in batches as
// long as they get.
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

// soonest returns the least time that a stage takes for one request alone, and for a full batch.
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

// slack is the part of the time to wait that is not given away: others may be served
// ahead of a request, and batches may take longer than planned.
const slack = .1

// over returns by how much a request that comes under the gear in force would miss its
// deadline. While it is at one stage, what is ahead of it at the next goes on. The longer it
// waits at a stage, the more requests share its batch, up to a full one.
func (s *shedder) over(p *Policy, now, deadline time.Duration) time.Duration {
	lost := 0.0
	for d := range p.devices {
		if p.devices[d].down {
			lost += s.ahead(int32(d), now)
		}
	}
	if alive := len(p.devices) - p.gone; alive > 0 {
		lost /= float64(alive)
	}
	ends, growth := 0.0, 0.0
	for k := range s.count[p.gear] {
		stage := p.first[p.gear] + k
		wait := s.wait(p, &p.stages[stage], now) + lost
		ends = max(ends, wait/(1-slack)) + s.stageTime[stage]
		growth = max(growth, min(wait, s.growth[stage]))
	}
	return time.Duration(s.pace*(ends+growth)*1e9) - (deadline - now)
}

// wait is the wait at a stage, in seconds: of the replica where it is least. A device that
// takes a later part of the model may be busy until the request comes there.
func (s *shedder) wait(p *Policy, st *stage, now time.Duration) float64 {
	least := -1.0
	for i, c := range st.chains {
		if st.weights[i] <= 0 || p.chains[c].lost > 0 {
			continue
		}
		longest, before := 0.0, 0.0 // seconds: of the wait, and of the hops before a device
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

// ahead is the work that a device has before it, in seconds.
func (s *shedder) ahead(d int32, now time.Duration) float64 {
	if left := s.busy[d] - now; left > 0 {
		return s.waiting[d] + left.Seconds()
	}
	return s.waiting[d]
}

// surely tells that a request is in time whatever stage it waits at: even with all the
// work that the busiest device has before it. It errs to the safe side, by little.
func (s *shedder) surely(p *Policy, now, within time.Duration) bool {
	const more = 1 + 1e-9 // than rounding
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

// refuses tells whether a request that comes now is refused, and by how much it would
// miss its deadline. The percentile allows for some that do: they are taken while no
// more than twice as many of the last arrivals would miss theirs, so that nothing is
// refused of the rates that the plan promises.
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

// refusing reports whether more of the last arrivals would miss their deadline than the percentile allows for.
func (s *shedder) refusing() bool { return s.missing > s.most }

// comes notes a request that begins to wait at a stage.
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

// ends forgets what a request means.
func (s *shedder) ends(r *request) {
	n := len(s.waiting)
	less := s.work[r.work : int(r.work)+n]
	for d := range s.waiting {
		s.waiting[d] -= less[d]
	}
	r.work = away
}

// idle: nothing is under way. What rounding left is forgotten.
func (s *shedder) idle() { clear(s.waiting) }

// goes notes a batch that is sent off. Most of its requests come from one row.
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

// leave notes that so many requests whose row begins there go off in a batch.
func (s *shedder) leave(from int32, many float64) {
	n := len(s.waiting)
	change := s.work[int(from)+n : int(from)+2*n]
	for d := range s.waiting {
		s.waiting[d] += many * change[d]
	}
}

// runs notes a run on a device, which comes after all that is sent there.
func (s *shedder) runs(device int32, from, to time.Duration) {
	s.busy[device] = max(s.busy[device], from) + to - from
}

// ran hears how long a batch took. Batches count by their length: what is beside the runs of a small model is
// many times these, and says nothing of a large one.
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

// meanTime returns what a batch takes up a device: on average, where the plan knows it.
func meanTime(st *policy.Stage, size int) time.Duration {
	if len(st.Mean) >= size {
		return st.Mean[size-1]
	}
	return st.Infer[size-1]
}
