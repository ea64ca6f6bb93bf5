package instrument

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/bench/figures"
)

// Run is one start of an instrument: what its parts have at hand.
type Run struct {
	Ctx    context.Context
	Out    io.Writer // tables
	Log    io.Writer // progress and notes
	Data   string    // folder of measurements and traces of others
	Folder string    // of results, pictures and tables as CSV
	Jobs   int       // measurements at the same time, where nothing is timed

	name, part  string
	flags       *flag.FlagSet
	file        string // of figures
	keptBy      string
	fresh       bool
	results     *results
	addsFigures sync.Mutex
	figures     []*figures.Figure // of the part that is measured
}

// Command returns the command that measures the figures of this run again. part are the flags that choose a part of it: names and
// values in turns.
func (r *Run) Command(part ...string) string { return figures.Command(r.flags, r.name, part...) }

// Figure states a figure of the part that is measured, and returns it: what it lacks, such as a note, may be added until the part
// ends. It may be called by several goroutines.
func (r *Run) Figure(f figures.Figure) *figures.Figure {
	r.addsFigures.Lock()
	defer r.addsFigures.Unlock()
	r.figures = append(r.figures, &f)
	return &f
}

// stated returns the figures of the part that is measured.
func (r *Run) stated() (list []figures.Figure) {
	for _, f := range r.figures {
		list = append(list, *f)
	}
	return list
}

// AtMost states that none of the values is above a limit. The figure's measured value is the largest, and of several values, its
// interval is the least and the largest.
func (r *Run) AtMost(claim, source string, limit float64, unit string, values ...float64) *figures.Figure {
	return r.limited(claim, source, "at most", limit, unit, values)
}

// AtLeast states that none of the values is below a limit. The figure's measured value is the least; its interval is as AtMost's.
func (r *Run) AtLeast(claim, source string, limit float64, unit string, values ...float64) *figures.Figure {
	return r.limited(claim, source, "at least", limit, unit, values)
}

// Exactly states that all values are equal to the one that is asked for. The figure's measured value and interval are as AtMost's.
func (r *Run) Exactly(claim, source string, asked float64, unit string, values ...float64) *figures.Figure {
	return r.limited(claim, source, "exactly", asked, unit, values)
}

// limited states a figure of values that are "at most", "at least" or "exactly" a limit.
func (r *Run) limited(claim, source, relation string, limit float64, unit string, values []float64) *figures.Figure {
	least, largest := slices.Min(values), slices.Max(values)
	f := figures.Figure{Claim: claim, Source: source, Asked: fmt.Sprintf("%s %g", relation, limit), Measured: largest, Unit: unit}
	switch relation {
	case "at most":
		f.Holds = figures.If(largest <= limit)
	case "at least":
		f.Measured, f.Holds = least, figures.If(least >= limit)
	case "exactly":
		f.Holds = figures.If(least == limit && largest == limit)
	}
	if len(values) > 1 {
		f.Interval = &[2]float64{least, largest}
	}
	return r.Figure(f)
}

// Mean returns the mean of values with its 95 % interval (Student's t); the interval is nil for fewer than two values.
func Mean(values []float64) (mean float64, interval *[2]float64) {
	mean = stat.Mean(values, nil)
	if len(values) < 2 {
		return mean, nil
	}
	n := float64(len(values))
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(.975) * stat.StdDev(values, nil) / math.Sqrt(n)
	return mean, &[2]float64{mean - half, mean + half}
}

// ForEach calls do for 0 to n-1, Jobs of them at the same time. It returns the first error; do is not begun any more after one, nor after
// the run is cancelled.
func (r *Run) ForEach(n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(r.Ctx)
	group.SetLimit(r.Jobs)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}

// WriteCSV writes a table into NAME.csv in the folder of results.
func (r *Run) WriteCSV(name string, t *Table) error {
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.WriteAll(append([][]string{t.Columns}, t.Rows...)); err != nil {
		return fmt.Errorf("writing %s.csv: %w", name, err)
	}
	return r.WriteFile(name+".csv", []byte(text.String()))
}

// WriteFile writes a file into the folder of results.
func (r *Run) WriteFile(name string, content []byte) error {
	if err := os.MkdirAll(r.Folder, 0o755); err != nil {
		return fmt.Errorf("making the folder of results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.Folder, name), content, 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
