package check

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// busyShare is from which part of its CPU time on, beside it, the time of a thread
// tells of other work on the machine and not of the model.
const busyShare = 0.25

// BusyBetweenRuns is BetweenRuns where the CPU times of profiles of a busy machine
// are compared: others wear its caches out. At 20 to 37 waiting threads on two cores
// it was 3 % of ResNet-50 and up to 7 % of ShuffleNet (make bench-gate).
const BusyBetweenRuns = 0.07

// busy tells whether a profile was taken while other work had the processor, by what
// the devices of a plan took: of a single thread, time and CPU time are the same.
func busy(plan *formats.Plan, p *formats.Profile) bool {
	if !slices.ContainsFunc(plan.Pools, func(q formats.Pool) bool { return oneThread(q.Device) }) {
		return false
	}
	quiet := quieted(p)
	return float64(recompute.Work(plan, p)) > (1+busyShare)*float64(recompute.Work(plan, quiet))
}

func oneThread(device string) bool {
	n, ok := formats.CPUThreads(device)
	return ok && n == 1
}

// quieted is a profile in which what single threads took is their CPU time.
func quieted(p *formats.Profile) *formats.Profile {
	own := func(l *formats.Latency) {
		if l.CPUUS > 0 && l.CPUUS < l.WallUS {
			l.WallUS = l.CPUUS
		}
	}
	return p.WithTimes(func(_ int, m *formats.Measurement) func(*formats.Latency) {
		if !oneThread(m.Device) {
			return nil
		}
		return own
	})
}

// calmed are profiles that can be compared where some were taken on a busy machine:
// all by their CPU times.
func (p *profiles) calmed(plan *formats.Plan) {
	all := slices.Concat(p.old, p.now)
	if p.same || !slices.ContainsFunc(all, func(one *formats.Profile) bool { return busy(plan, one) }) {
		return
	}
	p.busy = true
	p.old, p.now = slices.Clone(p.old), slices.Clone(p.now)
	for _, list := range [][]*formats.Profile{p.old, p.now} {
		for i := range list {
			list[i] = quieted(list[i])
		}
	}
}
