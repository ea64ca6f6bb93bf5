package profiler

import (
	"fmt"
	"math"
	"slices"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// newProbeSet makes the probes of one measurement: every block, then ranges, then the whole model. The whole model
// is there even if only ranges are measured, because it shows how busy the machine was.
func (j *modelJob) newProbeSet(u measurementKey, withBlocks bool, ranges [][2]int, onCPU bool, idleFirst func()) *probeSet {
	l := &probeSet{name: fmt.Sprintf("%s, share 1/%d, batch %d", j.info.name, u.share, u.batch), job: j, key: u, onCPU: onCPU, ranges: ranges}
	add := func(name string, bindingOf func(*boundModel) engine.Binding) {
		var runs []func(int) (engine.Timing, error)
		for _, c := range j.loadedByShare[u.share] {
			runs = append(runs, bindingOf(c.bound[u.batch]).RunN)
		}
		l.probes = append(l.probes, &probe{name: name, run: RunTogether(runs)})
	}
	if withBlocks {
		l.blockCount = j.cut.Len()
	}
	for i := range l.blockCount {
		add(fmt.Sprintf("block %d", i), func(b *boundModel) engine.Binding { return b.blocks[i] })
	}
	for _, blockRange := range ranges {
		add(fmt.Sprintf("blocks [%d,%d)", blockRange[0], blockRange[1]), func(b *boundModel) engine.Binding { return b.ranges[blockRange] })
	}
	add("whole", func(b *boundModel) engine.Binding { return b.wholeModel })
	if withBlocks && u.batch == j.batches(u.share)[0] { // only small batches find a device idle
		l.probes[len(l.probes)-1].idleFirst = idleFirst
	}
	return l
}

// measurement makes the measurement of a finished probe set. If the set has the blocks it is a new one, otherwise it is
// the profile's with more ranges.
func (l *probeSet) measurement(dev engine.Device) formats.Measurement {
	j, u := l.job, l.key
	m := formats.Measurement{Device: dev.Kind, Share: u.share, Batch: u.batch, MemoryBytes: j.memory[u]}
	if l.blockCount == 0 {
		m = *j.entry.FindMeasurement(dev.Kind, u.share, u.batch)
	}
	quiet := l.quietRounds()
	var ranges []formats.RangeLatency
	for i, p := range l.probes {
		lat := l.latency(p, quiet)
		if len(dev.CPUs) > 1 && dev.IsCPU() {
			lat.CPUUS = document.Micros(median(pickRounds(p.cpu, quiet)))
		}
		switch {
		case i < l.blockCount:
			m.Blocks = append(m.Blocks, lat)
		case i < len(l.probes)-1:
			ranges = append(ranges, formats.RangeLatency{Blocks: l.ranges[i-l.blockCount], Latency: lat})
		case l.blockCount > 0:
			m.WholeModel = &lat
		}
	}
	if l.blockCount == 0 && m.WholeModel != nil {
		wholeNow := l.latency(l.probes[len(l.probes)-1], quiet)
		for i := range ranges {
			ranges[i].Latency = rescaledRange(ranges[i].Latency, wholeNow, *m.WholeModel)
		}
	}
	putRanges(&m, ranges)
	if len(l.reference) > 0 && l.blockCount > 0 {
		m.ReferenceUS = document.Micros(report.Percentile(slices.Sorted(slices.Values(l.reference)), 0.25))
	}
	return m
}

// recordResult puts a finished probe set into the profile: its measurement, its device and notes on its precision.
func (r *runner) recordResult(l *probeSet) {
	j := l.job
	putMeasurement(j.entry, l.measurement(r.dev))
	j.isRecorded = true
	r.insertModel(j)

	putDevice(r.profile, r.currentDevice())
	r.notePrecision(l)
}

// currentDevice returns the entry of the run's device, with the values of earlier runs that this one did not measure.
// The time of the run up to now is charged to it.
func (r *runner) currentDevice() formats.ProfileDevice {
	now := r.options.now()
	d := provenance(r.dev, r.options.Engine.Info(), r.options, now)
	d.CopyGbps, d.ShareMethod = r.copy, r.shareMethod
	d.MemoryGBps, d.MatmulGflops, d.State = r.ceilings.memoryGBps, r.ceilings.matmulGflops, r.watch.summary()
	d.CostSeconds = (now.Sub(r.begun) - r.chargedTime).Seconds()
	for _, known := range r.profile.Devices {
		if known.Device == d.Device {
			d.CostSeconds += known.CostSeconds
			if d.MatmulGflops == 0 {
				d.MatmulGflops = known.MatmulGflops
			}
			if d.MemoryGBps == 0 {
				d.MemoryGBps = known.MemoryGBps
			}
			if d.State == nil {
				d.State = known.State
			}
			d.BetweenRuns = known.BetweenRuns
			if d.ShareMethod == "" {
				d.ShareMethod = known.ShareMethod
			}
		}
	}
	d.CostSeconds = math.Round(d.CostSeconds*10) / 10
	r.chargedTime = now.Sub(r.begun)
	return d
}

// notePrecision notes which numbers of a probe set are not known well enough.
func (r *runner) notePrecision(l *probeSet) {
	j, u := l.job, l.key

	// The intervals of the medians, and where the weights are from.
	subject := fmt.Sprintf("precision of %s on %s at share 1/%d, batch %d", j.info.name, r.dev.Kind, u.share, u.batch)
	note := ""
	if loose := l.loosestHalfWidth(r.options.Precision.Floor); loose > r.options.Precision.HalfWidth {
		note = fmt.Sprintf("%s: times are only known to ±%.1f %% (%d samples, stopped by %s)", subject, 100*loose, l.roundCount, l.stopReason)
		r.progress.warn(j.info.name, note)
	}
	r.notes.set(subject, note)
	if j.info.weightsNote != "" {
		r.notes.set("weights of "+j.info.name, "weights of "+j.info.name+noteSep+j.info.weightsNote)
	}

	// Other work on the machine.
	subject = fmt.Sprintf("busy machine under %s on %s at share 1/%d, batch %d", j.info.name, r.dev.Kind, u.share, u.batch)
	note = ""
	if s := l.busyness(); s.factor > busyFactor {
		note = fmt.Sprintf("%s%sthe whole model took %v us, %s: other work had the processor, so that plans from these numbers promise what the machine may not keep; measure again on a quiet one (--force)",
			subject, noteSep, document.Micros(s.wholeTime), s.comparison)
		r.progress.warn(j.info.name, note)
	}
	r.notes.set(subject, note)
	r.maxDisturbance = max(r.maxDisturbance, l.disturbance(l.quietRounds()))
	subject, note = formats.BusyNote+r.dev.Kind, ""
	if r.maxDisturbance > 0.05 {
		note = fmt.Sprintf("%s: over all rounds the whole model took %.0f %% longer than in the quieter half, whose medians are given", subject, 100*r.maxDisturbance)
	}
	r.notes.set(subject, note)
}

// insertModel puts a job's model into the profile. It replaces an entry of the same name. Otherwise it is added
// behind the entries that were there before the run, in the order in which the models were named.
func (r *runner) insertModel(j *modelJob) {
	c := *j.entry
	c.Measurements = slices.Clone(j.entry.Measurements)
	indexOf := func(j *modelJob) int {
		return slices.IndexFunc(r.profile.Models, func(h formats.ProfileModel) bool { return h.Model == j.entry.Model })
	}
	if i := indexOf(j); i >= 0 {
		r.profile.Models[i] = c
		return
	}
	insertAt := len(r.profile.Models)
	for _, later := range r.jobs[slices.Index(r.jobs, j)+1:] {
		if later.isAdded {
			insertAt = min(insertAt, indexOf(later))
		}
	}
	r.profile.Models = slices.Insert(r.profile.Models, insertAt, c)
	j.isAdded = true
}
