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
const maxIndex = 1 << 12

var errNoChoice = errors.New("not a choice of an answer")

// parseChoice decodes a choice of an event, and returns it with its index.
func parseChoice(raw json.RawMessage) (c object, index int, err error) {
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
	return i, err == nil && i >= 0 && i < maxIndex
}

// wholeFields are the fields whose text comes complete in one event. Other texts come in pieces.
var wholeFields = []string{"role", "type", "id", "name", "finish_reason", "stop_reason"}

// mergePiece appends a piece to the earlier pieces. isChoice says that the piece is a choice, of which only the
// field text comes in pieces.
func mergePiece(earlier, piece any, isChoice bool) any {
	switch p := piece.(type) {
	case object:
		b, _ := earlier.(object)
		if b == nil {
			b = object{}
		}
		for name, v := range p {
			b[name] = mergeField(name, b[name], v, isChoice)
		}
		return b
	case []any:
		b, _ := earlier.([]any)
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

func mergeField(name string, earlier, piece any, isChoice bool) any {
	text, isText := piece.(string)
	earlierText, wasText := earlier.(string)
	switch {
	case piece == nil:
		return earlier
	case isText && wasText && !slices.Contains(wholeFields, name) && (!isChoice || name == "text"):
		return earlierText + text
	case isText && wasText && text == "":
		return earlierText
	}
	return mergePiece(earlier, piece, false)
}

// mergeElement merges an element of an array with the element of the same index, or appends it.
func mergeElement(list []any, v any) []any {
	if index, ok := indexOf(v); ok {
		for i, b := range list {
			if elementIndex, ok := indexOf(b); ok && elementIndex == index {
				list[i] = mergePiece(b, v, false)
				return list
			}
		}
	}
	return append(list, mergePiece(nil, v, false))
}
