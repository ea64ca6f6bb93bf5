package check

import (
	"slices"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// minBusyShare is the excess of the time of a thread over its CPU time from which on other work on
// the machine must have caused it.
const minBusyShare = 0.25

// BusyBetweenRuns replaces BetweenRuns if CPU times of profiles of a busy machine are compared: other
// work evicts its caches. With 20 to 37 waiting threads on two cores it was 3 % of ResNet-50 and up
// to 7 % of ShuffleNet (make bench NAME=gate).
const BusyBetweenRuns = 0.07

// wasBusy returns whether a profile was taken while other work had the processor. On a quiet machine a single thread's CPU time is its
// elapsed time; on a busy one, the plan's stages take noticeably longer than their CPU time. For devices of several threads CPU times
// cannot say so, and it returns false.
func wasBusy(plan *formats.Plan, p *formats.Profile) bool {
	if !slices.ContainsFunc(plan.Pools, func(q formats.Pool) bool { return oneThread(q.Device) }) {
		return false
	}
	quiet := withCPUTimes(p)
	return float64(recompute.TotalWork(plan, p)) > (1+minBusyShare)*float64(recompute.TotalWork(plan, quiet))
}

// oneThread reports whether a device is a CPU thread set of one thread.
func oneThread(device string) bool {
	n, ok := formats.CPUThreads(device)
	return ok && n == 1
}

// withCPUTimes returns a copy of a profile in which single-threaded devices have their CPU times in place of
// elapsed times, without the waiting for other work.
func withCPUTimes(p *formats.Profile) *formats.Profile {
	useCPUTime := func(l *formats.Latency) {
		if l.CPUUS > 0 && l.CPUUS < l.WallUS {
			l.WallUS = l.CPUUS
		}
	}
	return p.WithTimes(func(_ int, m *formats.Measurement) func(*formats.Latency) {
		if !oneThread(m.Device) {
			return nil // its times stay as they are
		}
		return useCPUTime
	})
}

// useCPUTimes replaces the elapsed times in all profiles by CPU times, which leave out the waiting for other work, if any profile was
// taken on a busy machine, and records that in p.cpuTimes. All are replaced, so that they can be compared.
func (p *profileSets) useCPUTimes(plan *formats.Plan) {
	everyProfile := slices.Concat(p.promised, p.current)
	if p.sameProfile || !slices.ContainsFunc(everyProfile, func(profile *formats.Profile) bool { return wasBusy(plan, profile) }) {
		return
	}
	p.cpuTimes = true
	p.promised, p.current = slices.Clone(p.promised), slices.Clone(p.current)
	for _, list := range [][]*formats.Profile{p.promised, p.current} {
		for i := range list {
			list[i] = withCPUTimes(list[i])
		}
	}
}
