package vqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// number is a parameter that is a number: within from and to, and what it sets.
type number struct {
	from, to float64
	set      func(o *Options, v float64)
}

// inSeconds is a time of so many seconds.
func inSeconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

var numbers = map[string]number{
	"group_scale": {1e-6, 1000, func(o *Options, v float64) { o.Delta = v }},
	"every_s":     {0.01, 3600, func(o *Options, v float64) { o.Every = inSeconds(v) }},
	"late_weight": {0, 1000, func(o *Options, v float64) { o.Objective.Tardy = v }},
	"queue_limit": {0, 1e9, func(o *Options, v float64) { o.QueueLimit = int(v) }},
	"edf_above":   {0, 1, func(o *Options, v float64) { o.EDFAbove = v }},
}

// switches are the parameters that are 0 or 1.
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

// Parse makes the options of a policy from its name and the parameters of a plan:
//
//	group_scale    Delta, above 0; 4
//	by_deadline    1: members of a group by deadline; 0: by arrival
//	one_open       1: one open group per model for the fleet
//	append         1: new groups go to the end of the queue with the least work
//	on_violation   1: plans anew only where a violation is expected
//	follow         1: estimators follow what instances do
//	no_pricing     1: prompts are pulled while there is room, whatever that does to the batch
//	every_s        seconds between re-plans, .01 to 3600; 1
//	late_weight    what a second of lateness weighs beside a late request; .001
//	no_...         1: without pulling, eviction, state_swap, warm_start, balancing
//
// What helps where deadlines cannot be met:
//
//	admission      1: drops what is late before it starts
//	queue_limit    drops what comes while so many wait; 0: no limit
//	edf_above      by deadline while more than this share is planned late; 0: never
//
// Without warm starts plans assume loads from storage; how long loads take is
// the instance's.
func Parse(name string, params map[string]float64) (Options, error) {
	rule, ok := named[name]
	if !ok {
		return Options{}, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	return Options{Rule: rule}.With(name, params)
}

// With adds the parameters of a plan to the options of a policy.
func (opt Options) With(name string, params map[string]float64) (Options, error) {
	opt.Objective = Recommended
	flags := switches()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		v := params[key]
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
