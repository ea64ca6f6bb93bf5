package document

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Checker collects the findings of a document's Validate, with paths in the document.
type Checker struct {
	findings
	path []byte // path of the current number
}

// Fail adds a finding.
func (c *Checker) Fail(path, found, expected, hint string) {
	c.add(&Error{Path: path, Found: found, Expected: expected, Hint: hint})
}

// FailIf adds a finding if isWrong is set, and returns isWrong. found is a number, a time, or a text that is used
// as it is. expected is formatted with args if there are any.
func (c *Checker) FailIf(isWrong bool, path string, found any, expected string, args ...any) bool {
	if !isWrong || c.isFull() {
		return isWrong
	}
	text, isText := found.(string)
	switch x := found.(type) {
	case float64:
		text = Number(x)
	default:
		if !isText {
			text = fmt.Sprint("the number ", x)
		}
	}
	if len(args) > 0 {
		expected = fmt.Sprintf(expected, args...)
	}
	c.Fail(path, text, expected, "")
	return true
}

// Add adds a finding.
func (c *Checker) Add(e *Error) { c.add(e) }

// Count returns the number of findings.
func (c *Checker) Count() int { return len(c.list) }

// Err returns the findings as an error, or nil if there are none.
func (c *Checker) Err() error { return c.err() }

// maxTime bounds times, in nanoseconds, so that sums of a few of them cannot overflow.
const maxTime = 1 << 58

// numbers checks the rules for numbers in every document: none is NaN or infinite, and no time or size is
// negative. It walks through v, which may be of any type. c.path is updated during the walk and turned into text
// only for a finding, because profiles hold a million numbers.
func (c *Checker) numbers(v reflect.Value) {
	mark := len(c.path)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			c.Fail(string(c.path), fmt.Sprint(f), "a finite number", "")
		}
	case reflect.Int64:
		switch v.Type() {
		case microsType, durationType:
			if v.Int() > maxTime {
				c.Fail(string(c.path), "the time "+fmt.Sprint(v.Interface()), "at most nine years", "")
				return
			}
		case bytesType:
		default:
			return
		}
		if v.Int() < 0 {
			c.Fail(string(c.path), "the negative value "+fmt.Sprint(v.Interface()), "0 or more", "")
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			c.numbers(v.Elem())
		}
	case reflect.Struct:
		info := infoOf(v.Type())
		for i := range info.fields {
			name := info.fields[i].name
			if value := v.FieldByIndex(info.fields[i].index); i == info.section && !value.IsNil() {
				name = info.sectionName(value.Elem().Type())
			}
			c.path = append(append(c.path, '.'), name...)
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

// Header checks the format field and the numbers of a document.
func (c *Checker) Header(doc any, format, wantedFormat string) {
	c.FailIf(format != wantedFormat, "format", "the text "+Quote(format), wantedFormat)
	c.numbers(reflect.ValueOf(doc).Elem())
}

// Failf adds a finding whose path is formatted. Call it only when something is wrong, because formatting takes
// time.
func (c *Checker) Failf(found, expected, hint, path string, args ...any) {
	c.Fail(fmt.Sprintf(path, args...), found, expected, hint)
}

// NotEmpty checks that a list is not empty.
func (c *Checker) NotEmpty(n int, path, expected string) {
	c.FailIf(n == 0, path, "an empty list", expected)
}

// AtLeast records an error if a number is below a minimum. The field's path has two parts, which are joined only
// for an error.
func AtLeast[T int | int64 | float64](c *Checker, x, minValue T, path, name string) {
	if x < minValue {
		found := fmt.Sprint("the number ", x)
		if f, isReal := any(x).(float64); isReal {
			found = Number(f)
		}
		c.Fail(path+name, found, fmt.Sprint(minValue)+" or more", "")
	}
}

// OneOf checks a word against a list.
func (c *Checker) OneOf(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		c.Fail(path, "the text "+Quote(word), strings.Join(words, ", "), DidYouMean(word, words))
	}
}

// OptionalWord checks a word against a list, unless the word is empty.
func (c *Checker) OptionalWord(path, word string, words ...string) {
	if word != "" {
		c.OneOf(path, word, words...)
	}
}

// Number returns the text of a number for Error.Found.
func Number(x float64) string { return "the number " + FormatFloat(x) }

// FormatWhole returns the text of a whole number for Error.Found.
func FormatWhole[T int | int32 | int64](n T) string {
	return "the number " + strconv.FormatInt(int64(n), 10)
}

// CloseTo reports whether two figures agree to about six digits, the required precision of sums and ratios in a
// document.
func CloseTo(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-3)
}

// SHA records an error unless the text is a SHA-256 in hexadecimal.
func (c *Checker) SHA(path, s string) {
	const digits = "0123456789abcdef"
	if len(s) == 64 && strings.Trim(s, digits) == "" {
		return
	}
	c.Fail(path, "the text "+Quote(s), "a SHA-256 as 64 lower-case hexadecimal digits", "")
}

// Name records an error if the name of entry i is empty or stood in the list before. indexByName has the earlier
// names, to which it is added. path is a format for args.
func (c *Checker) Name(indexByName map[string]int, i int, name, path string, args ...any) {
	firstIndex, dup := indexByName[name]
	switch {
	case name == "":
		c.Failf("an empty name", "a name", "", path, args...)
	case !Printable(name):
		c.Failf("the name "+Quote(name), PrintableName, "", path, args...)
	case dup:
		c.Failf(Quote(name)+" a second time", "each name once", fmt.Sprintf("it stands at index %d already", firstIndex), path, args...)
	default:
		indexByName[name] = i
	}
}

// PrintableName describes the names for which Printable returns true.
const PrintableName = "a name without line breaks, tabs and other control characters"

// Printable reports whether a name fits into a line of a table or log.
func Printable(name string) bool { return !strings.ContainsFunc(name, unicode.IsControl) }

// Share checks that x is a share from 0 to 1.
func (c *Checker) Share(path string, x float64) {
	c.FailIf(!(x >= 0 && x <= 1), path, x, "a share from 0 to 1")
}

// Interval checks the ends of an interval of shares.
func (c *Checker) Interval(path string, ci [2]float64) {
	if !(ci[0] >= 0 && ci[0] <= ci[1] && ci[1] <= 1) {
		c.Fail(path, "the interval "+FormatFloat(ci[0])+" to "+FormatFloat(ci[1]), "two shares from 0 to 1 in order", "")
	}
}
