package check

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// minBusyShare is the excess of the time of a thread over its CPU time from which on other work on
// the machine must have caused it.
const busyShare = 0.25

// BusyBetweenRuns replaces BetweenRuns if CPU times of profiles of a busy machine are compared: other
// work evicts its caches. With 20 to 37 waiting threads on two cores it was 3 % of ResNet-50 and up
// to 7 % of ShuffleNet (make bench-gate).
const BusyBetweenRuns = 0.07

// wasBusy reports whether a profile was taken while other work had the processor, by the work of a
// plan: for a single thread on a quiet machine, time and CPU time are the same.
func busy(plan *formats.Plan, p *formats.Profile) bool {
	if !slices.ContainsFunc(plan.Pools, func(q formats.Pool) bool { return oneThread(q.Device) }) {
		return false
	}
	quiet := quieted(p)
	return float64(recompute.Work(plan, p)) > (1+busyShare)*float64(recompute.Work(plan, quiet))
}

// oneThread reports whether a device is a CPU thread set of one thread.
func oneThread(device string) bool {
	n, ok := formats.CPUThreads(device)
	return ok && n == 1
}

// withCPUTimes returns a profile in which single threads have their CPU times.
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

// useCPUTimes makes profiles comparable if some were taken on a busy machine: all get their CPU
// times.
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
