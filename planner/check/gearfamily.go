package check

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/formats"
)

// family checks the plan's models, target and ranges against the workload.
func (c *checker) family(g *gears) bool {
	p := c.plan.Gear
	if c.workload == nil {
		return true
	}
	w := c.workload.Cascade
	if w == nil {
		c.fail("model", "gear", "a cascade", "one in the workload", "the workload no longer asks for a cascade")
		return false
	}
	at := 0
	for i := range p.Models {
		k := slices.Index(w.Family[at:], p.Models[i].Model)
		if k < 0 {
			c.fail("model", fmt.Sprintf("gear.models[%d].model", i), strconv.Quote(p.Models[i].Model), "a model of the workload's family, in its order", "the workload no longer has %s there", p.Models[i].Model)
			return false
		}
		at += k + 1
	}
	slo := w.SLO.Latency
	if s, err := formats.ParseSLO(c.plan.Options.SLO); err == nil && c.plan.Options.SLO != "" {
		slo = s
	}
	if !slo.IsZero() {
		last := c.fastestOf(w.Family[len(w.Family)-1])
		if slo.Times > 0 && last == nil {
			c.fail("slo", "gear.slo_us", p.SLOUS.String(), "a measurement of "+w.Family[len(w.Family)-1], "the SLO is a multiple of its latency, which the profile no longer has")
		} else {
			var one time.Duration
			if last != nil {
				one = last[0]
			}
			if got := slo.Of(one); got != p.SLOUS.D() {
				c.warn("slo", "gear.slo_us", p.SLOUS.String(), formats.Micros(got).String(), "the SLO of the cascade has changed")
				for i := range p.Gears {
					if p.Gears[i].LatencyUS.D() > got && p.Over != formats.OverRequests {
						c.fail("slo", fmt.Sprintf("gear.gears[%d].latency_us", i), p.Gears[i].LatencyUS.String(), "at most "+formats.Micros(got).String(), "the gear was planned for a longer SLO")
					}
				}
			}
		}
	}
	if w.SLO.Percentile != "" && w.SLO.Percentile != p.Percentile {
		c.warn("percentile", "gear.percentile", p.Percentile, w.SLO.Percentile, "the percentile of the cascade has changed")
	}
	c.ranges(&w.QPS)
	return true
}

// ranges checks the upper edges and weights, but for measured rates: these are
// read when the gate plans again.
func (c *checker) ranges(q *formats.CascadeQPS) {
	p := c.plan.Gear
	if q.Max > 0 && math.Abs(q.Max-p.MaxQPS) > rounding*q.Max {
		c.warn("qps", "gear.max_qps", fmt.Sprint(p.MaxQPS), fmt.Sprint(q.Max), "the workload's highest rate has changed")
	}
	n := max(q.Ranges, len(q.Histogram))
	if q.Measured != "" {
		return
	}
	if n != len(p.Gears) {
		c.warn("qps", "gear.gears", fmt.Sprint(len(p.Gears)), fmt.Sprint(n), "the workload's number of ranges has changed")
		return
	}
	weights := make([]float64, n)
	total := 0.0
	for i := range weights {
		switch {
		case q.Histogram != nil:
			weights[i] = q.Histogram[i]
		case q.Distribution == "zipf":
			weights[i] = 1 / float64(i+1)
		default:
			weights[i] = 1
		}
		total += weights[i]
	}
	for i := range weights {
		if math.Abs(weights[i]/total-p.Gears[i].Weight) > rounding {
			c.warn("qps", fmt.Sprintf("gear.gears[%d].weight", i), fmt.Sprint(p.Gears[i].Weight), fmt.Sprint(weights[i]/total), "the workload's distribution of rates has changed")
			return
		}
	}
}
