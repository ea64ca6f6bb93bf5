package formats

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/formats/document"
)

// Validate checks what the types of a report cannot say and returns all
// findings, each with its field path: that every request is accounted for
// once, and that shares and percentiles agree with the counts.
func (d *Report) Validate() error {
	var c document.Checker
	c.Header(d, d.Format, FormatReport)
	c.OneOf("source", d.Source, "simulate", "serve", "load")
	if d.Plan != nil {
		checkInputs(&c, []Input{*d.Plan})
	}
	document.Least(&c, d.Runs, 1, "", "runs")
	document.Least(&c, d.Load, 0, "", "load")
	d.checkFlow(&c)
	checkServed(&c, "", &d.Counts, &d.Latency, d.Models)
	checkDevices(&c, "", d.Devices)
	d.checkTokens(&c)
	for i := range d.Windows {
		d.Windows[i].checkCounts(&c, fmt.Sprintf("windows[%d]", i))
	}
	for i := range d.Plans {
		d.Plans[i].check(&c, fmt.Sprintf("plans[%d]", i))
	}
	return c.Err()
}

func (p *PlanReport) check(c *document.Checker, at string) {
	if p.SHA256 != "" {
		c.SHA(at+".sha256", p.SHA256)
	}
	checkServed(c, at, &p.Counts, &p.Latency, p.Models)
	checkDevices(c, at, p.Devices)
}

// checkServed checks counts and latencies, those of models among them.
func checkServed(c *document.Checker, at string, all *Counts, latency *LatencySummary, models []ModelReport) {
	all.checkCounts(c, at)
	latency.check(c, document.Join(at, "latency"))
	seen := map[ModelClass]int{}
	var sum Counts
	for i := range models {
		m := &models[i]
		at := document.Join(at, fmt.Sprintf("models[%d]", i))
		checkKey(c, seen, i, m.Key(), at)
		m.checkCounts(c, at)
		m.Latency.check(c, at+".latency")
		document.Least(c, m.OfferedRPS, 0, at, ".offered_rps")
		if m.Percentile != "" {
			c.Percentile(m.Percentile, at+".percentile")
		}
		for _, size := range slices.Sorted(maps.Keys(m.BatchSizes)) {
			if n := m.BatchSizes[size]; n < 0 {
				c.Fail(at+".batch_sizes."+size, document.Whole(n), "0 or more", "")
			}
		}
		sum.Requests += m.Requests
		sum.Completed += m.Completed
		sum.Dropped += m.Dropped
		sum.Late += m.Late
	}
	for _, f := range [...]struct {
		name       string
		total, sum int64
	}{{"requests", all.Requests, sum.Requests}, {"completed", all.Completed, sum.Completed}, {"dropped", all.Dropped, sum.Dropped}, {"late", all.Late, sum.Late}} {
		if len(models) > 0 && f.total != f.sum {
			c.Fail(document.Join(at, f.name), document.Whole(f.total), fmt.Sprintf("the sum over the models, %d", f.sum), "")
		}
	}
}

func checkDevices(c *document.Checker, at string, devices []DeviceReport) {
	for i := range devices {
		at := document.Join(at, fmt.Sprintf("devices[%d]", i))
		c.FailIf(devices[i].Device == "", at+".device", "an empty name", "a device")
		if u := devices[i].Utilisation; !(u >= 0 && u <= 1+1e-9) {
			c.Fail(at+".utilisation", document.Number(u), "a share from 0 to 1", "")
		}
	}
}

func (n *Counts) checkCounts(c *document.Checker, at string) {
	byReason := int64(0)
	for _, reason := range slices.Sorted(maps.Keys(n.DroppedByReason)) {
		k := n.DroppedByReason[reason]
		if k < 0 {
			c.Fail(document.Join(at, "dropped_by_reason."+reason), document.Whole(k), "0 or more", "")
		}
		byReason += k
	}
	switch {
	case n.Requests < 0 || n.Completed < 0 || n.Dropped < 0 || n.Late < 0:
		c.Fail(document.Join(at, "requests"), "a negative count", "0 or more", "")
		return
	case n.Requests != n.Completed+n.Dropped:
		c.Fail(document.Join(at, "requests"), document.Whole(n.Requests), fmt.Sprintf("completed + dropped, %d", n.Completed+n.Dropped), "")
	case n.Late > n.Completed:
		c.Fail(document.Join(at, "late"), document.Whole(n.Late), fmt.Sprintf("at most completed, %d", n.Completed), "")
	case n.Dropped != byReason:
		c.Fail(document.Join(at, "dropped"), document.Whole(n.Dropped), fmt.Sprintf("the sum of dropped_by_reason, %d", byReason), "")
	}
	if n.Requests > 0 {
		want := float64(n.Completed-n.Late) / float64(n.Requests)
		if d := n.Attainment - want; !(d >= -1e-9 && d <= 1e-9) {
			c.Fail(document.Join(at, "attainment"), document.Number(n.Attainment), "(completed - late) / requests, "+document.FormatFloat(want), "")
		}
	} else {
		c.Share(document.Join(at, "attainment"), n.Attainment)
	}
	if n.AttainmentCI != nil {
		c.Interval(document.Join(at, "attainment_interval"), *n.AttainmentCI)
	}
	document.Least(c, n.GoodputRPS, 0, "", document.Join(at, "goodput_rps"))
}

// check sees that the percentiles do not fall.
func (l *LatencySummary) check(c *document.Checker, at string) {
	list := [...]struct {
		name  string
		value Micros
	}{{"p50_us", l.P50US}, {"p90_us", l.P90US}, {"p95_us", l.P95US}, {"p99_us", l.P99US}, {"max_us", l.MaxUS}}
	for i := 1; i < len(list); i++ {
		if list[i].value < list[i-1].value {
			c.Fail(at+"."+list[i].name, "the number "+list[i].value.String(), "at least "+list[i-1].name+", "+list[i-1].value.String(), "")
			return
		}
	}
}
