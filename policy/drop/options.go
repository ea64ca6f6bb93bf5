package drop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/policy/flow"
)

// Default is the policy of plans that name none.
const Default = "feas"

// Names returns the names of the policies, the default first.
func Names() []string { return []string{Default, "pard"} }

// minPathShare is the share of the requests from which on a path counts for feas, unless a parameter says otherwise.
const rare = .25

// Options are the parameters of a policy.
type Options struct {
	Lambda float64       // quantile of the waits for batches; the plan's by default
	Window time.Duration // of the averages of queueing times; the plan's by default
	Token  float64       // the entry admits while backlogs take at most this many times the time left; 0 admits all
	Seed   uint64        // of the clock skews
	Paths  float64       // rarer paths behind branches do not count; 0: the longest does (PARD §5.2); feas: minPathShare if branches skip modules
	Skew   time.Duration // workers decide by clocks that are off by up to this; with 0 they are told the time that is left
	Learn  bool          // batch times follow the measured ones, not the plan; on by default for feas
	Prompt bool          // drop a request as soon as it is hopeless, not when a batch forms
}

// ServingParams returns the parameters of a plan for serving: a client learns at once that its request is hopeless, and
// estimates follow measured batch times, unless the plan says otherwise.
func Promptly(params map[string]float64) map[string]float64 {
	out := map[string]float64{"prompt": 1, "learn": 1}
	maps.Copy(out, params)
	return out
}

// parseOptions reads the parameters of a plan for feas or pard.
func parse(feas bool, own *flow.Tables, params map[string]float64) (Options, error) {
	opt := Options{Lambda: own.Lambda, Window: own.Window, Seed: 1, Learn: feas}
	if feas && skips(own) {
		opt.Paths = rare
	}

	// Every parameter has a function that sets it and returns true if its value is in range.
	known := map[string]func(x float64) bool{
		"lambda":    func(x float64) bool { opt.Lambda = x; return x > 0 && x < 1 },
		"window_us": func(x float64) bool { opt.Window = time.Duration(x * 1e3); return x >= 1e6 && x <= 60e6 },
		"token":     func(x float64) bool { opt.Token = x; return x == 0 || x >= .1 && x <= 10 },
		"paths":     func(x float64) bool { opt.Paths = x; return x >= 0 && x < 1 },
		"learn":     func(x float64) bool { opt.Learn = x == 1; return x == 0 || x == 1 },
		"prompt":    func(x float64) bool { opt.Prompt = x == 1; return x == 0 || x == 1 },
		"skew_us":   func(x float64) bool { opt.Skew = time.Duration(x * 1e3); return x >= 0 && x <= 1e6 },
		"seed":      func(x float64) bool { opt.Seed = uint64(x); return x >= 0 && x < 1<<53 },
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
