package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// scaler looks up how many workers serve, by the arrivals at the entry alone, so
// that it does not depend on what is dropped.
type scaler struct {
	came    int64 // in this second
	seconds []int64
	second  int64
	found   []row // of the last Hold
	want    []int
}

// row is what was looked up at a time.
type row struct {
	at      time.Duration
	workers []int
}

func (s *scaler) init(rule *flow.Scaling) {
	if rule == nil {
		return
	}
	s.seconds = make([]int64, int(rule.Window/time.Second))
	s.want = append(s.want, rule.Start...)
}

// scale is the second's work of scaling.
func (p *Policy) scale(now time.Duration, out *policy.Actions) {
	rule, s := p.own.Scaling, &p.sized
	if rule == nil {
		return
	}
	s.pass(now)
	now = now.Truncate(time.Second) // a timer of a real clock is late
	for m := range p.modules {
		p.resize(now, int32(m), out)
	}
	if s.second%int64(rule.Every/time.Second) != 0 {
		return
	}
	sum := int64(0)
	for _, n := range s.seconds {
		sum += n
	}
	s.look(rule, now, float64(sum)/rule.Window.Seconds())
	for m := range p.modules {
		p.decide(now, int32(m), s.want[m], out)
	}
}

// pass ends the seconds before now. In all but the first of them nothing came.
func (s *scaler) pass(now time.Duration) {
	last := int64(now / time.Second)
	for s.second = max(s.second, last-int64(len(s.seconds))-1); s.second < last && s.seconds != nil; s.second++ {
		s.seconds[s.second%int64(len(s.seconds))] = s.came
		s.came = 0
	}
}

// look finds how many workers are wanted at a rate: the most that were looked up
// within Hold, unless they are too many together.
func (s *scaler) look(rule *flow.Scaling, now time.Duration, rps float64) {
	newest := rule.At(rps)
	kept := s.found[:0]
	for _, r := range s.found {
		if now-r.at < rule.Hold {
			kept = append(kept, r)
		}
	}
	s.found = append(kept, row{now, newest})
	total := 0
	for m := range s.want {
		s.want[m] = 0
		for _, r := range s.found {
			s.want[m] = max(s.want[m], r.workers[m])
		}
		total += s.want[m]
	}
	if total > rule.Max {
		copy(s.want, newest)
	}
}

// size is a number of workers that is in force from a time on.
type size struct {
	at time.Duration
	n  int
}

// decide has a module served by its first n workers once those that are missing
// are loaded; the others then serve what they have and go.
func (p *Policy) decide(now time.Duration, m int32, n int, out *policy.Actions) {
	mod := &p.modules[m]
	for _, d := range mod.workers[min(mod.decided, n):n] {
		if w := &p.workers[d]; !w.lost && !w.loading {
			p.load(w, out)
		}
	}
	if n != mod.decided {
		mod.decided = n
		mod.sizes = append(mod.sizes, size{now + p.own.Modules[m].ColdStart, n})
	}
}

// resize carries out what was decided in time.
func (p *Policy) resize(now time.Duration, m int32, out *policy.Actions) {
	mod := &p.modules[m]
	due := 0
	for due < len(mod.sizes) && mod.sizes[due].at <= now {
		due++
	}
	if due == 0 {
		return
	}
	n := mod.sizes[due-1].n
	mod.sizes = mod.sizes[:copy(mod.sizes, mod.sizes[due:])]
	for i, d := range mod.workers {
		w := &p.workers[d]
		w.wanted = i < n
		if !w.wanted && w.up && !w.running {
			p.retire(w, out)
		}
	}
	p.enlist(m)
}

func (p *Policy) network(w *worker) int32 { return p.t.Pipelines[w.pipeline].Network }

func (p *Policy) load(w *worker, out *policy.Actions) {
	w.loading = true
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: p.network(w), Device: w.device})
}

// retire takes the network off a worker that has nothing left to do.
func (p *Policy) retire(w *worker, out *policy.Actions) {
	w.up = false
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: p.network(w), Device: w.device})
}
