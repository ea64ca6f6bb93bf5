package document

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A node is one value of a document with its position, the common form of JSON and YAML. Everything after the
// parsers (binding, locating findings, writing) uses only nodes.
type node struct {
	kind     nodeKind
	pos      int64         // JSON: byte offset; YAML: line<<32 | column
	text     string        // the string, the number as written, or true and false; for lists and objects without children, their text
	children *nodeChildren // the children of other lists and objects; nil if empty
}

type nodeChildren struct {
	keys  []key // an object's keys, in the order of items
	items []node
}

type key struct {
	name string
	pos  int64
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	stringNode
	listNode
	objectNode
)

// describe returns a value as text for messages, such as "the number 5" or "a list".
func (n *node) describe() string {
	switch n.kind {
	case nullNode:
		return "null"
	case boolNode:
		return n.text
	case numberNode:
		t := n.text
		if len(t) > 40 {
			t = t[:40] + "…"
		}
		return "the number " + t
	case stringNode:
		return "the text " + Quote(n.text)
	case listNode:
		return "a list"
	}
	return "an object"
}

// len returns the number of values in a list or object. One that keeps its text instead of children is parsed to
// count them.
func (n *node) len() int {
	if n.children != nil {
		return len(n.children.items)
	}
	count := 0
	n.eachChild(func(*key, *node) bool { count++; return true })
	return count
}

// eachChild calls f with each value of a list or object, and its key, until f returns false. Key and value are valid
// only during the call; the key of a list's value is empty. Lists and objects of JSON keep their text instead of
// children (scanJSON), and are parsed anew here. Other kinds of values have no children.
func (n *node) eachChild(f func(k *key, item *node) bool) {
	if n.kind < listNode {
		return
	}
	if n.children == nil && n.text != "" {
		p := jsonParser{s: n.text}
		p.eachMember(n.kind == objectNode, n.pos, f)
		return
	}
	if n.children == nil {
		return
	}
	var noKey key
	for i := range n.children.items {
		k := &noKey
		if n.kind == objectNode {
			k = &n.children.keys[i]
		}
		if !f(k, &n.children.items[i]) {
			return
		}
	}
}

// parsed returns the value with the children of all lists and objects in it.
func (n *node) parsed() node {
	if n.kind < listNode {
		return *n
	}
	out := node{kind: n.kind, pos: n.pos, children: &nodeChildren{}}
	n.eachChild(func(k *key, item *node) bool {
		out.children.keys, out.children.items = append(out.children.keys, *k), append(out.children.items, item.parsed())
		return true
	})
	return out
}

// field returns the value of a key, or nil if there is none.
func (n *node) field(name string) (found *node) {
	if n.kind != objectNode {
		return nil
	}
	n.eachChild(func(k *key, item *node) bool {
		if k.name == name {
			found = new(*item)
		}
		return found == nil
	})
	return found
}

// item returns the value at an index of a list, or nil if there is none.
func (n *node) item(i int) (found *node) {
	if n.kind != listNode || i < 0 {
		return nil
	}
	n.eachChild(func(_ *key, item *node) bool {
		if i == 0 {
			found = new(*item)
		}
		i--
		return found == nil
	})
	return found
}

// source is the text that nodes were read from.
type source struct {
	file string
	text string
	yaml bool
	// linesBefore holds the number of line ends before each stretch of the text. It is computed when the first
	// finding is located.
	linesBefore []int32
}

// stretchLength is the length of the stretches of a source, in bytes.
const stretchLength = 64 << 10

// locate returns the line and column of a position, the column in characters. For JSON a position is an offset in
// bytes; it counts the line breaks before it from the last of the stretches whose counts are kept. For YAML it has
// the line in the upper half. The first call for a JSON text counts the line breaks of stretches of stretchLength
// bytes, and stores the sums.
func (s *source) locate(pos int64) (line, column int) {
	if s.yaml {
		return int(pos >> 32), int(pos & 0xFFFFFFFF)
	}
	if s.linesBefore == nil {
		s.linesBefore = []int32{0}
		for offset := 0; offset+stretchLength <= len(s.text); offset += stretchLength {
			s.linesBefore = append(s.linesBefore, s.linesBefore[len(s.linesBefore)-1]+int32(strings.Count(s.text[offset:offset+stretchLength], "\n")))
		}
	}
	textBefore := s.text[:min(int(pos), len(s.text))]
	stretches := len(textBefore) / stretchLength
	line = 1 + int(s.linesBefore[stretches]) + strings.Count(textBefore[stretches*stretchLength:], "\n")
	return line, 1 + utf8.RuneCountInString(textBefore[strings.LastIndexByte(textBefore, '\n')+1:])
}

// fail makes a finding at a position.
func (s *source) fail(pos int64, path, found, expected, hint string) *Error {
	line, col := s.locate(pos)
	return &Error{File: s.file, Line: line, Column: col, Path: path, Found: found, Expected: expected, Hint: hint}
}

// find returns the node at a field's path, such as models[0].name, or the closest ancestor that exists.
func (n *node) find(path string) *node {
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return n
			}
			i, err := strconv.Atoi(path[1:end])
			path = strings.TrimPrefix(path[end+1:], ".")
			if err != nil {
				return n
			}
			item := n.item(i)
			if item == nil {
				return n
			}
			n = item
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		child := n.field(path[:end])
		if child == nil {
			return n
		}
		n, path = child, strings.TrimPrefix(path[end:], ".")
	}
	return n
}

// maxDepth bounds the nesting of documents. Ours need a tenth of it.
const maxDepth = 100

// duplicateKey returns the index of the first key that occurred before, or -1.
func duplicateKey(keys []key) int {
	if len(keys) <= 16 {
		for i := range keys {
			for j := range i {
				if keys[i].name == keys[j].name {
					return i
				}
			}
		}
		return -1
	}
	// Sort an index by name, so that equal names are neighbours. This takes a fraction of the memory of a set.
	byName := make([]int32, len(keys))
	for i := range byName {
		byName[i] = int32(i)
	}
	slices.SortFunc(byName, func(x, y int32) int {
		return cmp.Or(cmp.Compare(keys[x].name, keys[y].name), cmp.Compare(x, y))
	})
	duplicate := -1
	for i, index := range byName[1:] {
		if keys[byName[i]].name == keys[index].name && (duplicate < 0 || int(index) < duplicate) {
			duplicate = int(index)
		}
	}
	return duplicate
}
