package turn

import (
	"fmt"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// EffectivePolicy is the policy that is run for a plan, with its parameters.
func EffectivePolicy(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	return policies.Served(spec)
}

func NewPolicy(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) {
	if policies.SimulatedOnly(spec.Name) {
		return nil, fmt.Errorf("policy %s: it forms batches anew at every stage, which only the simulator does; serve with another of %v", spec.Name, policies.Names())
	}
	return policies.New(spec, t)
}
