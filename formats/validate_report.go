package formats

import (
	"fmt"
	"maps"
	"slices"
)

// Validate checks what the types of a report cannot say and returns all
// findings, each with its field path: that every request is accounted for
// once, and that shares and percentiles agree with the counts.
func (d *Report) Validate() error {
	var c Checker
	c.header(d, d.Format, FormatReport)
	c.oneOf("source", d.Source, "simulate", "serve", "load")
	if d.Plan != nil {
		checkInputs(&c, []Input{*d.Plan})
	}
	least(&c, d.Runs, 1, "", "runs")
	least(&c, d.Load, 0, "", "load")
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
	return c.err()
}

func (p *PlanReport) check(c *Checker, at string) {
	if p.SHA256 != "" {
		c.sha(at+".sha256", p.SHA256)
	}
	checkServed(c, at, &p.Counts, &p.Latency, p.Models)
	checkDevices(c, at, p.Devices)
}

// checkServed checks counts and latencies, those of models among them.
func checkServed(c *Checker, at string, all *Counts, latency *LatencySummary, models []ModelReport) {
	all.checkCounts(c, at)
	latency.check(c, join(at, "latency"))
	seen := map[ModelClass]int{}
	var sum Counts
	for i := range models {
		m := &models[i]
		at := join(at, fmt.Sprintf("models[%d]", i))
		c.key(seen, i, m.Key(), at)
		m.checkCounts(c, at)
		m.Latency.check(c, at+".latency")
		least(c, m.OfferedRPS, 0, at, ".offered_rps")
		if m.Percentile != "" {
			c.percentile(m.Percentile, at+".percentile")
		}
		for _, size := range slices.Sorted(maps.Keys(m.BatchSizes)) {
			if n := m.BatchSizes[size]; n < 0 {
				c.fail(at+".batch_sizes."+size, integer64(n), "0 or more", "")
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
			c.fail(join(at, f.name), integer64(f.total), fmt.Sprintf("the sum over the models, %d", f.sum), "")
		}
	}
}

func checkDevices(c *Checker, at string, devices []DeviceReport) {
	for i := range devices {
		at := join(at, fmt.Sprintf("devices[%d]", i))
		c.FailIf(devices[i].Device == "", at+".device", "an empty name", "a device")
		if u := devices[i].Utilisation; !(u >= 0 && u <= 1+1e-9) {
			c.fail(at+".utilisation", number(u), "a share from 0 to 1", "")
		}
	}
}

func (n *Counts) checkCounts(c *Checker, at string) {
	byReason := int64(0)
	for _, reason := range slices.Sorted(maps.Keys(n.DroppedByReason)) {
		k := n.DroppedByReason[reason]
		if k < 0 {
			c.fail(join(at, "dropped_by_reason."+reason), integer64(k), "0 or more", "")
		}
		byReason += k
	}
	switch {
	case n.Requests < 0 || n.Completed < 0 || n.Dropped < 0 || n.Late < 0:
		c.fail(join(at, "requests"), "a negative count", "0 or more", "")
		return
	case n.Requests != n.Completed+n.Dropped:
		c.fail(join(at, "requests"), integer64(n.Requests), fmt.Sprintf("completed + dropped, %d", n.Completed+n.Dropped), "")
	case n.Late > n.Completed:
		c.fail(join(at, "late"), integer64(n.Late), fmt.Sprintf("at most completed, %d", n.Completed), "")
	case n.Dropped != byReason:
		c.fail(join(at, "dropped"), integer64(n.Dropped), fmt.Sprintf("the sum of dropped_by_reason, %d", byReason), "")
	}
	if n.Requests > 0 {
		want := float64(n.Completed-n.Late) / float64(n.Requests)
		if d := n.Attainment - want; !(d >= -1e-9 && d <= 1e-9) {
			c.fail(join(at, "attainment"), number(n.Attainment), "(completed - late) / requests, "+formatFloat(want), "")
		}
	} else {
		c.share(join(at, "attainment"), n.Attainment)
	}
	if n.AttainmentCI != nil {
		c.interval(join(at, "attainment_interval"), *n.AttainmentCI)
	}
	least(c, n.GoodputRPS, 0, "", join(at, "goodput_rps"))
}

// check sees that the percentiles do not fall.
func (l *LatencySummary) check(c *Checker, at string) {
	list := [...]struct {
		name  string
		value Micros
	}{{"p50_us", l.P50US}, {"p90_us", l.P90US}, {"p95_us", l.P95US}, {"p99_us", l.P99US}, {"max_us", l.MaxUS}}
	for i := 1; i < len(list); i++ {
		if list[i].value < list[i-1].value {
			c.fail(at+"."+list[i].name, "the number "+list[i].value.String(), "at least "+list[i-1].name+", "+list[i-1].value.String(), "")
			return
		}
	}
}
