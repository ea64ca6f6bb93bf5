package policies

import (
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/testkit/policytest"
)

// Every kind of plan has policies, and a policy takes the tables of its own kinds alone: the
// table says which.
func TestPoliciesTakeTheirKindsAlone(t *testing.T) {
	for _, name := range formats.PlanKinds() {
		if !slices.ContainsFunc(planKinds, func(k planKind) bool { return k.name == name && len(k.makers) > 0 && k.ownsTables != nil }) {
			t.Errorf("the table has no policy for plans of kind %s", name)
		}
	}
	tables, err := Compile(policytest.Hundred().Plan())
	if err != nil {
		t.Fatal(err)
	}
	takes := map[string]bool{}
	for i := range planKinds {
		k := &planKinds[i]
		if !slices.Contains(formats.PlanKinds(), k.name) {
			t.Errorf("the table has policies for plans of kind %q, which are none", k.name)
		}
		for _, name := range k.policyNames() {
			takes[name] = takes[name] || k.ownsTables(tables)
		}
	}
	for name, own := range takes {
		switch _, err := New(formats.PolicySpec{Name: name}, tables); {
		case own && err != nil:
			t.Errorf("policy %s: %v", name, err)
		case !own && (err == nil || !strings.Contains(err.Error(), "the plan is of another kind")):
			t.Errorf("policy %s for a plan of another kind: %v", name, err)
		}
	}
}
