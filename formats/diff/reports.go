package diff

import "inferplan/formats"

// Reports returns the changes from report a to report b: outcomes of requests, latencies and use of devices, in
// total and by model.
func Reports(a, b *formats.Report) *Result {
	r := &Recorder{Result: Result{Kind: formats.KindReport, Changes: []Change{}}}
	r.section = "report"
	r.text("source", a.Source, b.Source)
	r.text("policy", a.Policy, b.Policy)
	r.figure("load", a.Load, b.Load, "", neutral)
	if x, y := a.Plan, b.Plan; x != nil && y != nil {
		r.text("plan", short(x.SHA256), short(y.SHA256))
	}
	r.section = "requests"
	r.outcomes("", &a.Counts, &b.Counts, &a.Latency, &b.Latency)
	r.optional("max load factor", a.MaxLoadFactor, b.MaxLoadFactor, "", moreIsBetter)
	r.share("share of the bound", a.BoundShare, b.BoundShare, moreIsBetter)
	r.share("accuracy", a.Accuracy, b.Accuracy, moreIsBetter)
	offered := func(m *formats.ModelReport) string { return figureText(m.OfferedRPS, "rps offered") }
	matched(r, "models", a.Models, b.Models, func(m *formats.ModelReport) string { return m.Key().String() }, "model ", offered, func(name string, x, y *formats.ModelReport) {
		r.figure(name+" offered", x.OfferedRPS, y.OfferedRPS, "rps", neutral)
		r.span(name+" slo", x.SLOUS, y.SLOUS, neutral)
		r.outcomes(name+" ", &x.Counts, &y.Counts, &x.Latency, &y.Latency)
		r.optional(name+" max load factor", x.MaxLoadFactor, y.MaxLoadFactor, "", moreIsBetter)
	})
	used := func(d *formats.DeviceReport) string { return plural(d.Count, "device") }
	matched(r, "devices", a.Devices, b.Devices, func(d *formats.DeviceReport) string { return d.Device }, "", used, func(kind string, x, y *formats.DeviceReport) {
		r.count(kind+" devices", x.Count, y.Count, neutral)
		r.share(kind+" busy", &x.Utilisation, &y.Utilisation, neutral)
	})
	return &r.Result
}

func (r *Recorder) outcomes(at string, a, b *formats.Counts, was, is *formats.LatencySummary) {
	r.share(at+"attainment", &a.Attainment, &b.Attainment, moreIsBetter)
	r.figure(at+"goodput", a.GoodputRPS, b.GoodputRPS, "rps", moreIsBetter)
	r.count(at+"dropped", int(a.Dropped), int(b.Dropped), lessIsBetter)
	r.count(at+"late", int(a.Late), int(b.Late), lessIsBetter)
	r.span(at+"p50", was.P50US, is.P50US, lessIsBetter)
	r.span(at+"p99", was.P99US, is.P99US, lessIsBetter)
}
