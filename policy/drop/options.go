package drop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/policy/flow"
)

// order says which of the waiting tasks is served next.
type order uint8

const (
	arrival  order = iota // first come, first served
	least                 // the least remaining budget first (LBF)
	most                  // the most first (HBF)
	adaptive              // one of the two by the module's load (PARD §4.3)
	feasible              // LBF while the worker's own queue can be served so, else HBF
	sparing               // likewise, else LBF of the most of the queue that can be
)

// test says which tasks are dropped when they could enter a batch.
type test uint8

const (
	none    test = iota
	ahead        // past, present and what is still to come would exceed the SLO (PARD §4.1)
	window       // the first window of a batch that fits is kept (Nexus)
	elapsed      // the time in this module exceeds the module's part of the SLO (Clipper++)
	part         // as elapsed, with the batch wait and the execution
	worst        // as part, parts by the worst latencies seen
)

// rest says what is taken for the modules still to come.
type rest uint8

const (
	whole   rest = iota // queueing, execution and the quantile of waits for batches
	nothing             // nothing
	runs                // execution
	nowait              // queueing and execution
	twice               // queueing and twice the execution
)

// reading is one policy: what it is made of.
type reading struct {
	order   order
	test    test
	rest    rest
	toStart bool // elapsed: up to the batch's start, not to the decision
	sums    bool // window: against the sum of the parts up to the module
	jsq     bool // the worker that can start first, not the next one
	entry   bool // reactive control at the entry (PARD §5.3, PARD-oc)
	sudden  bool // a mode changes without delay
}

// readings are the policies by name.
var readings = map[string]reading{
	"naive":     {order: arrival, test: none},
	"nexus":     {order: arrival, test: window},
	"nexus-cum": {order: arrival, test: window, sums: true},
	"clipper++": {order: arrival, test: elapsed},
	"clip-te":   {order: arrival, test: elapsed, toStart: true},
	"pard":      {order: adaptive, test: ahead},
	"back":      {order: adaptive, test: ahead, rest: nothing},
	"sf":        {order: adaptive, test: ahead, rest: runs},
	"oc":        {order: adaptive, test: ahead, rest: nothing, entry: true},
	"split":     {order: adaptive, test: part},
	"wcl":       {order: adaptive, test: worst},
	"lower":     {order: adaptive, test: ahead, rest: nowait},
	"upper":     {order: adaptive, test: ahead, rest: twice},
	"fcfs":      {order: arrival, test: ahead},
	"hbf":       {order: most, test: ahead},
	"lbf":       {order: least, test: ahead},
	"instant":   {order: adaptive, test: ahead, sudden: true},
	"feas-hbf":  {order: feasible, test: ahead, jsq: true},
	"feas":      {order: sparing, test: ahead, jsq: true},
}

// Default is the policy of plans that name none.
const Default = "feas"

// Names lists the policies.
func Names() []string { return slices.Sorted(maps.Keys(readings)) }

// rare is the share of the requests from which on a way counts for feas, where nobody says otherwise.
const rare = .25

// Options are the parameters of a policy.
type Options struct {
	Lambda  float64       // quantile of waits; the plan's
	Window  time.Duration // of queueing averages; the plan's
	Samples int           // sums drawn per path each second, as the paper does; 0: convolution
	Token   float64       // admit at the entry what the modules' backlogs leave time for, that many times; 0: all
	Limit   time.Duration // oc: mean queueing above which the entry admits less
	Admit   float64       // oc: share that it then admits
	Seed    uint64        // of samples and of oc
	Paths   float64       // behind branches ways count that more than this share of the requests took so far; 0: the longest one (PARD §5.2); feas: rare where branches skip modules
	Skew    time.Duration // workers decide by clocks of their own, which are off by up to this; 0: deadlines reach them as what is left
	Learn   bool          // batches are expected to take as long as they lately did, not as planned; feas does
	Prompt  bool          // refuse at the first instant without hope, not when a batch forms
}

// Promptly is a plan's parameters as they are served: a client is told at once that
// its request is hopeless, and estimates follow how long batches really take, unless
// the plan says otherwise.
func Promptly(params map[string]float64) map[string]float64 {
	out := map[string]float64{"prompt": 1, "learn": 1}
	maps.Copy(out, params)
	return out
}

// parse reads the parameters of a plan.
func (r *reading) parse(own *flow.Tables, params map[string]float64) (Options, error) {
	opt := Options{Lambda: own.Lambda, Window: own.Window, Limit: 25 * time.Millisecond, Admit: .6, Seed: 1, Learn: r.order == sparing}
	if r.order == sparing && skips(own) {
		opt.Paths = rare
	}
	known := map[string]func(x float64) bool{
		"lambda":      func(x float64) bool { opt.Lambda = x; return x > 0 && x < 1 },
		"window_us":   func(x float64) bool { opt.Window = time.Duration(x * 1e3); return x >= 1e6 && x <= 60e6 },
		"samples":     func(x float64) bool { opt.Samples = int(x); return x >= 0 && x <= 1e6 && x == float64(int(x)) },
		"token":       func(x float64) bool { opt.Token = x; return x == 0 || x >= .1 && x <= 10 },
		"oc_limit_us": func(x float64) bool { opt.Limit = time.Duration(x * 1e3); return x > 0 && x <= 1e9 },
		"oc_admit":    func(x float64) bool { opt.Admit = x; return x >= 0 && x <= 1 },
		"paths":       func(x float64) bool { opt.Paths = x; return x >= 0 && x < 1 },
		"learn":       func(x float64) bool { opt.Learn = x == 1; return x == 0 || x == 1 },
		"prompt":      func(x float64) bool { opt.Prompt = x == 1; return x == 0 || x == 1 },
		"skew_us":     func(x float64) bool { opt.Skew = time.Duration(x * 1e3); return x >= 0 && x <= 1e6 },
		"seed":        func(x float64) bool { opt.Seed = uint64(x); return x >= 0 && x < 1<<53 },
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		set, ok := known[name]
		if !ok {
			return opt, fmt.Errorf("the parameter %q is unknown, expected one of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if !set(params[name]) {
			return opt, fmt.Errorf("the parameter %s is %v, which is out of range", name, params[name])
		}
	}
	if opt.Window < time.Second || opt.Lambda <= 0 || opt.Lambda >= 1 {
		return opt, fmt.Errorf("lambda %v and window %v, expected a share and at least a second", opt.Lambda, opt.Window)
	}
	return opt, nil
}
