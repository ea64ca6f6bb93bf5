package formats

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A node is one value of a document with its position, the common form of JSON
// and YAML: everything after the parsers (binding, locating findings, writing)
// knows only nodes.
type node struct {
	kind nodeKind
	pos  int64  // JSON: byte offset; YAML: line<<32 | column
	text string // the string, or the number as written, or true and false
	kids *kids  // of lists and objects; nil when empty
}

type kids struct {
	keys  []key // of objects, beside items
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

// describe says what stands at n, for Error.Found.
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
		return "the text " + quote(n.text)
	case listNode:
		return "a list"
	}
	return "an object"
}

func (n *node) len() int {
	if n.kids == nil {
		return 0
	}
	return len(n.kids.items)
}

// field returns the value of a key, or nil.
func (n *node) field(name string) *node {
	if n.kind != objectNode || n.kids == nil {
		return nil
	}
	for i := range n.kids.keys {
		if n.kids.keys[i].name == name {
			return &n.kids.items[i]
		}
	}
	return nil
}

// source is the text that nodes came from.
type source struct {
	file string
	text string
	yaml bool
}

// locate turns a position into line and column, the column in characters.
func (s *source) locate(pos int64) (line, column int) {
	if s.yaml {
		return int(pos >> 32), int(pos & 0xFFFFFFFF)
	}
	before := s.text[:min(int(pos), len(s.text))]
	line = 1 + strings.Count(before, "\n")
	return line, 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

// fail makes a finding at a position.
func (s *source) fail(pos int64, path, found, expected, hint string) *Error {
	line, col := s.locate(pos)
	return &Error{File: s.file, Line: line, Column: col, Path: path, Found: found, Expected: expected, Hint: hint}
}

// find returns the node at a field path, or the closest ancestor that exists.
func (n *node) find(path string) *node {
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return n
			}
			i, err := strconv.Atoi(path[1:end])
			path = strings.TrimPrefix(path[end+1:], ".")
			if err != nil || n.kind != listNode || i < 0 || i >= n.len() {
				return n
			}
			n = &n.kids.items[i]
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		next := n.field(path[:end])
		if next == nil {
			return n
		}
		n, path = next, strings.TrimPrefix(path[end:], ".")
	}
	return n
}

// maxDepth bounds the nesting of documents; ours need a tenth of it.
const maxDepth = 100

// duplicateKey returns the index of the first key that stood before, or -1.
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
	seen := make(map[string]struct{}, len(keys))
	for i, k := range keys {
		if _, dup := seen[k.name]; dup {
			return i
		}
		seen[k.name] = struct{}{}
	}
	return -1
}
