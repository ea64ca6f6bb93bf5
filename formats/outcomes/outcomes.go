package outcomes

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Outcome says how one request ended.
type Outcome struct {
	formats.ModelClass
	Due     time.Duration // when it arrived or had to be sent, since the start of the run
	Latency time.Duration // since Due; 0 if it was dropped
	Late    bool
	Reason  string // the reason why it was dropped; empty if it was answered
}

// Formats are the names of the formats, the default first.
var Formats = []string{"csv", "vegeta"}

// Write writes outcomes in one of Formats, in the order in which the requests were due. url is where they were sent.
func Write(w io.Writer, format, url string, list []Outcome) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.String(), b.String()))
	})
	if format == "vegeta" {
		return writeVegeta(w, url, list)
	}
	return writeCSV(w, list)
}

var header = []string{"t_s", "model", "class", "outcome", "latency_us", "reason"}

// Words of the column outcome.
const (
	inTime  = "in_time"
	late    = "late"
	dropped = "dropped"
)

func writeCSV(w io.Writer, list []Outcome) error {
	out := csv.NewWriter(w)
	row := func(cells ...string) { _ = out.Write(cells) } // Flush reports the error
	row(header...)
	for _, o := range list {
		outcome := inTime
		switch {
		case o.Reason != "":
			outcome = dropped
		case o.Late:
			outcome = late
		}
		row(strconv.FormatFloat(o.Due.Seconds(), 'f', 6, 64), o.Model, o.Class, outcome, strconv.FormatInt(o.Latency.Microseconds(), 10), o.Reason)
	}
	out.Flush()
	return out.Error()
}

// vegetaResult is a line that vegeta 12 reads (lib/results.go, type Result, in its JSON form). Its times are in
// nanoseconds, and its timestamp is a date.
type vegetaResult struct {
	Attack    string    `json:"attack"`
	Sequence  uint64    `json:"seq"`
	Code      uint16    `json:"code"`
	Timestamp time.Time `json:"timestamp"`
	Latency   int64     `json:"latency"`
	BytesOut  uint64    `json:"bytes_out"`
	BytesIn   uint64    `json:"bytes_in"`
	Error     string    `json:"error"`
	Body      []byte    `json:"body"`
	Method    string    `json:"method"`
	URL       string    `json:"url"`
	Headers   any       `json:"headers"`
}

// writeVegeta writes a line for each request. An attack is the requests of a model or class. A late answer has the status 200 and
// the error "late", a dropped request the status 503 and the reason as its error. Dates count from the start of 1970, so
// that the same outcomes give the same bytes.
func writeVegeta(w io.Writer, url string, list []Outcome) error {
	sequences := map[formats.ModelClass]uint64{}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for _, o := range list {
		r := vegetaResult{Attack: o.ModelClass.String(), Sequence: sequences[o.ModelClass], Code: http.StatusOK, Timestamp: time.Unix(0, int64(o.Due)).UTC(), Latency: int64(o.Latency),
			Method: http.MethodPost, URL: url}
		switch {
		case o.Reason != "":
			r.Code, r.Error = http.StatusServiceUnavailable, o.Reason
		case o.Late:
			r.Error = late
		}
		if err := out.Encode(&r); err != nil {
			return fmt.Errorf("writing outcomes: %w", err)
		}
		sequences[o.ModelClass]++
	}
	return nil
}

// maxTime bounds times in a file of outcomes.
const maxTime = 1 << 24 * time.Second

// maxRows bounds the number of requests in a file of outcomes, so that they fit into memory.
const maxRows = 1 << 24

// ReadFile reads a CSV file of outcomes, plain or packed with gzip.
func ReadFile(path string) ([]Outcome, error) { return readFile(path, maxRows) }

// readFile is ReadFile with the largest number of rows.
func readFile(path string, maxRows int) (list []Outcome, err error) {
	t, err := csvfile.OpenTable(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := t.Expect(header...); err != nil {
		return nil, err
	}
	texts := map[string]string{} // those of all rows, once each, so that no row stays in memory
	text := func(column string) string {
		s := t.Text(column)
		if _, known := texts[s]; !known {
			s = strings.Clone(s)
			texts[s] = s
		}
		return texts[s]
	}
	err = t.EachRow(func() error {
		if len(list) == maxRows {
			return t.Fail(0, "", fmt.Sprintf("more than %d requests", maxRows), "a shorter run")
		}
		o := Outcome{ModelClass: formats.ModelClass{Model: text("model"), Class: text("class")}, Due: t.Time("t_s", maxTime), Latency: t.Time("latency_us", maxTime), Reason: text("reason")}
		switch word := t.Text("outcome"); {
		case word == late:
			o.Late = true
		case word != inTime && word != dropped:
			return t.CellError(3, "in_time, late or dropped")
		case (word == dropped) != (o.Reason != ""):
			return t.CellError(3, "dropped if there is a reason, and only then")
		}
		list = append(list, o)
		return nil
	})
	if err == nil && len(list) == 0 {
		err = &document.Error{File: path, Found: "no request", Expected: "a row for every request"}
	}
	return list, err
}
