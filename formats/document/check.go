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
	path  []byte // path of the current value
	rules Rules  // the rules that fields name
}

// Fail adds a finding.
func (c *Checker) Fail(path, found, expected, hint string) {
	c.add(&Error{Path: path, Found: found, Expected: expected, Hint: hint})
}

// FailIf adds a finding if isWrong is set, and returns isWrong. found is a number, a time, or a text that is used
// as it is. expected is formatted with args if there are any.
func (c *Checker) FailIf(isWrong bool, path string, found any, expected string, args ...any) bool {
	if isWrong && len(args) > 0 {
		expected = fmt.Sprintf(expected, args...)
	}
	return c.HintIf(isWrong, path, found, expected, "")
}

// HintIf adds a finding with a hint if isWrong is set, and returns isWrong. found is a number, a time, or a text that
// is used as it is. If enough findings are recorded already, none is added.
func (c *Checker) HintIf(isWrong bool, path string, found any, expected, hint string) bool {
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
	c.Fail(path, text, expected, hint)
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

// values checks every value of a document by itself: no number is NaN or infinite, no time or size is negative, and
// the rules that fields name hold. It walks through v, which may be of any type; rule is that of the field which v is
// or stands in, or nil. c.path is updated during the walk and turned into text only for a finding, because profiles
// hold a million numbers.
func (c *Checker) values(v reflect.Value, rule *Rule) {
	mark := len(c.path)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			c.Fail(string(c.path), fmt.Sprint(f), "a finite number", "")
			return
		}
		c.checkRule(v, rule)
	case reflect.String, reflect.Int:
		c.checkRule(v, rule)
	case reflect.Int64:
		switch v.Type() {
		case microsType, durationType:
			if v.Int() > maxTime {
				c.Fail(string(c.path), "the time "+fmt.Sprint(v.Interface()), "at most nine years", "")
				return
			}
		case bytesType:
		default:
			c.checkRule(v, rule)
			return
		}
		if v.Int() < 0 {
			c.Fail(string(c.path), "the negative value "+fmt.Sprint(v.Interface()), "0 or more", "")
		}
		c.checkRule(v, rule)
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			c.values(v.Elem(), rule)
		}
	case reflect.Struct:
		info := infoOf(v.Type())
		for i := range info.fields {
			f := &info.fields[i]
			value, name := v.FieldByIndex(f.index), f.name
			if f.optional && value.IsZero() {
				continue
			}
			if i == info.section {
				name = info.sectionName(value.Elem().Type())
			}
			if mark > 0 {
				c.path = append(c.path, '.')
			}
			c.path = append(c.path, name...)
			c.values(value, c.ruleOf(f))
			c.path = c.path[:mark]
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.String && rule == nil {
			return
		}
		for i := range v.Len() {
			c.path = append(strconv.AppendInt(append(c.path, '['), int64(i), 10), ']')
			c.values(v.Index(i), rule)
			c.path = c.path[:mark]
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return compareNames(a.String(), b.String()) })
		for _, name := range names {
			c.path = append(append(c.path, '.'), name.String()...)
			c.values(v.MapIndex(name), rule)
			c.path = c.path[:mark]
		}
	}
}

// Values checks the format field of a document, and each value by the rule that its field names.
func (c *Checker) Values(doc any, format, wantedFormat string, rules Rules) {
	c.FailIf(format != wantedFormat, "format", "the text "+Quote(format), wantedFormat)
	c.rules = rules
	c.values(reflect.ValueOf(doc).Elem(), nil)
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

// IsSHA256 reports whether a text is a SHA-256 in hexadecimal.
func IsSHA256(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

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

// CheckUnique records an error if the key of entry i stood in the list before. indexByKey has the earlier keys, to which it is
// added.
func CheckUnique[K comparable](c *Checker, indexByKey map[K]int, i int, key K, path, found, expected string) {
	if firstIndex, isDuplicate := indexByKey[key]; isDuplicate {
		c.Fail(path, found+" a second time", expected, fmt.Sprintf("it stands at index %d already", firstIndex))
		return
	}
	indexByKey[key] = i
}

// PrintableName describes the names for which Printable returns true.
const PrintableName = "a name without line breaks, tabs and other control characters"

// Printable reports whether a name fits into a line of a table or log.
func Printable(name string) bool { return !strings.ContainsFunc(name, unicode.IsControl) }

// Interval checks the ends of an interval of shares.
func (c *Checker) Interval(path string, ci [2]float64) {
	if !(ci[0] >= 0 && ci[0] <= ci[1] && ci[1] <= 1) {
		c.Fail(path, "the interval "+FormatFloat(ci[0])+" to "+FormatFloat(ci[1]), "two shares from 0 to 1 in order", "")
	}
}
