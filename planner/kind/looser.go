package kind

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Relaxation says by how much less is asked, or more given, than in a problem. The zero value
// changes nothing.
type Looser struct {
	SLOs    map[string]time.Duration // by the model, application or class that infeasibility names
	SLO     float64                  // factor on all SLOs; 0 stands for 1
	Load    float64                  // factor on all requested rates; 0 stands for 1
	Memory  int64                    // bytes that every device has at least
	Devices map[string]int           // devices to add, by kind
}

// WithDevices returns the relaxation with more devices of a kind.
func (l Looser) With(device string, more int) Looser {
	devices := map[string]int{device: more}
	for k, n := range l.Devices {
		devices[k] += n
	}
	l.Devices = devices
	return l
}

// RelaxProblem returns the relaxed problem.
func (l *Looser) Problem(m *Method, p *Problem) (*Problem, error) {
	q := *p
	q.Cluster = l.cluster(p.Cluster)
	w := *p.Workload
	w.Section = m.Loosened(p.Workload.Section, l)
	q.Workload = &w
	if v := &q.Values; v.Has("min-load") && v.Number("min-load") > 0 {
		if err := v.Set("min-load", l.Rate(v.Number("min-load"))); err != nil {
			return nil, err
		}
	}
	return &q, l.optionSLO(&q.Values)
}

// relaxCluster returns a cluster with more devices and memory.
func (l *Looser) cluster(c *formats.Cluster) *formats.Cluster {
	out := *c
	out.Pools = slices.Clone(c.Pools)
	for i := range out.Pools {
		p := &out.Pools[i]
		p.Count += l.Devices[p.Device]
		if p.Memory > 0 {
			p.Memory = max(p.Memory, document.Bytes(l.Memory))
		}
	}
	return &out
}

// SLOOf returns the relaxed SLO of a model: its own if the relaxation has one, else the requested
// SLO times the factor. It is never shorter than the requested one.
func (l *Looser) SLOOf(name string, asked document.SLO) document.SLO {
	if own, ok := l.SLOs[name]; ok {
		return document.SLO{Duration: max(own, asked.Duration)}
	}
	if l.SLO <= 0 || l.SLO == 1 {
		return asked
	}
	return document.SLO{
		Duration: time.Duration(math.Ceil(float64(asked.Duration)*l.SLO/1000)) * time.Microsecond,
		Times:    asked.Times * l.SLO,
	}
}

// ScaledRate returns a requested rate times the factor.
func (l *Looser) Rate(asked float64) float64 {
	if l.Load <= 0 {
		return asked
	}
	return asked * l.Load
}

// LongestSLO returns the longest of the relaxed SLOs, for problems with one SLO.
func (l *Looser) LongestSLO(asked document.SLO) document.SLO {
	slo := l.SLOOf("", asked)
	for _, own := range l.SLOs {
		if slo.Times > 0 || own > slo.Duration {
			slo = document.SLO{Duration: own}
		}
	}
	return slo
}

// setSLOOption relaxes the option slo, if it is set: it is the SLO of all models.
func (l *Looser) optionSLO(v *document.Values) error {
	if !v.Has("slo") || v.SLO("slo").IsZero() {
		return nil
	}
	return v.Set("slo", l.LongestSLO(v.SLO("slo")))
}
