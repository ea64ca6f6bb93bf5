package drop

import (
	"time"

	"inferplan/policy"
)

// scaleWorkers is called once per second. It applies earlier decisions on the number of workers of each module that take
// effect now, which unloads the networks of workers that are not wanted any more. When a decision is due, it decides
// anew by the rate of requests; networks of workers that are added are then loaded at once. Without a scaling rule (no
// demand) all workers serve all the time, and it does nothing.
func (p *Policy) scaleWorkers(now time.Duration, out *policy.Actions) {
	if p.demand == nil {
		return
	}
	p.demand.PassTime(now) // the second that has ended counts from here on

	// Timers of a real clock fire late. The decisions are those of the whole second, as in a simulation.
	now = now.Truncate(time.Second)
	for module := range p.workers.modules {
		p.workers.applySizes(now, int32(module), out)
	}
	if !p.demand.IsDecisionDue() {
		return
	}
	for module, count := range p.demand.WantedWorkers(now) {
		p.workers.setTargetWorkers(now, int32(module), count, out)
	}
}
