package kind

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Relaxation says by how much less is asked, or more given, than in a problem. The zero value
// changes nothing.
type Relaxation struct {
	SLOs       map[string]time.Duration // by the model, application or class that infeasibility names
	SLOFactor  float64                  // factor on all SLOs; 0 stands for 1
	LoadFactor float64                  // factor on all requested rates; 0 stands for 1
	MinMemory  int64                    // bytes that every device has at least
	Devices    map[string]int           // devices to add, by kind
}

// WithDevices returns a copy of the relaxation in which the number of devices to add of a kind is larger by added, or
// smaller if added is negative. The original's map is not changed.
func (l Relaxation) WithDevices(device string, added int) Relaxation {
	devices := map[string]int{device: added}
	for k, n := range l.Devices {
		devices[k] += n
	}
	l.Devices = devices
	return l
}

// RelaxProblem returns a copy of problem p with the relaxed cluster, workload and options (min-load and slo, if they are
// set), to find out whether it has a plan when p has none. m is the method that solves p.
func (l *Relaxation) RelaxProblem(m *Method, p *Problem) (*Problem, error) {
	relaxed := *p
	relaxed.Cluster = l.relaxCluster(p.Cluster)
	w := *p.Workload
	w.Section = m.RelaxWorkload(p.Workload.Section, l)
	relaxed.Workload = &w
	if v := &relaxed.Values; v.Has("min-load") && v.Number("min-load") > 0 {
		if err := v.Set("min-load", l.ScaledRate(v.Number("min-load"))); err != nil {
			return nil, err
		}
	}
	return &relaxed, l.setSLOOption(&relaxed.Values)
}

// relaxCluster returns the cluster with the relaxation's additional devices, and at least its memory per device.
func (l *Relaxation) relaxCluster(c *formats.Cluster) *formats.Cluster {
	relaxed := *c
	relaxed.Pools = slices.Clone(c.Pools)
	for i := range relaxed.Pools {
		p := &relaxed.Pools[i]
		p.Count += l.Devices[p.Device]
		if p.Memory > 0 {
			p.Memory = max(p.Memory, document.Bytes(l.MinMemory))
		}
	}
	return &relaxed
}

// SLOOf returns the relaxed SLO of the model, application or class with a name. If the relaxation has an SLO for it, it
// returns that, but at least the requested duration. Otherwise it returns the requested SLO times SLOFactor: a duration
// is rounded up to whole microseconds, and an SLO stated as a multiple of a latency gets a larger multiple. A factor of
// 0 or 1 changes nothing.
func (l *Relaxation) SLOOf(name string, requested document.SLO) document.SLO {
	if modelSLO, ok := l.SLOs[name]; ok {
		return document.SLO{Duration: max(modelSLO, requested.Duration)}
	}
	if l.SLOFactor <= 0 || l.SLOFactor == 1 {
		return requested
	}
	return document.SLO{
		Duration: time.Duration(math.Ceil(float64(requested.Duration)*l.SLOFactor/1000)) * time.Microsecond,
		Factor:   requested.Factor * l.SLOFactor,
	}
}

// ScaledRate returns a requested rate times the relaxation's load factor, or the rate itself if it has none.
func (l *Relaxation) ScaledRate(requested float64) float64 {
	if l.LoadFactor <= 0 {
		return requested
	}
	return requested * l.LoadFactor
}

// LongestSLO returns the longest of the relaxed SLOs, for problems in which all models have one SLO. A requested SLO that
// is a multiple of a latency (Factor above 0) cannot be compared with a duration: any duration that the relaxation has
// replaces it.
func (l *Relaxation) LongestSLO(requested document.SLO) document.SLO {
	slo := l.SLOOf("", requested)
	for _, modelSLO := range l.SLOs {
		if slo.Factor > 0 || modelSLO > slo.Duration {
			slo = document.SLO{Duration: modelSLO}
		}
	}
	return slo
}

// setSLOOption relaxes the option slo, which is the SLO of all models. If it is not set, it does nothing.
func (l *Relaxation) setSLOOption(v *document.Values) error {
	if !v.Has("slo") || v.SLO("slo").IsZero() {
		return nil
	}
	return v.Set("slo", l.LongestSLO(v.SLO("slo")))
}

// Traffic has the requests that a served plan got, by a report of it.
type Traffic struct {
	Running *formats.Plan
	Report  *formats.Report
}

// minTrafficShare is the least part of its weight that a model keeps if few or none asked for it: a plan without it could
// not answer the next request.
const minTrafficShare = 0.01

// RateOf returns the requests per second for a model with a class. ok is false if the report does not have it.
func (t *Traffic) RateOf(key formats.ModelClass) (rps float64, ok bool) {
	for i := range t.Report.Models {
		if m := &t.Report.Models[i]; m.Key() == key {
			return m.OfferedRPS, true
		}
	}
	return 0, false
}

// ModelRate returns the requests per second for a model, with all its classes.
func (t *Traffic) ModelRate(model string) (rps float64, ok bool) {
	for i := range t.Report.Models {
		if m := &t.Report.Models[i]; m.Model == model {
			rps, ok = rps+m.OfferedRPS, true
		}
	}
	return rps, ok
}

// Weights returns weights that are to each other as the rates are. Those without a rate (NaN) stay as they are, the
// sum stays, and a weight of 0 stands for 1.
func Weights(weights, rates []float64) []float64 {
	out := make([]float64, len(weights))
	weightSum, rateSum := 0.0, 0.0
	for i := range weights {
		if out[i] = cmp.Or(weights[i], 1); !math.IsNaN(rates[i]) {
			weightSum, rateSum = weightSum+out[i], rateSum+rates[i]
		}
	}
	for i := range out {
		if rateSum > 0 && !math.IsNaN(rates[i]) {
			out[i] = max(weightSum*rates[i]/rateSum, minTrafficShare*out[i])
		}
	}
	return out
}

// RateLine says at which rate, in requests per second, a model with a class was asked for, and at which it was planned.
func (t *Traffic) RateLine(key formats.ModelClass, found float64) string {
	planned := 0.0
	if m := document.First(t.Running.ServedModels(), func(m *formats.Served) bool { return m.Key() == key }); m != nil {
		planned = m.RPS
	}
	return fmt.Sprintf("%s: asked for at %s rps, and planned for %s", key, FormatNumber(found), FormatNumber(planned))
}
