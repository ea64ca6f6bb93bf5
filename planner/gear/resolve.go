package gear

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// resolveDocuments fills in the problem from the documents, in this order: quantile thresholds, kinds of devices,
// models with their times, samples, SLO, blocks for stages, and ranges of request rates. The error names the field at
// fault.
func (f *resolvedWorkload) resolveDocuments() error {
	cascade, p := f.cascade, f.problem
	f.setGrid()
	if err := f.setPools(); err != nil {
		return err
	}

	// Kinds of devices, and the members' times on them.
	for _, pool := range f.pools {
		if pool.Memory == 0 {
			f.run.Assume("every model of the family fits on a device of kind %s together with the others: the pool gives no memory", pool.Device)
		}
		p.Kinds = append(p.Kinds, cascades.Kind{Name: pool.Device, Devices: pool.Count, Memory: int64(pool.Memory)})
	}
	for i, name := range cascade.Family {
		model, err := f.readModel(name, fmt.Sprintf("cascade.family[%d]", i))
		if err != nil {
			return err
		}
		p.Models = append(p.Models, *model)
	}

	// Samples, SLO, stages and ranges.
	if err := f.setRecords(cascade.Family); err != nil {
		return err
	}
	if err := f.setSLO(cascade, p.Models[len(p.Models)-1].FastestTimes[0]); err != nil {
		return err
	}
	if err := f.setBlocks(); err != nil {
		return err
	}
	return f.setRanges(&cascade.QPS)
}

// maxCascades limits the number of cascades that are enumerated.
const maxCascades = 120_000

// setGrid sets the grid, the number of levels into which quantile thresholds divide a model's certainty: the requested
// one, or the largest that makes no more than maxCascades cascades. A smaller grid than the user asked for is a
// warning, a default an assumption.
func (f *resolvedWorkload) setGrid() {
	cascade, p := f.cascade, f.problem

	// cascades returns the number of cascades: each set of models, with one of grid-1 thresholds after each but the last.
	cascades := func(grid int) float64 {
		return (math.Pow(float64(grid), float64(len(cascade.Family))) - 1) / float64(grid-1)
	}
	for p.Grid = cascade.GridSize(); p.Grid > 2 && cascades(p.Grid) > maxCascades; p.Grid-- {
	}
	switch requested := cascade.GridSize(); {
	case p.Grid < requested && cascade.Grid != 0:
		f.run.Warn("grid %d in place of %d: over so many quantile thresholds per model %d models make %.6g cascades, and at most %d are listed", p.Grid, requested, len(cascade.Family), cascades(requested), maxCascades)
	case cascade.Grid == 0:
		f.run.Assume("grid %d: quantile thresholds per model", p.Grid)
	}
}

// maxDevicesPerKind limits the devices of a kind, because the load of each range is levelled over all of them many
// times.
const maxDevicesPerKind = 16_384

// setPools sets the pools to those of the cluster that have devices, with their defaults. The models of a cascade take
// turns on every device, so all pools are shared in time, with one share per device; another sharing is replaced, which
// is stated as an assumption.
func (r *resolvedWorkload) setPools() error {
	for i, p := range r.input.Cluster.Pools {
		if p.Count == 0 {
			continue
		}
		if p.Count > maxDevicesPerKind {
			return r.input.FieldError("cluster", fmt.Sprintf("pools[%d].count", i), fmt.Sprintf("%d devices", p.Count), fmt.Sprintf("at most %d of a kind for a cascade", maxDevicesPerKind), "plan for a part of the devices and of the rate")
		}
		p = p.WithDefaults()
		if p.Sharing != formats.SharingTime {
			r.run.Assume("sharing: time on %s: the models of a cascade take turns on a device", p.Device)
		}
		p.Sharing, p.MaxShares = formats.SharingTime, 1
		r.pools = append(r.pools, p)
	}
	if len(r.pools) == 0 {
		return r.input.FieldError("cluster", "pools", "no device", "at least one", "")
	}
	return nil
}

