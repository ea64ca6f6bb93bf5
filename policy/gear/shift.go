package gear

import (
	"time"

	"inferplan/policy"
)

// SwitchRule is the rule that chooses the gear after a window. It holds no queues, so that a planner can replay
// measured rates through it, too.
type Rule struct {
	to         []float64 // upper ends of the gears' rates, ascending
	alpha      float64
	hysteresis int
	below      int // windows in a row that asked for a slower gear
}

// NewSwitchRule returns the rule for gears up to these rates.
func NewRule(to []float64, o Options) *Rule {
	return &Rule{to: to, alpha: o.Alpha, hysteresis: o.Hysteresis}
}

// GearAfter returns the gear in force after a window of this rate. At its end `queued` requests wait at the first
// model of the present gear.
func (r *Rule) Next(gear int32, qps float64, waiting int32) int32 {
	target := r.gearOf(qps)
	if target < gear {
		r.below++
		if r.below < r.hysteresis || qps < r.alpha*float64(waiting) {
			return gear
		}
	}
	r.below = 0
	return target
}

// gearOf returns the gear for a rate.
func (r *Rule) gearOf(qps float64) int32 {
	for g, to := range r.to {
		if qps < to {
			return int32(g)
		}
	}
	return int32(len(r.to) - 1)
}

// handleWindowEnd switches to the gear of the rate in the window that ends now.
func (p *Policy) endWindow(now time.Duration, out *policy.Actions) {
	qps := float64(p.count) / p.opt.Window.Seconds()
	if next := p.rule.Next(p.gear, qps, p.waiting()); next != p.gear {
		p.shift(now, next, out)
	}

	// If nothing came, no request is open and the gear is the slowest, windows rest until the next arrival.
	if p.ticking = p.count > 0 || p.pending > 0 || p.gear > 0; p.ticking {
		p.tick += p.opt.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: tickTag, At: p.tick})
	}
	p.count = 0
}

// firstModelQueue returns the number of requests queued at the first model of the gear in force.
func (p *Policy) waiting() int32 {
	sum := int32(0)
	for _, c := range p.stages[p.first[p.gear]].chains {
		sum += p.queues[c].length
	}
	return sum
}

// switchGear puts a gear in force.
func (p *Policy) shift(now time.Duration, to int32, out *policy.Actions) {
	p.setGear(to)
	out.List = append(out.List, policy.Action{Kind: policy.SwitchMode, Tag: to})
	p.serveIdle(now, out)
}

// setGear sets the gear in force and its minimal queue lengths.
func (p *Policy) setGear(g int32) {
	p.gear = g
	for m := range p.minQ {
		p.minQ[m] = 1
	}
	for k := range p.gears[g].Stages {
		s := &p.gears[g].Stages[k]
		p.minQ[s.Pipeline] = s.MinQueue
		for _, m := range s.More {
			p.minQ[m] = s.MinQueue
		}
	}
}
