package arrivals

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// CountsOptions say how arrivals are made from counts or rates per interval.
type CountsOptions struct {
	Interval time.Duration // the time that one row stands for, such as 60s
	Column   string        // the file's column of counts; may be empty if there is only one
	CV       float64       // coefficient of variation of the gaps within an interval; with 0 or 1, times are uniformly random
	Scale    float64       // multiplies the counts; 0 is 1
	Model    int32         // model of the requests
	End      time.Duration // no arrivals from then on; 0 means up to the end of the file
}

// ParseSpread parses a spread, "uniform" or "gamma:CV", and returns it as CountsOptions.CV.
func ParseSpread(text string) (cv float64, err error) {
	if text == "" || text == "uniform" {
		return 1, nil
	}
	if number, ok := strings.CutPrefix(text, "gamma:"); ok {
		if cv, err = strconv.ParseFloat(number, 64); err == nil && cv > 0 && cv <= 100 {
			return cv, nil
		}
	}
	return 0, fmt.Errorf("%q is no spread: expected uniform, or gamma:CV with a CV above 0 and up to 100", text)
}

// Counts draws arrivals from counts per interval, in a CSV file. It has a column of counts, or of rates if its
// name ends in _rps, and perhaps a column of time (second, minute or t_s). With times, rows may be missing:
// nothing arrives in these intervals.
//
// The n arrivals of an interval are points of a renewal process conditioned to fill it: n+1 gamma gaps of the
// given CV, scaled to the interval. With a CV of 1 they are n independent uniform times, in order. Scaled and
// fractional counts are rounded so that the error of the running total never exceeds one half.
type Counts struct {
	table    *csvfile.Table
	opt      CountsOptions
	gap      func() float64
	column   int
	timeCol  int
	timeUnit time.Duration
	isRate   bool

	base            time.Duration // time of the first row
	rows            int64
	start           time.Duration // the start of the current interval
	offsets         []float64     // ends of its gaps, as shares of the interval
	nextInInterval  int
	total           float64 // expected arrivals so far
	emittedRequests float64 // arrivals so far
	err             error
}

