package gear

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/stages"
)

// resolveDocuments fills in the problem from the documents.
func (f *resolved) resolve() error {
	w, p := f.cascade, f.problem
	f.grid()
	if err := f.gearPools(); err != nil {
		return err
	}

	// Kinds of devices, and the members' times on them.
	for _, pool := range f.pools {
		if pool.Memory == 0 {
			f.run.Assume("every model of the family fits on a device of kind %s together with the others: the pool gives no memory", pool.Device)
		}
		p.Kinds = append(p.Kinds, Kind{Name: pool.Device, Devices: pool.Count, Memory: int64(pool.Memory)})
	}
	for i, name := range w.Family {
		m, err := f.member(name, fmt.Sprintf("cascade.family[%d]", i))
		if err != nil {
			return err
		}
		p.Models = append(p.Models, *m)
	}

	// Samples, SLO, stages and ranges.
	if err := f.records(w.Family); err != nil {
		return err
	}
	if err := f.target(w, p.Models[len(p.Models)-1].Times[0]); err != nil {
		return err
	}
	if err := f.inStages(); err != nil {
		return err
	}
	return f.ranges(&w.QPS)
}

// maxCascades limits the number of cascades that are enumerated.
const maxCascades = 120_000

// setGrid sets the number of quantile thresholds per model: the requested one, or the largest that makes no more
// than maxCascades cascades.
func (f *resolved) grid() {
	w, p := f.cascade, f.problem
	cascades := func(grid int) float64 {
		return (math.Pow(float64(grid), float64(len(w.Family))) - 1) / float64(grid-1)
	}
	for p.Grid = w.Quantiles(); p.Grid > 2 && cascades(p.Grid) > maxCascades; p.Grid-- {
	}
	switch full := w.Quantiles(); {
	case p.Grid < full && w.Grid != 0:
		f.run.Warn("grid %d in place of %d: over so many quantile thresholds per model %d models make %.6g cascades, and at most %d are listed", p.Grid, full, len(w.Family), cascades(full), maxCascades)
	case w.Grid == 0:
		f.run.Assume("grid %d: quantile thresholds per model", p.Grid)
	}
}

// maxDevicesPerKind limits the devices of a kind, because the load of each range is levelled over all of them many
// times.
const mostDevices = 16_384

// setPools sets the pools that have devices. The models of a cascade take turns on every device.
func (r *resolved) gearPools() error {
	for i, p := range r.in.Cluster.Pools {
		if p.Count == 0 {
			continue
		}
		if p.Count > mostDevices {
			return r.in.Fail("cluster", fmt.Sprintf("pools[%d].count", i), fmt.Sprintf("%d devices", p.Count), fmt.Sprintf("at most %d of a kind for a cascade", mostDevices), "plan for a part of the devices and of the rate")
		}
		p = p.WithDefaults()
		if p.Sharing != formats.SharingTime {
			r.run.Assume("sharing: time on %s: the models of a cascade take turns on a device", p.Device)
		}
		p.Sharing, p.MaxShares = formats.SharingTime, 1
		r.pools = append(r.pools, p)
	}
	if len(r.pools) == 0 {
		return r.in.Fail("cluster", "pools", "no device", "at least one", "")
	}
	return nil
}

// readModel returns a model with its latencies. It fails if none was measured on any kind of the cluster's
// devices.
func (f *resolved) member(name, path string) (*Model, error) {
	at, err := f.in.Model(name, path)
	if err != nil {
		return nil, err
	}
	pm := &f.in.Profile.Models[at]
	f.profile, f.cuts = append(f.profile, pm), append(f.cuts, nil)
	var kinds []string
	var on []Variant
	for _, pool := range f.pools {
		kinds, on = append(kinds, pool.Device), append(on, f.variant(pm, pool.Device))
	}
	m := NewModel(name, on...)
	if len(m.Times) == 0 {
		return nil, f.in.Fail("profile", fmt.Sprintf("models[%d].measurements", at), "none of "+name+" on "+strings.Join(kinds, " or "), "at least one", "measure it there: plan profile --device …")
	}
	return &m, nil
}

// setRequestTimes sets the time of a request outside of its runs, and that for which it occupies the front end.
func (f *resolved) requests() {
	f.problem.Beside = formats.MeanOfFamily(f.profile, func(m *formats.ProfileModel) document.Micros { return m.RequestUS })
	f.requestCPU = formats.MeanOfFamily(f.profile, func(m *formats.ProfileModel) document.Micros { return m.RequestCPUUS })
	if front := formats.FrontEndOf(f.in.Cluster, f.in.Profile); front != nil {
		f.problem.FrontEnd = front.Time(f.requestCPU)
	}
}

// variantOn returns the times and the memory of a model on a kind of devices. If the memory was not measured, it
// is the bytes of the weights.
func (f *resolved) variant(pm *formats.ProfileModel, device string) Variant {
	var m Variant
	whole := wholeOf(pm, device)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && ms.Share <= 1 {
			m.Memory = max(m.Memory, ms.MemoryBytes)
		}
	}

	// Times of every batch size up to the largest measured one.
	if list := whole.Batches; len(list) > 0 {
		most, means := list[len(list)-1].Batch, list[0].Mean > 0
		if f.opt.MaxBatch > 0 {
			most = min(most, f.opt.MaxBatch)
		}
		for b := 1; b <= most; b++ {
			e := whole.Expect(b)
			m.Times = append(m.Times, e.Median(0, 1))
			if means {
				m.Means = append(m.Means, e.Mean(0, 1))
			}
		}
	}
	if m.Memory == 0 {
		for b := range pm.Blocks {
			m.Memory += pm.Blocks[b].WeightBytes
		}
	}
	return m
}

