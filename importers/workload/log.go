package workload

import (
	"time"

	"inferplan/importers/requestlog"
)

// traceOf returns the requests of a log as rows.
func traceOf(log *requestlog.Log) *Trace {
	t := &Trace{HasTimes: true, Rows: make([]Row, len(log.Requests))}
	for i, q := range log.Requests {
		t.Rows[i] = Row{ArrivedAt: q.ArrivedAt, Prompt: q.Prompt, Output: q.Output, Model: q.Model, Class: q.Class, Session: q.Session, CachedTokens: q.CachedTokens}
	}
	return t
}

// modelLoad is the rate at which a model was asked for.
type modelLoad struct {
	Model   string  `json:"model"`
	Count   int     `json:"requests"`
	RPS     float64 `json:"rps"`
	PeakRPS float64 `json:"peak_rps"` // in the busiest minute
	rows    []Row
}

// modelLoads returns how often each model of a trace was asked for, in order of appearance.
func modelLoads(t *Trace) []modelLoad {
	var loads []modelLoad
	index := map[string]int{}
	for _, r := range t.Rows {
		i, ok := index[r.Model]
		if !ok {
			i = len(loads)
			index[r.Model], loads = i, append(loads, modelLoad{Model: r.Model})
		}
		loads[i].rows = append(loads[i].rows, r)
	}
	span := t.Rows[len(t.Rows)-1].ArrivedAt
	for i := range loads {
		l := &loads[i]
		l.Count = len(l.rows)
		if span > 0 {
			l.RPS = digits(float64(l.Count) / span.Seconds())
			l.PeakRPS = l.RPS
		}
		interval := min(time.Minute, span)
		begin := 0
		for k, r := range l.rows {
			for r.ArrivedAt-l.rows[begin].ArrivedAt >= interval && begin < k {
				begin++
			}
			if interval > 0 {
				l.PeakRPS = max(l.PeakRPS, digits(float64(k-begin+1)/interval.Seconds()))
			}
		}
	}
	return loads
}
