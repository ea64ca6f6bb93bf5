package turn

import (
	"inferplan/formats"
	"inferplan/policy/policies"
)

// EffectivePolicy returns the policy that runs for a plan, with its parameters. `override` names another policy; it may
// be empty.
func EffectivePolicy(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	return policies.SpecForServing(spec)
}
