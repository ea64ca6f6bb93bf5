package sim

import (
	"fmt"
	"io"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
)

// Config is one run. Tables, Policy and Source are needed; the policy, the
// source and the service belong to the run alone.
type Config struct {
	Tables  *policy.Tables
	Policy  policy.Policy
	Source  arrivals.Source
	Service Service // nil: the times of the tables

	// Duration ends the arrivals; the run then drains. 0: until the source ends.
	Duration time.Duration
	// Warmup is how long arrivals run without being counted.
	Warmup time.Duration
	// Ingress passes between a request's arrival and the moment the policy
	// hears of it, Egress between the end of its batch and its answer.
	Ingress, Egress time.Duration
	// FrontEnd is for how long a request takes up the front end. Requests pass it one after another, and those
	// that wait for it reach the policy later; that it takes time itself is part of Egress. 0: none waits.
	FrontEnd time.Duration
	// Window is the width of the report's windows. 0: none.
	Window time.Duration

	// LoadTime is how long a network takes to load on a device. nil: no time.
	LoadTime func(network, device int32) time.Duration
	// PlaceTime is how long it takes to bring what a task reads to a device. nil:
	// no time.
	PlaceTime func(task, device int32) time.Duration
	// MoveTime is how long the output of a task of a service takes from one device
	// to another, for a Place. All that a task reads comes at once, and nothing
	// waits for a link. nil: no time.
	MoveTime func(service, from, to int32) time.Duration
	// Slower is a share by which iterations of language models take longer than profiled.
	Slower float64
	// SearchWork bounds the work of a re-plan's search; 0: 2^20. SearchTime is how
	// long a search of so much work takes. nil: no time.
	SearchWork int64
	SearchTime func(worked int64) time.Duration
	Faults     []Fault

	// Control says which tasks a request has; nil: one. Truth is what only
	// reality knows; nil: nothing, or what the tables have. Both belong to the run
	// alone.
	Control policy.Control
	Truth   Truth

	// Completed hears of every answered request; nil: nobody.
	Completed CompletedFunc
	// Judged hears of every answer of a language model that is a request's own; nil:
	// nobody.
	Judged JudgedFunc

	// Verify checks the invariants: conservation, one batch at a time on a
	// device, first-in first-out, causality, monotone clock, valid paths.
	Verify bool
	// ChromeTrace gets a trace of every device and link, to be opened in
	// chrome://tracing or Perfetto. nil: none.
	ChromeTrace io.Writer

	// NoReport leaves the report out: its percentiles take a fifth of a short
	// run, and a caller that takes Completed needs none.
	NoReport bool

	// instances makes another host of instances than servers; nil: none.
	instances func(l *loop) host

	// For the report.
	PolicyName string
	Seed       uint64
	Load       float64
}

// Fault takes a device away at a time, or gives it back.
type Fault struct {
	At     time.Duration
	Device int32
	Up     bool
}

// Result is what a run showed.
type Result struct {
	Report     *formats.Report
	Events     int64             // handled by the loop
	Dispatched int64             // batches
	Gears      *GearResult       // of a gear plan, else nil
	Flow       *FlowResult       // of a plan of applications, else nil
	Work       *WorkResult       // of a plan of workflows, else nil
	Sessions   *SessionResult    // of services that keep something of requests, else nil
	Generated  *GenerationResult // of language models of workflows, else nil
	Tokens     *TokenResult      // of instances of language models, else nil
	Transfers  Transfers         // between stages
	Probes     int64             // paths that the policy looked for; 0: it does not count them
	crossed    transferTimes
	acc        *report.Accumulator
}

func (c *Config) check() error {
	switch {
	case c.Tables == nil || c.Policy == nil || c.Source == nil:
		return fmt.Errorf("simulating: tables, policy and source are needed")
	case c.Duration < 0 || c.Warmup < 0 || c.Ingress < 0 || c.Egress < 0 || c.FrontEnd < 0:
		return fmt.Errorf("simulating: duration %v, warm-up %v, ingress %v, egress %v and front end %v must not be negative", c.Duration, c.Warmup, c.Ingress, c.Egress, c.FrontEnd)
	}
	for i, f := range c.Faults {
		if f.Device < 0 || int(f.Device) >= len(c.Tables.Devices) || f.At < 0 {
			return fmt.Errorf("simulating: fault %d names device %d at %v, expected a device below %d and a time of at least 0", i, f.Device, f.At, len(c.Tables.Devices))
		}
	}
	return nil
}
