package formats

import (
	"slices"
	"strings"
	"testing"
)

func TestClassesAreFoundByName(t *testing.T) {
	c := NewClasses([]ModelClass{{"a", "gold"}, {"a", ""}, {"a", "silver"}, {"b", "x"}, {"b", "y"}, {"plain", ""}})
	for _, k := range []struct {
		model, class string
		at           int
		ok           bool
	}{
		{"a", "", 1, true}, {"a", "gold", 0, true}, {"a", "silver", 2, true}, {"a", "x", 0, false},
		{"b", "", 3, true}, {"b", "y", 4, true}, // the first one is the default
		{"plain", "", 5, true}, {"plain", "gold", 0, false}, {"none", "", 0, false},
	} {
		at, ok := c.Find(k.model, k.class)
		if ok != k.ok || ok && at != k.at {
			t.Errorf("%s/%s: %d, %v, want %d, %v", k.model, k.class, at, ok, k.at, k.ok)
		}
	}
	if got := c.ClassesOf("a"); !slices.Equal(got, []string{"", "gold", "silver"}) {
		t.Errorf("classes of a: %q", got)
	}
	if c.HasNamedClasses("plain") || c.HasNamedClasses("none") || !c.HasNamedClasses("a") || !c.HasNamedClasses("b") {
		t.Error("named classes")
	}
	if got := ClassNames(c.ClassesOf("a")); got != "one without a name, gold, silver" {
		t.Error(got)
	}
}

func TestClassNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "gold": true, "p99.9_tier-1": true, "7": true, strings.Repeat("a", 64): true,
		strings.Repeat("a", 65): false, "a b": false, "a/b": false, "-a": false, ".": false, "ä": false, "a\n": false, `a"`: false,
	} {
		if isClassName(name) != ok {
			t.Errorf("%q: %v, want %v", name, !ok, ok)
		}
	}
}
