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

// checkFamily compares the plan's models, SLO and ranges of rates with today's workload, and adds differences to the
// findings. It returns false if the plan's models are not in the workload's family, in its order. Without a workload
// there is nothing to compare.
func (c *gearChecker) checkFamily() bool {
	section := c.gear
	if c.Workload == nil {
		return true
	}
	cascade := c.cascade
	if cascade == nil {
		c.AddError("model", "gear", "a cascade", "one in the workload", "the workload no longer asks for a cascade")
		return false
	}
	position := 0
	for i := range section.Models {
		k := slices.Index(cascade.Family[position:], section.Models[i].Model)
		if k < 0 {
			c.AddError("model", fmt.Sprintf("gear.models[%d].model", i), strconv.Quote(section.Models[i].Model), "a model of the workload's family, in its order", "the workload no longer has %s there", section.Models[i].Model)
			return false
		}
		position += k + 1
	}
	c.checkSLO(cascade)
	if cascade.SLO.Percentile != "" && cascade.SLO.Percentile != section.Percentile {
		c.AddWarning("percentile", "gear.percentile", section.Percentile, cascade.SLO.Percentile, "the percentile of the cascade has changed")
	}
	c.checkRanges(&cascade.QPS)
	return true
}

// checkSLO compares the latency SLO that the plan was made for (slo_us of its gear section) with today's, and warns if
// it has changed. Today's is that of the option slo, which the plan keeps, or else the workload's. Each gear whose
// planned latency is longer than today's SLO is an error, unless the SLO is over all requests together: then a single
// gear may be late.
func (c *gearChecker) checkSLO(cascade *formats.Cascade) {
	slo := cascade.SLO.Latency
	if option := c.Plan.Options.SLO("slo"); !option.IsZero() {
		slo = option
	}
	if slo.IsZero() {
		return
	}

	// Today's SLO as a time. A multiple of the last model's latency changes with the profile.
	section, name := c.gear, cascade.Family[len(cascade.Family)-1]
	lastModelTimes := c.fastestTimes(name)
	if slo.Factor > 0 && lastModelTimes == nil {
		c.AddError("slo", "gear.slo_us", section.SLOUS.String(), "a measurement of "+name, "the SLO is a multiple of its latency, which the profile no longer has")
		return
	}
	var batchOneTime time.Duration
	if lastModelTimes != nil {
		batchOneTime = lastModelTimes[0]
	}
	sloToday := slo.Resolve(batchOneTime)
	if sloToday == section.SLOUS.D() {
		return
	}
	c.AddWarning("slo", "gear.slo_us", section.SLOUS.String(), document.Micros(sloToday).String(), "the SLO of the cascade has changed")
	for i := range section.Gears {
		if section.Gears[i].LatencyUS.D() > sloToday && section.SLOScope != formats.ScopeRequests {
			c.AddError("slo", fmt.Sprintf("gear.gears[%d].latency_us", i), section.Gears[i].LatencyUS.String(), "at most "+document.Micros(sloToday).String(), "the gear was planned for a longer SLO")
		}
	}
}

// checkRanges compares the plan's highest rate, and the number and weights of its ranges of rates, with the workload's,
// and warns of the first difference of each. Weights of measured rates are not compared: planning again reads these
// rates.
func (c *gearChecker) checkRanges(q *formats.CascadeQPS) {
	section := c.gear
	if q.Max > 0 && math.Abs(q.Max-section.MaxQPS) > tolerance*q.Max {
		c.AddWarning("qps", "gear.max_qps", fmt.Sprint(section.MaxQPS), fmt.Sprint(q.Max), "the workload's highest rate has changed")
	}
	n := max(q.Ranges, len(q.Histogram))
	if q.MeasuredFile != "" {
		return
	}
	if n != len(section.Gears) {
		c.AddWarning("qps", "gear.gears", fmt.Sprint(len(section.Gears)), fmt.Sprint(n), "the workload's number of ranges has changed")
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
		if math.Abs(weights[i]/total-section.Gears[i].Weight) > tolerance {
			c.AddWarning("qps", fmt.Sprintf("gear.gears[%d].weight", i), fmt.Sprint(section.Gears[i].Weight), fmt.Sprint(weights[i]/total), "the workload's distribution of rates has changed")
			return
		}
	}
}
