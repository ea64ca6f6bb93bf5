package arrivals

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// TraceOption changes how a request trace is read.
type TraceOption func(*traceOptions)

type traceOptions struct {
	model   int32 // the model of files without a column model; -1 if such files need a single model
	lenient bool
	classes []string // the class of each model
}

// OfModel gives all requests of a trace without a column model to this model.
func OfModel(model int32) TraceOption { return func(o *traceOptions) { o.model = model } }

// OfClasses says which SLO class each of the models is: a model then stands in
// the list once per class, and the column class chooses among them. An empty
// cell is the default class (formats.Classes), as is a file without the column.
func OfClasses(classes []string) TraceOption {
	return func(o *traceOptions) { o.classes = classes }
}

// IgnoreOther ignores columns that are no part of a trace instead of refusing
// them, and rounds times that are more precise than ours, for files that others made.
func IgnoreOther() TraceOption { return func(o *traceOptions) { o.lenient = true } }

// The columns of a request trace, with the names that others use for them.
const (
	colTime = iota // t_us or t_s
	colID
	colModel
	colClass
	colPrompt
	colOutput
	colSLO
	colClient
	numColumns
)

var traceColumns = map[string]int{
	"t_us": colTime, "t_s": colTime, "id": colID, "model": colModel, "class": colClass,
	"prompt_tokens": colPrompt, "input_tokens": colPrompt, "output_tokens": colOutput, "slo_us": colSLO, "client": colClient,
}

// traceNames lists the columns in the order in which they are written.
var traceNames = [numColumns]string{"t_us", "id", "model", "class", "prompt_tokens", "output_tokens", "slo_us", "client"}

// Trace streams a request trace: CSV with the header
// t_us[,id,model,class,prompt_tokens,output_tokens,slo_us,client], columns in any
// order, rows in order of time. t_s (seconds) may stand for t_us and
// input_tokens for prompt_tokens.
type Trace struct {
	table       *csvfile.Table
	models      *formats.Classes
	names       []string // the models' names, each once
	opt         traceOptions
	columnIndex [numColumns]int // index of each column, -1 where absent
	seconds     bool
	keys        []formats.ModelClass
	onlyModel   string // model of files without a column model, where classes choose
	lastArrival time.Duration
	texts       map[string]string // names of classes and clients, shared by rows
	err         error
}

