package executor

import (
	"fmt"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/reserve"
)

// effective is the policy that is run for a plan, with its parameters: a plan
// made from imported times names no guards, and real devices need them.
func effective(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	if spec.Name == "" {
		spec.Name = policies.Default
	}
	if spec.Name == reserve.Name {
		spec.Params = reserve.WithGuards(spec.Params)
	}
	return spec
}

func newPolicy(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) {
	if policies.SimulatedOnly(spec.Name) {
		return nil, fmt.Errorf("policy %s: it forms batches anew at every stage, which only the simulator does; serve with another of %v", spec.Name, policies.Names())
	}
	return policies.New(spec, t)
}
