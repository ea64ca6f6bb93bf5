package profiler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// newProbeSet makes the probes of one measurement, at a share and batch (key): every block (withBlocks), then ranges
// of blocks, then the whole model. The whole model is there even if only ranges are measured, because it shows how
// busy the machine was. idleFirst leaves the device idle before an additional sample of the whole model. onCPU says
// that CPU times decide, because one thread does all the work.
func (j *modelJob) newProbeSet(key measurementKey, withBlocks bool, ranges [][2]int, onCPU bool, idleFirst func()) *probeSet {
	set := &probeSet{name: fmt.Sprintf("%s, share 1/%d, batch %d", j.info.name, key.share, key.batch), onCPU: onCPU, ranges: ranges}

	// Each probe runs all copies of the model together: one, or one for each share of a GPU.
	add := func(name string, bindingOf func(*boundModel) engine.Binding) {
		var runs []func(int) (engine.Timing, error)
		for _, c := range j.loadedByShare[key.share] {
			runs = append(runs, bindingOf(c.bound[key.batch]).RunN)
		}
		set.probes = append(set.probes, &probe{name: name, run: RunTogether(runs)})
	}
	if withBlocks {
		set.blockCount = j.cut.Len()
	}
	for i := range set.blockCount {
		add(fmt.Sprintf("block %d", i), func(b *boundModel) engine.Binding { return b.blocks[i] })
	}
	for _, blockRange := range ranges {
		add(fmt.Sprintf("blocks [%d,%d)", blockRange[0], blockRange[1]), func(b *boundModel) engine.Binding { return b.ranges[blockRange] })
	}
	add("whole", func(b *boundModel) engine.Binding { return b.wholeModel })
	if withBlocks && key.batch == j.batches(key.share)[0] { // only small batches find a device idle
		set.probes[len(set.probes)-1].idleFirst = idleFirst
	}
	return set
}

// toMeasurement makes the profile's entry of a finished probe set (the timed blocks, ranges and whole model at one
// share and batch). If the set has the blocks, it is a new entry, otherwise it is the profile's with more ranges.
func (r *runner) toMeasurement(j *modelJob, key measurementKey, set *probeSet) formats.Measurement {
	m := formats.Measurement{Device: r.dev.Kind, Share: key.share, Batch: key.batch, MemoryBytes: j.memory[key]}
	if set.blockCount == 0 {
		m = *j.entry.FindMeasurement(r.dev.Kind, key.share, key.batch)
	}

	// Summarise every probe: blocks, ranges, and the whole model last.
	quiet := set.quietRounds()
	var ranges []formats.RangeLatency
	for i, p := range set.probes {
		lat := set.latency(p, quiet)
		if len(r.dev.CPUs) > 1 && r.dev.IsCPU() {
			lat.CPUUS = document.Micros(report.Median(pickRounds(p.cpu, quiet)))
		}
		switch {
		case i < set.blockCount:
			m.Blocks = append(m.Blocks, lat)
		case i < len(set.probes)-1:
			ranges = append(ranges, formats.RangeLatency{Blocks: set.ranges[i-set.blockCount], Latency: lat})
		case set.blockCount > 0:
			m.WholeModel = &lat
		}
	}

	// Ranges of a later run stand beside blocks of an earlier one: correct them by the whole model's times.
	if set.blockCount == 0 && m.WholeModel != nil {
		wholeNow := set.latency(set.probes[len(set.probes)-1], quiet)
		for i := range ranges {
			ranges[i].Latency = rescaledRange(ranges[i].Latency, wholeNow, *m.WholeModel)
		}
	}
	putRanges(&m, ranges)

	// The lower quartile of the reference work shows the machine with little other work.
	if len(set.reference) > 0 && set.blockCount > 0 {
		m.ReferenceUS = document.Micros(report.Percentile(slices.Sorted(slices.Values(set.reference)), 0.25))
	}
	return m
}