// readModel returns the model of a name, with its latencies and memory on each pool's kind of devices, and adds its
// profile to the workload, with no cuts between its blocks yet. path is the field that names the model, for errors. It
// fails if the model was measured on none of the kinds.
func (f *resolvedWorkload) readModel(name, path string) (*cascades.Model, error) {
	modelIndex, err := f.input.ModelIndex(name, path)
	if err != nil {
		return nil, err
	}
	modelProfile := &f.input.Profile.Models[modelIndex]
	f.modelProfiles, f.blockCuts = append(f.modelProfiles, modelProfile), append(f.blockCuts, nil)
	var kinds []string
	var variants []cascades.Variant
	for _, pool := range f.pools {
		kinds, variants = append(kinds, pool.Device), append(variants, f.variantOn(modelProfile, pool.Device))
	}
	m := cascades.NewModel(name, variants...)
	if len(m.FastestTimes) == 0 {
		return nil, f.input.FieldError("profile", fmt.Sprintf("models[%d].measurements", modelIndex), "none of "+name+" on "+strings.Join(kinds, " or "), "at least one", "measure it there: plan profile --device …")
	}
	return &m, nil
}

// setRequestTimes sets the time that a request spends outside of the models' runs (in client, loopback and front end),
// and the time for which it occupies the front end, whose CPUs may limit the rate. Both follow from measured means over
// the family.
func (f *resolvedWorkload) setRequestTimes() {
	f.problem.RequestOverhead = formats.MeanOfFamily(f.modelProfiles, func(m *formats.ProfileModel) document.Micros { return m.RequestUS })
	f.requestCPU = formats.MeanOfFamily(f.modelProfiles, func(m *formats.ProfileModel) document.Micros { return m.RequestCPUUS })
	if front := formats.FrontEndOf(f.input.Cluster, f.input.Profile); front != nil {
		f.problem.FrontEndTime = front.OccupiedTime(f.requestCPU)
	}
}

// variantOn returns the times and the memory (bytes) of a whole model on a kind of devices. Times are of every batch
// size up to the largest that was measured and that the option max-batch allows. If the memory was not measured, it is
// the bytes of the weights. If the model was not measured on the kind, there are no times. Measurements on a share 1/v
// of a device, with v above 1, are left out.
func (f *resolvedWorkload) variantOn(modelProfile *formats.ProfileModel, device string) cascades.Variant {
	var variant cascades.Variant
	costs := wholeModelCosts(modelProfile, device)
	for i := range modelProfile.Measurements {
		if ms := &modelProfile.Measurements[i]; ms.Device == device && isOnWholeDevice(ms) {
			variant.Memory = max(variant.Memory, ms.MemoryBytes)
		}
	}

	// Times of every batch size up to the largest measured one. In these costs the whole model is one block, from 0 to 1.
	const firstBlock, endBlock = 0, 1
	if list := costs.Batches; len(list) > 0 {
		maxBatch, hasMeans := list[len(list)-1].Batch, list[0].MeanFactor > 0
		if limit := f.input.Values.WholeNumber("max-batch"); limit > 0 {
			maxBatch = min(maxBatch, limit)
		}
		for b := 1; b <= maxBatch; b++ {
			expected := costs.ExpectedTimes(b)
			variant.MedianTimes = append(variant.MedianTimes, expected.Median(firstBlock, endBlock))
			if hasMeans {
				variant.MeanTimes = append(variant.MeanTimes, expected.Mean(firstBlock, endBlock))
			}
		}
	}
	if variant.Memory == 0 {
		variant.Memory += lists.Sum(len(modelProfile.Blocks), func(b int) int64 { return modelProfile.Blocks[b].WeightBytes })
	}
	return variant
}

// isOnWholeDevice reports whether a measurement is of a whole device. Its Share is the v of a share 1/v of a device.
func isOnWholeDevice(measurement *formats.Measurement) bool { return measurement.Share <= 1 }

