package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// ModuleReport is a module's part of a run of applications.
type ModuleReport struct {
	Module        string  `json:"module"`
	Requests      int64   `json:"requests"`              // tasks that it got
	Dropped       int64   `json:"dropped"`               // requests that were dropped because of it
	InvalidShare  float64 `json:"invalid" check:"share"` // share of its device time that went into requests that were not in time
	ConsumedShare float64 `json:"consumed"`              // share of the SLO that was gone when its tasks ended, mean
	// QueueTime is from a task's reveal until it enters a batch, WaitTime until
	// that starts. Both are in whole milliseconds, rounded down.
	QueueTime *TimeQuantiles  `json:"queued,omitempty"`
	WaitTime  *TimeQuantiles  `json:"waited,omitempty"`
	RunUS     document.Micros `json:"run_us"` // the mean time of its batches
	Batch     float64         `json:"batch"`  // tasks of its batches, mean
}

// TimeQuantiles are quantiles of a time.
type TimeQuantiles struct {
	P50US document.Micros `json:"p50_us"`
	P90US document.Micros `json:"p90_us"`
	P99US document.Micros `json:"p99_us"`
}

// FlowReport holds the results of a run of applications, besides the counts.
type FlowReport struct {
	Invalid  float64          `json:"invalid" check:"share"` // share of the device time that went into requests that were not in time
	DeviceUS document.Micros  `json:"device_us"`             // the time from the decision for a worker until it goes, of all together
	Windows  []FlowWindow     `json:"windows,omitempty"`
	Overload *FlowOverload    `json:"overloaded,omitempty"` // if absent, there was no overload
	Modes    []FlowModeChange `json:"modes,omitempty"`      // the changes of mode in the first run
}

// WorkflowReport holds the results of a run of workflows, besides the counts.
type WorkflowReport struct {
	LoadsPerMinute float64 `json:"loads_per_minute"` // loads per minute of all devices together
	Batch          float64 `json:"batch"`            // tasks of a batch, mean
	// Sessions is of services that keep something of a request.
	Sessions *SessionReport `json:"sessions,omitempty"`
	// Generations are the language models, Segments the modules that ask for them.
	Generations []GenerationReport `json:"generations,omitempty"`
	Segments    []SegmentReport    `json:"segments,omitempty"`
}

// GenerationReport holds the work of one language model on all devices, from the end of the warm-up to the last
// arrival.
type GenerationReport struct {
	Model           string  `json:"model"`
	Sequences       int64   `json:"sequences"` // sequences that ended
	TokensPerSecond float64 `json:"tokens_per_second"`
	MeanRunning     float64 `json:"running"`   // sequences at once, mean over the time of iterations
	Preempted       int64   `json:"preempted"` // sequences that were evicted for lack of KV memory, and resumed
	PeakKVTokens    int64   `json:"peak_kv_tokens"`
	KVTokens        int64   `json:"kv_tokens"` // the KV capacity of a device in tokens
}

// SegmentReport holds the latencies of a module's sequences. The time to the first token starts when all inputs of
// the sequence are there.
type SegmentReport struct {
	Application string          `json:"application"`
	Segment     string          `json:"segment"`
	Module      string          `json:"module"`
	Model       string          `json:"model,omitempty"`
	Sequences   int64           `json:"sequences"`
	TTFTP50US   document.Micros `json:"ttft_p50_us"`
	TTFTP99US   document.Micros `json:"ttft_p99_us"`
	TPOTP50US   document.Micros `json:"tpot_p50_us"`
	TPOTP99US   document.Micros `json:"tpot_p99_us"`
}

// SessionReport counts the states that tasks reused, or had to do without.
type SessionReport struct {
	ReusedStates     int64           `json:"reused"`     // tasks that found theirs
	RecomputedStates int64           `json:"recomputed"` // tasks that did not
	MovedStates      int64           `json:"moved"`      // states to another device
	DroppedStates    int64           `json:"dropped"`    // states, to make room or for want of it
	RecomputingUS    document.Micros `json:"recomputing_us"`
}

// FlowWindow is the worst of all windows of a width, by arrival.
type FlowWindow struct {
	WidthUS document.Micros `json:"width_us"`
	Drop    float64         `json:"drop"`    // largest share of a window's requests that were not answered in time
	Goodput float64         `json:"goodput"` // smallest number of requests in time, as the same share
}

// FlowOverload summarises the windows of ten seconds in which more requests arrived than the workers can serve.
type FlowOverload struct {
	Windows      int      `json:"windows"`
	Requests     int64    `json:"requests"`
	Goodput      float64  `json:"goodput"` // requests in time, as a share of those
	ShareOfBound *float64 `json:"share_of_bound,omitempty"`
}

// FlowModeChange is a change of the order in which a module serves: lbf is the
// least remaining budget first, hbf the most.
type FlowModeChange struct {
	AtUS         document.Micros `json:"at_us"`
	Module       string          `json:"module"`
	ServiceOrder string          `json:"order"`
}

// checkFlow reports to c what is wrong with the part of a report that is about applications: its modules, invalid
// answers, loads and sessions.
func (d *Report) checkFlow(c *document.Checker) {
	for i := range d.Modules {
		m, fieldPath := &d.Modules[i], fmt.Sprintf("modules[%d]", i)
		c.FailIf(m.Module == "" || m.Requests < 0 || m.Dropped < 0, fieldPath, fmt.Sprintf("%q with %d requests, %d dropped", m.Module, m.Requests, m.Dropped), "a name, and 0 or more of each")
	}
	if w := d.Workflow; w != nil && (w.LoadsPerMinute < 0 || w.Batch < 0) {
		c.Fail("workflow", fmt.Sprintf("%g loads per minute, batches of %g", w.LoadsPerMinute, w.Batch), "0 or more of each", "")
	}
	if w := d.Workflow; w != nil && w.Sessions != nil {
		if s := w.Sessions; min(s.ReusedStates, s.RecomputedStates, s.MovedStates, s.DroppedStates) < 0 {
			c.Fail("workflow.sessions", document.FormatWhole(min(s.ReusedStates, s.RecomputedStates, s.MovedStates, s.DroppedStates)), "0 or more", "")
		}
	}
}
