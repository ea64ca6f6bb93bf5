package vqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// numberParameter is a parameter with a numeric value: its range, and the option that it sets.
type numberParameter struct {
	minValue, maxValue float64
	apply              func(o *Options, v float64)
}

// fromSeconds converts a number of seconds to a duration.
func fromSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// numberParameters has the numeric parameters by name.
var numberParameters = map[string]numberParameter{
	"group_scale": {1e-6, 1000, func(o *Options, v float64) { o.GroupBatches = v }},
	"every_s":     {0.01, 3600, func(o *Options, v float64) { o.ReplanInterval = fromSeconds(v) }},
	"late_weight": {0, 1000, func(o *Options, v float64) { o.Objective.TardyWeight = v }},
	"queue_limit": {0, 1e9, func(o *Options, v float64) { o.QueueLimit = int(v) }},
	"edf_above":   {0, 1, func(o *Options, v float64) { o.EDFAbove = v }},
}

// switchParameters returns the parameters of a plan that are 0 or 1, by name, each with a function that sets its option.
// The names with "no_" switch off one of the LLM serving operations (pulling, eviction, swapping, warm starts, balancing).
func switchParameters() map[string]func(o *Options) {
	parameters := map[string]func(o *Options){
		"by_deadline": func(o *Options) { o.MemberOrder = ByDeadline }, "one_open": func(o *Options) { o.OneOpenGroup = true }, "append": func(o *Options) { o.AppendGroups = true },
		"on_violation": func(o *Options) { o.ReplanOnViolation = true }, "admission": func(o *Options) { o.DropLate = true },
		"follow":     func(o *Options) { o.FollowInstances = true },
		"no_pricing": func(o *Options) { o.NoPausePricing = true }, "no_sessions": func(o *Options) { o.IgnoreSessions = true },
	}
	for operation := range numLSOs {
		parameters["no_"+operation.String()] = func(o *Options) { o.DisabledLSOs[operation] = true }
	}
	return parameters
}

// ParseOptions returns the options of a policy, from its name and the parameters of a plan:
//
//	group_scale    the paper's delta: size of a group in batches, above 0; default 4
//	by_deadline    1: members of a group by deadline; 0: by arrival
//	one_open       1: one open group per model for all instances
//	append         1: new groups go to the end of the queue with the least work
//	on_violation   1: plans again only if a violation is expected
//	follow         1: estimators follow the times of the instances
//	no_pricing     1: prompts are pulled while there is capacity, even if they slow the batch
//	no_sessions    1: requests of a session do not stay with the instance that holds its context
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
func ParseOptions(name string, params map[string]float64) (Options, error) {
	rule, ok := rulesByName[name]
	if !ok {
		return Options{}, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	return Options{Rule: rule}.WithParameters(name, params)
}

// WithParameters returns the options with the parameters of a plan added. name is that of the policy, for messages.
// It returns an error for an unknown parameter or a value outside its range.
func (opt Options) WithParameters(name string, params map[string]float64) (Options, error) {
	opt.Objective = RecommendedObjective
	flags := switchParameters()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		value := params[key]

		// Set a parameter that is 0 or 1.
		if set, ok := flags[key]; ok {
			switch value {
			case 0:
			case 1:
				set(&opt)
			default:
				return opt, fmt.Errorf("policy %s: parameter %s: found %g, expected 0 or 1", name, key, value)
			}
			continue
		}

		// Set a parameter with a numeric value.
		parameter, ok := numberParameters[key]
		if !ok {
			names := slices.AppendSeq(slices.Collect(maps.Keys(flags)), maps.Keys(numberParameters))
			slices.Sort(names)
			return opt, fmt.Errorf("policy %s: found the parameter %q, expected one of %s", name, key, strings.Join(names, ", "))
		}
		if !(value >= parameter.minValue && value <= parameter.maxValue) {
			return opt, fmt.Errorf("policy %s: parameter %s: found %g, expected %g to %g", name, key, value, parameter.minValue, parameter.maxValue)
		}
		parameter.apply(&opt, value)
	}
	return opt, nil
}
