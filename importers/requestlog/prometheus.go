package requestlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

const prometheusName = "a range query of Prometheus"

// rangeQuery is the answer to a range query (Prometheus 3.14.0, d15adb9, docs/querying/api.md: /api/v1/query_range).
type rangeQuery struct {
	Data struct {
		ResultType string        `json:"resultType"`
		Result     []queryResult `json:"result"`
	} `json:"data"`
}

// queryResult is one series of the answer. A value is a time in seconds and a number as text.
type queryResult struct {
	Metric map[string]string    `json:"metric"`
	Values [][2]json.RawMessage `json:"values"`
}

// isPrometheus reports whether a file is the answer to a range query.
func isPrometheus(head []byte) bool {
	return matrixField.Match(head)
}

var matrixField = regexp.MustCompile(`^\x{FEFF}?\s*\{[^\[]*"resultType"\s*:\s*"matrix"`)

// modelLabels are the labels that name a model: of vLLM (vllm/v1/metrics/loggers.py: model_name and engine) and SGLang, of Triton
// (server 2.73.0dev, e1db8a6, docs/user_guide/metrics.md: model and version), and of KServe and Seldon.
var modelLabels = []string{"model_name", "model", "served_model_name", "model_id", "inference_service", "isvc_name"}

// counterName matches the names of counters. The answer to a function such as rate has no name.
var counterName = regexp.MustCompile(`(_total|_count|_success|_failure)$`)

// maxQuery bounds the bytes of an answer.
const maxQuery = 1 << 28

// readPrometheus draws requests at the rates of a range query: a series is a rate in requests a second or, if its name
// is that of a counter, a number of requests that grows. Series of one model add up.
func readPrometheus(f *csvfile.File, o Options) (*Log, error) {
	var q rangeQuery
	if err := json.NewDecoder(io.LimitReader(f, maxQuery)).Decode(&q); err != nil {
		return nil, &document.Error{File: f.Name, Found: document.FaultOfJSON(err), Expected: prometheusName}
	}
	fail := func(i int, found, expected string) error {
		return &document.Error{File: f.Name, Path: fmt.Sprintf("data.result[%d]", i), Found: found, Expected: expected}
	}

	// Find the step of the query, which is one for all series. Values may be missing.
	// A series that was there for fewer than two values has no rate.
	step := int64(math.MaxInt64)
	shortSeries := 0
	series := make([][]point, len(q.Data.Result))
	for i := range q.Data.Result {
		points, err := q.Data.Result[i].points()
		if err != nil {
			return nil, fail(i, err.Error(), expectedValues)
		}
		if len(points) < 2 {
			shortSeries++
			continue
		}
		series[i] = points
		for k := 1; k < len(points); k++ {
			step = min(step, points[k].at-points[k-1].at)
		}
	}

	// Add up the series of each model.
	rates := map[string]map[int64]float64{} // by model and time in milliseconds
	for i, r := range q.Data.Result {
		if series[i] == nil {
			continue
		}
		points, err := r.rates(series[i], step, o.limits.steps)
		if err != nil {
			return nil, fail(i, err.Error(), expectedValues)
		}
		model := r.model(o.Model)
		if rates[model] == nil {
			rates[model] = map[int64]float64{}
		}
		for _, p := range points {
			rates[model][p.at] += p.value
		}
	}
	switch {
	case len(rates) == 0 && shortSeries > 0:
		return nil, fail(0, fmt.Sprintf("%d series, none with two values", shortSeries), expectedValues)
	case len(rates) == 0:
		return nil, fail(0, "nothing", "at least one series")
	}
	log, err := drawRates(f.Name, rates, time.Duration(step)*time.Millisecond, o)
	if err == nil && shortSeries > 0 {
		log.Notes = append(log.Notes, fmt.Sprintf("left out %d series of fewer than two values", shortSeries))
	}
	return log, err
}

var expectedValues = fmt.Sprintf("at least two times in seconds, in order, with requests a second or counts, over at most %d steps", defaultLimits.steps)

// point is a value of a series. Its time is in milliseconds.
type point struct {
	at    int64
	value float64
}

