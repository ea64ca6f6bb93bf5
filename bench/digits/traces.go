package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// trace is a part of a recorded trace of rates: rows rows of the file from row
// first (counted from 0 below the header) make one second here.
type trace struct {
	name, file  string
	first, rows int
	skip        int // columns before the counts, which are added up
}

// The three traces of the table, and the spike. The Twitter part holds the burst; a second stands for 4 s. Azure:
// a minute per second, from the part with the largest jump. WorldCup98: ten
// minutes per second, around the largest minute; the spike likewise, where one
// crowd comes and goes.
var (
	traces = []trace{
		{"twitter", "twitter_2021_08_persec_days01_15.csv.gz", 140706, 4, 0},
		{"azure", "azure_functions_2019_permin_10f_days01_09.csv.gz", 1660, 1, 2},
		{"worldcup", "worldcup98_permin_part1.csv.gz", 80158, 10, 0},
	}
	spike = trace{"spike", "worldcup98_permin_part1.csv.gz", 16336, 10, 0}
)

// rates are the relative rates of so many seconds; the largest is 1.
func (t *trace) rates(dir string, seconds int) ([]float64, error) {
	path := filepath.Join(dir, t.file)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a trace (-data or INFERPLAN_DATA): %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	c := csv.NewReader(z)
	c.ReuseRecord = true
	if _, err := c.Read(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	out := make([]float64, seconds)
	for row := 0; row < t.first+t.rows*seconds; row++ {
		cells, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading %s: %d rows, expected %d for %d s", path, row, t.first+t.rows*seconds, seconds)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if row < t.first {
			continue
		}
		for _, cell := range cells[t.skip:] {
			n, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, fmt.Errorf("reading %s: row %d: %w", path, row, err)
			}
			out[(row-t.first)/t.rows] += n
		}
	}
	most := 0.0
	for _, r := range out {
		most = max(most, r)
	}
	if most == 0 {
		return nil, fmt.Errorf("reading %s: no request in %d s from row %d", path, seconds, t.first)
	}
	for i := range out {
		out[i] /= most
	}
	return out, nil
}

// arrive draws Poisson arrivals at rates, second by second, scaled to a peak.
func arrive(rates []float64, peak float64, seed uint64) []arrivals.Request {
	rng := seeded.New(seed, "bench-digits/arrivals")
	var out []arrivals.Request
	left := rng.ExpFloat64() // requests until the next one
	for sec, r := range rates {
		at := 0.0
		for rate := r * peak; rate > 0; left = rng.ExpFloat64() {
			if at+left/rate >= 1 {
				left -= (1 - at) * rate
				break
			}
			at += left / rate
			out = append(out, arrivals.Request{ArrivedAt: time.Duration((float64(sec) + at) * 1e9)})
		}
	}
	return out
}
