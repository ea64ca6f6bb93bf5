package executor

import (
	"maps"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/reserve"
)

// Guards that the policy reserve gets where the plan names none: a real clock
// wakes late and real runs jitter, and a policy that plans every batch to end
// exactly at its deadline would miss half of them.
const (
	guardUS    = 2000
	guardShare = 0.1
)

// effective is the policy that is run for a plan, with its parameters.
func effective(spec formats.PolicySpec, override string) formats.PolicySpec {
	if override != "" && override != spec.Name {
		spec = formats.PolicySpec{Name: override}
	}
	if spec.Name == "" {
		spec.Name = policies.Default
	}
	_, time := spec.Params["guard_us"]
	_, share := spec.Params["guard_share"]
	if spec.Name != reserve.Name || time || share {
		return spec
	}
	params := map[string]float64{"guard_us": guardUS, "guard_share": guardShare}
	maps.Copy(params, spec.Params)
	spec.Params = params
	return spec
}

func newPolicy(t *policy.Tables, spec formats.PolicySpec) (policy.Policy, error) {
	return policies.New(spec, t)
}
