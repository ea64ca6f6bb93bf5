package formats

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Checker gathers what the Validate of a document finds. Paths are those of the document.
type Checker struct {
	findings
	path []byte // of numbers
}

func (c *Checker) fail(path, found, expected, hint string) {
	c.add(&Error{Path: path, Found: found, Expected: expected, Hint: hint})
}

// FailIf adds a finding if a value is wrong: a row of a check. What was found is a number, a time or, as it is, a text.
// The text of what was expected is formatted with args if there are any. It returns wrong.
func (c *Checker) FailIf(wrong bool, path string, found any, expected string, args ...any) bool {
	if !wrong || c.full() {
		return wrong
	}
	text, is := found.(string)
	switch x := found.(type) {
	case float64:
		text = number(x)
	default:
		if !is {
			text = fmt.Sprint("the number ", x)
		}
	}
	if len(args) > 0 {
		expected = fmt.Sprintf(expected, args...)
	}
	c.fail(path, text, expected, "")
	return true
}

// Err returns what was found, nil if nothing was.
func (c *Checker) Err() error { return c.err() }

// maxTime bounds times, so that sums of a few cannot overflow.
const maxTime = 1 << 58

// numbers checks what holds in every document: no number is NaN or infinite,
// no time or size is negative. c.path is kept beside the walk and turned into
// text only for a finding: profiles hold a million numbers.
func (c *Checker) numbers(v reflect.Value) {
	mark := len(c.path)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			c.fail(string(c.path), fmt.Sprint(f), "a finite number", "")
		}
	case reflect.Int64:
		switch v.Type() {
		case microsType, durationType:
			if v.Int() > maxTime {
				c.fail(string(c.path), "the time "+fmt.Sprint(v.Interface()), "at most nine years", "")
				return
			}
		case bytesType:
		default:
			return
		}
		if v.Int() < 0 {
			c.fail(string(c.path), "the negative value "+fmt.Sprint(v.Interface()), "0 or more", "")
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			c.numbers(v.Elem())
		}
	case reflect.Struct:
		info := infoOf(v.Type())
		for i := range info.fields {
			name := info.fields[i].name
			if at := v.FieldByIndex(info.fields[i].index); i == info.section && !at.IsNil() {
				name = sectionName(info.fields[i].table, at.Elem().Type())
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

// header checks the format field and the numbers of a document.
func (c *Checker) header(doc any, format, want string) {
	c.FailIf(format != want, "format", "the text "+quote(format), want)
	c.numbers(reflect.ValueOf(doc).Elem())
}

// failf is fail with a path made of parts; call it only when something is wrong.
func (c *Checker) failf(found, expected, hint, path string, args ...any) {
	c.fail(fmt.Sprintf(path, args...), found, expected, hint)
}

// some checks that a list is not empty.
func (c *Checker) some(n int, path, expected string) {
	c.FailIf(n == 0, path, "an empty list", expected)
}

// least checks a number against the least that it may be. The path is in two parts,
// which are put together only for a finding.
func least[T int | int64 | float64](c *Checker, x, least T, at, name string) {
	if x < least {
		found := fmt.Sprint("the number ", x)
		if f, real := any(x).(float64); real {
			found = number(f)
		}
		c.fail(at+name, found, fmt.Sprint(least)+" or more", "")
	}
}

// oneOf checks a word against a list.
func (c *Checker) oneOf(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		c.fail(path, "the text "+quote(word), strings.Join(words, ", "), DidYouMean(word, words))
	}
}

// number writes a number for Error.Found.
func number(x float64) string { return "the number " + formatFloat(x) }

func integer64[T int | int32 | int64](n T) string {
	return "the number " + strconv.FormatInt(int64(n), 10)
}

// close tells whether two figures agree to about six digits, the precision to
// which sums and ratios in a document must hold.
func closeTo(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-3)
}