// OpenCounts opens a CSV file, plain or gzip, with counts of requests per interval, and returns a source that
// spreads them over the intervals.
func OpenCounts(path string, rng *rand.Rand, opt CountsOptions) (*Counts, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	c, err := ReadCounts(f, rng, opt)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// timeColumns holds the names, with the unit, of columns with the start of an interval.
var timeColumns = map[string]time.Duration{"second": time.Second, "t_s": time.Second, "time_s": time.Second, "minute": time.Minute, "t_us": time.Microsecond}

// otherColumns are known columns that hold neither counts nor a usable time.
var otherColumns = []string{"day", "client", "active_clients", "rate_weighted_interarrival_cv", "interarrival_cv"}

// ReadCounts reads the header of a file with counts of requests per interval, and returns the source that spreads them
// over the intervals. The time between arrivals is exponential or, for another coefficient of variation CV, gamma. A
// CV or scale of 0 stands for 1. The counts are multiplied by the scale.
func ReadCounts(f *csvfile.File, rng *rand.Rand, opt CountsOptions) (*Counts, error) {
	switch {
	case opt.Interval <= 0:
		return nil, fmt.Errorf("reading counts from %s: the interval is %v, expected a positive duration such as 1s", f.Name, opt.Interval)
	case opt.Scale < 0 || math.IsNaN(opt.Scale) || math.IsInf(opt.Scale, 0):
		return nil, fmt.Errorf("reading counts from %s: the scale is %v, expected a positive number", f.Name, opt.Scale)
	case opt.CV < 0 || opt.CV > 100 || math.IsNaN(opt.CV):
		return nil, fmt.Errorf("reading counts from %s: the CV is %v, expected a number above 0 and up to 100", f.Name, opt.CV)
	}
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	opt.Scale = cmp.Or(opt.Scale, 1)
	c := &Counts{table: tab, opt: opt, gap: rng.ExpFloat64, timeCol: -1, start: -opt.Interval}
	if cv := opt.CV; cv != 0 && cv != 1 {
		c.gap = distuv.Gamma{Alpha: 1 / (cv * cv), Beta: 1, Src: rng}.Rand
	}
	return c, c.columns()
}

// columns finds the columns of times and of counts by the names in the header. It fails if several columns could
// be the counts and the options name none of them.
func (c *Counts) columns() error {
	var candidates []string
	for i, name := range c.table.Header {
		unit, isTime := timeColumns[name]
		switch {
		// Minutes may start anew each day. Rows then stand for one interval each.
		case isTime && !slices.Contains(c.table.Header, "day") && c.timeCol < 0:
			c.timeCol, c.timeUnit = i, unit
		case isTime || slices.Contains(otherColumns, name):
		default:
			candidates = append(candidates, name)
		}
	}
	if slices.Contains(c.table.Header, "client") {
		return &document.Error{File: c.table.Name, Line: 1, Column: 1, Found: "one row per client and interval", Expected: "one row per interval"}
	}
	name := c.opt.Column
	if name == "" {
		if len(candidates) != 1 {
			return &document.Error{File: c.table.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(c.table.Header, ", "), Expected: "one column of counts, or the name of one of them"}
		}
		name = candidates[0]
	}
	// Take the column, and check that its unit is the options' interval.
	c.column = slices.Index(c.table.Header, name)
	if c.column < 0 {
		return &document.Error{File: c.table.Name, Line: 1, Column: 1, Found: fmt.Sprintf("no column %q", name), Expected: "one of " + strings.Join(c.table.Header, ", "),
			Hint: document.DidYouMean(name, c.table.Header)}
	}
	c.isRate = strings.HasSuffix(name, "_rps")
	for unit, d := range map[string]time.Duration{"requests_per_second": time.Second, "requests_per_minute": time.Minute} {
		if name == unit && c.opt.Interval != d {
			return &document.Error{File: c.table.Name, Line: 1, Column: 1, Path: name, Found: "an interval of " + c.opt.Interval.String(), Expected: d.String(), Hint: "the name of the column tells the interval"}
		}
	}
	return nil
}

// Close closes the file.
func (c *Counts) Close() error { return c.table.Close() }

// Err returns the error that stopped the stream early.
func (c *Counts) Err() error {
	if c.err == io.EOF {
		return nil
	}
	return c.err
}

// Next sets r to the next arrival, and returns false at the end or after an error.
func (c *Counts) Next(r *Request) bool {
	for c.nextInInterval >= len(c.offsets) {
		if c.err != nil || !c.interval() {
			return false
		}
	}
	// offsets are shares of the interval.
	arrivedAt := c.start + time.Duration(c.offsets[c.nextInInterval]*float64(c.opt.Interval))
	c.nextInInterval++
	if c.opt.End > 0 && arrivedAt >= c.opt.End {
		c.offsets = c.offsets[:0]
		c.err = io.EOF
		return false
	}
	*r = Request{ArrivedAt: arrivedAt, Model: c.opt.Model}
	return true
}

// maxPerInterval bounds the arrivals of one interval.
const maxPerInterval = 10_000_000

// maxTime bounds the time that a trace may span: a century.
const maxTime = 100 * 365 * 24 * time.Hour

// interval reads the next row and draws the arrivals in its interval. Fractions of requests add up from row to row.
// It returns false at the end or after an error. c.total counts the requests expected up to this interval, and
// c.emittedRequests those drawn before it. It fills c.offsets.
func (c *Counts) interval() bool {
	if err := c.table.Next(); err != nil {
		c.err = err
		return false
	}
	c.rows++
	start, e := c.startOf()
	if e != nil {
		c.err = e
		return false
	}
	c.start = start
	count, err := strconv.ParseFloat(c.table.Row[c.column], 64)
	if err != nil || !(count >= 0) || math.IsInf(count, 0) {
		c.err = c.table.CellError(c.column, "a count of 0 or more")
		return false
	}

	// Round the running total of requests, and draw as many as are missing in it.
	if c.isRate {
		count *= c.opt.Interval.Seconds()
	}
	c.total += count * c.opt.Scale
	n := math.Round(c.total) - c.emittedRequests
	if n > maxPerInterval {
		c.err = c.table.CellError(c.column, fmt.Sprintf("at most %d requests per interval, after the scale", maxPerInterval))
		return false
	}
	c.emittedRequests += n
	c.draw(int(n))
	return true
}

// startOf returns when the interval of the current row starts, from 0 at the first row. Without a column of times,
// rows follow each other without gaps.
func (c *Counts) startOf() (time.Duration, *document.Error) {
	if c.timeCol < 0 {
		if c.start >= maxTime {
			return 0, c.table.CellError(c.column, "at most a century of intervals")
		}
		return c.start + c.opt.Interval, nil
	}
	v, err := strconv.ParseFloat(c.table.Row[c.timeCol], 64)
	if err != nil || !(v >= 0) || v*c.timeUnit.Seconds() > maxTime.Seconds() {
		return 0, c.table.CellError(c.timeCol, "the start of an interval, 0 or more")
	}
	t := time.Duration(math.Round(v * float64(c.timeUnit)))
	if c.rows == 1 {
		c.base = t
	}
	if t -= c.base; t < c.start+c.opt.Interval {
		return 0, c.table.CellError(c.timeCol, fmt.Sprintf("a start at least one interval of %v after that of the row above", c.opt.Interval))
	}
	return t, nil
}

// draw sets the offsets of n requests within an interval, as shares of it that rise. They are the sums of n+1
// random gaps, divided by the total: the last gap ends with the interval.
func (c *Counts) draw(n int) {
	c.offsets, c.nextInInterval = slices.Grow(c.offsets[:0], n)[:n], 0
	sum := 0.0
	for i := range n {
		sum += c.gap()
		c.offsets[i] = sum
	}
	sum += c.gap()
	if sum == 0 { // every gap underflowed, as can happen with a very large CV
		sum = 1
	}
	for i := range c.offsets {
		c.offsets[i] /= sum
	}
}
