package turn

import (
	"inferplan/formats"
	"inferplan/policy/policies"
)

// EffectivePolicy is the policy that is run for a plan, with its parameters.
func EffectivePolicy(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	return policies.Served(spec)
}
