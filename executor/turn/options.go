package turn

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/tracing"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// Options say how a plan of any kind is served. Backends and answerers have options of their own.
type Options struct {
	Engine    string // "onnx" (default) or "replay"
	ModelsDir string // directory of NAME.onnx; default "models"
	Seed      uint64 // of weights for models whose files have none; 0 refuses such models
	Policy    string // overrides the plan's policy

	// PlanSHA256 identifies the plan in metrics. If it is empty, it is left out.
	PlanSHA256 string

	// MaxRequestBatch bounds the samples of one client request. 0 stands for 64.
	MaxRequestBatch int
	// MaxQueue bounds the samples inside the executor. 0 stands for 65536.
	MaxQueue int

	LoadTimeout  time.Duration // a load is assumed to hang after this, plus ten times its planned time; 0: 1 minute
	SearchLimit  time.Duration // bound on a policy's search beside the loop; 0: 1 s
	FlushTimeout time.Duration // bound on answering accepted requests once another plan is in force; 0: 30 s

	// RatesURL is where rates are served; notices name it. It may be empty.
	RatesURL string
	// MixLimit is the share of the requests that may go to other models than planned before a notice asks for another plan.
	// 0 stands for 0.1. MixWindows is the number of seconds with requests over which it is taken; 0 stands for 120.
	MixLimit   float64
	MixWindows int

	// RecordService records the actual times of every run, for ServiceTimes.
	RecordService bool
	// EventLog receives every event and action of the first plan's policy, in the form of policy/conform. It is complete
	// after Close. It may be nil.
	EventLog io.Writer

	// NewPolicy creates the policy. If it is nil, the registry of package policies does.
	NewPolicy      func(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error)
	Control        func(t *policy.Tables) policy.Control // for tests; nil for that of the plan's kind
	Clock          func() time.Time                      // clock of stored times; nil for durable.SteadyClock
	EvaluateReplay bool                                  // evaluate conditions even over the random outputs of the engine "replay"

	Tracer *tracing.Tracer // makes spans of requests; nil if there is none

	Log *slog.Logger // nil stands for slog.Default
}

// HasRandomOutputs returns true if outputs of models mean nothing: paths and certainties are drawn.
func (o *Options) HasRandomOutputs() bool { return o.Engine == "replay" && !o.EvaluateReplay }

// SetDefaults sets options that are zero to their defaults, before a core is made from them: the engine, folders and
// limits, the clock, the log, and the plan's own policies.
func (o *Options) SetDefaults() {
	o.Engine = cmp.Or(o.Engine, "onnx")
	o.ModelsDir = cmp.Or(o.ModelsDir, "models")
	o.MaxRequestBatch = cmp.Or(o.MaxRequestBatch, 64)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.LoadTimeout = cmp.Or(o.LoadTimeout, time.Minute)
	o.SearchLimit = cmp.Or(o.SearchLimit, time.Second)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, 30*time.Second)
	o.MixLimit = cmp.Or(o.MixLimit, 0.1)
	o.MixWindows = cmp.Or(o.MixWindows, 120)
	if o.Clock == nil {
		o.Clock = durable.SteadyClock(time.Now)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.NewPolicy == nil {
		o.NewPolicy = func(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) { return policies.New(spec, t) }
	}
	if o.Control == nil {
		o.Control = policies.NewControl
	}
}

// Errors that callers distinguish with errors.Is.
var (
	// ErrPlan is returned if the plan cannot be served on this machine or with these options.
	ErrPlan = errors.New("plan cannot be served")
	// ErrSimulatedOnly is returned for plans of a sort that can be checked and simulated, but not served.
	ErrSimulatedOnly = errors.New("plans of this sort are not served")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("executor is closed")
	// ErrSwitched is returned if a new plan is in force but could not answer all requests that the old one had accepted.
	ErrSwitched = errors.New("the new plan is in force")
)
