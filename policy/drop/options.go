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

// Names returns the names of the policies that a plan of applications can have, the default first.
func Names() []string { return []string{Default, "pard"} }

// minPathShare is the share of the requests from which on a path counts for feas, unless a parameter says otherwise.
const minPathShare = .25

// Options are the parameters of a policy.
type Options struct {
	WaitQuantile  float64       // quantile of the waits for batches; the plan's by default
	Window        time.Duration // of the averages of queueing times; the plan's by default
	BacklogFactor float64       // the entry admits while backlogs take at most this many times the time left; 0 admits all
	Seed          uint64        // of the clock skews
	MinPathShare  float64       // rarer paths behind branches do not count; 0: the longest does (PARD §5.2); feas: minPathShare if branches skip modules
	MaxClockSkew  time.Duration // workers decide by clocks that are off by up to this; with 0 they are told the time that is left
	LearnSpeeds   bool          // batch times follow the measured ones, not the plan; on by default for feas
	PromptRefusal bool          // drop a request as soon as it is hopeless, not when a batch forms
}

// ServingParams returns the parameters of a plan for serving: a client learns at once that its request is hopeless, and
// estimates follow measured batch times, unless the plan says otherwise.
func ServingParams(params map[string]float64) map[string]float64 {
	out := map[string]float64{"prompt": 1, "learn": 1}
	maps.Copy(out, params)
	return out
}

// parseOptions returns the options of a plan for feas or pard: the defaults, changed by the plan's parameters. It
// returns an error for an unknown parameter or a value out of range. Names with _us are in microseconds. params has the
// plan's numbers by name; 1 switches an option on and 0 off.
func parseOptions(feas bool, graphTables *flow.GraphTables, params map[string]float64) (Options, error) {
	options := Options{WaitQuantile: graphTables.WaitQuantile, Window: graphTables.Window, Seed: 1, LearnSpeeds: feas}
	if feas && branchSkipsModules(graphTables) {
		options.MinPathShare = minPathShare
	}

	// Every parameter has a function that sets it and returns true if its value is in range.
	setters := map[string]func(value float64) bool{
		"lambda": func(value float64) bool { options.WaitQuantile = value; return value > 0 && value < 1 },
		"window_us": func(value float64) bool {
			options.Window = time.Duration(value * 1e3)
			return value >= 1e6 && value <= 60e6
		},
		"token": func(value float64) bool {
			options.BacklogFactor = value
			return value == 0 || value >= .1 && value <= 10
		},
		"paths":  func(value float64) bool { options.MinPathShare = value; return value >= 0 && value < 1 },
		"learn":  func(value float64) bool { options.LearnSpeeds = value == 1; return value == 0 || value == 1 },
		"prompt": func(value float64) bool { options.PromptRefusal = value == 1; return value == 0 || value == 1 },
		"skew_us": func(value float64) bool {
			options.MaxClockSkew = time.Duration(value * 1e3)
			return value >= 0 && value <= 1e6
		},
		"seed": func(value float64) bool { options.Seed = uint64(value); return value >= 0 && value < 1<<53 },
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		set, ok := setters[name]
		if !ok {
			return options, fmt.Errorf("the parameter %q is unknown, expected one of %s", name, strings.Join(slices.Sorted(maps.Keys(setters)), ", "))
		}
		if !set(params[name]) {
			return options, fmt.Errorf("the parameter %s is %v, which is out of range", name, params[name])
		}
	}
	if options.Window < time.Second || options.WaitQuantile <= 0 || options.WaitQuantile >= 1 {
		return options, fmt.Errorf("lambda %v and window %v, expected a share and at least a second", options.WaitQuantile, options.Window)
	}
	return options, nil
}