// sha checks a SHA-256 in hexadecimal.
func (c *Checker) sha(path, s string) {
	const digits = "0123456789abcdef"
	if len(s) == 64 && strings.Trim(s, digits) == "" {
		return
	}
	c.fail(path, "the text "+quote(s), "a SHA-256 as 64 lower-case hexadecimal digits", "")
}

// name checks that a name is there and stands there once.
func (c *Checker) name(seen map[string]int, i int, name, path string, args ...any) {
	first, dup := seen[name]
	switch {
	case name == "":
		c.failf("an empty name", "a name", "", path, args...)
	case !printable(name):
		c.failf("the name "+quote(name), printableName, "", path, args...)
	case dup:
		c.failf(quote(name)+" a second time", "each name once", fmt.Sprintf("it stands at index %d already", first), path, args...)
	default:
		seen[name] = i
	}
}

const printableName = "a name without line breaks, tabs and other control characters"

// printable tells whether a name can stand in a line of a table or log.
func printable(name string) bool { return !strings.ContainsFunc(name, unicode.IsControl) }

// ParsePercentile reads "p99" or "p99.9" as 0.99 or 0.999.
func ParsePercentile(text string) (float64, error) {
	number, ok := strings.CutPrefix(text, "p")
	if _, err := rational(number); ok && err == nil {
		if v, err := strconv.ParseFloat(number, 64); err == nil && v > 0 && v < 100 {
			return v / 100, nil
		}
	}
	return 0, fmt.Errorf("%s is not a percentile between p0 and p100, such as p99", quote(text))
}

// ShareAt returns the share of requests that a percentile wants in time: .99 where there is none.
func ShareAt(percentile string) float64 {
	share, err := ParsePercentile(percentile)
	if err != nil {
		return 0.99
	}
	return share
}

// PercentileName writes what ParsePercentile reads.
func PercentileName(share float64) string {
	return "p" + strconv.FormatFloat(100*share, 'g', 8, 64)
}

func (c *Checker) percentile(text, path string) {
	if _, err := ParsePercentile(text); err != nil {
		c.fail(path, "the text "+quote(text), "a percentile between p0 and p100", "write it like p99")
	}
}

// maxElements bounds a tensor of one sample: workers map memory for a batch of them.
const maxElements = 1 << 30

// tensors checks declared tensors.
func (c *Checker) tensors(list []TensorInfo, path string) {
	seen := map[string]int{}
	for i := range list {
		t := &list[i]
		c.name(seen, i, t.Name, "%s[%d].name", path, i)
		if !slices.Contains(dtypes, t.DType) {
			c.oneOf(fmt.Sprintf("%s[%d].dtype", path, i), t.DType, dtypes...)
		}
		for k, dim := range t.Shape {
			if dim < -1 || dim == 0 {
				c.failf(integer64(dim), "a positive size, or -1 for a free one", "", "%s[%d].shape[%d]", path, i, k)
			}
		}
		elements := 1.0
		for _, dim := range t.Shape {
			elements *= max(float64(dim), 1)
		}
		if elements > maxElements {
			c.failf(fmt.Sprintf("%g elements", elements), fmt.Sprintf("at most %d", maxElements), "", "%s[%d].shape", path, i)
		}
		for k, axis := range t.DynamicAxes {
			if axis < 0 || axis >= len(t.Shape) || t.Shape[axis] < 1 || k > 0 && axis <= t.DynamicAxes[k-1] {
				c.failf(integer64(axis), "dimensions of the shape that have a size, ascending", "", "%s[%d].dynamic_axes[%d]", path, i, k)
			}
		}
	}
}

// constants checks inputs of one value.
func (c *Checker) constants(list []TensorInfo, path string) {
	c.tensors(list, path)
	for i := range list {
		if t := &list[i]; len(t.Value) != 1 || len(t.Shape) > 0 {
			c.failf(fmt.Sprintf("%d values of %d dimensions", len(t.Value), len(t.Shape)), "one value without dimensions", "", "%s[%d]", path, i)
		}
	}
}

// dtypes are the names of the Open Inference Protocol.
var dtypes = []string{"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"}
