package gear

import (
	"slices"
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
	work    [][]float64     // by state: seconds on every device, still to begin
	alone   []time.Duration // by gear: of a request that nothing is ahead of
	count   []int32         // by gear: its stages that the percentile measures
	waiting []float64       // by device, seconds
	busy    []time.Duration // by device: until when its batches run
	state   []int32         // by request; none: it is not counted
	pace    float64         // what batches take, of what was planned
	missing float64         // share of the last arrivals that would miss their deadline
}

// A request at stage s of Policy.stages is in state 2s while it waits, and in state 2s+1
// in a batch.
func waits(stage int32) int32 { return 2 * stage }
func runs(stage int32) int32  { return 2*stage + 1 }

// Of the pace: the weight of a batch, and how far it may be off.
const (
	paceStep            = 1. / 64
	leastPace, mostPace = .5, 4
)

// missStep is the weight of an arrival in the share that would miss their deadline.
const missStep = 1. / 128

// newShedder computes how much work every stage of every gear gives the devices.
func (p *Policy) newShedder() *shedder {
	s := &shedder{waiting: make([]float64, len(p.devices)), busy: make([]time.Duration, len(p.devices)), pace: 1}
	own := Of(p.t)
	for g := range p.gears {
		reach := own.reach(&p.gears[g])
		alone, count := time.Duration(0), int32(0)
		for k := range p.gears[g].Stages {
			next := make([]float64, len(p.devices))
			for j := k + 1; j < len(reach); j++ {
				if reach[k] > 0 {
					p.addWork(next, &p.stages[int(p.first[g])+j], reach[j]/reach[k])
				}
			}
			all := slices.Clone(next)
			p.addWork(all, &p.stages[int(p.first[g])+k], 1)
			s.work = append(s.work, all, next)
			if k == 0 || reach[k] > 1-p.t.Models[0].Percentile {
				alone += p.soonest(&p.stages[int(p.first[g])+k])
				count++
			}
		}
		s.alone, s.count = append(s.alone, alone), append(s.count, count)
	}
	return s
}

// reach is the share of the samples that come to every stage of a gear.
func (t *Tables) reach(g *Gear) []float64 {
	n := make([]float64, len(g.Stages))
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
func (p *Policy) addWork(work []float64, s *stage, share float64) {
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
			infer := p.t.Stages[pl.FirstStage+int32(h)].Infer[pl.Batch-1]
			work[d] += share * s.weights[i] / total * infer.Seconds() / float64(pl.Batch)
		}
	}
}

// soonest is the time of one request alone at a stage, where it is least.
func (p *Policy) soonest(s *stage) time.Duration {
	least := time.Duration(-1)
	for _, c := range s.chains {
		pl := &p.t.Pipelines[p.chains[c].pipeline]
		took := time.Duration(0)
		for h := range pl.NumStages {
			took += p.t.Stages[pl.FirstStage+h].Infer[0]
		}
		if least < 0 || took < least {
			least = took
		}
	}
	return max(least, 0)
}

// slack is the part of the time to wait that is not given away: others may be served
// ahead of a request, and batches may take longer than planned.
const slack = .1

// over is by how much a request that comes under the gear in force would miss its
// deadline: by the wait at the stage where that is longest, and its own way.
func (s *shedder) over(p *Policy, now, deadline time.Duration) time.Duration {
	lost := 0.0
	for d := range p.devices {
		if p.devices[d].down {
			lost += s.ahead(p, int32(d), now)
		}
	}
	if alive := len(p.devices) - p.gone; alive > 0 {
		lost /= float64(alive)
	}
	most := 0.0
	for k := range s.count[p.gear] {
		most = max(most, s.wait(p, &p.stages[p.first[p.gear]+k], now))
	}
	takes := s.pace * ((most+lost)*1e9/(1-slack) + float64(s.alone[p.gear]))
	return time.Duration(takes) - (deadline - now)
}

// wait is the wait at a stage, in seconds: of the replica where it is least.
func (s *shedder) wait(p *Policy, st *stage, now time.Duration) float64 {
	least := -1.0
	for i, c := range st.chains {
		if st.weights[i] <= 0 || p.chains[c].lost > 0 {
			continue
		}
		most := 0.0
		for _, d := range p.devicesOf(c) {
			most = max(most, s.ahead(p, d, now))
		}
		if least < 0 || most < least {
			least = most
		}
	}
	return max(least, 0)
}

// ahead is the work that a device has before it, in seconds.
func (s *shedder) ahead(p *Policy, d int32, now time.Duration) float64 {
	return s.waiting[d] + max(0, s.busy[d]-now).Seconds()
}

// refuses tells whether a request that comes now is refused, and by how much it would
// miss its deadline. The percentile allows for some that do: they are taken while no
// more than twice as many of the last arrivals would miss theirs, so that nothing is
// refused of the rates that the plan promises.
func (s *shedder) refuses(p *Policy, now, deadline time.Duration) (over time.Duration, yes bool) {
	over = s.over(p, now, deadline)
	misses := 0.0
	if over > 0 {
		misses = 1
	}
	s.missing += missStep * (misses - s.missing)
	return over, over > 0 && s.missing > 2*(1-p.t.Models[0].Percentile)
}

// at notes the state of a request; none: it has left.
func (s *shedder) at(slot, state int32) {
	for int(slot) >= len(s.state) {
		s.state = append(s.state, none)
	}
	s.add(s.state[slot], -1)
	s.add(state, 1)
	s.state[slot] = state
}

func (s *shedder) add(state int32, sign float64) {
	if state == none {
		return
	}
	for d, w := range s.work[state] {
		s.waiting[d] += sign * w
	}
}

// idle: nothing is under way. What rounding left is forgotten.
func (s *shedder) idle() { clear(s.waiting) }

// goes notes a batch that is sent off.
func (s *shedder) goes(p *Policy, tasks []int32, hops []policy.Hop) {
	for _, t := range tasks {
		r := &p.requests[t]
		s.at(t, runs(p.first[r.gear]+r.stage))
	}
	for i := range hops {
		h := &hops[i]
		s.busy[h.Device] = max(s.busy[h.Device], h.Start) + h.End - h.Start
	}
}

// ran hears how long a batch took.
func (s *shedder) ran(p *Policy, ev *policy.Event) {
	b := &p.batches[ev.Batch]
	if b.size == 0 {
		return
	}
	planned := p.t.Stages[p.t.Pipelines[p.chains[b.chain].pipeline].FirstStage+int32(ev.Hop)].Infer[b.size-1]
	if took := ev.End - ev.Start; took > 0 && planned > 0 {
		s.pace += paceStep * (float64(took)/float64(planned) - s.pace)
		s.pace = min(max(s.pace, leastPace), mostPace)
	}
}
