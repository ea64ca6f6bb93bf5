package vqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// numberParameter is a parameter with a numeric value: its range, and the option that it sets.
type number struct {
	from, to float64
	set      func(o *Options, v float64)
}

// fromSeconds converts seconds to a time.
func inSeconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// numberParameters has the numeric parameters by name.
var numbers = map[string]number{
	"group_scale": {1e-6, 1000, func(o *Options, v float64) { o.Delta = v }},
	"every_s":     {0.01, 3600, func(o *Options, v float64) { o.Every = inSeconds(v) }},
	"late_weight": {0, 1000, func(o *Options, v float64) { o.Objective.Tardy = v }},
	"queue_limit": {0, 1e9, func(o *Options, v float64) { o.QueueLimit = int(v) }},
	"edf_above":   {0, 1, func(o *Options, v float64) { o.EDFAbove = v }},
}

// switchParameters returns the parameters that are 0 or 1, by name.
func switches() map[string]func(o *Options) {
	out := map[string]func(o *Options){
		"by_deadline": func(o *Options) { o.Members = ByDeadline }, "one_open": func(o *Options) { o.OneOpen = true }, "append": func(o *Options) { o.Append = true },
		"on_violation": func(o *Options) { o.OnViolation = true }, "admission": func(o *Options) { o.Admission = true },
		"follow":     func(o *Options) { o.Follow = true },
		"no_pricing": func(o *Options) { o.Unpriced = true },
	}
	for l := range numLSOs {
		out["no_"+l.String()] = func(o *Options) { o.Without[l] = true }
	}
	return out
}

// ParseOptions returns the options of a policy, from its name and the parameters of a plan:
//
//	group_scale    the paper's delta: size of a group in batches, above 0; default 4
//	by_deadline    1: members of a group by deadline; 0: by arrival
//	one_open       1: one open group per model for all instances
//	append         1: new groups go to the end of the queue with the least work
//	on_violation   1: plans again only if a violation is expected
//	follow         1: estimators follow the times of the instances
//	no_pricing     1: prompts are pulled while there is room, even if they slow the batch
//	every_s        seconds between re-plans, .01 to 3600; default 1
//	late_weight    cost of a second of lateness relative to a late request; default .001
//	no_...         1: without pulling, eviction, state_swap, warm_start, balancing
//
// These help if deadlines cannot be met:
//
//	admission      1: drops requests that are late before they start
//	queue_limit    drops arrivals while this many requests wait; 0: no limit
//	edf_above      by deadline while more than this share is planned late; 0: never
//
// Without warm starts plans assume loads from storage; how long loads really take is up to the instance.
func Parse(name string, params map[string]float64) (Options, error) {
	rule, ok := named[name]
	if !ok {
		return Options{}, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	return Options{Rule: rule}.With(name, params)
}

// WithParameters returns the options with the parameters of a plan added. It returns an error for an unknown
// parameter or a value outside its range.
func (opt Options) With(name string, params map[string]float64) (Options, error) {
	opt.Objective = Recommended
	flags := switches()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		v := params[key]

		// Set a parameter that is 0 or 1.
		if set, ok := flags[key]; ok {
			switch v {
			case 0:
			case 1:
				set(&opt)
			default:
				return opt, fmt.Errorf("policy %s: parameter %s: found %g, expected 0 or 1", name, key, v)
			}
			continue
		}

		// Set a parameter with a numeric value.
		n, ok := numbers[key]
		if !ok {
			known := slices.AppendSeq(slices.Collect(maps.Keys(flags)), maps.Keys(numbers))
			slices.Sort(known)
			return opt, fmt.Errorf("policy %s: found the parameter %q, expected one of %s", name, key, strings.Join(known, ", "))
		}
		if !(v >= n.from && v <= n.to) {
			return opt, fmt.Errorf("policy %s: parameter %s: found %g, expected %g to %g", name, key, v, n.from, n.to)
		}
		n.set(&opt, v)
	}
	return opt, nil
}
