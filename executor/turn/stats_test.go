package turn

import (
	"testing"
	"time"

	"inferplan/executor/loop"
	"inferplan/policy"
)

// The time of a model's last answer is a date of the machine's clock. It does not follow from when the loop began, since when the clock may
// have been set.
func TestLastAnswerIsADate(t *testing.T) {
	tables := &policy.Tables{Models: []policy.Model{{Name: "m", SLO: time.Second}}}
	metrics := NewMetrics(tables.Models)
	served := modelsOf(tables, metrics, false)
	c := &Core{Tables: tables, Metrics: metrics, Loop: &loop.Loop{}} // a loop that began in the year 1
	stats := &Stats{Core: c, Metrics: metrics}

	before := time.Now()
	j := NewJob(served.Models[0], 1)
	j.Outcome = OutcomeServed
	stats.recordAnswer(j, time.Hour)
	row := served.Models[0].Stats.Statistics()
	if answered := time.UnixMilli(int64(row.LastInference)); answered.Before(before.Truncate(time.Millisecond)) || answered.After(time.Now()) {
		t.Errorf("the last answer was at %v, expected a time between %v and now", answered, before)
	}
}
