package document

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inferplan/formats/jsontext"
)

// lineWidth is the column up to which a list or a small object stays on one line.
const lineWidth = 110

// toNode is the inverse of binder.bind. Fields are in the order of the type, optional zero fields are left out, and
// empty lists and maps are written as such, never as null. Numbers that are NaN or infinite, and texts that are not
// UTF-8, are errors. path is for errors.
func toNode(v reflect.Value, path string) (node, error) {
	// Types with a form of their own come first.
	switch v.Type() {
	case microsType:
		return node{kind: numberNode, text: Micros(v.Int()).String()}, nil
	case sloType:
		s := v.Interface().(SLO)
		if s.IsZero() {
			return node{}, fmt.Errorf("%s: a latency target is missing", path)
		}
		return node{kind: stringNode, text: s.String()}, nil
	case durationType:
		return node{kind: stringNode, text: Duration(v.Int()).String()}, nil
	case bytesType:
		t := memoryText(Bytes(v.Int()))
		if isNumber(t) {
			return node{kind: numberNode, text: t}, nil
		}
		return node{kind: stringNode, text: t}, nil
	case valuesType:
		return v.Interface().(Values).node(), nil
	}

	// All other types follow their kind.
	switch v.Kind() {
	case reflect.Interface:
		return toNode(v.Elem(), path)
	case reflect.Pointer:
		if v.IsNil() {
			return node{kind: nullNode}, nil
		}
		return toNode(v.Elem(), path)
	case reflect.Struct:
		return structNode(v, path)
	case reflect.Slice, reflect.Array:
		items := make([]node, v.Len())
		for i := range items {
			var err error
			if items[i], err = toNode(v.Index(i), path+"["+strconv.Itoa(i)+"]"); err != nil {
				return node{}, err
			}
		}
		return node{kind: listNode, children: &nodeChildren{items: items}}, nil
	case reflect.Map:
		return mapNode(v, path)
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return node{}, fmt.Errorf("%s: %s is not UTF-8", path, Quote(v.String()))
		}
		return node{kind: stringNode, text: v.String()}, nil
	case reflect.Bool:
		return node{kind: boolNode, text: strconv.FormatBool(v.Bool())}, nil
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return node{}, fmt.Errorf("%s: %v cannot be written", path, f)
		}
		return node{kind: numberNode, text: FormatFloat(f)}, nil
	}
	if v.CanUint() {
		return node{kind: numberNode, text: strconv.FormatUint(v.Uint(), 10)}, nil
	}
	if !v.CanInt() {
		return node{}, fmt.Errorf("%s: a %s cannot be written", path, v.Type())
	}
	return node{kind: numberNode, text: strconv.FormatInt(wholeValue(v), 10)}, nil
}

// FormatFloat returns the shortest text that reads back as f, with an exponent only for very small and large
// numbers.
func FormatFloat(f float64) string {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// structNode returns the object that a struct is written as, in the order of its fields. Optional fields are left
// out if they are empty, or with omitzero only if they are zero. path is for errors.
func structNode(v reflect.Value, path string) (node, error) {
	info := infoOf(v.Type())
	k := &nodeChildren{keys: make([]key, 0, len(info.fields)), items: make([]node, 0, len(info.fields))}
	for i := range info.fields {
		f := &info.fields[i]
		fv := v.FieldByIndex(f.index)
		if f.optional && (fv.IsZero() || !f.empty && isEmpty(fv)) {
			continue
		}
		name := f.name
		if i == info.section {
			name = info.sectionName(fv.Elem().Type())
		}
		n, err := toNode(fv, Join(path, name))
		if err != nil {
			return node{}, err
		}
		k.keys, k.items = append(k.keys, key{name: name}), append(k.items, n)
	}
	return node{kind: objectNode, children: k}, nil
}

// mapNode returns the object that a map is written as, sorted by key, so that equal maps give equal text. path is
// for errors.
func mapNode(v reflect.Value, path string) (node, error) {
	names := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		names = append(names, k.String())
	}
	slices.SortFunc(names, compareNames)
	k := &nodeChildren{}
	for _, name := range names {
		if !utf8.ValidString(name) {
			return node{}, fmt.Errorf("%s: the key %s is not UTF-8", path, Quote(name))
		}
		n, err := toNode(v.MapIndex(reflect.ValueOf(name)), Join(path, name))
		if err != nil {
			return node{}, err
		}
		k.keys, k.items = append(k.keys, key{name: name}), append(k.items, n)
	}
	return node{kind: objectNode, children: k}, nil
}

