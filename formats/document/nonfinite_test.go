package document

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestNonFinite: what programs write for a number that is none is refused with its
// field, wherever it stands.
func TestNonFinite(t *testing.T) {
	for _, c := range []struct{ text, path, found string }{
		{`{"a": NaN}`, "a", "NaN"},
		{`{"a": 1, "b": -Infinity}`, "b", "-Infinity"},
		{`{"a": [1, {"c d": "x:,\"{[", "e": [[], [0, Infinity]]}]}`, "a[1].e[1][1]", "Infinity"},
		{`{"a": {"b": {}, "c": {"d": nan }}}`, "a.c.d", "nan"},
		{`[-inf]`, "[0]", "-inf"},
		{`NaN`, "", "NaN"},
	} {
		_, err := scanJSON(&source{file: "f.json", text: c.text})
		if err == nil || err.Path != c.path || err.Found != c.found || err.Expected != "a finite number" || err.Hint == "" || err.Line != 1 {
			t.Errorf("%s: %+v, want the path %q and %q", c.text, err, c.path, c.found)
		}
	}
	for _, c := range []struct{ text, path string }{
		{"a:\n- b: 1\n- b:\n    c d: .nan\n", "a[1].b.c d"},
		{"a: {b: [0, -.inf]}\n", "a.b[1]"},
		{".NaN\n", ""},
	} {
		_, err := parseYAML(&source{file: "f.yaml", text: c.text, yaml: true})
		if err == nil || err.Path != c.path || err.Expected != "a finite number" || err.Hint == "" {
			t.Errorf("%q: %+v, want the path %q", c.text, err, c.path)
		}
	}
}

// TestPathTo: the path of a value in a text that encoding/json wrote is the way to it.
func TestPathTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mark = "here"
		path, v := "", any(mark)
		for range rapid.IntRange(0, 6).Draw(t, "depth") {
			if rapid.Bool().Draw(t, "list") {
				n := rapid.IntRange(0, 3).Draw(t, "items")
				list := append(make([]any, n), v)
				path, v = "["+string(rune('0'+n))+"]"+dotted(path), append(list, "x")
				continue
			}
			name := rapid.StringMatching("[a-z][a-z_]{0,4}").Draw(t, "name")
			path, v = name+dotted(path), map[string]any{name: v, "A": []any{1, map[string]any{}}, "~": "{[,:"}
		}
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if got := pathAt(string(text), strings.Index(string(text), `"`+mark+`"`)); got != path {
			t.Fatalf("%s: %q, want %q", text, got, path)
		}
	})
}

// dotted is a path behind a field.
func dotted(path string) string {
	if path == "" || path[0] == '[' {
		return path
	}
	return "." + path
}
