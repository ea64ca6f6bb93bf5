package condition

import (
	"errors"
	"strings"
	"testing"
)

var names = map[string]string{"parameters.images": "int", "reply.text": "string", "agent.agrees": "list(bool)", "visit": "int", "box.sizes": "list(list(double))"}

func scope(t testing.TB) *Scope {
	t.Helper()
	s, err := NewScope(names)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valuesOf are values from a table.
func valuesOf(m map[string]any) Lookup {
	return func(name string) (any, bool) { v, ok := m[name]; return v, ok }
}

var values = valuesOf(map[string]any{"parameters.images": int64(2), "reply.text": "draw a cat", "agent.agrees": []bool{true, false}, "visit": int64(1), "box.sizes": [][]float64{{1}, {2, 3}}})

func TestConditionsHaveExpectedValues(t *testing.T) {
	s := scope(t)
	for _, c := range []struct {
		text string
		want ValueKind
		is   any
	}{
		{"parameters.images > 1 && visit < 3", Bool, true},
		{"visit < 1.5", Bool, true},
		{"agent.agrees.all(a, a)", Bool, false},
		{"reply.text.startsWith('draw')", Bool, true},
		{"parameters.images", Count, int64(2)},
		{"box.sizes", Count, int64(2)},
		{"box.sizes[1]", Count, int64(2)},
		{"3", Count, int64(3)},
		{"parameters.images > 1 ? 'card-' + string(visit) : 'none'", Text, "card-1"},
	} {
		x, err := s.Compile(c.text, c.want)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got any
		switch c.want {
		case Bool:
			got, err = x.Holds(values)
		case Count:
			got, err = x.Items(values)
		default:
			got, err = x.Words(values)
		}
		if err != nil || got != c.is {
			t.Errorf("%s: %v, %v, expected %v", c.text, got, err, c.is)
		}
	}
	if x, err := s.Compile("3", Count); err != nil {
		t.Error(err)
	} else if n, ok := x.ConstantItems(); !ok || n != 3 {
		t.Errorf("%d items, fixed: %v", n, ok)
	}
	if x, err := s.Compile("visit", Count); err != nil {
		t.Error(err)
	} else if _, ok := x.ConstantItems(); ok {
		t.Error("what depends on the visit is said to be fixed")
	}
}

func TestMistakesHaveColumns(t *testing.T) {
	s := scope(t)
	for _, c := range []struct {
		text   string
		want   ValueKind
		column int
		reason string
	}{
		{"parameters.images > 0 && reply.txt == 'a'", Bool, 31, "undeclared reference"},
		{"parameters.images + reply.text", Count, 19, "no matching overload"},
		{"visit >", Bool, 8, "Syntax error"},
		{"visit", Bool, 1, "of type int, expected bool"},
		{strings.Repeat("1+", 600) + "1", Count, 1, "at most 1000"},
	} {
		_, err := s.Compile(c.text, c.want)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.40s: %v, expected column %d: %s", c.text, err, c.column, c.reason)
		}
	}
	for _, typ := range []string{"", "time", "list(", "list(time)", "list(list(list(list(list(int)))))"} {
		if KnownType(typ) {
			t.Errorf("%q is a type", typ)
		}
	}
}

// A value that is not there, or a number of items below 0, is an error.
func TestValuesThatAreMissing(t *testing.T) {
	s := scope(t)
	x, err := s.Compile("parameters.images - 5", Count)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range []Lookup{valuesOf(nil), values} {
		if _, err := x.Items(v); err == nil {
			t.Errorf("no error over values %d", i)
		}
	}
}

// Whatever the text: an error with a column, or an expression that evaluates
// without a panic.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{"parameters.images > 1", "agent.agrees.all(a, a)", "'x' + reply.text", "[1,2,3]", "visit ? 1", "((((", "1/0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := scope(t)
		for _, want := range []ValueKind{Bool, Count, Text} {
			x, err := s.Compile(text, want)
			if err != nil {
				if e, ok := errors.AsType[*Error](err); !ok || e.Column < 1 {
					t.Fatalf("%v has no column", err)
				}
				continue
			}
			_, _ = x.Holds(values)
			_, _ = x.Items(values)
			_, _ = x.Words(values)
		}
	})
}
