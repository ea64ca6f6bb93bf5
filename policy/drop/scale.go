package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// scaler looks up how many workers serve, by the arrivals at the entry alone, so
// that it does not depend on what is dropped.
type scaler struct {
	rule    *flow.Scaling // nil: none
	came    int64         // in this second
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
	s.rule, s.seconds = rule, make([]int64, int(rule.Window/time.Second))
	s.want = append(s.want, rule.Start...)
}

// scale is the second's work of scaling.
func (s *scaler) scale(now time.Duration, f *fleet, out *policy.Actions) {
	rule := s.rule
	if rule == nil {
		return
	}
	s.pass(now)
	now = now.Truncate(time.Second) // a timer of a real clock is late
	for m := range f.modules {
		f.resize(now, int32(m), out)
	}
	if s.second%int64(rule.Every/time.Second) != 0 {
		return
	}
	sum := int64(0)
	for _, n := range s.seconds {
		sum += n
	}
	s.look(now, float64(sum)/rule.Window.Seconds())
	for m := range f.modules {
		f.decide(now, int32(m), s.want[m], out)
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
func (s *scaler) look(now time.Duration, rps float64) {
	newest := s.rule.At(rps)
	kept := s.found[:0]
	for _, r := range s.found {
		if now-r.at < s.rule.Hold {
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
	if total > s.rule.Max {
		copy(s.want, newest)
	}
}
