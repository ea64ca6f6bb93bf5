package trtexec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/profiler"
)

// maxLayers bounds the number of layers of an engine.
const maxLayers = 5000

// entry is an entry of a file. The first has the number of iterations, each of the others a layer. Other fields
// are skipped.
type entry struct {
	Count  int      `json:"count,omitempty"`
	Name   string   `json:"name,omitempty"`
	Total  *float64 `json:"timeMs,omitempty"`
	Mean   *float64 `json:"averageMs,omitempty"`
	Median *float64 `json:"medianMs,omitempty"`
}

type entries []entry

// Validate returns an error unless the entries of a file are a count of iterations, then layers with valid times.
func (list entries) Validate() error {
	if len(list) == 0 {
		return findingAt(-1, "", "an empty list", "the count of iterations, and layers")
	}
	if list[0].Count < 1 || list[0].Name != "" {
		return findingAt(0, "", "no object with a count of iterations alone", `{"count": N} before the layers`)
	}
	if n := len(list) - 1; n < 1 || n > maxLayers {
		return findingAt(0, "", fmt.Sprintf("%d layers behind the count", n), fmt.Sprintf("1 to %d", maxLayers))
	}
	for i := range list[1:] {
		if err := list[1+i].check(1+i, float64(list[0].Count)); err != nil {
			return err
		}
	}
	if l := list.layers(); l.Total() == 0 {
		return findingAt(0, "", "no layer that takes time", "at least one")
	}
	return nil
}

// check returns an error if the layer at index i of the file has wrong times. Its total cannot be more than its mean
// times the iterations. Times are in milliseconds.
func (e *entry) check(i int, iterations float64) error {
	switch {
	case e.Name == "":
		return findingAt(i, "name", "nothing", "the name of a layer")
	case e.Count != 0:
		return findingAt(i, "count", "a second count", "one, at the start")
	case e.Mean == nil:
		return findingAt(i, "averageMs", "nothing", "milliseconds")
	case e.Total == nil || *e.Total < 0:
		return findingAt(i, "timeMs", "no time over all iterations", "milliseconds of 0 or more")
	// Figures have six digits. The mean of a layer under a condition is over the iterations that run the layer.
	case *e.Total-*e.Mean*iterations > 1e-3**e.Total+1e-6:
		return findingAt(i, "timeMs", number(*e.Total), fmt.Sprintf("at most averageMs times the %g iterations, %.6g", iterations, *e.Mean*iterations))
	case e.Median != nil:
		if err := checkTime(i, "medianMs", *e.Median); err != nil {
			return err
		}
	}
	return checkTime(i, "averageMs", *e.Mean)
}

// layers returns the layers of the entries, each with its median time per iteration, or its mean if the file has
// no median.
func (list entries) layers() *profiler.Layers {
	l := &profiler.Layers{Count: list[0].Count}
	for i := range list[1:] {
		e, iterations := &list[1+i], float64(list[0].Count)
		t := *e.Mean
		switch {
		case *e.Mean*iterations-*e.Total > 1e-2**e.Total+1e-6: // it ran only in some of the iterations
			t = *e.Total / iterations
		case e.Median != nil:
			t = *e.Median
		}
		l.Layers = append(l.Layers, profiler.Layer{Name: e.Name, Time: duration(t)})
	}
	return l
}

// layerFields are the fields of entries of layers.
var layerFields = []string{"count", "name", "timeMs", "averageMs", "medianMs", "percentage"}

// readLayers reads the layers that trtexec --exportProfile writes, with the time of each. unknown are the fields of
// entries that no version of trtexec writes, as far as is known. Errors use name for the file.
func readLayers(r io.Reader, name string) (layers *profiler.Layers, unknown []string, err error) {
	var list entries
	if unknown, err = read(r, name, "a list of layers, as trtexec --exportProfile writes it", &list, layerFields); err != nil {
		return nil, nil, err
	}
	return list.layers(), unknown, nil
}

// Limits: bytes of an uncompressed file, and milliseconds of a time (an hour).
const (
	maxBytes  = 1 << 28
	maxMillis = 3.6e6
)

// read reads a JSON file of trtexec, plain or compressed with gzip, into target. It returns the fields of its entries
// that are not known.
func read(r io.Reader, name, expected string, target any, known []string) ([]string, error) {
	f, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = document.ReadJSON(io.TeeReader(f, &text), name, expected, maxBytes, document.SomeFields, target)
	for _, e := range document.Findings(err) {
		if e.Path == "" && e.Hint == "" { // a layer's name with a quote breaks the file
			e.Hint = "trtexec does not escape names and writes nan where nothing ran"
		}
	}
	if err != nil {
		return nil, err
	}
	return unknownFields(text.Bytes(), known), nil
}

// unknownFields returns the names of fields of a list of objects that are not known, sorted.
func unknownFields(text []byte, known []string) []string {
	var list []map[string]json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return nil // what our own reader takes beyond JSON has no further fields that matter
	}
	unknown := map[string]bool{}
	for _, entry := range list {
		for field := range entry {
			if !slices.Contains(known, field) {
				unknown[field] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(unknown))
}

// hasLayers reports whether a file that begins with head is one of --exportProfile.
func hasLayers(head []byte) bool { return layersHead.Match(head) }

// hasTimes reports whether a file that begins with head is one of --exportTimes.
func hasTimes(head []byte) bool { return timesHead.Match(head) }

var (
	layersHead = regexp.MustCompile(`^\s*\[\s*\{\s*"count"\s*:`)
	timesHead  = regexp.MustCompile(`^\s*\[\s*\{[^}]*"computeMs"\s*:`)
)

// findingAt returns a finding about a field of the entry at index i, or about the list if i is -1.
func findingAt(i int, field, found, expected string) error {
	path := ""
	if i >= 0 {
		path = fmt.Sprintf("[%d]", i)
	}
	if field != "" {
		path += "." + field
	}
	return &document.Error{Path: path, Found: found, Expected: expected}
}

// checkTime returns an error for the field of entry i of the list if its milliseconds are negative or more than an
// hour.
func checkTime(i int, field string, ms float64) error {
	if ms >= 0 && ms <= maxMillis {
		return nil
	}
	return findingAt(i, field, number(ms), "milliseconds from 0 to an hour")
}

func number(x float64) string { return "the number " + strconv.FormatFloat(x, 'g', -1, 64) }

func duration(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }
