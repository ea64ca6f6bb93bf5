package requestlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// record is a row, object or line of a file.
type record struct {
	file   string
	line   int
	texts  map[string]string // by column or group, unless it is an object
	object map[string]any    // the JSON object
}

// text returns the value of the first of the names that the record has, with | between them. ok is false if it has none.
func (r *record) text(names string) (value string, ok bool) {
	for name := range strings.SplitSeq(names, "|") {
		if name == "" {
			continue
		}
		if r.object == nil {
			if value := r.texts[name]; value != "" {
				return value, true
			}
			continue
		}
		switch v := r.find(name).(type) {
		case string:
			return v, v != ""
		case json.Number:
			return v.String(), true
		case bool:
			return strconv.FormatBool(v), true
		}
	}
	return "", false
}

// has reports whether a JSON object has a field of one of the names, even an empty one.
func (r *record) has(names string) bool {
	for name := range strings.SplitSeq(names, "|") {
		if r.find(name) != nil {
			return true
		}
	}
	return false
}

// find returns the value of a field, whose name has the fields around it with dots between, or nil.
func (r *record) find(name string) any {
	if v, ok := r.object[name]; ok {
		return v
	}
	var at any = r.object
	for part := range strings.SplitSeq(name, ".") {
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[part]
	}
	return at
}

// fail returns an error about a field of the record.
func (r *record) fail(name, found, expected string) error {
	name, _, _ = strings.Cut(name, "|")
	return &document.Error{File: r.file, Line: r.line, Column: 1, Path: name, Found: found, Expected: expected}
}

// tokens returns a number of tokens. It is 0 if the record has none; ok is then false.
func (r *record) tokens(names string) (n int, ok bool, err error) {
	text, ok := r.text(names)
	if !ok {
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= maxTokens) || v != float64(int(v)) {
		return 0, false, r.fail(names, csvfile.Quote(text), fmt.Sprintf("a whole number of tokens up to %d", maxTokens))
	}
	return int(v), true, nil
}

// maxTokens bounds the tokens of a prompt or answer.
const maxTokens = 1 << 24

// maxLine bounds a line: traces list the hashes of all blocks of a prompt.
const maxLine = 16 << 20

// parseObject reads a JSON object. Numbers stay texts.
func parseObject(line []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("null")
	}
	return object, nil
}

// eachRecord calls add for every record of a file in this layout. unreadable counts the lines of a log that the layout's
// pattern does not match.
func eachRecord(f *csvfile.File, l *layout, add func(*record) error) (unreadable int, err error) {
	if l.form == csvForm {
		t, err := csvfile.NewTable(f)
		if err != nil {
			return 0, err
		}
		line := 1
		return 0, t.EachRow(func() error {
			line++
			r := record{file: f.Name, line: line, texts: map[string]string{}}
			for i, name := range t.Header {
				r.texts[name] = strings.Clone(strings.TrimSpace(t.Row[i]))
			}
			return add(&r)
		})
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		r := record{file: f.Name, line: n}
		if l.form == logForm {
			groups := l.pattern.FindSubmatch(line)
			if groups == nil {
				unreadable++
				continue
			}
			r.texts = map[string]string{}
			for i, name := range l.pattern.SubexpNames() {
				if name != "" && string(groups[i]) != "-" {
					r.texts[name] = string(groups[i])
				}
			}
		} else if r.object, err = parseObject(line); err != nil {
			return 0, r.fail("", document.FaultOfJSON(err), "a JSON object a line")
		}
		if err := add(&r); err != nil {
			return 0, err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return 0, &document.Error{File: f.Name, Found: "a line of more than " + document.Bytes(maxLine).String(), Expected: l.name}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("reading %s: %w", f.Name, err)
	}
	return unreadable, nil
}
