package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Fields says which fields an object of another program's JSON may have.
type Fields bool

// Either all fields must be known, or unknown ones are skipped.
const (
	AllFields  Fields = false
	SomeFields Fields = true
)

// ReadJSON decodes the JSON of another program, of at most maxBytes, into the value that target points at. The
// types there have json tags like those of documents: a field without omitempty is required. fields says whether
// further fields are errors. If target has a method Validate, its findings get their line and column. Errors use
// name for the source, and expected for what it should be.
func ReadJSON(r io.Reader, name, expected string, maxBytes int64, fields Fields, target any) error {
	var text strings.Builder
	if _, err := io.Copy(&text, io.LimitReader(r, maxBytes+1)); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(text.Len()) > maxBytes {
		return &Error{File: name, Found: "more than " + Bytes(maxBytes).String(), Expected: expected}
	}
	src := &source{file: name, text: strings.TrimPrefix(text.String(), "\ufeff")}
	root, e := scanJSON(src)
	if e != nil {
		e.Expected += ", in " + expected
		return e
	}
	b := &binder{src: src, partial: fields == SomeFields}
	b.bind(&root, reflect.ValueOf(target).Elem())
	if err := b.findings.err(); err != nil {
		return err
	}
	if v, ok := target.(Document); ok {
		if err := v.Validate(); err != nil {
			return placeFindings(err, src, &root, func(path string) string { return path })
		}
	}
	return nil
}

// FaultOfJSON says what package json found wrong with a text of another tool: "a string in the field rate".
func FaultOfJSON(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return fmt.Sprintf("a %s in the field %s", e.Value, e.Field)
	} else if ok {
		return "a " + e.Value
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return "the field " + field
	}
	return "a text that is no JSON, or was cut off"
}
