package templates

import (
	"fmt"
	"time"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
)

// NoPipeline returns the error that explains why model d has no template at all: no device it was measured on,
// too little memory, or an SLO that the fastest pipeline misses. tooBig is the number of stages that were left
// out for lack of memory.
func NoPipeline(p *problem.Problem, d, tooBig int) error {
	m := &p.Models[d]
	reason := &kind.InfeasibleError{Model: m.Name}
	latency, batch, ok := minLatency(p, d)
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
	reason.Constraint = "slo"
	reason.Nearest.SLOUS = float64(kind.MinSLO(latency, problem.MarginShareOf(p, d))) / 1000
	reason.Reason = fmt.Sprintf("no pipeline of %s keeps its SLO: the fastest takes %v at batch %d, and %v less the margin of %v leaves %v",
		m.Name, latency, batch, m.SLO, m.Margin, m.SLO-m.Margin)
	if tooBig > 0 {
		reason.Reason += "; some are left out because they do not fit in memory"
	}
	return reason
}

// minLatency returns the least latency with batch building of any template within the memory limits, whatever
// the SLO, and its batch size. If there is no template, ok is false.
func minLatency(p *problem.Problem, d int) (latency time.Duration, batch int, ok bool) {
	m := &p.Models[d]
	for _, b := range m.BatchSizes() {
		if fastest, hasTemplate := p.MinLatency(d, b); hasTemplate && (!ok || fastest+m.BatchWait(b) < latency) {
			latency, batch, ok = fastest+m.BatchWait(b), b, true
		}
	}
	return latency, batch, ok
}
