package document

import (
	"errors"
	"math"
	"reflect"
	"strconv"
)

// slice sets the Go slice v from the list n. It grows with the values that were bound, because a text of two bytes
// a value must not allocate memory for a model each.
func (b *binder) slice(n *node, v reflect.Value) {
	if n.kind != listNode {
		b.fail(n, "a list", "")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	b.items(n, v)
}

// items sets the values of the Go slice or array v from the list n.
func (b *binder) items(n *node, v reflect.Value) {
	mark := len(b.path)
	i := 0
	n.eachChild(func(_ *key, item *node) bool {
		if v.Kind() == reflect.Slice {
			if i == v.Cap() {
				v.Grow(max(i, 4))
			}
			v.SetLen(i + 1)
		}
		b.index(i)
		b.bind(item, v.Index(i))
		b.path = b.path[:mark]
		i++
		return !b.findings.hasMore
	})
}

// array sets the Go array v from the list n, which must have as many values.
func (b *binder) array(n *node, v reflect.Value) {
	if n.kind != listNode || n.len() != v.Len() {
		b.fail(n, "a list of "+strconv.Itoa(v.Len())+" values", "")
		return
	}
	b.items(n, v)
}

// mapping sets v, a map with text keys, from the object n.
func (b *binder) mapping(n *node, v reflect.Value) {
	if n.kind != objectNode {
		b.fail(n, "an object", "")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	mark := len(b.path)
	n.eachChild(func(k *key, item *node) bool {
		b.field(k.name)
		elem := reflect.New(v.Type().Elem()).Elem()
		b.bind(item, elem)
		v.SetMapIndex(reflect.ValueOf(k.name), elem)
		b.path = b.path[:mark]
		return !b.findings.hasMore
	})
}

// float sets v from the number n. A number beyond the range of a float64 is an error.
func (b *binder) float(n *node, v reflect.Value) {
	if n.kind != numberNode {
		b.fail(n, "a number", numberHint(n))
		return
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(f, 0) {
		b.fail(n, "a number within the range of a 64-bit float", "")
		return
	}
	v.SetFloat(f)
}

// integer sets the integer v from the number n, which must be whole and fit v's type. A type with a method
// SetWhole is set through it.
func (b *binder) integer(n *node, v reflect.Value) {
	const expected = "a whole number"
	if n.kind != numberNode {
		b.fail(n, expected, numberHint(n))
		return
	}
	if v.CanUint() {
		u, err := strconv.ParseUint(n.text, 10, v.Type().Bits())
		if err != nil {
			b.fail(n, "a whole number from 0 to 2^"+strconv.Itoa(v.Type().Bits())+"-1", "")
			return
		}
		v.SetUint(u)
		return
	}
	i, err := strconv.ParseInt(n.text, 10, v.Type().Bits())
	if err != nil {
		if errors.Is(err, strconv.ErrRange) {
			b.fail(n, "a whole number that fits "+strconv.Itoa(v.Type().Bits())+" bits", "")
		} else {
			b.fail(n, expected, "")
		}
		return
	}
	if v.Type().PkgPath() != "" {
		if w, ok := v.Addr().Interface().(WholeNumber); ok {
			w.SetWholeValue(i)
			return
		}
	}
	v.SetInt(i)
}

// numberHint returns a hint for a value that should be a number but was written as text, with quotes or a unit.
func numberHint(n *node) string {
	if n.kind == stringNode && isNumber(n.text) {
		return "take the quotes off"
	}
	if n.kind == stringNode {
		if number, unit := splitUnit(n.text); number != "" && unit != "" {
			return "the field's name tells the unit: write the number alone"
		}
	}
	return ""
}

// micros sets v, nanoseconds, from a number n of microseconds with up to three decimals.
func (b *binder) micros(n *node, v reflect.Value) {
	const expected = "a number of microseconds with at most three decimals"
	if n.kind != numberNode {
		b.fail(n, expected, numberHint(n))
		return
	}
	ns, err := scaleDecimal(n.text, 3)
	switch {
	case errors.Is(err, errPrecise):
		b.fail(n, expected, "times are exact to the nanosecond: round it")
	case err != nil:
		b.fail(n, expected, err.Error())
	default:
		v.SetInt(ns)
	}
}

// unit sets v from a value that a person writes with a unit, such as 200ms, read by parse. If bare is set, it may
// also be a whole number without a unit.
func (b *binder) unit(n *node, v reflect.Value, expected, hint string, bare bool, parse func(string) (any, error)) {
	if n.kind != stringNode && !(bare && n.kind == numberNode) {
		b.fail(n, expected, hint)
		return
	}
	if n.kind == numberNode { // a number without unit, exponent or fraction
		i, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil || i < 0 {
			b.fail(n, expected, hint)
			return
		}
	}
	x, err := parse(n.text)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			hint = cause.Error() + "; " + hint
		}
		b.fail(n, expected, hint)
		return
	}
	v.Set(reflect.ValueOf(x))
}

// describeType returns what a field of this type expects, for messages.
func describeType(t reflect.Type) string {
	switch t {
	case microsType:
		return "a number of microseconds"
	case sloType:
		return "a latency target such as \"200ms\""
	case durationType:
		return "a duration such as \"30s\""
	case bytesType:
		return "a size such as \"24GiB\""
	case valuesType:
		return "an object"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return describeType(t.Elem()) + " or null"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
