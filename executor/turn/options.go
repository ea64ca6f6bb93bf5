package turn

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"inferplan/engine/certainty"
	"inferplan/engine/llm"
	"inferplan/engine/worker"
	"inferplan/executor/durable"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// Options say how a plan is served. The zero value serves with real models
// from the folder "models".
type Options struct {
	Engine    string // "onnx" (default) or "replay"
	ModelsDir string // where NAME.onnx lie; default "models"
	Library   string // path of the engine's library; empty: its own search
	Seed      uint64 // of weights for models whose files have none; 0: such a model is refused
	Policy    string // overrides the plan's policy

	// PlanSHA256 identifies the plan in metrics; empty: it is left out.
	PlanSHA256 string

	// CPUs that workers on CPU devices may take, in order; nil: all of this
	// process but the first. ShareCPUs lets several workers take one CPU where
	// there are too few, which no plan accounts for.
	CPUs      []int
	ShareCPUs bool
	// Places gives the devices of a kind CPUs of their own: kinds such as cpu-a
	// and cpu-b, whose name does not say how many CPUs they have, need one.
	Places map[string]CPUPlace

	// Remote is how many devices of a kind, the last ones of the plan, are those
	// of other hosts, whose workers wait in Lobby (worker.NewLobby).
	Remote map[string]int
	Lobby  *worker.Lobby

	// Execute changes how models are executed on the devices of a kind against what
	// the plan's numbers were measured with; nil: as measured.
	Execute func(kind string, planned worker.Execution) worker.Execution

	// Depth is how many runs a worker is sent ahead, at most 8; 0: 2, one runs and
	// one waits in the socket.
	Depth int
	// Slots is how many batches a stage holds in shared memory at most; 0: 64.
	// Slots that are not used cost address space only.
	Slots int
	// CacheBytes bounds the models that are kept in this machine's memory for devices
	// that swap them; 0: 8 GiB. What has no room is read from its file whenever it is
	// loaded.
	CacheBytes int64
	// MaxRequestBatch bounds the samples of one client request; 0: 64.
	MaxRequestBatch int
	// MaxQueue bounds the samples inside the executor; 0: 65536.
	MaxQueue int

	StartTimeout time.Duration // of a worker with its models; 0: 5 minutes
	HangTimeout  time.Duration // that a run must last, beside ten times its planned time, until its worker is taken to hang; 0: 1 s
	LoadTimeout  time.Duration // that a load at run time must last, beside ten times its planned time, until its worker is taken to hang; 0: 1 minute
	SearchLimit  time.Duration // how long a policy's search beside the loop may take; 0: 1 s
	FlushTimeout time.Duration // how long a plan answers what it accepted once another is in force; 0: 30 s

	// Certainty computes how certain a classifier is of an answer from its
	// probabilities, for gear plans; nil: the score that the plan names.
	Certainty certainty.Func
	// DriftLimit is the share of the requests (or of the time, where the plan's
	// weights are that) that may fall into other ranges of rates than planned
	// before a notice asks for another plan; 0: 0.25. DriftWindows is over how
	// many seconds with requests; 0: 600, and the first notice comes after half
	// of them.
	DriftLimit   float64
	DriftWindows int
	// ForwardLimit is the share of the samples that other members of a cascade may
	// answer than planned before a notice asks for other records and another plan; 0: 0.1.
	// ForwardWindows is over how many seconds with answers; 0: 30.
	ForwardLimit   float64
	ForwardWindows int
	// RatesURL is where WriteRates is served, which the notice then tells; empty:
	// nowhere.
	RatesURL string
	// MixLimit is the share of the requests that may go to other models than
	// planned before a notice asks for another plan; 0: 0.1. MixWindows is over
	// how many seconds with requests; 0: 120.
	MixLimit   float64
	MixWindows int

	// StoreBytes bounds what tasks have made and others will read, of plans whose
	// requests have several tasks; 0: 1 GiB. A request whose outputs have no room is
	// refused. Judge computes what becomes of a task from its outputs, and with it
	// which tasks come next; nil: always the same.
	StoreBytes int64
	// Keeps is called with StoreBytes when such a plan is started; nil: nobody asks.
	Keeps func(bytes int64)
	Judge func(service int32, outputs [][]byte) policy.Outcome

	// Servers are the servers of the plan's instances of language models. Silence is how
	// long one may answer nothing until it is taken to be gone; 0: 5 s.
	// With Agents, an *text.Agents, instances are those of other processes
	// (ServeAgent) instead.
	// Adapters are models of the plan that a server serves as adapters of another one.
	Servers  []InstanceServer
	Adapters []ModelAdapter
	Silence  time.Duration
	Agents   any

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
	// Command and Env start workers; see worker.Config. Inside runs the workers
	// as goroutines of this process instead.
	Command []string
	Env     []string
	Inside  bool

	Log *slog.Logger // nil: slog.Default
}

// CPUPlace says where the devices of one CPU kind run: each takes Threads CPUs
// of the list, in order.
type CPUPlace struct {
	CPUs    []int
	Threads int // per device; 0: n of a kind cpu-<n>, else 1
}

// InstanceServer says where a server of an instance is.
type InstanceServer struct {
	Instance int    // of the plan, in its order
	Model    string // that it serves; empty: all of the instance's models
	URL      string
	Key      string // bearer token; empty: none
}

// ModelAdapter says that a model of the plan is a LoRA adapter of another one, which the
// same server has.
type ModelAdapter struct {
	Model, Base string
	// Path is that of its files as the server sees them. Empty: the server was started
	// with the adapter, under the model's name.
	Path string
}

// Of is the adapter as a client of the server names it.
func (a *ModelAdapter) Of() llm.Adapter { return llm.Adapter{Name: a.Model, Path: a.Path} }

// MadeUp tells whether answers of models say nothing: ways and certainties are drawn.
func (o *Options) MadeUp() bool { return o.Engine == "replay" && !o.Evaluate }

func (o Options) WithDefaults() Options {
	SetDefault(&o.Engine, "onnx")
	SetDefault(&o.ModelsDir, "models")
	SetDefault(&o.Depth, 2)
	o.Depth = min(o.Depth, 8) // what a worker of another host takes
	SetDefault(&o.Slots, 64)
	SetDefault(&o.MaxRequestBatch, 64)
	SetDefault(&o.MaxQueue, 65536)
	SetDefault(&o.StartTimeout, 5*time.Minute)
	SetDefault(&o.HangTimeout, time.Second)
	SetDefault(&o.LoadTimeout, time.Minute)
	SetDefault(&o.SearchLimit, time.Second)
	SetDefault(&o.CacheBytes, worker.DefaultCache)
	SetDefault(&o.FlushTimeout, 30*time.Second)
	SetDefault(&o.Silence, 5*time.Second)
	SetDefault(&o.StoreBytes, 1<<30)
	SetDefault(&o.DriftLimit, 0.25)
	SetDefault(&o.DriftWindows, 600)
	SetDefault(&o.ForwardLimit, 0.1)
	SetDefault(&o.ForwardWindows, 30)
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
	return o
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
	// ErrModelHash: a model file differs from the one that was planned for.
	ErrModelHash = worker.ErrHash
)
