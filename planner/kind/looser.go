package kind

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Looser says by how much less is asked, or more given, than in a problem. The zero
// value is the problem itself.
type Looser struct {
	SLOs    map[string]time.Duration // of models, applications or classes, by the names that infeasibility has
	SLO     float64                  // factor of all SLOs; 0: 1
	Load    float64                  // factor of all rates asked; 0: 1
	Memory  int64                    // bytes that every device has at least
	Devices map[string]int           // to add, by kind
}

// With is the same with some devices more.
func (l Looser) With(device string, more int) Looser {
	devices := map[string]int{device: more}
	for k, n := range l.Devices {
		devices[k] += n
	}
	l.Devices = devices
	return l
}

// Problem is a problem that asks for less.
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

// cluster is a cluster with the devices and the memory that are given more.
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

// SLOOf is the SLO that a model has of one in the workload: its own where it has
// one, else that in the workload times the factor of all. It is never shorter than that
// in the workload.
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

// Rate is a rate asked times the factor.
func (l *Looser) Rate(asked float64) float64 {
	if l.Load <= 0 {
		return asked
	}
	return asked * l.Load
}

// LongestSLO is one SLO in place of those of single models: the longest.
func (l *Looser) LongestSLO(asked document.SLO) document.SLO {
	slo := l.SLOOf("", asked)
	for _, own := range l.SLOs {
		if slo.Times > 0 || own > slo.Duration {
			slo = document.SLO{Duration: own}
		}
	}
	return slo
}

// optionSLO sets the option slo, where it is chosen: it is that of all models.
func (l *Looser) optionSLO(v *document.Values) error {
	if !v.Has("slo") || v.SLO("slo").IsZero() {
		return nil
	}
	return v.Set("slo", l.LongestSLO(v.SLO("slo")))
}
