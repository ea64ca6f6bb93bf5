package published

import (
	"fmt"
	"slices"

	"inferplan/bench/traces"
)

// nasa are requests per minute to a server of NASA in 1995.
const nasa traces.Recording = "nasa_http_1995_permin.csv.gz"

// Stretch is a part of a trace: requests per step of time, all functions together.
type Stretch struct {
	Name      string
	recording traces.Recording
	from      int // step
	length    int // steps
}

// The traces that the families have by themselves: twenty minutes of Twitter with a burst of ninety seconds, second by second, and of
// Azure functions, minute by minute.
var (
	twitterBurst = Stretch{"Twitter, burst", traces.Twitter, 139800, 1200}
	azureBurst   = Stretch{"Azure, burst", traces.Azure, 1660, 20}
)

// Stretches are parts of all traces, bursts and typical ones.
var Stretches = []Stretch{
	{"Twitter, calm", traces.Twitter, 0, 1200},
	{"Twitter, evening", traces.Twitter, 110000, 1200},
	azureBurst,
	{"Azure, calm", traces.Azure, 3000, 20},
	{"WorldCup98", traces.WorldCup98, 20000, 20},
	{"NASA", nasa, 20000, 20},
}

// counts returns the stretch's requests per step, second by second over a number of seconds. Of seconds the first are taken; minutes
// last as long as there is time for.
func (s *Stretch) counts(dir string, seconds int) ([]float64, error) {
	series, err := s.recording.Read(dir, s.from, s.length)
	if err != nil {
		return nil, fmt.Errorf("reading the trace %s: %w", s.Name, err)
	}
	steps := make([]float64, s.length)
	for _, column := range series {
		for i, count := range column {
			steps[i] += count // whole numbers: their order does not matter
		}
	}
	each := 1
	if s.recording != traces.Twitter {
		each = seconds / len(steps)
	}
	counts := make([]float64, seconds)
	for i := range counts {
		counts[i] = steps[i/each]
	}
	return counts, nil
}

// rates returns the stretch over twenty minutes, scaled to a peak.
func (s *Stretch) rates(dir string, peak float64) (Rates, error) {
	counts, err := s.counts(dir, 1200)
	if err != nil {
		return nil, err
	}
	highest := slices.Max(counts)
	for i := range counts {
		counts[i] *= peak
		counts[i] /= highest
	}
	return counts, nil
}

// Through is the family under a stretch of a trace that lasts so many seconds, with the family's peak.
func (f *Family) Through(dir string, s *Stretch, seconds int) (*Family, error) {
	counts, err := s.counts(dir, seconds)
	if err != nil {
		return nil, err
	}
	through := *f
	through.Name = f.Name + ", " + s.Name
	through.Rates, _ = traces.ScaledToPeak(counts, 1, f.Peak)
	return &through, nil
}
