package arrivals

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/formats/csvfile"
)

func TestPerSecond(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []float64
	}{
		"with time":    {"second,count\n10,5\n11,0\n14,2.5\n", []float64{5, 0, 0, 0, 2.5}},
		"without":      {"count\n5\n7\n", []float64{5, 7}},
		"count first":  {"requests,second\n5,0\n6,1\n", []float64{5, 6}},
		"by its rate":  {"requests_per_second\n5\n", []float64{5}},
		"one row only": {"second,count\n3,4\n", []float64{4}},
	} {
		path := filepath.Join(t.TempDir(), "qps.csv")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := PerSecond(path); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, expected %v", name, got, err, c.want)
		}
	}
}

func TestPerSecondErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "empty file"},
		"no rows":     {"second,count\n", "no row"},
		"two counts":  {"second,a,b\n0,1,2\n", "second,count"},
		"minutes":     {"minute,count\n0,1\n", "second,count"},
		"no count":    {"second\n0\n", "no column of counts"},
		"negative":    {"second,count\n0,-1\n", ":2:3: count"},
		"backwards":   {"second,count\n1,1\n1,1\n", ":3:1: second"},
		"half second": {"second,count\n1.5,1\n", ":2:1: second"},
		"too far":     {"second,count\n0,1\n99999999,1\n", ":3:1: second"},
		"text":        {"second,count\n0,many\n", "many"},
		"infinite":    {"second,count\n0,inf\n", "inf"},
	} {
		f, err := csvfile.New(strings.NewReader(c.text), "qps.csv")
		if err == nil {
			_, err = readPerSecond(f)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
	if _, err := PerSecond(filepath.Join(t.TempDir(), "none.csv")); err == nil {
		t.Error("a missing file: no error")
	}
}

func FuzzPerSecond(f *testing.F) {
	f.Add("second,count\n10,5\n14,2.5\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := csvfile.New(strings.NewReader(text), "qps.csv")
		if err != nil {
			return
		}
		counts, err := readPerSecond(in)
		if err == nil && (len(counts) == 0 || slices.ContainsFunc(counts, func(x float64) bool { return !(x >= 0) })) {
			t.Fatalf("%v without an error", counts)
		}
	})
}
