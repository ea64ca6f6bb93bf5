package gear

import (
	"time"

	"inferplan/policy"
)

// endWindow takes the gear of the rate seen in the window that ends now.
func (p *Policy) endWindow(now time.Duration, out *policy.Actions) {
	qps := float64(p.count) / p.opt.Window.Seconds()
	target := p.gearOf(qps)
	switch {
	case target > p.gear:
		p.below = 0
		p.shift(now, target, out)
	case target < p.gear:
		p.below++
		if p.below >= p.opt.Hysteresis && qps >= p.opt.Alpha*float64(p.waiting()) {
			p.below = 0
			p.shift(now, target, out)
		}
	default:
		p.below = 0
	}
	// Nothing came, nothing waits and the gear is the slowest: the next arrival
	// starts the clock again.
	if p.ticking = p.count > 0 || p.pending > 0 || p.gear > 0; p.ticking {
		p.tick += p.opt.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: tickTag, At: p.tick})
	}
	p.count = 0
}

func (p *Policy) gearOf(qps float64) int32 {
	for g := range p.gears {
		if qps < p.gears[g].ToQPS {
			return int32(g)
		}
	}
	return int32(len(p.gears) - 1)
}

// waiting is the number of requests queued at the first model of the gear in
// force.
func (p *Policy) waiting() int32 {
	pipelines := int32(len(p.t.Pipelines))
	first, sum := &p.stages[p.first[p.gear]], int32(0)
	for i, d := range first.devices {
		sum += p.queues[d*pipelines+first.pipelines[i]].length
	}
	return sum
}

func (p *Policy) shift(now time.Duration, to int32, out *policy.Actions) {
	p.setGear(to)
	out.List = append(out.List, policy.Action{Kind: policy.SwitchGear, Tag: to})
	p.serveIdle(now, out)
}

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
