package perfanalyzer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// layout says which columns of a file hold what. A column that is empty does not occur.
type layout struct {
	name        string // the tool and its file
	model       string
	batch       string
	concurrency string
	config      string        // the model's configuration, of which there may be several
	compute     []string      // times whose sum is that of a batch on the server: copies to the GPU, run, copies to the host
	latency     string        // the time that stands for the batch where the others are absent
	unit        time.Duration //
}

// layouts are the files that are recognised. Names of columns are from the source of perf_analyzer 2.59
// (src/report_writer.cc) and of Model Analyzer 1.49 to 1.53 (model_analyzer/record/types, and docs/kubernetes_deploy.md for a whole file).
var layouts = []layout{
	{
		name: "a table of perf_analyzer", concurrency: "Concurrency", unit: time.Microsecond,
		compute: []string{"Server Compute Input", "Server Compute Infer", "Server Compute Output"},
	},
	{
		name: "a table of Triton Model Analyzer", model: "Model", batch: "Batch", concurrency: "Concurrency", config: "Model Config Path", unit: time.Millisecond,
		compute: []string{"Server Compute Input time (ms)", "Server Compute Infer time (ms)", "Server Compute Output time (ms)"}, latency: "p99 Latency (ms)",
	},
}

// has reports whether a file with these columns has the layout, and whether its times are those of the server.
func (l *layout) has(header []string) (isLayout, hasCompute bool) {
	for _, column := range []string{l.model, l.batch, l.concurrency} {
		if column != "" && !slices.Contains(header, column) {
			return false, false
		}
	}
	hasCompute = !slices.ContainsFunc(l.compute, func(column string) bool { return !slices.Contains(header, column) })
	return hasCompute || l.latency != "" && slices.Contains(header, l.latency), hasCompute
}

// recognize returns the name of the tool's file that begins with head, or "".
func recognize(head []byte) string {
	line, _, _ := strings.Cut(string(head), "\n")
	header := strings.Split(strings.TrimRight(line, "\r"), ",")
	for i := range layouts {
		if ok, _ := layouts[i].has(header); ok {
			return layouts[i].name
		}
	}
	return ""
}

// batchTime is the time of batches of one size.
type batchTime struct {
	model       string // empty if the file does not tell
	batch       int    // 0 if the file does not tell
	concurrency int
	elapsed     time.Duration
	isLatency   bool // it is a latency that a client saw, in place of the time on the server
}

// Bounds of the values of a table.
const (
	maxBatch   = 1 << 20
	maxClients = 1 << 20
	maxElapsed = time.Hour
)

// readTimes reads a file: for each model and batch size the time with the fewest clients and, of several
// configurations, the shortest.
func readTimes(r io.Reader, name string) ([]batchTime, error) {
	t, err := csvfile.ReadTable(r, name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(layouts, func(l layout) bool { ok, _ := l.has(t.Header); return ok })
	if i < 0 {
		return nil, &document.Error{File: name, Line: 1, Column: 1, Found: "the columns " + strings.Join(t.Header, ","), Expected: "those of perf_analyzer -f with --concurrency-range, or of metrics-model-inference.csv of Model Analyzer"}
	}
	l := &layouts[i]
	_, hasCompute := l.has(t.Header)
	columns := l.compute
	if !hasCompute {
		columns = []string{l.latency}
	}
	var times []batchTime
	err = t.EachRow(func() error {
		x := batchTime{model: t.Text(l.model), concurrency: t.WholeNumber(l.concurrency, 1, maxClients), isLatency: !hasCompute}
		if l.batch != "" {
			x.batch = t.WholeNumber(l.batch, 1, maxBatch)
		}
		for _, column := range columns {
			x.elapsed += time.Duration(t.Number(column, 0, float64(maxElapsed/l.unit))*float64(l.unit) + 0.5)
		}
		if x.elapsed == 0 {
			return t.Fail(0, columns[0], "no time", "times of the server: perf_analyzer needs a server that reports them")
		}
		k := slices.IndexFunc(times, func(y batchTime) bool { return y.model == x.model && y.batch == x.batch })
		switch {
		case k < 0:
			times = append(times, x)
		case x.concurrency < times[k].concurrency || x.concurrency == times[k].concurrency && x.elapsed < times[k].elapsed:
			times[k] = x
		}
		return nil
	})
	if err == nil && len(times) == 0 {
		err = &document.Error{File: name, Found: "no row", Expected: "at least one"}
	}
	for _, x := range times {
		if err == nil && x.concurrency > 1 {
			err = &document.Error{File: name, Path: l.concurrency, Found: fmt.Sprintf("%d clients at least", x.concurrency), Expected: "a row with one, in which no request waits for another or shares a batch"}
		}
	}
	return times, err
}
