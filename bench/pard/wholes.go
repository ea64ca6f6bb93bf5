package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats/arrivals"
	"inferplan/sim"
)

// The bound of the reports takes work as a fluid: a request may be done in the least
// time per request, which only a full batch reaches, and that batch takes far longer.
// The bound here counts whole batches.
//
// All executions of a module that serve the requests from the i-th to the j-th lie
// between the earliest time at which the i-th can be there and the latest at which the
// j-th can. In so long a time a worker runs whole batches. So the accepted among them are
// at most the sum over workers of the most that whole batches serve in it, and a longer
// time never allows less. For such limits of consecutive requests, too, the greedy in
// order of arrival accepts most: with p the greedy's next request and q the optimum's next
// one, intervals that hold p and not q hold what the greedy has accepted, and those with q
// lose it as they gain p. Only intervals of up to wholeSpan that begin at some of the requests are
// looked at, beside the fluid, so that the bound holds, but might be smaller.
const (
	wholeSpan = 4 * time.Second
	wholeStep = 25 * time.Millisecond
	tick      = 100 * time.Microsecond
)

// tightening says what a bound no longer grants, to see how much of the gap each concession makes.
// The first two leave it a bound. What a policy showed is no bound for others.
type tightening struct {
	batches bool            // whole batches count, beside the fluid
	leavers bool            // workers that go serve nothing that comes after
	after   []time.Duration // by stage: requests take so long behind it; nil stands for batches of one
	slack   time.Duration   // they end so long before their deadlines
}

// wholes counts what modules do in whole batches.
type wholes struct {
	how     tightening
	slo     time.Duration
	modules []wholeModule
	starts  []wholeStart
	count   int64 // accepted
}

// wholeModule is a module with its workers by second. Workers go at whole seconds, serve what
// they hold, and take nothing that comes after. So they do nothing in time once the deadlines
// of that are over, and the consecutive requests since then have a fluid of their own, without
// the workers that went. That is a limit of the same kind.
type wholeModule struct {
	before, after time.Duration
	counts        []int32       // at the end of the second
	workers       []int32       // then or in the second before, the more
	hold          time.Duration // workers that go serve so long; 0 stands for the whole second
	gone          int           // second in which workers went last; -1 if none went, or nobody asks
	rest          time.Duration // when the fluid of the requests since then is done
	most          []int32       // by ticks: what whole batches of a worker serve
	each          float64       // least time of a request, in s
	long          time.Duration
	free          time.Duration // when the fluid is done
}

// wholeStart is a request that intervals begin at, and how many were accepted before.
type wholeStart struct {
	at     time.Duration
	before int64
}

// newWholes makes the bound of a pipeline's run.
func newWholes(p *pipeline, f *sim.FlowResult, how tightening) *wholes {
	w := &wholes{how: how, slo: p.slo - how.slack}
	upTo, behind := p.around()
	if how.after != nil {
		behind = how.after
	}
	for i := range p.stages {
		m := wholeModule{before: upTo[i], after: behind[i], counts: f.Modules[i].Workers, gone: -1}
		if how.leavers {
			m.hold = max(1, w.slo-m.after)
		}
		for k := range m.counts {
			m.workers = append(m.workers, max(m.counts[k], m.counts[max(0, k-1)]))
		}
		m.fill(&p.stages[i], wholeSpan+w.slo)
		w.modules = append(w.modules, m)
	}
	return w
}

// around is the least time before every stage and behind it.
func (p *pipeline) around() (upTo, behind []time.Duration) {
	upTo, behind = make([]time.Duration, len(p.stages)), make([]time.Duration, len(p.stages))
	for k := range p.stages {
		for i := range k {
			if slices.Contains(p.stages[k].after, p.stages[i].name) {
				upTo[k] = max(upTo[k], upTo[i]+p.stages[i].micros(1).D())
			}
		}
	}
	for k := len(p.stages) - 1; k > 0; k-- {
		for i := range k {
			if slices.Contains(p.stages[k].after, p.stages[i].name) {
				behind[i] = max(behind[i], behind[k]+p.stages[k].micros(1).D())
			}
		}
	}
	return upTo, behind
}

// fill works out what whole batches of a worker serve, up to a time.
func (m *wholeModule) fill(s *stage, up time.Duration) {
	m.each = math.Inf(1)
	var took []int
	for b := 1; b <= s.batch; b++ {
		d := s.micros(b).D()
		took = append(took, int(d/tick))
		m.long = max(m.long, d)
		m.each = min(m.each, d.Seconds()/float64(b))
	}
	m.most = make([]int32, int(up/tick)+2)
	for at := range m.most {
		for b, d := range took {
			if d <= at {
				m.most[at] = max(m.most[at], int32(b)+1+m.most[at-d])
			}
		}
	}
}

