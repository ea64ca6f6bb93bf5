package templates

import (
	"fmt"
	"time"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
)

// NoPipeline returns the *kind.InfeasibleError that explains why model d has no template (a pipeline that keeps the SLO
// and fits in memory) at all: no device that it was measured on, too little memory, or an SLO that the fastest pipeline
// misses. Its Nearest holds the memory or the SLO with which there would be one. tooBig is the number of stages that
// were left out for lack of memory.
func NoPipeline(p *problem.Problem, d, tooBig int) error {
	m := &p.Models[d]
	reason := &kind.InfeasibleError{Model: m.Name}
	latency, batch, ok := minLatency(p, d)

	// No pipeline fits in memory. A least memory of 0 means that the model was not measured on any device.
	if !ok {
		reason.Constraint = "memory"
		reason.Nearest.MemoryBytes = p.MinMemory(d)
		if reason.Nearest.MemoryBytes == 0 {
			reason.Constraint = "devices"
			reason.Reason = fmt.Sprintf("%s was measured on no device of the cluster", m.Name)
			return reason
		}
		reason.Reason = fmt.Sprintf("%s fits no device: its smallest pipeline needs %d bytes on a device", m.Name, reason.Nearest.MemoryBytes)
		return reason
	}

	// Some pipeline fits, but even the fastest is too slow. Nearest is the SLO, in microseconds, that has room for its
	// latency and for the margin, which grows with the SLO.
	reason.Constraint = "slo"
	reason.Nearest.SLOUS = float64(kind.MinSLO(latency, problem.MarginShareOf(p, d))) / 1000
	reason.Reason = fmt.Sprintf("no pipeline of %s keeps its SLO: the fastest takes %v at batch %d, and %v less the margin of %v leaves %v",
		m.Name, latency, batch, m.SLO, m.Margin, m.SLO-m.Margin)
	if tooBig > 0 {
		reason.Reason += "; some are left out because they do not fit in memory"
	}
	return reason
}

// minLatency returns the least latency that any pipeline of model d within the memory limits has, whatever the SLO, and
// its batch size. The latency includes the wait until a batch is full. If no pipeline fits, ok is false.
func minLatency(p *problem.Problem, d int) (latency time.Duration, batch int, ok bool) {
	m := &p.Models[d]
	for _, b := range m.BatchSizes() {
		if fastest, hasTemplate := p.MinLatency(d, b); hasTemplate && (!ok || fastest+m.BatchWait(b) < latency) {
			latency, batch, ok = fastest+m.BatchWait(b), b, true
		}
	}
	return latency, batch, ok
}
