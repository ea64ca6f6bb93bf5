package trtexec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
)

// maxBytes bounds a file, unpacked.
const maxBytes = 1 << 28

// entry is one object of a file: flat, of numbers and texts.
type entry struct {
	file    *file
	at      int64 // offset of its end
	path    string
	numbers map[string]float64
	texts   map[string]string
	names   []string // in order
}

// file is a whole file, for positions.
type file struct {
	name string
	data []byte
}

// readEntries reads a list of flat objects whose fields are all known.
func readEntries(r io.Reader, name, what string, known []string) ([]entry, error) {
	in, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	f := &file{name, data}
	if len(data) > maxBytes {
		return nil, f.fail(0, "", "more than "+formats.Bytes(maxBytes).String(), what, "")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, f.broken(d, err, "no list", what)
	}
	var out []entry
	for d.More() {
		e, err := f.entry(d, len(out), what, known)
		if err != nil {
			return nil, err
		}
		out = append(out, *e)
	}
	if t, err := d.Token(); err != nil || t != json.Delim(']') {
		return nil, f.broken(d, err, "a list that does not end", what)
	}
	if t, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, f.broken(d, err, fmt.Sprintf("%v after the list", t), "nothing")
	}
	return out, nil
}

func (f *file) entry(d *json.Decoder, i int, what string, known []string) (*entry, error) {
	e := &entry{file: f, path: fmt.Sprintf("[%d]", i), numbers: map[string]float64{}, texts: map[string]string{}}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, f.broken(d, err, fmt.Sprintf("no object at %s", e.path), what)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, f.broken(d, err, "", what)
		}
		key, at := t.(string), d.InputOffset()
		switch {
		case !slices.Contains(known, key):
			hint := cmp.Or(formats.DidYouMean(key, known), "this reads what TensorRT 8 to 10 export")
			return nil, f.fail(at, e.path, "the field "+strconv.Quote(key), strings.Join(known, ", "), hint)
		case slices.Contains(e.names, key):
			return nil, f.fail(at, e.path, "the field "+strconv.Quote(key)+" a second time", "each once", "")
		}
		e.names = append(e.names, key)
		v, err := d.Token()
		if err != nil {
			return nil, f.broken(d, err, "", what)
		}
		switch v := v.(type) {
		case string:
			e.texts[key] = v
		case json.Number:
			x, err := v.Float64()
			if err != nil || math.IsInf(x, 0) {
				return nil, f.fail(at, e.path+"."+key, "the number "+v.String(), "one that a computer can hold", "")
			}
			e.numbers[key] = x
		default:
			return nil, f.fail(at, e.path+"."+key, fmt.Sprint(v), "a number or a text", "")
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, f.broken(d, err, "", what)
	}
	e.at = d.InputOffset()
	return e, nil
}

// broken is a finding about the JSON itself, or about what stands there instead.
func (f *file) broken(d *json.Decoder, err error, found, expected string) error {
	at := d.InputOffset()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		// Layer names are written as they are: one with a quote or a backslash breaks the file.
		return f.fail(syntax.Offset, "", "text that is no JSON: "+err.Error(), expected, "trtexec does not escape names and writes nan where nothing ran")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return f.fail(int64(len(f.data)), "", "the end of the file", expected, "")
	case err != nil:
		return f.fail(at, "", err.Error(), expected, "")
	}
	return f.fail(at, "", found, expected, "")
}

// fail is a finding at an offset.
func (f *file) fail(at int64, path, found, expected, hint string) error {
	before := f.data[:min(max(at, 0), int64(len(f.data)))]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return &formats.Error{File: f.name, Line: line, Column: column, Path: path, Found: found, Expected: expected, Hint: hint}
}

// fail is a finding about the entry.
func (e *entry) fail(field, found, expected, hint string) error {
	path := e.path
	if field != "" {
		path += "." + field
	}
	return e.file.fail(e.at, path, found, expected, hint)
}

// maxMillis bounds a time: an hour.
const maxMillis = 3.6e6

// time reads a time in milliseconds, which must be there.
func (e *entry) time(field string) (time.Duration, error) {
	v, ok := e.numbers[field]
	if !ok {
		return 0, e.fail("", "no number "+field, "one", "")
	}
	if !(v >= 0 && v <= maxMillis) {
		return 0, e.fail(field, "the number "+strconv.FormatFloat(v, 'g', -1, 64), "milliseconds from 0 to an hour", "")
	}
	return time.Duration(math.Round(v * 1e6)), nil
}
