package arrivals

import (
	"io"
	"math/rand/v2"

	"inferplan/formats/csvfile"
)

// What follows reads from an io.Reader, for tests; name is what errors call it.

// NewCounts is OpenCounts from an io.Reader; name is what errors call it.
func NewCounts(r io.Reader, name string, rng *rand.Rand, opt CountsOptions) (*Counts, error) {
	f, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	return ReadCounts(f, rng, opt)
}

// NewGaps is OpenGaps from an io.Reader; name is what errors call it.
func NewGaps(r io.Reader, name string, model int32) (*Gaps, error) {
	f, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	return newGaps(f, model), nil
}

// NewTrace is OpenTrace from an io.Reader; name is what errors call it.
func NewTrace(r io.Reader, name string, models []string, opts ...TraceOption) (*Trace, error) {
	f, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	return newTrace(f, models, opts)
}
