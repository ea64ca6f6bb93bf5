package deltas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// object is a JSON object. Its numbers keep their spelling.
type object = map[string]any

// maxIndex bounds the index of a choice, and of a call of a tool.
const mostIndex = 1 << 12

var errNoChoice = errors.New("not a choice of an answer")

// parseChoice decodes a choice of an event, and returns it with its index.
func read(raw json.RawMessage) (c object, index int, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&c); err != nil || c == nil {
		return nil, 0, fmt.Errorf("%w: %.80s", errNoChoice, raw)
	}
	if c["index"] == nil { // a single choice may have no index
		c["index"] = json.Number("0")
	}
	index, ok := indexOf(c)
	if !ok {
		return nil, 0, fmt.Errorf("%w: index %v", errNoChoice, c["index"])
	}
	return c, index, nil
}

// indexOf returns the index that an object states, if it has a valid one.
func indexOf(v any) (int, bool) {
	o, _ := v.(object)
	n, ok := o["index"].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(n.String())
	return i, err == nil && i >= 0 && i < mostIndex
}

// wholeFields are the fields whose text comes complete in one event. Other texts come in pieces.
var once = []string{"role", "type", "id", "name", "finish_reason", "stop_reason"}

// mergePiece appends a piece to the earlier pieces. isChoice says that the piece is a choice, of which only the
// field text comes in pieces.
func merge(before, piece any, top bool) any {
	switch p := piece.(type) {
	case object:
		b, _ := before.(object)
		if b == nil {
			b = object{}
		}
		for name, v := range p {
			b[name] = mergeField(name, b[name], v, top)
		}
		return b
	case []any:
		b, _ := before.([]any)
		if b == nil {
			b = []any{}
		}
		for _, v := range p {
			b = mergeElement(b, v)
		}
		return b
	}
	return piece
}

func mergeField(name string, before, piece any, top bool) any {
	text, isText := piece.(string)
	old, wasText := before.(string)
	switch {
	case piece == nil:
		return before
	case isText && wasText && !slices.Contains(once, name) && (!top || name == "text"):
		return old + text
	case isText && wasText && text == "":
		return old
	}
	return merge(before, piece, false)
}

// mergeElement merges an element of an array with the element of the same index, or appends it.
func mergeElement(list []any, v any) []any {
	if index, ok := indexOf(v); ok {
		for i, b := range list {
			if at, ok := indexOf(b); ok && at == index {
				list[i] = merge(b, v, false)
				return list
			}
		}
	}
	return append(list, merge(nil, v, false))
}
