package turn

import (
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/policy/policytest"
)

// What only the simulator runs is refused by name, before anything starts.
func TestRefusesSimulatedOnly(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	if _, err := NewPolicy(tables, formats.PolicySpec{Name: "reactive"}); err == nil || !strings.Contains(err.Error(), "only the simulator does") {
		t.Errorf("got %v", err)
	}
	if _, err := NewPolicy(tables, formats.PolicySpec{Name: "artifact"}); err != nil {
		t.Error(err)
	}
}
