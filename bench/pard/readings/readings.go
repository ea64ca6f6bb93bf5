package readings

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/drop"
	"inferplan/policy/policies"
)

// inputs are the parts from which a variant is built.
type inputs struct {
	t      *policy.Tables
	rng    *rand.Rand
	number func(key string, value, from, to float64) (float64, error) // a parameter of the variant's own
}

// low and high are the ends from which a queue is always served.
var low, high = false, true

// readings are the policies by name.
var readings = map[string]func(m *inputs) (drop.Variant, error){
	"naive":   always(drop.Variant{ArrivalOrder: true, HighestFirst: &low, PassesTest: func(drop.EntryCandidate) bool { return true }}),
	"fcfs":    always(drop.Variant{ArrivalOrder: true, HighestFirst: &low}),
	"hbf":     always(drop.Variant{HighestFirst: &high}),
	"lbf":     always(drop.Variant{HighestFirst: &low}),
	"instant": always(drop.Variant{ImmediateMode: true}),
	"back":    always(drop.Variant{ModuleEstimate: nothing}),
	"sf":      always(drop.Variant{ModuleEstimate: func(_, run time.Duration) time.Duration { return run }}),
	"lower":   always(drop.Variant{ModuleEstimate: func(queued, run time.Duration) time.Duration { return queued + run }}),
	"upper":   always(drop.Variant{ModuleEstimate: func(queued, run time.Duration) time.Duration { return queued + 2*run }}),
	"oc":      overload,

	"feas-hbf": always(drop.Variant{IsFeas: true, NeverSetAside: true}),

	"nexus": func(*inputs) (drop.Variant, error) { return window(), nil },
	"clipper++": func(m *inputs) (drop.Variant, error) {
		p := newParts(m.t)
		return drop.Variant{ArrivalOrder: true, HighestFirst: &low, PassesTest: func(c drop.EntryCandidate) bool { return c.Now-c.RevealedAt <= p.of[p.at(c.Request, c.Module)] }}, nil
	},
	"split": func(m *inputs) (drop.Variant, error) {
		p := newParts(m.t)
		return drop.Variant{PassesTest: func(c drop.EntryCandidate) bool { return c.End-c.RevealedAt <= p.of[p.at(c.Request, c.Module)] }}, nil
	},
	"wcl": func(m *inputs) (drop.Variant, error) {
		p := newParts(m.t)
		return drop.Variant{PassesTest: func(c drop.EntryCandidate) bool { return c.End-c.RevealedAt <= p.of[p.at(c.Request, c.Module)] }, BatchStarted: p.began, EverySecond: p.second}, nil
	},
}

func nothing(_, _ time.Duration) time.Duration { return 0 }

// always is a variant that needs nothing of a plan.
func always(v drop.Variant) func(*inputs) (drop.Variant, error) {
	return func(*inputs) (drop.Variant, error) { return v, nil }
}

// Names lists the policies, in order.
func Names() []string { return slices.Sorted(maps.Keys(readings)) }

func init() {
	for _, name := range Names() {
		policies.Register(formats.PlanFlow+" with modules", name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			return variant(name, t, params)
		})
	}
}

// variant makes a policy. Parameters that the variant does not take are those of the policy that it is one of.
func variant(name string, t *policy.Tables, params map[string]float64) (policy.Policy, error) {
	common := maps.Clone(params)
	seed := uint64(1)
	if x, ok := params["seed"]; ok {
		seed = uint64(x)
	}
	m := &inputs{t: t, rng: seeded.New(seed, "policy/"+name), number: func(key string, value, from, to float64) (float64, error) {
		if x, ok := common[key]; ok {
			delete(common, key)
			if value = x; !(x >= from && x <= to) {
				return 0, fmt.Errorf("policy %s: the parameter %s is %v, expected %v to %v", name, key, x, from, to)
			}
		}
		return value, nil
	}}
	v, err := readings[name](m)
	if err != nil {
		return nil, err
	}
	v.Name = name
	return drop.NewVariant(t, common, v)
}