// wholeModelCosts returns what a model costs on a kind of devices if it runs whole, as one block.
func wholeOf(pm *formats.ProfileModel, device string) *stages.Share {
	out := &stages.Share{Dispatch: pm.DispatchUS.D()}
	if !pm.Pads(device, 0, len(pm.Blocks)) {
		out.Pads = make([]bool, 2)
	}

	// Each measurement is a batch. Its time is that of the whole model, or else the sum of its blocks.
	means := true
	for _, ms := range pm.Measurements {
		if ms.Device != device || ms.Share > 1 {
			continue
		}
		c := stages.BatchCost{Batch: ms.Batch, Blocks: make([]time.Duration, 1)}
		if ms.Whole != nil {
			c.Blocks[0], c.Mean = ms.Whole.WallUS.D(), float64(ms.Whole.MeanUS)/float64(max(1, ms.Whole.WallUS))
		} else {
			for b := range ms.Blocks {
				c.Blocks[0] += ms.Blocks[b].WallUS.D()
			}
		}
		means = means && c.Mean > 0
		out.Batches = append(out.Batches, c)
	}

	// Means count only if every batch has one.
	slices.SortFunc(out.Batches, func(a, b stages.BatchCost) int { return a.Batch - b.Batch })
	for i := range out.Batches {
		if !means {
			out.Batches[i].Mean = 0
		}
	}
	return out
}

// setRecords sets thresholds and samples from the first of the profile's records that has all models of the
// family.
func (f *resolved) records(names []string) error {
	for i := range f.in.Profile.Records {
		r := &f.in.Profile.Records[i]
		if slices.ContainsFunc(names, func(n string) bool { return r.Find(n) == nil }) {
			continue
		}
		var err error
		p := f.problem
		f.score, f.calibration = r.Score, map[string]formats.Calibration{}
		for k := range r.Models {
			f.calibration[r.Models[k].Model] = r.Models[k].Calibration
		}
		if p.Thresholds, p.Planned, p.HeldOut, err = Grade(r, names, p.Grid); err != nil {
			return f.in.Fail("workload", "cascade.grid", fmt.Sprint(p.Grid), fmt.Sprintf("2 to %d", formats.MaxGrid), err.Error())
		}
		if r.Planning < 5000 {
			f.run.Warn("planned on %d samples: below 5000 the accuracy of the chosen cascades is noticeably biased", r.Planning)
		}
		if p.HeldOut.N == 0 {
			f.run.Warn("no samples are held out: accuracies are those of the samples that the cascades were chosen on")
		}
		return nil
	}
	return f.in.Fail("profile", "records", fmt.Sprintf("%d sets of records, none with all of %s", len(f.in.Profile.Records), strings.Join(names, ", ")),
		"the certainty and correctness of every model of the family on the same samples", "record them: plan profile --records, or import them: plan import records")
}

// setSLO sets latency, accuracy, percentile and scope of the SLO. A latency such as "5x" is a multiple of the
// batch-1 latency of the last model.
func (f *resolved) target(w *formats.Cascade, last time.Duration) error {
	slo := w.SLO.Latency
	if !f.opt.SLO.IsZero() {
		slo = f.opt.SLO
	}
	f.problem.Target = w.SLO.Accuracy
	if !slo.IsZero() {
		f.problem.SLO = slo.Of(last)
	} else if f.problem.Target == 0 {
		return f.in.Fail("workload", "cascade.slo", "neither latency nor accuracy", "a latency or an accuracy target", "")
	}
	if slo.Times > 0 {
		f.run.Assume("slo: %s of %s at batch 1 is %s", slo, w.Family[len(w.Family)-1], document.Duration(f.problem.SLO))
	}

	// Percentile and scope.
	percentile := w.SLO.Percentile
	if percentile == "" {
		percentile = "p95"
		f.run.Assume("percentile p95 of the cascade")
	}
	v, err := document.ParsePercentile(percentile)
	if err != nil {
		return f.in.Fail("workload", "cascade.slo.percentile", percentile, "a percentile such as p95", "")
	}
	f.problem.Percentile = v
	f.problem.Overall = w.SLO.Over == formats.OverRequests
	f.run.Assume("margin 0: tail latencies of gears are simulated, not added up")
	return nil
}

// setRanges sets the ranges of rates and their weights.
func (f *resolved) ranges(q *formats.CascadeQPS) error {
	p := f.problem
	n := q.Ranges
	switch {
	case q.Measured != "":
		return f.measured(q)
	case q.Histogram != nil:
		if n != 0 && n != len(q.Histogram) {
			return f.in.Fail("workload", "cascade.qps.ranges", fmt.Sprint(n), fmt.Sprintf("%d, the bars of the histogram", len(q.Histogram)), "leave it out")
		}
		f.weights = "histogram"
		p.Weights = Shares(q.Histogram)
		n = len(q.Histogram)
	case q.Distribution == "uniform":
		f.weights, p.Weights = "uniform", Uniform(n)
	default:
		f.weights, p.Weights = "zipf", Zipf(n)
	}
	if n < 1 || n > 1000 || !(q.Max > 0) {
		return f.in.Fail("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, q.Max), "1 to 1000 ranges up to a positive rate", "")
	}

	// The edges. Very many ranges of a tiny rate may coincide.
	p.Edges = Ranges(q.Max, n)
	for r, edge := range p.Edges {
		if !(edge > 0) || r > 0 && edge <= p.Edges[r-1] {
			return f.in.Fail("workload", "cascade.qps.max", fmt.Sprint(q.Max), fmt.Sprintf("a rate that %d ranges can be cut from", n), "")
		}
	}
	return nil
}