// room is how many requests whole batches serve between two times.
func (m *wholeModule) room(from, to time.Duration) (sum int64) {
	type open struct {
		from time.Duration
		n    int32
	}
	var list [16]open
	depth, have := 0, int32(0)
	do := func(n int32, from, to time.Duration) { sum += int64(n) * int64(m.most[(to-from+tick-1)/tick]) }
	for s := from.Truncate(time.Second); s < to; s += time.Second {
		n := m.workers[min(int(s/time.Second), len(m.workers)-1)]
		for n < have {
			top := &list[depth-1]
			gone := min(top.n, have-n)
			do(gone, top.from, s)
			have -= gone
			if top.n -= gone; top.n == 0 {
				depth--
			}
		}
		if n > have {
			list[depth] = open{max(from, s), n - have}
			depth, have = depth+1, n
		}
	}
	for i := range depth {
		do(list[i].n, list[i].from, to)
	}
	return sum
}

// accepts returns whether a request that comes then is accepted.
func (w *wholes) accepts(at time.Duration) bool {
	var next, rest [8]time.Duration
	for i := range w.modules {
		m := &w.modules[i]
		limit := at + w.slo - m.after
		next[i] = m.serve(max(m.free, at+m.before), limit, -1)
		if next[i] > limit {
			return false
		}
		if w.how.leavers {
			m.leave(int(at / time.Second))
			if rest[i] = m.serve(max(m.rest, at+m.before), limit, m.gone); rest[i] > limit {
				return false
			}
		}
		if !w.how.batches || next[i] < limit-2*m.long {
			continue
		}
		for k := len(w.starts) - 1; k >= 0 && at-w.starts[k].at < wholeSpan; k-- {
			if s := &w.starts[k]; w.count+1-s.before > m.room(s.at+m.before, limit) {
				return false
			}
		}
		if 1 > m.room(at+m.before, limit) {
			return false
		}
	}
	for i := range w.modules {
		w.modules[i].free, w.modules[i].rest = next[i], rest[i]
	}
	if n := len(w.starts); n == 0 || at-w.starts[n-1].at >= wholeStep {
		w.starts = append(w.starts, wholeStart{at, w.count})
	}
	w.count++
	return true
}

// leave begins the fluid of the requests since workers went, if they did in a second.
func (m *wholeModule) leave(s int) {
	if s = min(s, len(m.counts)-1); s != m.gone && m.counts[s] < m.workers[s] {
		m.gone, m.rest = s, 0
	}
}

// serve is when the fluid has done one request's work that begins then, or past the limit.
// In one second the workers that went do nothing.
func (m *wholeModule) serve(from, limit time.Duration, idleSecond int) time.Duration {
	work := m.each
	for from <= limit {
		s := min(int(from/time.Second), len(m.workers)-1)
		end := time.Duration(s+1) * time.Second
		if s == len(m.workers)-1 {
			end = math.MaxInt64
		}
		n := float64(m.workers[s])
		if over := time.Duration(s)*time.Second + m.hold; s == idleSecond || m.hold > 0 && from >= over {
			n = float64(m.counts[s])
		} else if m.hold > 0 && m.counts[s] < m.workers[s] {
			end = min(end, over)
		}
		if did := n * (end - from).Seconds(); did < work {
			work -= did
			from = end
			continue
		}
		return from + time.Duration(work/n*float64(time.Second))
	}
	return limit + 1
}

// bound is how many requests of a job's arrivals are accepted.
func (w *wholes) bound(j *job, seed uint64) int64 {
	source, end := newPoisson(j.rates, seed), time.Duration(len(j.rates))*time.Second
	for r := (arrivals.Request{}); source.Next(&r) && r.ArrivedAt < end; {
		w.accepts(r.ArrivedAt)
	}
	return w.count
}

// bounds prints what feas keeps of the bound of the reports and of smaller ones, where
// bursts come from next to nothing, and adds the figures.
func bounds(ctx context.Context, s *sheet, out io.Writer, b *bench, only string) error {
	for _, t := range b.others {
		for _, p := range b.pipes {
			if t.name != "azure2" || !strings.Contains(p.name, only) {
				continue
			}
			j := b.job(p, t, false)
			j.spans = newSpans(p, len(j.rates))
			f, err := j.run(ctx, spec("feas", t.name), 1)
			if err != nil {
				return err
			}
			after, slack := j.spans.means(f)
			for _, w := range []struct {
				name string
				how  tightening
				kind string
			}{{"the bound of the reports", tightening{}, "a bound"}, {"whole batches", tightening{batches: true}, "a bound"},
				{"workers that go serve nothing that comes after", tightening{leavers: true}, "a bound"},
				{"and requests take as long behind each module as they took", tightening{leavers: true, after: after}, "no bound"},
				{"and end as long before their deadlines", tightening{leavers: true, after: after, slack: slack}, "no bound"}} {
				share := float64(f.Good) / float64(newWholes(p, f, w.how).bound(j, 1))
				fmt.Fprintf(out, "%s-%s, %s (%s): %.4f\n", p.name, t.name, w.name, w.kind, share)
				s.add(figures.Figure{Claim: fmt.Sprintf("share of feas, %s-%s, %s", p.name, t.name, w.name), Source: w.kind, Asked: "shown", Measured: share, Unit: "share"})
			}
			fmt.Fprintf(out, "%s-%s: %v behind each module, %v left\n", p.name, t.name, after, slack)
		}
	}
	return nil
}
