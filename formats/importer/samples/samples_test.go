package samples

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadAndWrite(t *testing.T) {
	want := &SampleSet{Width: 2, Labels: []int{3, 0}, Values: []float32{.5, -1, 0, 2.25}}
	for _, name := range []string{"s.csv", "s.csv.gz"} {
		path := filepath.Join(t.TempDir(), name)
		if err := want.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for text, wants := range map[string][]string{
		"":                    {"s.csv", "an empty file"},
		"a,b\n1,2\n":          {"s.csv:1", `"a"`, "label"},
		"label\n1\n":          {"s.csv:1", "column per value"},
		"label,x\n":           {"s.csv", "no row"},
		"label,x\n1,2\n-1,0":  {"s.csv:3", "label", `"-1"`},
		"label,x\n1,nan\n":    {"s.csv:2:3", "x: found", "nan"},
		"label,x,y\n1,2\n":    {"s.csv:2", "another number of columns"},
		"label,x\n1.5,2\n":    {"s.csv:2", `"1.5"`},
		"label,x\n1,1e300\n1": {"s.csv:2", "1e300"},
	} {
		_, err := Read(strings.NewReader(text), "s.csv")
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		for _, w := range wants {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q does not say %q", text, err, w)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("label,a,b\n1,0.5,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Read(strings.NewReader(text), "s"); err == nil && (len(s.Values) != s.Width*len(s.Labels) || len(s.Labels) == 0) {
			t.Fatalf("%d labels, %d values of width %d", len(s.Labels), len(s.Values), s.Width)
		}
	})
}
