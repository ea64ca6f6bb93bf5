package policies

import "testing"

// Every policy of the product is described, and nothing else is.
func TestEveryPolicyIsDescribed(t *testing.T) {
	known := map[string]bool{}
	for i := range planKinds {
		for _, m := range planKinds[i].makers {
			known[m.name] = true
			if summaries[m.name] == "" && m.name != "compared" { // which another test registers
				t.Errorf("%s of %s: no text", m.name, planKinds[i].name)
			}
		}
	}
	for name := range summaries {
		if !known[name] {
			t.Errorf("%s: a text for no policy", name)
		}
	}
}
