package arrivals

import (
	"bufio"
	"errors"
	"math"
	"strconv"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Gaps reads a file of gaps between arrivals: one whole number of microseconds per line, the first from time 0.
type Gaps struct {
	file        *csvfile.File
	lines       *bufio.Scanner
	line        int
	model       int32
	lastArrival time.Duration
	err         error
}

// OpenGaps opens a file, plain or gzip, with the times between the requests for one model, one a line.
func OpenGaps(path string, model int32) (*Gaps, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return newGaps(f, model), nil
}

func newGaps(f *csvfile.File, model int32) *Gaps {
	g := &Gaps{file: f, model: model, lines: bufio.NewScanner(f.Reader)}
	g.lines.Buffer(make([]byte, 256), 4096)
	return g
}

// Close closes the file.
func (g *Gaps) Close() error { return g.file.Close() }

// Err returns the error that stopped the stream early.
func (g *Gaps) Err() error { return g.err }

// Next sets r to the next request: it reads the gap since the one before, in microseconds, from the next line. It
// returns false at the end or after an error.
func (g *Gaps) Next(r *Request) bool {
	if g.err != nil {
		return false
	}
	for g.lines.Scan() {
		g.line++
		b := g.lines.Bytes()
		if len(b) > 0 && b[len(b)-1] == '\r' {
			b = b[:len(b)-1]
		}
		if len(b) == 0 {
			continue // at the end of the file, or for a blank line before it
		}
		gapMicros, err := strconv.ParseUint(string(b), 10, 63) // refuses signs; its argument is not allocated
		if err != nil || time.Duration(gapMicros) > (math.MaxInt64-g.lastArrival)/1000 {
			g.err = &document.Error{File: g.file.Name, Line: g.line, Column: 1, Found: csvfile.Quote(string(b)), Expected: "a gap: a whole number of microseconds"}
			return false
		}
		g.lastArrival += time.Duration(gapMicros) * time.Microsecond
		*r = Request{ArrivedAt: g.lastArrival, Model: g.model}
		return true
	}
	if err := g.lines.Err(); err != nil {
		e := &document.Error{File: g.file.Name, Line: g.line + 1, Column: 1, Found: err.Error(), Expected: "a gap: a whole number of microseconds"}
		if errors.Is(err, bufio.ErrTooLong) {
			e.Found = "a very long line"
		}
		g.err = e
	}
	return false
}
