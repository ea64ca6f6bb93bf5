package main

import (
	"compress/gzip"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/executor"
)

func TestRatesAreThoseOfTheFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte("day,a,b\n1,9,9\n1,1,2\n1,3,4\n1,5,5\n1,0,0\n")); err != nil {
		t.Fatal(err)
	}
	z.Close()
	f.Close()
	tr := trace{"x", "x.csv.gz", 1, 2, 1}
	got, err := tr.rates(dir, 2)
	if err != nil || !slices.Equal(got, []float64{1, 1}) {
		t.Errorf("rates %v, %v: expected rows 1 and 2 against 3 and 4, both 10", got, err)
	}
	if _, err := tr.rates(dir, 3); err == nil || !strings.Contains(err.Error(), "expected 7") {
		t.Errorf("a file that is too short: %v", err)
	}
	if _, err := tr.rates(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "INFERPLAN_DATA") {
		t.Errorf("no file: %v", err)
	}
}

// The parts of the recorded traces are where the table says.
func TestRecordedTraces(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	dir = filepath.Join(dir, "traces")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ (%v)", err)
	}
	for _, tr := range append(slices.Clone(traces), spike) {
		r, err := tr.rates(dir, 15)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Min(r) <= 0 || slices.Max(r) != 1 {
			t.Errorf("%s: rates %v", tr.name, r)
		}
		if tr.name == "spike" && (r[0] > .2 || r[len(r)-1] > .2) {
			t.Errorf("the spike does not come and go: %v", r)
		}
	}
}

func TestArrivals(t *testing.T) {
	list := arrive([]float64{.5, 0, 1}, 4000, 1)
	var by [3]int
	for i, r := range list {
		if i > 0 && r.ArrivedAt < list[i-1].ArrivedAt {
			t.Fatalf("arrival %d at %v, after %v", i, r.ArrivedAt, list[i-1].ArrivedAt)
		}
		by[int(r.ArrivedAt.Seconds())]++
	}
	if math.Abs(float64(by[0])-2000) > 150 || by[1] != 0 || math.Abs(float64(by[2])-4000) > 200 {
		t.Errorf("%v arrivals by second, expected about 2000, 0 and 4000", by)
	}
	// No gap is lost or drawn twice at the seams of seconds.
	even := arrive(slices.Repeat([]float64{1}, 2000), 2, 2)
	if math.Abs(float64(len(even))-4000) > 200 {
		t.Errorf("%d arrivals at 2/s in 2000 s", len(even))
	}
	all, lead := led(list)
	if lead == 0 || all[lead].ArrivedAt-list[0].ArrivedAt != leadIn || all[lead-1].ArrivedAt >= leadIn {
		t.Errorf("a lead-in of %d requests until %v before %v", lead, all[lead-1].ArrivedAt, all[lead].ArrivedAt)
	}
}

func TestSamplesInTurn(t *testing.T) {
	got := shuffled([]int{3, 4, 5}, 8, 1)
	count := map[int]int{}
	for _, row := range got[:6] {
		count[row]++
	}
	if len(got) != 8 || count[3] != 2 || count[4] != 2 || count[5] != 2 {
		t.Errorf("rows %v, expected each of 3, 4 and 5 once in every three", got)
	}
}

// Samples that repeat say no more than once: the variance is that of the mean
// over samples, not over requests.
func TestClustered(t *testing.T) {
	once, often := map[int]*[2]float64{}, map[int]*[2]float64{}
	for row := range 100 {
		d := float64(row % 2)
		once[row], often[row] = &[2]float64{d, 1}, &[2]float64{7 * d, 7}
	}
	want := .25 / 100
	if a, b := clustered(once), clustered(often); math.Abs(a-want) > 1e-12 || math.Abs(b-want) > 1e-12 {
		t.Errorf("variance %v of samples seen once, %v of samples seen seven times, expected %v", a, b, want)
	}
}

func TestPairs(t *testing.T) {
	run := func(held time.Duration, right ...bool) *served {
		s := &served{lead: 1, answers: []answer{{}}, device: held, cpu: held.Seconds(), service: &executor.Service{}}
		for i, ok := range right {
			s.answers = append(s.answers, answer{row: i, correct: ok, took: time.Millisecond})
		}
		return s
	}
	a := comparePair(run(time.Second, true, true, false), run(2*time.Second, true, false, false))
	b := comparePair(run(time.Second, true, true, false), run(8*time.Second, true, true, true))
	if a.Requests != 3 || a.Ratio != .5 || math.Abs(a.Difference-1./3) > 1e-12 {
		t.Errorf("%+v", a)
	}
	all := judgePairs([]pair{a, b})
	if math.Abs(all.Ratio-.25) > 1e-12 || all.Interval[0] >= .25 || all.Interval[1] <= .25 || all.Difference != 0 || all.HalfWidth <= 0 {
		t.Errorf("together %+v, expected the geometric mean of 1/2 and 1/8, and no difference", all)
	}
	lost := run(time.Second, true)
	lost.answers[1].lost = true
	if c := comparePair(lost, run(time.Second, true)); c.Lost != 1 {
		t.Errorf("a lost request: %+v", c)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-peaks", "0"}, {"-peaks", "x"}, {"-parts", "all"}, {"-seconds", "0"}, {"-seconds", "8"}, {"-seconds", "5", "-paired-seconds", "6"}} {
		if err := run(context.Background(), append(args, "-check", "-family", "nowhere"), io.Discard); err == nil || strings.Contains(err.Error(), "nowhere") {
			t.Errorf("%v: %v, expected the flag's fault before anything is read", args, err)
		}
	}
}