// compareNames orders map keys: first numbers, such as batch sizes, by value, and then other texts.
func compareNames(a, b string) int {
	x, errX := strconv.ParseUint(a, 10, 63)
	y, errY := strconv.ParseUint(b, 10, 63)
	switch {
	case errX == nil && errY == nil && x != y:
		return cmp.Compare(x, y)
	case errX == nil && errY != nil:
		return -1
	case errX != nil && errY == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// isEmpty returns whether v is a list or map without elements, or else the zero of its type.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

// Join returns the path of a field of the value at a path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// appendCompact writes JSON without any space.
func appendCompact(b []byte, n *node) []byte { return appendLine(b, n, "") }

// appendPretty appends a value as JSON for people, with two spaces per level. An object without inner objects, and a
// list of plain values, is on one line if it fits. Longer lists of plain values are filled line by line. indent
// counts the levels around it, column the characters before it on its line. It returns the extended b.
func appendPretty(b []byte, n *node, indent, column int) []byte {
	if n.kind < listNode || n.len() == 0 {
		return appendCompact(b, n)
	}

	// Write a flat node on one line if it fits.
	if isFlat(n, 2) {
		mark := len(b)
		b = appendLine(b, n, " ")
		if column+utf8.RuneCount(b[mark:]) <= lineWidth {
			return b
		}
		b = b[:mark]
	}

	// Otherwise every item begins a line. Lists of plain values fill their lines.
	newline := "\n" + strings.Repeat("  ", indent+1)
	open, closing := brackets(n)
	fill := n.kind == listNode && isFlat(n, 1)
	b = append(b, open)
	start := 0 // of the current line
	for i := range n.len() {
		item := &n.children.items[i]
		if i > 0 {
			b = append(b, ',')
		}
		if fill && i > 0 {
			mark := len(b)
			b = appendCompact(append(b, ' '), item)
			if utf8.RuneCount(b[start:])+1 <= lineWidth {
				continue
			}
			b = b[:mark]
		}
		b = append(b, newline...)
		start = len(b) - len(newline) + 1
		if n.kind == objectNode {
			b = append(jsontext.AppendQuoted(b, n.children.keys[i].name), ':', ' ')
		}
		b = appendPretty(b, item, indent+1, utf8.RuneCount(b[start:]))
	}
	b = append(b, newline[:len(newline)-2]...)
	return append(b, closing)
}

// isFlat returns whether n has no object inside and at most depth-1 further levels of lists.
func isFlat(n *node, depth int) bool {
	if n.kind < listNode {
		return true
	}
	if depth == 0 {
		return false
	}
	for i := range n.len() {
		item := &n.children.items[i]
		if item.kind == objectNode && item.len() > 0 || !isFlat(item, depth-1) {
			return false
		}
	}
	return true
}

// appendLine appends a value as JSON on one line, with space (a blank or nothing) after each comma and colon.
func appendLine(b []byte, n *node, space string) []byte {
	switch n.kind {
	case nullNode:
		return append(b, "null"...)
	case boolNode, numberNode:
		return append(b, n.text...)
	case stringNode:
		return jsontext.AppendQuoted(b, n.text)
	}
	open, closing := brackets(n)
	b = append(b, open)
	isFirst := true
	n.eachChild(func(k *key, item *node) bool {
		if !isFirst {
			b = append(append(b, ','), space...)
		}
		isFirst = false
		if n.kind == objectNode {
			b = append(append(jsontext.AppendQuoted(b, k.name), ':'), space...)
		}
		b = appendLine(b, item, space)
		return true
	})
	return append(b, closing)
}

// brackets returns the brackets that an object or list is written in.
func brackets(n *node) (open, closing byte) {
	if n.kind == objectNode {
		return '{', '}'
	}
	return '[', ']'
}

// Marshal returns the JSON of any value made of this package's types, as in files and --json output: a fixed order
// of fields, deterministic lines, a final newline. It does not validate; Write does.
func Marshal(doc any) ([]byte, error) {
	v := reflect.ValueOf(doc)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() || v.Kind() == reflect.Pointer {
		return nil, fmt.Errorf("writing a document: there is none (%T)", doc)
	}
	n, err := toNode(v, "")
	if err != nil {
		return nil, fmt.Errorf("writing a %T: %w", doc, err)
	}
	return append(appendPretty(nil, &n, 0, 0), '\n'), nil
}

var _ json.Marshaler = Micros(0)