// OpenTrace opens a request trace, plain or gzip. The column model holds names of models; a file without it must
// be for a single model. The caller closes the trace (Close), and asks Err after Next returned false.
func OpenTrace(path string, models []string, opts ...TraceOption) (*Trace, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	t, err := newTrace(f, models, opts)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// newTrace reads the header of a trace file, a CSV file with a row per request, and returns the source of its
// requests. models are those that its rows may name, as indexes into the list; an option gives the class of each.
// keys holds model and class of each index, and names each model once.
func newTrace(f *csvfile.File, models []string, opts []TraceOption) (*Trace, error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	t := &Trace{table: tab, texts: map[string]string{}, opt: traceOptions{model: -1}}
	for _, o := range opts {
		o(&t.opt)
	}
	if t.opt.classes == nil {
		t.opt.classes = make([]string, len(models))
	}
	if len(t.opt.classes) != len(models) {
		return nil, fmt.Errorf("reading %s: %d classes for %d models", f.Name, len(t.opt.classes), len(models))
	}
	t.keys = make([]formats.ModelClass, len(models))
	for i, m := range models {
		t.keys[i] = formats.ModelClass{Model: m, Class: t.opt.classes[i]}
		if !slices.Contains(t.names, m) {
			t.names = append(t.names, m)
		}
	}
	t.models = formats.NewClasses(t.keys)
	return t, t.columns()
}

// columns finds the trace's columns by the names in the header. Unknown ones are an error unless the options are
// lenient. A trace without a column of models is for one model: that of the options, or the only one of the list.
func (t *Trace) columns() error {
	for i := range t.columnIndex {
		t.columnIndex[i] = -1
	}

	// Find the columns by their names. columnIndex has, for each known column, its place in the file or -1.
	for i, name := range t.table.Header {
		c, ok := traceColumns[name]
		if !ok && t.opt.lenient {
			continue
		}
		if !ok {
			e := t.table.Fail(i, "", fmt.Sprintf("the column %q", name), "the columns "+strings.Join(traceNames[:], ", "))
			e.Hint = document.DidYouMean(name, traceNames[:])
			return e
		}
		if t.columnIndex[c] >= 0 {
			return t.table.Fail(i, "", fmt.Sprintf("the column %q beside %q", name, t.table.Header[t.columnIndex[c]]), "one of the two")
		}
		t.columnIndex[c] = i
		t.seconds = t.seconds || name == "t_s"
	}
	if t.columnIndex[colTime] < 0 {
		return &document.Error{File: t.table.Name, Line: 1, Column: 1, Found: "no column t_us", Expected: "the columns " + strings.Join(traceNames[:], ", "),
			Hint: "counts per second or minute are converted by `plan import trace --counts`"}
	}

	// Without a column of models, all requests are for the only model. opt.model is the index that an option gives to
	// all requests, or -1.
	if t.columnIndex[colModel] < 0 && t.opt.model < 0 {
		if len(t.names) > 1 {
			return &document.Error{File: t.table.Name, Line: 1, Column: 1, Found: "no column model", Expected: "one, because there are several models: " + strings.Join(t.names, ", ")}
		}
		t.opt.model = 0
		if len(t.names) == 1 {
			m, _ := t.models.Find(t.names[0], "")
			t.opt.model = int32(m)
		}
	}
	if m := t.opt.model; t.columnIndex[colModel] < 0 && t.columnIndex[colClass] >= 0 && int(m) < len(t.keys) {
		t.onlyModel = t.keys[m].Model
	}
	return nil
}

// Close closes the file.
func (t *Trace) Close() error { return t.table.Close() }

// Err returns what stopped the trace early.
func (t *Trace) Err() error { return t.err }

// Columns returns the names of the columns that the file has, besides the time.
func (t *Trace) Columns() []string {
	var out []string
	for c, index := range t.columnIndex {
		if c != colTime && index >= 0 {
			out = append(out, traceNames[c])
		}
	}
	return out
}

// Next sets r to the request of the next row, and returns false at the end or after an error.
func (t *Trace) Next(r *Request) bool {
	if t.err != nil {
		return false
	}
	if err := t.table.Next(); err != nil {
		if err != io.EOF {
			t.err = err
		}
		return false
	}
	if e := t.request(r); e != nil {
		t.err = e
		return false
	}
	return true
}

// request sets r to the request of the current row. Columns that the file does not have leave their fields 0.
func (t *Trace) request(r *Request) *document.Error {
	*r = Request{Model: t.opt.model}
	arrivedAt, e := t.time(t.columnIndex[colTime])
	if e != nil {
		return e
	}
	if arrivedAt < t.lastArrival {
		return t.table.CellError(t.columnIndex[colTime], "a time that is not before that of the row above: traces are in order")
	}
	r.ArrivedAt, t.lastArrival = arrivedAt, arrivedAt

	// Read the other columns that the file has.
	if i := t.columnIndex[colID]; i >= 0 {
		r.ID = strings.Clone(t.table.Row[i]) // the row is one string that would stay alive with it
	}
	if i := t.columnIndex[colClass]; i >= 0 {
		r.Class = t.sharedPrefix(t.table.Row[i])
	}
	if i := t.columnIndex[colClient]; i >= 0 {
		r.Client = t.sharedPrefix(t.table.Row[i])
	}
	if e := t.model(r); e != nil {
		return e
	}
	if r.PromptTokens, e = t.tokens(t.columnIndex[colPrompt]); e != nil {
		return e
	}
	if r.OutputTokens, e = t.tokens(t.columnIndex[colOutput]); e != nil {
		return e
	}
	if i := t.columnIndex[colSLO]; i >= 0 && t.table.Row[i] != "" {
		m, err := document.ParseMicros(t.table.Row[i])
		if err != nil || m < 0 {
			return t.table.CellError(i, "a number of microseconds, or nothing for the model's own SLO")
		}
		r.SLO = m.D()
	}
	return nil
}

// model sets the model of a request from the row's columns of model and class. Models without named classes take
// requests of any class. A model or class that is not known is an error.
func (t *Trace) model(r *Request) *document.Error {
	name := t.onlyModel
	i := t.columnIndex[colModel]
	if i >= 0 {
		name = t.table.Row[i]
	}
	if name == "" && i < 0 {
		return nil // one for all
	}
	class := r.Class
	if !t.models.HasNamedClasses(name) {
		class = ""
	}
	m, ok := t.models.Find(name, class)
	if ok {
		r.Model = int32(m)
		return nil
	}
	expected, found := t.names, name
	if knownModels := t.models.ClassesOf(name); knownModels != nil {
		i, expected, found = t.columnIndex[colClass], knownModels, class
	}
	e := t.table.CellError(i, "one of "+formats.ClassNames(expected))
	e.Hint = document.DidYouMean(found, expected)
	return e
}

// time returns the time in the current row's column i, which holds seconds if the column's name is t_s, and else
// microseconds.
func (t *Trace) time(i int) (time.Duration, *document.Error) {
	var d time.Duration
	var err error
	parseSeconds, parseMicros := document.ParseSeconds, document.ParseMicros
	if t.opt.lenient {
		parseSeconds, parseMicros = document.RoundSeconds, document.RoundMicros
	}
	expected := "a number of microseconds with at most three decimals"
	if t.seconds {
		expected = "a number of seconds with at most nine decimals"
		d, err = parseSeconds(t.table.Row[i])
	} else {
		var m document.Micros
		m, err = parseMicros(t.table.Row[i])
		d = m.D()
	}
	if err != nil || d < 0 {
		return 0, t.table.CellError(i, expected)
	}
	return d, nil
}

// maxShared bounds the names of classes and clients that are remembered to share their
// text.
const maxShared = 1000

// sharedPrefix returns a copy of s that equal texts of other rows share, to save memory. s itself is a part of the
// row's buffer and would change with the next row. Beyond maxShared different texts, every row has a copy of its
// own.
func (t *Trace) sharedPrefix(s string) string {
	if c, ok := t.texts[s]; ok {
		return c
	}
	c := strings.Clone(s)
	if len(t.texts) < maxShared {
		t.texts[c] = c
	}
	return c
}

// tokens returns the count of tokens in the current row's column i. It is 0 if the cell is empty, or i is negative
// because the file has no such column.
func (t *Trace) tokens(i int) (int32, *document.Error) {
	if i < 0 || t.table.Row[i] == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(t.table.Row[i], 10, 32)
	if err != nil || n < 0 {
		return 0, t.table.CellError(i, "a whole number of tokens")
	}
	return int32(n), nil
}
