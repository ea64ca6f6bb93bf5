package gear

import (
	"time"

	"inferplan/policy"
)

// SwitchRule is the rule that chooses the gear after a window. It holds no queues, so that a planner can replay
// measured rates through it, too.
type SwitchRule struct {
	maxRates      []float64 // upper ends of the gears' rates, ascending
	alpha         float64
	hysteresis    int
	slowerWindows int // windows in a row that asked for a slower gear
}

// NewSwitchRule returns the rule for gears that are used up to these rates (requests per second, ascending).
func NewSwitchRule(maxRates []float64, options Options) *SwitchRule {
	return &SwitchRule{maxRates: maxRates, alpha: options.Alpha, hysteresis: options.Hysteresis}
}

// GearAfter returns the gear in force after a window in which requests arrived at a rate (qps): a faster one at once, a
// slower one only after `hysteresis` windows in a row that asked for one, and while few requests wait. At the end of the
// window `queued` requests wait at the first model of the present gear. It counts slowerWindows, so it must be called
// once for each window.
func (r *SwitchRule) GearAfter(gear int32, qps float64, queued int32) int32 {
	target := r.gearOf(qps)
	if target < gear { // gears stand by rising rate, so this one is slower
		r.slowerWindows++
		if r.slowerWindows < r.hysteresis || qps < r.alpha*float64(queued) {
			return gear
		}
	}
	r.slowerWindows = 0
	return target
}

// gearOf returns the gear for a rate of requests per second: the first whose range ends above it, else the last.
func (r *SwitchRule) gearOf(qps float64) int32 {
	for gear, maxRate := range r.maxRates {
		if qps < maxRate {
			return int32(gear)
		}
	}
	return int32(len(r.maxRates) - 1)
}

// handleWindowEnd is called by the timer at the end of each window. It switches to the gear for the rate of
// arrivals in that window, and sets the timer for the next one unless nothing happens any more.
func (p *Policy) handleWindowEnd(now time.Duration, out *policy.Actions) {
	qps := float64(p.windowArrivals) / p.options.Window.Seconds()
	if newGear := p.rule.GearAfter(p.gear, qps, p.firstModelQueue()); newGear != p.gear {
		p.switchGear(now, newGear, out)
	}

	// If nothing came, no request is open and the gear is the slowest, windows rest until the next arrival.
	p.windowRunning = p.windowArrivals > 0 || p.openRequests > 0 || p.gear > 0
	if p.windowRunning {
		p.windowEnd += p.options.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: windowTag, At: p.windowEnd})
	}
	p.windowArrivals = 0
}

// firstModelQueue returns the number of requests queued at the first model of the gear in force.
func (p *Policy) firstModelQueue() int32 {
	sum := int32(0)
	for _, chain := range p.gearStages[p.firstStage[p.gear]].chains {
		sum += p.fleet.queues[chain].Len
	}
	return sum
}

// switchGear puts another gear in force, tells the interpreter (the simulator or executor, by the action SwitchMode), and
// serves the idle devices, because minimal queue lengths have changed, so that more queues may be ready.
func (p *Policy) switchGear(now time.Duration, newGear int32, out *policy.Actions) {
	p.setGear(newGear)
	out.List = append(out.List, policy.Action{Kind: policy.SwitchMode, Tag: newGear})
	p.serveIdle(now, out)
}

// setGear sets the gear in force, which new requests get, and the minimal queue lengths of the pipelines: those of
// the gear's models, 1 for models that it does not use.
func (p *Policy) setGear(gear int32) {
	p.gear = gear
	for pipeline := range p.minQueue {
		p.minQueue[pipeline] = 1
	}
	for stageIndex := range p.gears[gear].Stages {
		stage := &p.gears[gear].Stages[stageIndex]
		p.minQueue[stage.Pipeline] = stage.MinQueue
		for _, pipeline := range stage.OtherPipelines {
			p.minQueue[pipeline] = stage.MinQueue
		}
	}
}
