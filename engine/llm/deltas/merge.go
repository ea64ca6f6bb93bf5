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

// parseChoice decodes a choice (one of the alternative answers) of an event, and returns it with its index. Numbers
// keep their spelling.
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

// indexOf returns the field index of a JSON object, such as a choice or a call of a tool, or false if it has none
// that is valid.
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

// mergePiece joins a piece of an answer, decoded from JSON, to what came of it before, and returns the result:
// objects field by field, arrays element by element. isChoice says that the piece is a whole choice, of which only
// the field text comes in pieces. earlier is changed in place, and is nil for the first piece.
func mergePiece(earlier, piece any, isChoice bool) any {
	switch p := piece.(type) {
	case object:
		merged, _ := earlier.(object)
		if merged == nil {
			merged = object{}
		}
		for name, v := range p {
			merged[name] = mergeField(name, merged[name], v, isChoice)
		}
		return merged
	case []any:
		merged, _ := earlier.([]any)
		if merged == nil {
			merged = []any{}
		}
		for _, v := range p {
			merged = mergeElement(merged, v)
		}
		return merged
	}
	return piece
}

// mergeField joins a field of a piece to the earlier value of the field. A null changes nothing. Texts are appended,
// unless the field comes complete (wholeFields): then the later text counts, if it is not empty.
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
		for i, element := range list {
			if elementIndex, ok := indexOf(element); ok && elementIndex == index {
				list[i] = mergePiece(element, v, false)
				return list
			}
		}
	}
	return append(list, mergePiece(nil, v, false))
}
