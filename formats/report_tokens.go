package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// TokenReport is what a report of instances of language models has besides.
type TokenReport struct {
	Classes    []ClassReport `json:"classes,omitempty"`
	Swaps      *int64        `json:"swaps,omitempty"`       // models that took another's place on an instance
	Loads      *int64        `json:"loads,omitempty"`       // models that came to an instance
	Evictions  *int64        `json:"evictions,omitempty"`   // sequences that the policy took off an instance
	PrefixHits *float64      `json:"prefix_hits,omitempty"` // share of prompts' tokens that were in a prefix cache, of all that were needed
	KVInUse    *float64      `json:"kv_in_use,omitempty"`   // share of KV memory, in the mean over instances and time
	DeviceTime *DeviceTime   `json:"device_time,omitempty"`
}

// ClassReport is one class of requests, over all models.
type ClassReport struct {
	Class      string  `json:"class"`
	Requests   int64   `json:"requests"`
	Attainment float64 `json:"attainment"`
	E2EP99US   Micros  `json:"e2e_p99_us"`
	TTFTP99US  Micros  `json:"ttft_p99_us"`
	TPOTP99US  Micros  `json:"tpot_p99_us"`
	// What is asked of the class, where it is the same of all its models, and what came
	// of it at the percentile.
	Of                    string `json:"of,omitempty"`
	SLOUS                 Micros `json:"slo_us,omitempty"`
	Percentile            string `json:"percentile,omitempty"`
	AtPercentileUS        Micros `json:"at_percentile_us,omitempty"`
	WaitingSLOUS          Micros `json:"waiting_slo_us,omitempty"`
	WaitingAtPercentileUS Micros `json:"waiting_at_percentile_us,omitempty"`
}

// DeviceTime is how the time of all devices was spent, as shares of it.
type DeviceTime struct {
	Running float64 `json:"running"`
	Loading float64 `json:"loading"`
	Both    float64 `json:"both"` // at the same time
	Idle    float64 `json:"idle"`
}

func (t *TokenReport) checkTokens(c *document.Checker) {
	for _, f := range [...]struct {
		name  string
		value *int64
	}{{"swaps", t.Swaps}, {"loads", t.Loads}, {"evictions", t.Evictions}} {
		if f.value != nil && *f.value < 0 {
			c.Fail(f.name, document.Whole(*f.value), "0 or more", "")
		}
	}
	if t.Swaps != nil && t.Loads != nil && *t.Swaps > *t.Loads {
		c.Fail("swaps", document.Whole(*t.Swaps), fmt.Sprintf("at most the loads, %d", *t.Loads), "")
	}
	if t.PrefixHits != nil {
		c.Share("prefix_hits", *t.PrefixHits)
	}
	if t.KVInUse != nil {
		c.Share("kv_in_use", *t.KVInUse)
	}
	if d := t.DeviceTime; d != nil && !(min(d.Running, d.Loading, d.Both, d.Idle) >= 0 && d.Running+d.Loading+d.Both+d.Idle <= 1+1e-9) {
		c.Fail("device_time", fmt.Sprintf("the shares %g, %g, %g and %g", d.Running, d.Loading, d.Both, d.Idle), "shares of 0 or more that sum to at most 1", "")
	}
	seen := map[string]int{}
	for i := range t.Classes {
		k, at := &t.Classes[i], fmt.Sprintf("classes[%d]", i)
		if first, twice := seen[k.Class]; twice {
			c.Fail(at+".class", document.Quote(k.Class)+" a second time", "each class once", fmt.Sprintf("it stands at index %d already", first))
		}
		seen[k.Class] = i
		c.FailIf(k.Requests < 0, at+".requests", k.Requests, "0 or more")
		c.Share(at+".attainment", k.Attainment)
		if k.Of != "" {
			c.OneOf(at+".of", k.Of, OfE2E, OfTTFT, OfTPOT)
		}
		if k.Percentile != "" {
			c.Percentile(k.Percentile, at+".percentile")
		}
	}
}
