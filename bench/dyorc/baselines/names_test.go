package baselines

import (
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/testkit/workflows"
)

// Every name is registered for plans of workflows, takes the parameters of the product's policies, and
// a slack where calls have deadlines.
func TestRegistered(t *testing.T) {
	tables := workflows.Fleet{Devices: 2, Gigabytes: 40}.Tables()
	for _, name := range Names() {
		if _, err := policies.New(formats.PolicySpec{Name: name, Params: map[string]float64{"seed": 3, "ahead": 4}}, tables); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for key, v := range map[string]float64{"slack": -1, "ahead": 0} {
		if _, err := policies.New(formats.PolicySpec{Name: "greedy-edf", Params: map[string]float64{key: v}}, tables); err == nil || !strings.Contains(err.Error(), "parameter "+key) {
			t.Errorf("%s of %v: %v", key, v, err)
		}
	}
}
