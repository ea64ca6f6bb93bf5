package diff

import "inferplan/formats"

// Reports returns the changes from report a to report b: outcomes of requests, latencies and use of devices, in
// total and by model.
func Reports(a, b *formats.Report) *Result {
	r := &Recorder{Result: Result{Kind: formats.KindReport, Changes: []Change{}}}
	r.section = "report"
	r.addText("source", a.Source, b.Source)
	r.addText("policy", a.Policy, b.Policy)
	r.addFigure("load", a.Load, b.Load, "", neutral)
	if x, y := a.Plan, b.Plan; x != nil && y != nil {
		r.addText("plan", formatShort(x.SHA256), formatShort(y.SHA256))
	}
	r.section = "requests"
	r.addOutcomes("", &a.Counts, &b.Counts, &a.Latency, &b.Latency)
	r.addOptional("max load factor", a.MaxLoadFactor, b.MaxLoadFactor, "", moreIsBetter)
	r.addShare("share of the bound", a.BoundShare, b.BoundShare, moreIsBetter)
	r.addShare("accuracy", a.Accuracy, b.Accuracy, moreIsBetter)

	// Compare models and devices.
	offeredRate := func(m *formats.ModelReport) string { return figureText(m.OfferedRPS, "rps offered") }
	eachPair(r, "models", a.Models, b.Models, func(m *formats.ModelReport) string { return m.Key().String() }, "model ", offeredRate, func(name string, x, y *formats.ModelReport) {
		r.addFigure(name+" offered", x.OfferedRPS, y.OfferedRPS, "rps", neutral)
		r.addTime(name+" slo", x.SLOUS, y.SLOUS, neutral)
		r.addOutcomes(name+" ", &x.Counts, &y.Counts, &x.Latency, &y.Latency)
		r.addOptional(name+" max load factor", x.MaxLoadFactor, y.MaxLoadFactor, "", moreIsBetter)
	})
	deviceCount := func(d *formats.DeviceReport) string { return plural(d.Count, "device") }
	eachPair(r, "devices", a.Devices, b.Devices, func(d *formats.DeviceReport) string { return d.Device }, "", deviceCount, func(kind string, x, y *formats.DeviceReport) {
		r.addCount(kind+" devices", x.Count, y.Count, neutral)
		r.addShare(kind+" busy", &x.Utilisation, &y.Utilisation, neutral)
	})
	return &r.Result
}

// addOutcomes records what changed in the outcomes of two reports: attainment, goodput, dropped and late requests,
// and latencies if both answered anything.
func (r *Recorder) addOutcomes(path string, a, b *formats.Counts, oldLatency, newLatency *formats.LatencySummary) {
	r.addShare(path+"attainment", &a.Attainment, &b.Attainment, moreIsBetter)
	r.addFigure(path+"goodput", a.GoodputRPS, b.GoodputRPS, "rps", moreIsBetter)
	r.addCount(path+"dropped", int(a.Dropped), int(b.Dropped), lessIsBetter)
	r.addCount(path+"late", int(a.Late), int(b.Late), lessIsBetter)
	if oldLatency.P50US == 0 || newLatency.P50US == 0 {
		return
	}
	r.addTime(path+"p50", oldLatency.P50US, newLatency.P50US, lessIsBetter)
	r.addTime(path+"p99", oldLatency.P99US, newLatency.P99US, lessIsBetter)
}