// points returns the values of a series. Those that are not a number are left out.
func (r *queryResult) points() ([]point, error) {
	var out []point
	for _, v := range r.Values {
		var at float64
		var text string
		if err := json.Unmarshal(v[0], &at); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(v[1], &text); err != nil {
			return nil, err
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !(at >= 0 && at <= maxSeconds) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("the value %s at %v", csvfile.Quote(text), at)
		}
		p := point{int64(math.Round(at * 1e3)), value}
		if len(out) > 0 && p.at <= out[len(out)-1].at {
			return nil, fmt.Errorf("the time %v after a later one", at)
		}
		if !math.IsNaN(value) {
			out = append(out, p)
		}
	}
	return out, nil
}

// model returns the model that a series is about: the given one or, if that is empty, the one that a label names.
func (r *queryResult) model(given string) string {
	for _, label := range modelLabels {
		given = cmp.Or(given, r.Metric[label])
	}
	return given
}

// rates returns the rates of a series, in requests a second. Those of a counter are from one value to the next, for each
// step in between; one that begins anew counts from 0. step is in milliseconds; there may be at most
// maxSteps of them.
func (r *queryResult) rates(points []point, step, maxSteps int64) ([]point, error) {
	if counterName.MatchString(r.Metric["__name__"]) {
		counts := points
		points = nil
		if n := (counts[len(counts)-1].at - counts[0].at) / step; n > maxSteps {
			return nil, fmt.Errorf("%d steps of %v", n, time.Duration(step)*time.Millisecond)
		}
		for k := 1; k < len(counts); k++ {
			grown := counts[k].value - counts[k-1].value
			if grown < 0 {
				grown = counts[k].value
			}
			n := (counts[k].at - counts[k-1].at) / step
			for left := n - 1; left >= 0; left-- {
				points = append(points, point{counts[k].at - left*step, grown * 1e3 / float64(n*step)})
			}
		}
	}
	for _, p := range points {
		if p.value < 0 {
			return nil, fmt.Errorf("the rate %g", p.value)
		}
	}
	return points, nil
}

// drawRates draws requests at the rates of each model; step is the time that a rate stands for.
func drawRates(name string, rates map[string]map[int64]float64, step time.Duration, o Options) (*Log, error) {
	log := &Log{Format: prometheusName, IsDrawn: true, Notes: []string{fmt.Sprintf("requests were drawn at the rates of intervals of %v", step)}}
	first, expected := int64(math.MaxInt64), 0.0
	for _, series := range rates {
		for at, rate := range series {
			first, expected = min(first, at), expected+rate*step.Seconds()*cmp.Or(o.Scale, 1)
		}
	}
	if expected > float64(o.limits.requests) {
		return nil, &document.Error{File: name, Found: fmt.Sprintf("rates that make %.3g requests", expected), Expected: fmt.Sprintf("at most %d", o.limits.requests), Hint: "a shorter range, or plan import trace --scale"}
	}
	for _, model := range slices.Sorted(maps.Keys(rates)) {
		// Write the rates as a table of counts, which package arrivals draws from. Its times are from the first row.
		var table strings.Builder
		table.WriteString("t_s,requests_rps\n")
		times := slices.Sorted(maps.Keys(rates[model]))
		if len(times) == 0 {
			continue
		}
		for _, at := range times {
			fmt.Fprintf(&table, "%g,%g\n", float64(at-times[0])/1e3, rates[model][at])
		}
		file, err := csvfile.New(strings.NewReader(table.String()), name)
		if err != nil {
			return nil, err
		}
		counts, err := arrivals.ReadCounts(file, seeded.New(o.Seed, "requestlog/"+model), arrivals.CountsOptions{Interval: step, CV: o.CV, Scale: o.Scale})
		if err != nil {
			return nil, err
		}
		list, err := arrivals.Collect(counts, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			log.Requests = append(log.Requests, Request{ArrivedAt: time.Duration(times[0]-first)*time.Millisecond + r.ArrivedAt, Model: model, CachedTokens: -1})
		}
	}
	if len(log.Requests) == 0 {
		return nil, &document.Error{File: name, Found: "rates that make no request", Expected: "at least one"}
	}
	slices.SortStableFunc(log.Requests, func(a, b Request) int { return cmp.Compare(a.ArrivedAt, b.ArrivedAt) })
	return log, nil
}
