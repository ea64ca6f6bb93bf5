package traces

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recording writes a recording of two functions over four minutes and returns its folder.
func recording(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "traces"), 0o755); err != nil {
		t.Fatal(err)
	}
	const text = "day,minute,f_a,f_b\n1,0,1,10\n1,1,2,20\n1,2,3,30\n1,3,4,40\n"
	if err := os.WriteFile(filepath.Join(folder, "traces", string(Azure)), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestRead(t *testing.T) {
	folder := recording(t)
	for _, c := range []struct {
		from, length int
		columns      []string
		want         Series
	}{
		{1, 2, []string{"f_b"}, Series{"f_b": {20, 30}}},
		{2, 0, nil, Series{"f_a": {3, 4}, "f_b": {30, 40}}},
	} {
		got, err := Azure.Read(folder, c.from, c.length, c.columns...)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(c.want) {
			t.Errorf("from %d: %v, want %v", c.from, got, c.want)
		}
		for name, counts := range c.want {
			if !slices.Equal(got[name], counts) {
				t.Errorf("%s from %d: %v, want %v", name, c.from, got[name], counts)
			}
		}
	}
}

// A range beyond the end, a column that is not there and a folder without recordings are errors that name their cause.
func TestReadFails(t *testing.T) {
	folder := recording(t)
	for _, c := range []struct {
		folder       string
		from, length int
		columns      []string
		cause        string
	}{
		{folder, 3, 2, nil, "expected 2 from row 3"},
		{folder, 4, 0, nil, "found 4 rows"},
		{folder, 0, 1, []string{"f_c"}, "no column f_c"},
		{t.TempDir(), 0, 1, nil, "INFERPLAN_DATA"},
	} {
		if _, err := Azure.Read(c.folder, c.from, c.length, c.columns...); err == nil || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%d rows from %d: error %v, want one with %q", c.length, c.from, err, c.cause)
		}
	}
}

func TestScaled(t *testing.T) {
	if got := ScaledToMean([]float64{1, 2, 3}, 4); !slices.Equal(got, []float64{2, 4, 6}) {
		t.Errorf("scaled to a mean of 4: %v", got)
	}
	rates, factor := ScaledToPeak([]float64{1, 4, 2, 0}, 2, 6)
	if math.Abs(factor-2) > 1e-12 || !slices.Equal(rates, []float64{2, 8, 4, 0}) {
		t.Errorf("scaled to a peak of 6: %v by %v", rates, factor)
	}
}
