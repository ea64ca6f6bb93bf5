package baseline

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/importer/records"
	"inferplan/planner/gear"
)

// family is a workload of the cross-check: models, records, SLO and rates.
type family struct {
	name   string
	models []gear.Model
	rec    *formats.Records
	memory int64
	slo    time.Duration
	rates  Rates
	grid   int
}

func (f *family) problem(t testing.TB, devices int, slo time.Duration) *gear.Problem {
	p := &gear.Problem{Models: f.models, Grid: f.grid, Devices: devices, Memory: f.memory, SLO: slo, Percentile: .95}
	peak := f.rates.Peak()
	p.Edges, p.Weights = gear.Ranges(peak, 10), gear.Measured(f.rates, peak, 10)
	var names []string
	for _, m := range f.models {
		names = append(names, m.Name)
	}
	var err error
	if p.Thresholds, p.Planned, p.HeldOut, err = gear.Grade(f.rec, names, f.grid); err != nil {
		t.Fatal(err)
	}
	return p
}

func bert5(t testing.TB) *family {
	f := synthetic("bert5", []string{"tiny", "mini", "small", "medium", "base"}, []float64{1.5, 2, 2, 3.5, 5}, []float64{.010, .05, .18, .36, 1.40},
		128, []float64{.832, .859, .897, .896, .935}, []int64{60, 90, 170, 220, 520}, 2, 20240607)
	f.memory, f.slo, f.rates = 32000, 400*time.Millisecond, twitter(t)
	return f
}

func llama4(t testing.TB) *family {
	f := synthetic("llama4", []string{"3B", "7B", "13B", "70B"}, []float64{18, 34, 60, 330}, []float64{6, 12, 24, 120},
		16, []float64{.490, .571, .601, .648}, []int64{3000, 5500, 9500, 40000}, 4, 20240608)
	f.memory, f.slo, f.rates = 48000, 3*time.Second, azure(t)
	return f
}

// imdb3 pairs real certainties of three services with latencies of three models
// of growing size, as the cross-check does.
func imdb3(t testing.TB) *family {
	file, err := os.Open(data(t, "cascade", "frugalml_imdb_60pct.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f := &family{name: "imdb3", slo: 200 * time.Millisecond, grid: 20, rates: twitter(t)}
	names := []string{"GitHub(Vader)", "Amazon", "Google"}
	if f.rec, err = records.Read(file, "imdb", records.Options{Models: names, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	for k, table := range [][5]float64{
		{1.7493, 1.8458, 1.9350, 1.9386, 1.9412}, {9.7840, 10.3600, 10.7732, 10.7732, 10.8056}, {19.1498, 20.2024, 21.3251, 21.3251, 21.3690},
	} {
		m := gear.Model{Name: names[k]}
		for i, ms := range table {
			for len(m.Times) < 1<<i {
				m.Times = append(m.Times, time.Duration(math.Round(ms*1e6)))
			}
		}
		f.models = append(f.models, m)
	}
	return f
}

// data is a file of the reference data.
func data(t testing.TB, parts ...string) string {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{dir}, parts...)...)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skipf("no data at %s; set INFERPLAN_DATA to the folder that holds %s/", path, parts[0])
	}
	return path
}

// rows reads the lines [from, to) below the header.
func rows(t testing.TB, path string, from, to int) []string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return lines(t, z, from, to)
}

func lines(t testing.TB, r io.Reader, from, to int) []string {
	var out []string
	s := bufio.NewScanner(r)
	for row := -1; len(out) < to-from && s.Scan(); row++ { // the header is row -1
		if row >= from {
			out = append(out, s.Text())
		}
	}
	if len(out) != to-from {
		t.Fatalf("%d rows, expected %d", len(out), to-from)
	}
	return out
}

// twitter are twenty minutes with a burst, scaled to a peak of 7600.
func twitter(t testing.TB) Rates {
	var out Rates
	for _, line := range rows(t, data(t, "traces", "twitter_2021_08_persec_days01_15.csv.gz"), 139800, 141000) {
		n, err := strconv.ParseFloat(line, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n*7600/241)
	}
	return out
}

// azure are twenty minutes of ten functions together, scaled to a peak of 60.
func azure(t testing.TB) Rates {
	var minutes []float64
	for _, line := range rows(t, data(t, "traces", "azure_functions_2019_permin_10f_days01_09.csv.gz"), 1660, 1680) {
		sum := 0.0
		for _, cell := range strings.Split(line, ",")[2:] {
			n, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		minutes = append(minutes, sum)
	}
	peak := slices.Max(minutes)
	var out Rates
	for _, m := range minutes {
		for range 60 {
			out = append(out, m*60/peak)
		}
	}
	return out
}

type splitmix uint64

func (s *splitmix) uniform() float64 {
	*s += 0x9E3779B97F4A7C15
	x := uint64(*s)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return (float64((x^x>>31)>>11) + .5) / (1 << 53)
}

func (s *splitmix) normal() float64 {
	u1, u2 := s.uniform(), s.uniform()
	return math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
}

// synthetic draws correlated scores of a family and shifts the truth's until
// the accuracies come out.
func synthetic(name string, names []string, a, b []float64, most int, accuracy []float64, memory []int64, options int, seed splitmix) *family {
	const n, rho, kappa = 10000, .75, 2.0
	f := &family{name: name, grid: 10, rec: &formats.Records{Samples: n, Planning: n}}
	z := make([][][]float64, len(names))
	shared := make([]float64, options)
	for range n {
		for o := range shared {
			shared[o] = seed.normal()
		}
		for k := range names {
			one := make([]float64, options)
			for o := range one {
				one[o] = math.Sqrt(rho)*shared[o] + math.Sqrt(1-rho)*seed.normal()
			}
			z[k] = append(z[k], one)
		}
	}
	for k := range names {
		m := gear.Model{Name: names[k], Memory: memory[k]}
		for batch := 1; batch <= most; batch++ {
			m.Times = append(m.Times, time.Duration(math.Round((a[k]+b[k]*float64(batch))*1e6)))
		}
		f.models = append(f.models, m)
		need := make([]float64, n) // the truth wins where the shift exceeds it
		for i := range n {
			need[i] = slices.Max(z[k][i][1:]) - z[k][i][0]
		}
		sorted := slices.Clone(need)
		slices.Sort(sorted)
		want := int(math.Round(accuracy[k] * n))
		mu := (sorted[want-1] + sorted[want]) / 2
		r := formats.ModelRecords{Model: names[k]}
		correct := make([]byte, n)
		for i := range n {
			z[k][i][0] += mu
			correct[i] = '0'
			if mu > need[i] {
				correct[i] = '1'
			}
			r.Certainty = append(r.Certainty, topTwo(z[k][i], kappa))
		}
		r.Correct = string(correct)
		f.rec.Models = append(f.rec.Models, r)
	}
	return f
}

// topTwo is the difference of the two largest softmax values.
func topTwo(z []float64, kappa float64) float64 {
	var list []float64
	sum := 0.0
	for _, x := range z {
		e := math.Exp(kappa * (x - slices.Max(z)))
		list, sum = append(list, e), sum+e
	}
	slices.Sort(list)
	return (list[len(list)-1] - list[len(list)-2]) / sum
}
