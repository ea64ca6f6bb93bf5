package traces

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/floats"

	"inferplan/formats/csvfile"
)

// Recording is a file of counts, one row for each step of time.
type Recording string

// The recordings.
const (
	Azure      Recording = "azure_functions_2019_permin_10f_days01_09.csv.gz" // requests per minute of ten functions
	Twitter    Recording = "twitter_2021_08_persec_days01_15.csv.gz"          // tweets per second; some minutes of every day are missing
	WorldCup98 Recording = "worldcup98_permin_part1.csv.gz"                   // requests per minute
)

// DayMinutes says how many rows a day has in a recording of minutes.
const DayMinutes = 24 * 60

// Series are the counts of some steps, by column.
type Series map[string][]float64

// Read returns the counts of some rows in the named columns; without names, in every column but those of the time (day, minute). from
// counts rows from 0. length 0 stands for all rows from there on. It fails if the recording has fewer rows.
func (r Recording) Read(folder string, from, length int, columns ...string) (_ Series, err error) {
	t, err := csvfile.OpenTable(filepath.Join(folder, "traces", string(r)))
	if err != nil {
		return nil, fmt.Errorf("opening a recording of requests (-data or INFERPLAN_DATA): %w", err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if len(columns) == 0 {
		columns = slices.DeleteFunc(slices.Clone(t.Header), func(name string) bool { return name == "day" || name == "minute" })
	}
	series, row := Series{}, 0
	err = t.EachRow(func() error {
		if row++; row <= from || length > 0 && row > from+length {
			return nil
		}
		for _, name := range columns {
			series[name] = append(series[name], t.Number(name, 0, math.MaxFloat64))
		}
		return nil
	})
	if err == nil && row < from+max(1, length) {
		err = fmt.Errorf("%s: found %d rows, expected %d from row %d on", t.Name, row, max(1, length), from)
	}
	return series, err
}

// ScaledToMean returns counts as rates with a mean.
func ScaledToMean(counts []float64, mean float64) []float64 {
	total, rates := floats.Sum(counts), make([]float64, len(counts))
	for i, count := range counts {
		rates[i] = count * mean * float64(len(counts)) / total
	}
	return rates
}

// ScaledToPeak returns counts as rates whose largest mean over a window of steps is the peak, and the factor between the two.
func ScaledToPeak(counts []float64, window int, peak float64) (rates []float64, factor float64) {
	largest := 0.0
	for i := 0; i+window <= len(counts); i++ {
		largest = max(largest, floats.Sum(counts[i:i+window])/float64(window))
	}
	factor = peak / largest
	return floats.ScaleTo(make([]float64, len(counts)), factor, counts), factor
}
