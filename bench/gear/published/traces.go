package published

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats/arrivals"
)

// Twitter are twenty minutes with a burst of ninety seconds, second by second,
// scaled from a peak of 241 to 7600.
func Twitter(dir string) (Rates, error) {
	counts, err := arrivals.PerSecond(filepath.Join(dir, "traces", "twitter_2021_08_persec_days01_15.csv.gz"))
	if err != nil {
		return nil, fmt.Errorf("reading the trace of Twitter: %w", err)
	}
	const from, to = 139800, 141000
	if len(counts) < to {
		return nil, fmt.Errorf("reading the trace of Twitter: %d seconds, expected at least %d", len(counts), to)
	}
	var out Rates
	for _, n := range counts[from:to] {
		out = append(out, n*7600/241)
	}
	return out, nil
}

// Azure are twenty minutes of ten functions together, each minute at its mean
// rate, scaled to a peak of 60.
func Azure(dir string) (Rates, error) {
	minutes, err := azureMinutes(filepath.Join(dir, "traces", "azure_functions_2019_permin_10f_days01_09.csv.gz"), 1660, 1680)
	if err != nil {
		return nil, fmt.Errorf("reading the trace of Azure functions: %w", err)
	}
	peak := slices.Max(minutes)
	var out Rates
	for _, m := range minutes {
		for range 60 {
			out = append(out, m*60/peak)
		}
	}
	return out, nil
}

// Stretch is a part of a trace: rates one after the other, which are alike for a second
// or for a minute.
type Stretch struct {
	Name     string
	file     string
	from, to int
	perMin   bool
}

// Stretches are parts of all traces, bursts and typical ones.
var Stretches = []Stretch{
	{"Twitter, calm", "twitter_2021_08_persec_days01_15.csv.gz", 0, 1200, false},
	{"Twitter, evening", "twitter_2021_08_persec_days01_15.csv.gz", 110000, 111200, false},
	{"Azure, burst", "azure_functions_2019_permin_10f_days01_09.csv.gz", 1660, 1680, true},
	{"Azure, calm", "azure_functions_2019_permin_10f_days01_09.csv.gz", 3000, 3020, true},
	{"WorldCup98", "worldcup98_permin_part1.csv.gz", 20000, 20020, true},
	{"NASA", "nasa_http_1995_permin.csv.gz", 20000, 20020, true},
}

// Through is the family under a stretch of a trace that lasts so many seconds, with the
// family's peak. Of rates per second the first are taken; those of minutes last as long
// as there is time for.
func (f *Family) Through(dir string, s Stretch, seconds int) (*Family, error) {
	path := filepath.Join(dir, "traces", s.file)
	var list []float64
	var err error
	if s.perMin && strings.HasPrefix(s.file, "azure") {
		list, err = azureMinutes(path, s.from, s.to)
	} else if list, err = arrivals.PerSecond(path); err == nil && len(list) < s.to {
		err = fmt.Errorf("%d rows, expected at least %d", len(list), s.to)
	} else if err == nil {
		list = list[s.from:s.to]
	}
	if err != nil {
		return nil, fmt.Errorf("reading the trace %s: %w", s.Name, err)
	}
	each := 1
	if s.perMin {
		each = seconds / len(list)
	}
	out := *f
	out.Name, out.Rates = f.Name+", "+s.Name, nil
	for i := range seconds {
		out.Rates = append(out.Rates, list[i/each])
	}
	peak := out.Rates.Peak()
	for i := range out.Rates {
		out.Rates[i] *= f.Peak / peak
	}
	return &out, nil
}

// azureMinutes sums the functions' columns of the rows [from, to) below the
// header.
func azureMinutes(path string, from, to int) ([]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(z)
	r.ReuseRecord = true
	var out []float64
	for row := -1; row < to; row++ { // the header is row -1
		cells, err := r.Read()
		if err == io.EOF {
			return nil, fmt.Errorf("%d rows, expected at least %d", row, to)
		}
		if err != nil {
			return nil, err
		}
		if row < from {
			continue
		}
		sum := 0.0
		for i, cell := range cells[2:] {
			n, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, fmt.Errorf("row %d, column %d: %w", row, i+3, err)
			}
			sum += n
		}
		out = append(out, sum)
	}
	return out, nil
}
