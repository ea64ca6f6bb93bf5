package vqueue

import (
	"testing"

	"inferplan/policy"
)

// KV memory is reserved for the prompt and the mean answer, also if only a later kind of device has an estimator of the model.
func TestReservedKVCountsTheMeanAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answers   []float64 // mean answer in tokens, by kind of device; 0 without an estimator
		maxTokens int32     // limit of the request's answer; 0 is none
		want      int64
	}{
		"the first kind has an estimator":  {[]float64{40, 0}, 0, 140},
		"the second kind has an estimator": {[]float64{0, 40}, 0, 140},
		"the request limits its answer":    {[]float64{0, 40}, 10, 110},
		"no kind has an estimator":         {[]float64{0, 0}, 10, 100},
	} {
		t.Run(name, func(t *testing.T) {
			queueTables := &Tables{RCT: make([]RCT, 2*len(c.answers))}
			for kind, tokens := range c.answers {
				queueTables.Estimator(len(c.answers), 0, false, int32(kind)).OutputMean = tokens
			}
			fleet := instanceFleet{tables: &policy.Tables{Kinds: make([]string, len(c.answers))}, queueTables: queueTables}
			if got := fleet.kvNeed(&Request{promptTokens: 100, maxTokens: c.maxTokens}); got != c.want {
				t.Errorf("%d tokens are reserved, expected %d", got, c.want)
			}
		})
	}
}