// wholeModelCosts returns the measured costs of a model on a kind of devices, if it runs whole: as if it were one
// block, with a time for each measured batch size. Measurements on a share 1/v of a device, with v above 1, are left
// out.
func wholeModelCosts(pm *formats.ProfileModel, device string) *stages.ShareCosts {
	// A batch between two measured sizes takes the time of the larger one if it is padded, and a time between theirs if not.
	// PadsToNext is nil if all batches are padded. Else it has an entry for the place before and one for the place after the
	// block, both false.
	costs := &stages.ShareCosts{Dispatch: pm.DispatchUS.D()}
	if !pm.PadsBatches(device, 0, len(pm.Blocks)) {
		costs.PadsToNext = make([]bool, 2)
	}

	// Each measurement is a batch. Its time is that of the whole model (the median, WallUS), or else the sum of its blocks. The
	// mean is noted as a factor on it.
	allHaveMeans := true
	for i := range pm.Measurements {
		ms := &pm.Measurements[i]
		if ms.Device != device || !isOnWholeDevice(ms) {
			continue
		}
		cost := stages.BatchCost{Batch: ms.Batch, Blocks: make([]time.Duration, 1)}
		if ms.WholeModel != nil {
			cost.Blocks[0], cost.MeanFactor = ms.WholeModel.WallUS.D(), float64(ms.WholeModel.MeanUS)/float64(max(1, ms.WholeModel.WallUS))
		} else {
			cost.Blocks[0] += lists.Sum(len(ms.Blocks), func(b int) time.Duration { return ms.Blocks[b].WallUS.D() })
		}
		allHaveMeans = allHaveMeans && cost.MeanFactor > 0
		costs.Batches = append(costs.Batches, cost)
	}

	// Means count only if every batch has one.
	slices.SortFunc(costs.Batches, func(a, b stages.BatchCost) int { return a.Batch - b.Batch })
	for i := range costs.Batches {
		if !allHaveMeans {
			costs.Batches[i].MeanFactor = 0
		}
	}
	return costs
}

// setRecords sets the thresholds and samples of the problem from records: the certainty and correctness of every
// model's answers to the same samples. It takes the first set of records in the profile that has all models of the
// family. names are these models. It warns of few samples, and if none are held out of planning. The error says that no
// set has all models.
func (f *resolvedWorkload) setRecords(names []string) error {
	for i := range f.input.Profile.Records {
		r := &f.input.Profile.Records[i]
		if slices.ContainsFunc(names, func(n string) bool { return r.FindModel(n) == nil }) {
			continue
		}
		var err error
		p := f.problem
		f.recordScore, f.calibration = r.Score, map[string]formats.Calibration{}
		for k := range r.Models {
			f.calibration[r.Models[k].Model] = r.Models[k].Calibration
		}
		if p.Thresholds, p.PlanningSamples, p.HeldOutSamples, err = cascades.GradeRecords(r, names, p.Grid); err != nil {
			return f.input.FieldError("workload", "cascade.grid", fmt.Sprint(p.Grid), fmt.Sprintf("2 to %d", formats.MaxGrid), err.Error())
		}
		if r.PlanningSamples < 5000 {
			f.run.Warn("planned on %d samples: below 5000 the accuracy of the chosen cascades is noticeably biased", r.PlanningSamples)
		}
		if p.HeldOutSamples.N == 0 {
			f.run.Warn("no samples are held out: accuracies are those of the samples that the cascades were chosen on")
		}
		return nil
	}
	return f.input.FieldError("profile", "records", fmt.Sprintf("%d sets of records, none with all of %s", len(f.input.Profile.Records), strings.Join(names, ", ")),
		"the certainty and correctness of every model of the family on the same samples", "record them: plan profile --records, or import them: plan import records")
}

// setSLO sets latency, accuracy, percentile and scope of the SLO, from the workload or, for the latency, the option
// slo. A latency such as "5x" is a multiple of last, the batch-1 latency of the family's last model. Defaults are
// stated as assumptions. It fails if neither latency nor accuracy is given.
func (f *resolvedWorkload) setSLO(w *formats.Cascade, last time.Duration) error {
	slo := w.SLO.Latency
	if requested := f.input.Values.SLO("slo"); !requested.IsZero() {
		slo = requested
	}
	f.problem.TargetAccuracy = w.SLO.Accuracy
	if !slo.IsZero() {
		f.problem.SLO = slo.Resolve(last)
	} else if f.problem.TargetAccuracy == 0 {
		return f.input.FieldError("workload", "cascade.slo", "neither latency nor accuracy", "a latency or an accuracy target", "")
	}
	if slo.Factor > 0 {
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
		return f.input.FieldError("workload", "cascade.slo.percentile", percentile, "a percentile such as p95", "")
	}
	f.problem.Percentile = v
	f.problem.OverRequests = w.SLO.Scope == formats.ScopeRequests
	f.run.Assume("margin 0: tail latencies of gears are simulated, not added up")
	return nil
}

