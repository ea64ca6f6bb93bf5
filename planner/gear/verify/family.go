package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// checkFamily compares the plan's models, SLO and ranges with the workload. It returns false if the models do not
// fit it.
func (c *gearChecker) checkFamily() bool {
	p := c.gear
	if c.Workload == nil {
		return true
	}
	w := c.cascade
	if w == nil {
		c.AddError("model", "gear", "a cascade", "one in the workload", "the workload no longer asks for a cascade")
		return false
	}
	position := 0
	for i := range p.Models {
		k := slices.Index(w.Family[position:], p.Models[i].Model)
		if k < 0 {
			c.AddError("model", fmt.Sprintf("gear.models[%d].model", i), strconv.Quote(p.Models[i].Model), "a model of the workload's family, in its order", "the workload no longer has %s there", p.Models[i].Model)
			return false
		}
		position += k + 1
	}
	c.checkSLO(w)
	if w.SLO.Percentile != "" && w.SLO.Percentile != p.Percentile {
		c.AddWarning("percentile", "gear.percentile", p.Percentile, w.SLO.Percentile, "the percentile of the cascade has changed")
	}
	c.checkRanges(&w.QPS)
	return true
}

// checkSLO compares the latency SLO of the plan's cascade with today's, of the options or else the workload. If
// it has become shorter, gears that were planned for more are errors.
func (c *gearChecker) checkSLO(w *formats.Cascade) {
	slo := w.SLO.Latency
	if s := c.Plan.Options.SLO("slo"); !s.IsZero() {
		slo = s
	}
	if slo.IsZero() {
		return
	}

	// A multiple of the last model's latency changes with the profile.
	p, name := c.gear, w.Family[len(w.Family)-1]
	lastModelTimes := c.fastestTimes(name)
	if slo.Factor > 0 && lastModelTimes == nil {
		c.AddError("slo", "gear.slo_us", p.SLOUS.String(), "a measurement of "+name, "the SLO is a multiple of its latency, which the profile no longer has")
		return
	}
	var batchOneTime time.Duration
	if lastModelTimes != nil {
		batchOneTime = lastModelTimes[0]
	}
	sloToday := slo.Resolve(batchOneTime)
	if sloToday == p.SLOUS.D() {
		return
	}
	c.AddWarning("slo", "gear.slo_us", p.SLOUS.String(), document.Micros(sloToday).String(), "the SLO of the cascade has changed")
	for i := range p.Gears {
		if p.Gears[i].LatencyUS.D() > sloToday && p.SLOScope != formats.ScopeRequests {
			c.AddError("slo", fmt.Sprintf("gear.gears[%d].latency_us", i), p.Gears[i].LatencyUS.String(), "at most "+document.Micros(sloToday).String(), "the gear was planned for a longer SLO")
		}
	}
}

// checkRanges compares the plan's highest rate, and the number and weights of its ranges, with the workload's.
// Weights of measured rates are not compared: the check reads these rates when it plans again.
func (c *gearChecker) checkRanges(q *formats.CascadeQPS) {
	p := c.gear
	if q.Max > 0 && math.Abs(q.Max-p.MaxQPS) > tolerance*q.Max {
		c.AddWarning("qps", "gear.max_qps", fmt.Sprint(p.MaxQPS), fmt.Sprint(q.Max), "the workload's highest rate has changed")
	}
	n := max(q.Ranges, len(q.Histogram))
	if q.MeasuredFile != "" {
		return
	}
	if n != len(p.Gears) {
		c.AddWarning("qps", "gear.gears", fmt.Sprint(len(p.Gears)), fmt.Sprint(n), "the workload's number of ranges has changed")
		return
	}

	// Compute the weights again.
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
		if math.Abs(weights[i]/total-p.Gears[i].Weight) > tolerance {
			c.AddWarning("qps", fmt.Sprintf("gear.gears[%d].weight", i), fmt.Sprint(p.Gears[i].Weight), fmt.Sprint(weights[i]/total), "the workload's distribution of rates has changed")
			return
		}
	}
}
