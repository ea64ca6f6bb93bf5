package policies

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/gear"
	"inferplan/policy/reactive"
	"inferplan/policy/reserve"
)

// Default is the policy of a plan that names none.
const Default = reserve.Name

// makers holds the constructor of each policy.
var makers = map[string]func(*policy.Tables, map[string]float64) (policy.Policy, error){
	artifact.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		if err := pooled(artifact.Name, t); err != nil {
			return nil, err
		}
		return artifact.New(t, params)
	},
	reactive.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		if err := pooled(reactive.Name, t); err != nil {
			return nil, err
		}
		return reactive.New(t, params)
	},
	reserve.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		if err := pooled(reserve.Name, t); err != nil {
			return nil, err
		}
		opt, err := reserve.ParseOptions(params)
		if err != nil {
			return nil, err
		}
		return reserve.New(t, opt), nil
	},
	gear.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		if t.Gears == nil {
			return nil, fmt.Errorf("policy %s: the plan has no gears, expected a plan of kind gear", gear.Name)
		}
		opt, err := gear.ParseOptions(t, params)
		if err != nil {
			return nil, err
		}
		return gear.New(t, opt)
	},
}

// pooled refuses plans that are not of pooled pipelines.
func pooled(name string, t *policy.Tables) error {
	if t.Gears != nil {
		return fmt.Errorf("policy %s: the plan is one of gears, expected a pool plan", name)
	}
	return nil
}

// SimulatedOnly tells whether a policy runs parts of pipelines, which the
// executor does not.
func SimulatedOnly(name string) bool { return name == reactive.Name }

// Names lists the policies, in order.
func Names() []string { return slices.Sorted(maps.Keys(makers)) }

// New makes the policy that spec asks for over a plan's tables. Every run
// needs one of its own.
func New(spec formats.PolicySpec, t *policy.Tables) (policy.Policy, error) {
	name := spec.Name
	if name == "" {
		name = Default
	}
	mk, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("policy %q: unknown, expected one of %v", name, Names())
	}
	return mk(t, spec.Params)
}
