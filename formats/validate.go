package formats

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// checker gathers what Validate finds. Paths are those of the document.
type checker struct {
	findings
	path []byte // of numbers
}

func (c *checker) fail(path, found, expected, hint string) {
	c.add(&Error{Path: path, Found: found, Expected: expected, Hint: hint})
}

// numbers checks what holds in every document: no number is NaN or infinite,
// no time or size is negative. c.path is kept beside the walk and turned into
// text only for a finding: profiles hold a million numbers.
func (c *checker) numbers(v reflect.Value) {
	mark := len(c.path)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			c.fail(string(c.path), fmt.Sprint(f), "a finite number", "")
		}
	case reflect.Int64:
		if v.Int() >= 0 {
			return
		}
		switch v.Type() {
		case microsType, durationType, bytesType:
			c.fail(string(c.path), "the negative value "+fmt.Sprint(v.Interface()), "0 or more", "")
		}
	case reflect.Pointer:
		if !v.IsNil() {
			c.numbers(v.Elem())
		}
	case reflect.Struct:
		info := infoOf(v.Type())
		for i := range info.fields {
			c.path = append(append(c.path, '.'), info.fields[i].name...)
			if mark == 0 {
				c.path = append(c.path[:0], c.path[1:]...)
			}
			c.numbers(v.FieldByIndex(info.fields[i].index))
			c.path = c.path[:mark]
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k == reflect.String || k == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			c.path = append(strconv.AppendInt(append(c.path, '['), int64(i), 10), ']')
			c.numbers(v.Index(i))
			c.path = c.path[:mark]
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return compareNames(a.String(), b.String()) })
		for _, name := range names {
			c.path = append(append(c.path, '.'), name.String()...)
			c.numbers(v.MapIndex(name))
			c.path = c.path[:mark]
		}
	}
}

// header checks the format field and the numbers of a document.
func (c *checker) header(doc any, format, want string) {
	if format != want {
		c.fail("format", "the text "+quote(format), want, "")
	}
	c.numbers(reflect.ValueOf(doc).Elem())
}
