package baselines

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/workflow"
)

// ablations are the policies of the product with one part changed.
var ablations = map[string]struct {
	name   string
	change func(o *workflow.Options)
}{
	"dyorc-keep-state": {"dyorc", func(o *workflow.Options) { o.KeepStates = workflow.KeepAll }},
	"dyorc-drop-state": {"dyorc", func(o *workflow.Options) { o.KeepStates = workflow.KeepNone }},
	"dyorc-hopeless":   {"dyorc", func(o *workflow.Options) { o.GiveUp = workflow.GiveUpHopeless }},
	"dyorc-drop":       {"dyorc", func(o *workflow.Options) { o.GiveUp = workflow.GiveUpLate }},
	"dyorc-deadline":   {"dyorc", func(o *workflow.Options) { o.OrderKey = byRequest }},
	"greedy-hopeless":  {"greedy", func(o *workflow.Options) { o.GiveUp = workflow.GiveUpHopeless }},
	"greedy-drop":      {"greedy", func(o *workflow.Options) { o.GiveUp = workflow.GiveUpLate }},
}

// options are the policies of others.
var options = map[string]workflow.Options{
	// DyOrc as published: what comes as expected keeps the places that it was expected at.
	"dyorc-early": {ExpectTasks: true, SearchWidth: 4},
	"reactive":    {NewRouting: newReplicas},
}

// byCallNames are the policies whose devices run by a deadline of each call.
var byCallNames = map[string]string{"greedy-edf": "greedy", "static-edf": "static"}

func init() {
	for _, name := range slices.Sorted(maps.Keys(names())) {
		policies.Register(formats.PlanFlow+" with segments", name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			slack, common := 1.0, maps.Clone(params)
			if v, ok := params["slack"]; ok {
				if slack = v; slack <= 0 || slack > 1e6 {
					return nil, fmt.Errorf("policy %s: parameter slack is %v, expected more than 0", name, slack)
				}
				delete(common, "slack")
			}
			opt, err := Named(name, slack)
			if err != nil {
				return nil, err
			}
			if opt, err = opt.WithParams(common); err != nil {
				return nil, fmt.Errorf("policy %s: %w", name, err)
			}
			return workflow.New(t, opt), nil
		})
	}
}

// names has the policies of this package.
func names() map[string]bool {
	out := map[string]bool{}
	for name := range ablations {
		out[name] = true
	}
	for name := range options {
		out[name] = true
	}
	for name := range byCallNames {
		out[name] = true
	}
	return out
}

// Names lists the policies of this package and those of the product, in order.
func Names() []string {
	return slices.Sorted(slices.Values(slices.AppendSeq(workflow.Names(), maps.Keys(names()))))
}

// Named returns the options of a policy of this package or the product. A call's own deadline is slack
// times its time alone.
func Named(name string, slack float64) (workflow.Options, error) {
	if opt, ok := options[name]; ok {
		return opt, nil
	}
	if of, ok := byCallNames[name]; ok {
		opt, err := workflow.OptionsByName(of)
		opt.OrderKey = func(r workflow.RankedTask) int64 { return r.Now + int64(slack*float64(r.SoloTime)) }
		return opt, err
	}
	if of, ok := ablations[name]; ok {
		opt, err := workflow.OptionsByName(of.name)
		of.change(&opt)
		return opt, err
	}
	return workflow.OptionsByName(name)
}

// calm is how far devices are booked ahead up to where tasks go in the order of
// deadlines. Beyond it they go as placed: who is late would have all others be late,
// and a batch of tasks with the same deadline mixes short work with long.
const calm = int64(300 * time.Millisecond)

// byRequest ranks tasks by the deadline of the request, less what comes behind.
func byRequest(r workflow.RankedTask) int64 {
	switch {
	case r.Expected:
		return math.MaxInt64
	case r.MeanBacklog < calm:
		return r.Deadline - r.MinRemaining
	}
	return r.Now
}
