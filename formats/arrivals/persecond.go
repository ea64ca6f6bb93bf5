package arrivals

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// PerSecond reads the number of requests in every second from a CSV file, plain or gzip. It has a column of counts
// and perhaps one of time (second, t_s). With times, seconds without requests may be missing. Without times, every
// row is the next second.
func PerSecond(path string) (counts []float64, err error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readPerSecond(f)
}

// maxSeconds bounds the seconds that PerSecond holds: a year.
const maxSeconds = 366 * 24 * 3600

// readPerSecond reads a CSV file of requests per second, and returns the count of every second from the file's
// first. Seconds that it leaves out count 0. It fails if the seconds do not rise or are too many.
func readPerSecond(f *csvfile.File) ([]float64, error) {
	t, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}

	// Find the column of seconds, which may be absent (-1), and the one of counts.
	second, count := -1, -1
	for i, name := range t.Header {
		switch unit := timeColumns[name]; {
		case unit == time.Second && second < 0:
			second = i
		case unit != 0 || count >= 0:
			return nil, &document.Error{File: f.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(t.Header, ", "), Expected: "second,count: requests in every second"}
		default:
			count = i
		}
	}
	if count < 0 {
		return nil, &document.Error{File: f.Name, Line: 1, Column: 1, Found: "no column of counts", Expected: "second,count: requests in every second"}
	}

	// Read a count for every row. Seconds that the file leaves out have no request.
	var out []float64
	base := 0.0
	for row := 0; ; row++ {
		switch err := t.Next(); {
		case err == io.EOF && row == 0:
			return nil, &document.Error{File: f.Name, Found: "no row below the header", Expected: "one per second"}
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
		secondIndex := len(out)
		if second >= 0 {
			v, err := strconv.ParseFloat(t.Row[second], 64)
			if err != nil || !(v >= 0) || v != math.Trunc(v) || v > 1e12 {
				return nil, t.CellError(second, "a whole second of 0 or more")
			}
			if row == 0 {
				base = v
			}
			if v-base < float64(len(out)) || v-base >= maxSeconds {
				return nil, t.CellError(second, fmt.Sprintf("seconds that rise, within %d of the first", maxSeconds))
			}
			secondIndex = int(v - base)
		}
		if secondIndex >= maxSeconds {
			return nil, t.CellError(count, fmt.Sprintf("at most %d seconds", maxSeconds))
		}
		n, err := strconv.ParseFloat(t.Row[count], 64)
		if err != nil || !(n >= 0) || math.IsInf(n, 0) {
			return nil, t.CellError(count, "a count of 0 or more")
		}
		// Fill in the seconds left out before this one, then add its count.
		out = append(slices.Grow(out, secondIndex+1-len(out)), make([]float64, secondIndex-len(out))...)
		out = append(out, n)
	}
}