// recordResult puts a finished probe set into the profile: its measurement, its device, and notes if its times are
// not known well enough or the machine was busy. It is called for each finished set, before the profile is saved, and
// charges the time since the last one to the device's cost. quiet are the rounds that other work disturbed least.
func (r *runner) recordResult(j *modelJob, key measurementKey, set *probeSet) {
	quiet := set.quietRounds()
	m := r.toMeasurement(j, key, set)
	putMeasurement(j.entry, m)
	j.isRecorded = true
	r.insertModel(j)

	// Describe the device, with the values of earlier runs that this one did not measure.
	now := r.options.now()
	d := provenance(r.dev, r.options.Engine.Info(), r.options, now)
	d.CopyGbps, d.ShareMethod = r.copy, r.shareMethod
	d.MemoryGBps, d.MatmulGflops, d.State = r.ceilings.memoryGBps, r.ceilings.matmulGflops, r.watch.summary()
	d.CostSeconds = (now.Sub(r.begun) - r.chargedTime).Seconds()
	for _, known := range r.profile.Devices {
		if known.Device == d.Device {
			d.CostSeconds += known.CostSeconds
			d.MatmulGflops = cmp.Or(d.MatmulGflops, known.MatmulGflops)
			d.MemoryGBps = cmp.Or(d.MemoryGBps, known.MemoryGBps)
			if d.State == nil {
				d.State = known.State
			}
			d.BetweenRuns = known.BetweenRuns
			d.ShareMethod = cmp.Or(d.ShareMethod, known.ShareMethod)
		}
	}
	d.CostSeconds = math.Round(d.CostSeconds*10) / 10
	r.chargedTime = now.Sub(r.begun)
	putDevice(r.profile, d)

	// Note which numbers are not known well enough, and how busy the machine was. An empty note removes an older one.
	subject := r.precisionSubject(j, key)
	note := ""
	if set.isPartial {
		note = fmt.Sprintf("%s%s%d samples%s", subject, noteSep, set.roundCount, partialEnd)
		r.progress.warn(j.info.name, note)
	} else if loose := set.loosestHalfWidth(r.options.Precision.Floor); loose > r.options.Precision.HalfWidth {
		note = fmt.Sprintf("%s: times are only known to ±%.1f %% (%d samples, stopped by %s)", subject, 100*loose, set.roundCount, set.stopReason)
		r.progress.warn(j.info.name, note)
	}
	if set.blockCount > 0 || !r.isPartial(j, key) { // ranges do not finish blocks that were interrupted
		r.setNote(subject, note)
	}
	if j.info.weightsNote != "" {
		r.setNote("weights of "+j.info.name, "weights of "+j.info.name+noteSep+j.info.weightsNote)
	}
	subject = fmt.Sprintf("busy machine under %s on %s at share 1/%d, batch %d", j.info.name, r.dev.Kind, key.share, key.batch)
	note = ""
	if s := set.busyness(); s.factor > busyFactor {
		note = fmt.Sprintf("%s%sthe whole model took %v us, %s: other work had the processor, so that plans from these numbers promise what the machine may not keep; measure again on a quiet one (--force)",
			subject, noteSep, document.Micros(s.wholeTime), s.comparison)
		r.progress.warn(j.info.name, note)
	}
	r.setNote(subject, note)
	r.maxDisturbance = max(r.maxDisturbance, set.disturbance(quiet))
	subject, note = formats.BusyNote+r.dev.Kind, ""
	if r.maxDisturbance > 0.05 {
		note = fmt.Sprintf("%s: over all rounds the whole model took %.0f %% longer than in the quieter half, whose medians are given", subject, 100*r.maxDisturbance)
	}
	r.setNote(subject, note)
}

// precisionSubject returns the subject of the note about how well a measurement is known.
func (r *runner) precisionSubject(j *modelJob, key measurementKey) string {
	return fmt.Sprintf("precision of %s on %s at share 1/%d, batch %d", j.info.name, r.dev.Kind, key.share, key.batch)
}

// partialEnd ends the note about a measurement that was interrupted early.
const partialEnd = " until it was interrupted; plan profile measures it again"

// isPartial reports whether the profile says of a measurement that it was interrupted early.
func (r *runner) isPartial(j *modelJob, key measurementKey) bool {
	return slices.ContainsFunc(r.profile.Notes, func(n string) bool {
		return strings.HasPrefix(n, r.precisionSubject(j, key)+noteSep) && strings.HasSuffix(n, partialEnd)
	})
}

// holdsBetter reports whether the profile has a measurement that is better than one that was interrupted after rounds:
// a finished one, or one with as many samples.
func (r *runner) holdsBetter(j *modelJob, key measurementKey, rounds int) bool {
	m := j.entry.FindMeasurement(r.dev.Kind, key.share, key.batch)
	return m != nil && m.WholeModel != nil && (!r.isPartial(j, key) || m.WholeModel.Samples >= rounds)
}

// insertModel puts a job's model into the profile, in place of an entry of the same name. Otherwise it is added
// behind the entries that were there before the run, in the order in which the models were named: before those that
// are named later. A copy of the job's entry is inserted, so that later changes of the job do not show until it is
// inserted again.
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
