package executor

import (
	"inferplan/formats"
	"inferplan/policy/policies"
)

// effective is the policy that is run for a plan, with its parameters.
func effective(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	return policies.Served(spec)
}
