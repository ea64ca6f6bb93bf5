package sim

import (
	"context"
	"fmt"
	"io"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
)

// RequestEnd says how a request ended.
type RequestEnd struct {
	Model     int32 // index into the tables' models
	ArrivedAt time.Duration
	EndedAt   time.Duration
	Deadline  time.Duration
	Reason    string // the reason why it was dropped; empty if it was answered
}

// Config configures one run. Tables, Policy and Source are needed. The policy, the source
// and the service must not be shared with other runs.
type Config struct {
	Tables  *policy.Tables
	Policy  policy.Policy
	Source  arrivals.Source
	Service Service // if nil, the times of the tables

	// Duration ends the arrivals; the run then drains. If it is 0, the source ends them.
	Duration time.Duration
	// Cut, when it ends, ends the arrivals early: the run drains, and its result is that of a shorter Duration. If nil,
	// nothing does.
	Cut context.Context
	// Warmup is how long arrivals run without being counted.
	Warmup time.Duration
	// Ingress passes from a request's arrival until the policy hears of it, Egress from the
	// end of its batch until its answer.
	Ingress, Egress time.Duration
	// FrontEnd is how long a request occupies the front end. Requests pass it one after another.
	// Only the waiting for it delays requests: the time itself is part of Egress. If it is 0, none waits.
	FrontEnd time.Duration
	// FrontEndRuns has, by device, which part of the front end a run there occupies while it lasts, because it has the
	// CPUs of the front end's machine. It is nil if none does. FrontEndRunShare is the largest share of the front end
	// that all runs together can occupy for long.
	FrontEndRuns     []float64
	FrontEndRunShare float64
	// Window is the width of the report's windows. If it is 0, there are none.
	Window time.Duration

	// LoadTime returns how long a network takes to load on a device. If nil, the service or the tables say it.
	LoadTime func(network, device int32) time.Duration
	// MoveTime returns how long the output of a task of a service takes from one device to
	// another, for a Place. All inputs of a task move at once, and none waits for a link. If
	// nil, it takes no time.
	MoveTime func(service, from, to int32) time.Duration
	// Slowdown is the share by which iterations of language models take longer than profiled.
	Slowdown float64
	// SearchWork bounds the work of a re-plan's search; 0 stands for 2^20. SearchTime returns
	// how long a search with so much work takes. If nil, it takes no time.
	SearchWork int64
	SearchTime func(workDone int64) time.Duration
	Faults     []Fault

	// Control reveals the tasks of a request. If nil, a request has one. Truth knows what only
	// reality knows; nil stands for nothing, or for what the tables have. Neither may be shared
	// with other runs.
	Control policy.Control
	Truth   Truth

	// OnCompleted is called with every answered request, unless it is nil.
	OnCompleted func(arrivedAt, answeredAt time.Duration)
	// OnEnded is called with the end of every request that the report counts, unless it is nil.
	OnEnded func(RequestEnd)
	// OnJudged is called with every answer of a language model to a request of its own, and whether it is late, unless
	// it is nil.
	OnJudged func(model int32, arrivedAt, answeredAt time.Duration, isLate bool)

	// Verify checks the invariants: conservation of requests, one batch at a time on a device,
	// first-in first-out, causality, a monotone clock, valid paths.
	Verify bool
	// ChromeTrace gets a trace of every device and link, to be opened in chrome://tracing or
	// Perfetto. It may be nil.
	ChromeTrace io.Writer

	// NoReport leaves the report out. Its percentiles take a fifth of a short run, and a caller
	// with OnCompleted needs none.
	NoReport bool

	// instances returns a host of instances to use instead of llmHost. It may be nil.
	instances func(l *loop) host

	// PolicyName, Seed and Load only appear in the report.
	PolicyName string
	Seed       uint64
	Load       float64
}

// Fault makes a device fail, or come back, at a time.
type Fault struct {
	At        time.Duration
	Device    int32
	ComesBack bool // the device comes back
}

// Result is the outcome of a run.
type Result struct {
	Report            *formats.Report   `runs:"none"`
	Events            int64             // events that the loop handled
	DispatchedBatches int64             // batches
	Gears             *GearResult       // for gear plans, else nil
	Flow              *FlowResult       // for plans of applications, else nil
	Work              *WorkResult       // for plans of workflows, else nil
	Sessions          *SessionResult    // if services keep session states, else nil
	Generation        *GenerationResult // if language models are part of workflows, else nil
	Tokens            *TokenResult      // for instances of language models, else nil
	Transfers         Transfers         `runs:"none"` // between stages
	CutAt             time.Duration     `runs:"none"` // when Config.Cut ended the arrivals; 0 if it did not
	Probes            int64             // paths that the policy looked for; 0 if it does not count them
	FrontEndOccupied  time.Duration     // by requests and runs; 0 if there is no front end
	FrontEndElapsed   time.Duration     // until the last request had passed it
	transferTimes     transferTimes
	reportCounts      *report.Accumulator // what the report of this run, or of several, is made of
}

// check returns an error if a field that a run needs is missing, or if a time or a device is invalid. Run calls it
// first. The negated comparison also refuses NaN.
func (config *Config) check() error {
	switch {
	case config.Tables == nil || config.Policy == nil || config.Source == nil:
		return fmt.Errorf("simulating: tables, policy and source are needed")
	case config.FrontEndRuns != nil && len(config.FrontEndRuns) != len(config.Tables.Devices):
		return fmt.Errorf("simulating: the parts of the front end that runs occupy are %d, expected one of each of the %d devices", len(config.FrontEndRuns), len(config.Tables.Devices))
	case config.Duration < 0 || config.Warmup < 0 || config.Ingress < 0 || config.Egress < 0 || config.FrontEnd < 0 || !(config.FrontEndRunShare >= 0):
		return fmt.Errorf("simulating: duration %v, warm-up %v, ingress %v, egress %v and front end %v must not be negative", config.Duration, config.Warmup, config.Ingress, config.Egress, config.FrontEnd)
	}
	for i, fault := range config.Faults {
		if fault.Device < 0 || int(fault.Device) >= len(config.Tables.Devices) || fault.At < 0 {
			return fmt.Errorf("simulating: fault %d names device %d at %v, expected a device below %d and a time of at least 0", i, fault.Device, fault.At, len(config.Tables.Devices))
		}
	}
	return nil
}

// timeSpan is a span of simulated time from start to end, without the end.
type timeSpan struct{ start, end time.Duration }

// contains reports whether an instant lies in the span.
func (s timeSpan) contains(instant time.Duration) bool { return instant >= s.start && instant < s.end }

// length returns how long the span is. If it ends before it starts, it returns 0.
func (s timeSpan) length() time.Duration { return max(0, s.end-s.start) }

// intersect returns the part of another span that lies in this one. If they do not overlap, it ends before it starts.
func (s timeSpan) intersect(other timeSpan) timeSpan {
	return timeSpan{max(s.start, other.start), min(s.end, other.end)}
}

// overlap returns for how long two spans overlap; 0 if they do not.
func (s timeSpan) overlap(other timeSpan) time.Duration { return s.intersect(other).length() }

// countedSpan returns the span of time whose requests and work count in the report: from the end of the warm-up to
// the end of the arrivals. In a run without a duration it does not end.
func (config *Config) countedSpan() timeSpan {
	if config.Duration == 0 {
		return timeSpan{config.Warmup, 1 << 62}
	}
	return timeSpan{config.Warmup, config.Duration}
}
