package turn

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"inferplan/executor/durable"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// Options say how a plan is served, whatever its kind. What answers and executes has options
// of its own in its room.
type Options struct {
	Engine    string // "onnx" (default) or "replay"
	ModelsDir string // where NAME.onnx lie; default "models"
	Seed      uint64 // of weights for models whose files have none; 0: such a model is refused
	Policy    string // overrides the plan's policy

	// PlanSHA256 identifies the plan in metrics; empty: it is left out.
	PlanSHA256 string

	// MaxRequestBatch bounds the samples of one client request; 0: 64.
	MaxRequestBatch int
	// MaxQueue bounds the samples inside the executor; 0: 65536.
	MaxQueue int

	LoadTimeout  time.Duration // that a load at run time must last, beside ten times its planned time, until its worker is taken to hang; 0: 1 minute
	SearchLimit  time.Duration // how long a policy's search beside the loop may take; 0: 1 s
	FlushTimeout time.Duration // how long a plan answers what it accepted once another is in force; 0: 30 s

	// RatesURL is where rates are served, which notices then tell; empty: nowhere.
	RatesURL string
	// MixLimit is the share of the requests that may go to other models than
	// planned before a notice asks for another plan; 0: 0.1. MixWindows is over
	// how many seconds with requests; 0: 120.
	MixLimit   float64
	MixWindows int

	// RecordService keeps the actual times of every run, for Service.
	RecordService bool
	// EventLog receives every event and action of the first plan's policy, in
	// the form of policy/conform, complete after Close; nil: none.
	EventLog io.Writer

	// NewPolicy makes the policy; nil: the registry of this package.
	NewPolicy func(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error)
	Control   func(t *policy.Tables) policy.Control // of tests; nil: that of the plan's kind
	Clock     func() time.Time                      // of what is stored with its time; nil: durable.Steady
	Evaluate  bool                                  // conditions are evaluated over what the engine replay makes up, too

	Log *slog.Logger // nil: slog.Default
}

// MadeUp tells whether answers of models say nothing: ways and certainties are drawn.
func (o *Options) MadeUp() bool { return o.Engine == "replay" && !o.Evaluate }

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() {
	SetDefault(&o.Engine, "onnx")
	SetDefault(&o.ModelsDir, "models")
	SetDefault(&o.MaxRequestBatch, 64)
	SetDefault(&o.MaxQueue, 65536)
	SetDefault(&o.LoadTimeout, time.Minute)
	SetDefault(&o.SearchLimit, time.Second)
	SetDefault(&o.FlushTimeout, 30*time.Second)
	SetDefault(&o.MixLimit, 0.1)
	SetDefault(&o.MixWindows, 120)
	if o.Clock == nil {
		o.Clock = durable.Steady(time.Now)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.NewPolicy == nil {
		o.NewPolicy = func(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) { return policies.New(spec, t) }
	}
	if o.Control == nil {
		o.Control = policies.Control
	}
}

func SetDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrPlan: the plan cannot be served as it is here.
	ErrPlan = errors.New("plan cannot be served")
	// ErrSimulatedOnly says of a plan that plan serve serves no plan of its sort: it can
	// be checked and simulated.
	ErrSimulatedOnly = errors.New("plans of this sort are not served")
	// ErrClosed: use after Close.
	ErrClosed = errors.New("executor is closed")
	// ErrSwitched: the new plan is in force, but not all that the old one had
	// accepted could be answered by it.
	ErrSwitched = errors.New("the new plan is in force")
)