// setRanges sets the ranges of request rates that get a gear each, by their upper edges (requests per second), and
// their weights, the share of the requests in each: from measured rates, a histogram, or a named distribution.
func (f *resolvedWorkload) setRanges(q *formats.CascadeQPS) error {
	p := f.problem
	n := q.Ranges
	switch {
	case q.MeasuredFile != "":
		return f.setMeasuredRanges(q)
	case q.Histogram != nil:
		if n != 0 && n != len(q.Histogram) {
			return f.input.FieldError("workload", "cascade.qps.ranges", fmt.Sprint(n), fmt.Sprintf("%d, the bars of the histogram", len(q.Histogram)), "leave it out")
		}
		f.weightsSource = "histogram"
		p.RangeWeights = cascades.HistogramWeights(q.Histogram)
		n = len(q.Histogram)
	case q.Distribution == "uniform":
		f.weightsSource, p.RangeWeights = "uniform", cascades.UniformWeights(n)
	default:
		f.weightsSource, p.RangeWeights = "zipf", cascades.ZipfWeights(n)
	}
	if n < 1 || n > 1000 || !(q.Max > 0) {
		return f.input.FieldError("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, q.Max), "1 to 1000 ranges up to a positive rate", "")
	}

	// The edges. Very many ranges of a tiny rate may coincide.
	p.RangeEdges = cascades.EqualRanges(q.Max, n)
	for r, edge := range p.RangeEdges {
		if !(edge > 0) || r > 0 && edge <= p.RangeEdges[r-1] {
			return f.input.FieldError("workload", "cascade.qps.max", fmt.Sprint(q.Max), fmt.Sprintf("a rate that %d ranges can be cut from", n), "")
		}
	}
	return nil
}

// defaultMeasuredRanges is the number of ranges that measured rates are cut into by default. More gain little.
const defaultMeasuredRanges = 10

// setMeasuredRanges sets ranges and weights from a file of requests per second, and the measured rates themselves. The
// weight of a range is the share of the requests that its gear (cascade) serves when these rates go through the rule by
// which the policy switches gears, because accuracy counts per request and not per hour. The number of ranges and the
// highest rate have defaults, which are stated as assumptions.
func (f *resolvedWorkload) setMeasuredRanges(q *formats.CascadeQPS) error {
	// Read the rates.
	path := filepath.FromSlash(q.MeasuredFile)
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.input.WorkloadDir, path)
	}
	rates, err := arrivals.PerSecond(path)
	if err != nil {
		if findings := document.Findings(err); findings != nil {
			return err
		}
		return f.input.FieldError("workload", "cascade.qps.measured", fmt.Sprintf("%q: %v", q.MeasuredFile, err), "a CSV file of second,count that can be read", "the path is taken from the folder of the workload")
	}

	// Number of ranges and highest rate.
	n, peak := q.Ranges, q.Max
	if n == 0 {
		n = defaultMeasuredRanges
		f.run.Assume("ranges %d of measured rates", n)
	}
	if peak == 0 {
		if peak = slices.Max(rates); !(peak > 0) {
			return f.input.FieldError("workload", "cascade.qps.measured", q.MeasuredFile+": no request in any second", "a second with requests", "")
		}
		f.run.Assume("max %g requests per second: the highest measured rate", peak)
	}
	if maxRate := slices.Max(rates); maxRate > peak {
		f.run.Warn("measured rates reach %g requests per second, above max %g: they count in the last range", maxRate, peak)
	}
	if n < 1 || n > 1000 || !(peak > 0) {
		return f.input.FieldError("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, peak), "1 to 1000 ranges up to a positive rate", "")
	}

	// Edges and weights.
	f.weightsSource = "measured"
	p := f.problem
	p.MeasuredRates, p.RangeEdges, p.ScopeUnspecified = rates, cascades.EqualRanges(peak, n), f.cascade.SLO.Scope == ""
	p.RangeWeights, p.RateShares = cascades.ServedWeights(rates, peak, n, trialSeed), cascades.MeasuredWeights(rates, peak, n)
	return nil
}
