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
func (j *job) lane(u unit, base bool, ranges [][2]int, onCPU bool, rest func()) *lane {
	l := &lane{name: fmt.Sprintf("%s, share 1/%d, batch %d", j.in.name, u.share, u.batch), onCPU: onCPU, ranges: ranges}
	add := func(name string, of func(*bound) engine.Binding) {
		var runs []func(int) (engine.Timing, error)
		for _, c := range j.chains[u.share] {
			runs = append(runs, of(c.bound[u.batch]).RunN)
		}
		l.probes = append(l.probes, &probe{name: name, run: Together(runs)})
	}
	if base {
		l.blocks = j.cut.Len()
	}
	for i := range l.blocks {
		add(fmt.Sprintf("block %d", i), func(b *bound) engine.Binding { return b.blocks[i] })
	}
	for _, at := range ranges {
		add(fmt.Sprintf("blocks [%d,%d)", at[0], at[1]), func(b *bound) engine.Binding { return b.ranges[at] })
	}
	add("whole", func(b *bound) engine.Binding { return b.whole })
	if base && u.batch == j.batches(u.share)[0] { // only small batches find a device idle
		l.probes[len(l.probes)-1].rest = rest
	}
	return l
}

// toMeasurement makes a measurement of a finished probe set. If the set has the blocks it is a new one, otherwise
// it is the profile's with more ranges.
func (r *runner) measured(j *job, u unit, l *lane) formats.Measurement {
	m := formats.Measurement{Device: r.dev.Kind, Share: u.share, Batch: u.batch, MemoryBytes: j.memory[u]}
	if l.blocks == 0 {
		m = *j.entry.At(r.dev.Kind, u.share, u.batch)
	}
	quiet := l.quiet()
	var ranges []formats.RangeLatency
	for i, p := range l.probes {
		lat := l.latency(p, quiet)
		if len(r.dev.CPUs) > 1 && r.dev.IsCPU() {
			lat.CPUUS = document.Micros(median(pick(p.cpu, quiet)))
		}
		switch {
		case i < l.blocks:
			m.Blocks = append(m.Blocks, lat)
		case i < len(l.probes)-1:
			ranges = append(ranges, formats.RangeLatency{Blocks: l.ranges[i-l.blocks], Latency: lat})
		case l.blocks > 0:
			m.Whole = &lat
		}
	}
	if l.blocks == 0 && m.Whole != nil {
		now := l.latency(l.probes[len(l.probes)-1], quiet)
		for i := range ranges {
			ranges[i].Latency = asThen(ranges[i].Latency, now, *m.Whole)
		}
	}
	putRanges(&m, ranges)
	if len(l.reference) > 0 && l.blocks > 0 {
		m.ReferenceUS = document.Micros(report.Percentile(slices.Sorted(slices.Values(l.reference)), 0.25))
	}
	return m
}

// recordResult puts a finished probe set into the profile: its measurement, its device and notes on its precision.
func (r *runner) record(j *job, u unit, l *lane) {
	quiet := l.quiet()
	m := r.measured(j, u, l)
	putMeasurement(j.entry, m)
	j.recorded = true
	r.put(j)

	// Describe the device, with the values of earlier runs that this one did not measure.
	now := r.o.now()
	d := provenance(r.dev, r.o.Engine.Info(), r.o, now)
	d.CopyGbps, d.ShareMethod = r.copy, r.shared
	d.MemoryGBps, d.MatmulGflops, d.State = r.memoryGBps, r.matmulGflops, r.watch.summary()
	d.CostSeconds = (now.Sub(r.begun) - r.counted).Seconds()
	for _, have := range r.profile.Devices {
		if have.Device == d.Device {
			d.CostSeconds += have.CostSeconds
			if d.MatmulGflops == 0 {
				d.MatmulGflops = have.MatmulGflops
			}
			if d.MemoryGBps == 0 {
				d.MemoryGBps = have.MemoryGBps
			}
			if d.State == nil {
				d.State = have.State
			}
			d.BetweenRuns = have.BetweenRuns
			if d.ShareMethod == "" {
				d.ShareMethod = have.ShareMethod
			}
		}
	}
	d.CostSeconds = math.Round(d.CostSeconds*10) / 10
	r.counted = now.Sub(r.begun)
	putDevice(r.profile, d)

	// Note which numbers are not known well enough.
	subject := fmt.Sprintf("precision of %s on %s at share 1/%d, batch %d", j.in.name, r.dev.Kind, u.share, u.batch)
	note := ""
	if loose := l.loosest(r.o.Precision.Floor); loose > r.o.Precision.HalfWidth {
		note = fmt.Sprintf("%s: times are only known to ±%.1f %% (%d samples, stopped by %s)", subject, 100*loose, l.rounds, l.ended)
		r.warn(j.in.name, note)
	}
	r.note(subject, note)
	if j.in.weights != "" {
		r.note("weights of "+j.in.name, "weights of "+j.in.name+noteSep+j.in.weights)
	}
	subject = fmt.Sprintf("busy machine under %s on %s at share 1/%d, batch %d", j.in.name, r.dev.Kind, u.share, u.batch)
	note = ""
	if s := l.strain(); s.factor > busyFactor {
		note = fmt.Sprintf("%s%sthe whole model took %v us, %s: other work had the processor, so that plans from these numbers promise what the machine may not keep; measure again on a quiet one (--force)",
			subject, noteSep, document.Micros(s.whole), s.against)
		r.warn(j.in.name, note)
	}
	r.note(subject, note)
	r.busy = max(r.busy, l.disturbance(quiet))
	subject, note = formats.BusyNote+r.dev.Kind, ""
	if r.busy > 0.05 {
		note = fmt.Sprintf("%s: over all rounds the whole model took %.0f %% longer than in the quieter half, whose medians are given", subject, 100*r.busy)
	}
	r.note(subject, note)
}

// insertModel puts a job's model into the profile. It replaces an entry of the same name. Otherwise it is added
// behind the entries that were there before the run, in the order in which the models were named.
func (r *runner) put(j *job) {
	c := *j.entry
	c.Measurements = slices.Clone(j.entry.Measurements)
	index := func(j *job) int {
		return slices.IndexFunc(r.profile.Models, func(h formats.ProfileModel) bool { return h.Model == j.entry.Model })
	}
	if i := index(j); i >= 0 {
		r.profile.Models[i] = c
		return
	}
	at := len(r.profile.Models)
	for _, later := range r.jobs[slices.Index(r.jobs, j)+1:] {
		if later.added {
			at = min(at, index(later))
		}
	}
	r.profile.Models = slices.Insert(r.profile.Models, at, c)
	j.added = true
}
