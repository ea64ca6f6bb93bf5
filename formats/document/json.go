package document

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"inferplan/formats/jsontext"
)

// scanJSON checks that a text is exactly one JSON value (RFC 8259) in UTF-8, and returns it as a node with its
// position. It builds nothing: lists and objects are parts of the text, and their children are read one at a time
// when they are needed (node.eachChild). So a document takes only the memory of what it is bound to, however many
// values its text has. json.Decoder.Token takes five times as long (docs/dependencies.md).
//
// The parser's methods panic with an *Error at the first fault, which scanJSON recovers and returns.
func scanJSON(src *source) (root node, err *Error) {
	p := &jsonParser{src: src, s: src.text}
	// Report the first byte that is not UTF-8.
	if !utf8.ValidString(p.s) {
		i := 0
		for i < len(p.s) {
			r, size := utf8.DecodeRuneInString(p.s[i:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			i += size
		}
		return root, src.fail(int64(i), "", "bytes that are not UTF-8", "a UTF-8 text", encodingHint(p.s))
	}

	// Parse one value.
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			err = e
		}
	}()
	p.space()
	if p.i == len(p.s) {
		return root, src.fail(int64(p.i), "", "an empty file", "a JSON document", "")
	}
	root = p.value(0)
	p.space()
	if p.i < len(p.s) {
		return root, src.fail(int64(p.i), "", "more text after the document", "the end of the file", "a file holds one document")
	}
	return root, nil
}

// jsonParser is a recursive-descent parser. On an error it panics with an *Error, which scanJSON catches.
type jsonParser struct {
	src  *source
	s    string
	i    int
	keys []key // a stack of the fields of the open objects
}

func (p *jsonParser) space() { p.i = jsontext.Space(p.s, p.i) }

// fail panics with an error about the text at position i: what it found there, what was expected, and a hint.
func (p *jsonParser) fail(i int, expected, hint string) {
	found := "the end of the file"
	if i < len(p.s) {
		r, _ := utf8.DecodeRuneInString(p.s[i:])
		found = strconv.QuoteRune(r)
	}
	panic(p.src.fail(int64(i), "", found, expected, hint))
}

// value parses the value at the current position, depth levels inside others. It panics with an *Error at a fault.
// Objects and lists have their text, which is parsed again when their children are read.
func (p *jsonParser) value(depth int) node {
	if depth > maxDepth {
		panic(p.src.fail(int64(p.i), "", "more than "+strconv.Itoa(maxDepth)+" levels of nesting", "a flatter document", ""))
	}
	if p.i == len(p.s) {
		p.fail(p.i, "a value", "the file ends too early; was it cut off?")
	}
	n := node{pos: int64(p.i)}
	switch c := p.s[p.i]; {
	case c == '{' || c == '[':
		start := p.i
		if c == '{' {
			n.kind = objectNode
			p.object(depth)
		} else {
			n.kind = listNode
			p.list(depth)
		}
		n.text = p.s[start:p.i]
	case c == '"':
		n.kind = stringNode
		n.text = p.str()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = numberNode
		n.text = p.number()
	default:
		for _, w := range [...]struct {
			text string
			kind nodeKind
		}{{"true", boolNode}, {"false", boolNode}, {"null", nullNode}} {
			if strings.HasPrefix(p.s[p.i:], w.text) {
				p.i += len(w.text)
				n.kind, n.text = w.kind, w.text
				return n
			}
		}
		p.refuseNonFinite()
		p.fail(p.i, "a value", "")
	}
	return n
}

// object parses an object from its opening bracket to the closing one. It panics with an *Error at a fault, also for
// a field name that occurs twice.
func (p *jsonParser) object(depth int) {
	p.i++

	// On the stack, this object's fields lie above those of the objects around it.
	keys := len(p.keys)
	for isFirst := true; ; isFirst = false {
		p.space()
		if isFirst && p.i < len(p.s) && p.s[p.i] == '}' {
			p.i++
			return
		}
		if p.i == len(p.s) || p.s[p.i] != '"' {
			if p.i < len(p.s) && p.s[p.i] == '}' {
				p.fail(p.i, "a field name in quotes", "remove the comma before it")
			}
			p.fail(p.i, "a field name in quotes", "")
		}

		// Read a field: its name, a colon and its value.
		k := key{pos: int64(p.i)}
		k.name = p.str()
		p.space()
		if p.i == len(p.s) || p.s[p.i] != ':' {
			p.fail(p.i, "':' after the field name "+Quote(k.name), "")
		}
		p.i++
		p.space()
		p.value(depth + 1)
		p.keys = append(p.keys, k)
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
			continue
		}
		if p.i == len(p.s) || p.s[p.i] != '}' {
			p.fail(p.i, "',' or '}' after the field "+Quote(k.name), "")
		}
		p.i++

		// At the end of the object, take its fields off the stack.
		names := p.keys[keys:]
		if d := duplicateKey(names); d >= 0 {
			panic(p.src.fail(names[d].pos, "", "the field "+Quote(names[d].name)+" a second time", "each field once", ""))
		}
		p.keys = p.keys[:keys]
		return
	}
}

// list parses a list from its opening bracket to the closing one. It panics with an *Error at a fault.
func (p *jsonParser) list(depth int) {
	p.i++
	for isFirst := true; ; isFirst = false {
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ']' {
			if !isFirst {
				p.fail(p.i, "a value", "remove the comma before it")
			}
			p.i++
			return
		}
		p.value(depth + 1)
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
			continue
		}
		if p.i == len(p.s) || p.s[p.i] != ']' {
			p.fail(p.i, "',' or ']' after a value of the list", "")
		}
		p.i++
		return
	}
}

// child reads the current value of a text that was checked before. It skips the contents of a list or object, which
// it returns as text. The position of the result counts from the beginning of that text.
func (p *jsonParser) child() node {
	c := p.s[p.i]
	if c != '{' && c != '[' {
		return p.value(0)
	}
	n := node{kind: listNode, pos: int64(p.i)}
	if c == '{' {
		n.kind = objectNode
	}

	// Find the closing bracket. Brackets in texts do not count.
	start, depth := p.i, 0
	for ; ; p.i++ {
		switch p.s[p.i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				p.i++
				n.text = p.s[start:p.i]
				return n
			}
		case '"':
			for p.i++; p.s[p.i] != '"'; p.i++ {
				if p.s[p.i] == '\\' {
					p.i++
				}
			}
		}
	}
}

// eachMember calls f with every child of a list or object that scanJSON has checked, until f returns false. base is
// the position of its text in the document. object says that it is an object, whose children have keys; the key of a
// list's child is empty.
func (p *jsonParser) eachMember(object bool, base int64, f func(k *key, item *node) bool) {
	p.i++
	p.space()
	var k key
	var item node
	for p.s[p.i] != ']' && p.s[p.i] != '}' {
		if object {
			k.pos = base + int64(p.i)
			k.name = p.str()
			p.space()
			p.i++ // skip the colon
			p.space()
		}
		item = p.child()
		item.pos += base
		if !f(&k, &item) {
			return
		}
		p.space()
		if p.s[p.i] == ',' {
			p.i++
			p.space()
		}
	}
}

// number returns the text of the number at p.i, its first byte. It panics with an *Error if it is none.
func (p *jsonParser) number() string {
	start := p.i
	end, _, fault := jsontext.Number(p.s, start)
	if fault != jsontext.NoFault {
		p.refuseNonFinite()
		p.fail(end, "a digit", "")
	}
	p.i = end
	if p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c >= '0' && c <= '9' || c == '.' || c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			p.fail(p.i, "the end of the number "+Quote(p.s[start:p.i]), "text such as \"200ms\" needs quotes; numbers have no leading zeros")
		}
	}
	return p.s[start:p.i]
}

// isNumber reports whether all of s is one JSON number.
func isNumber(s string) bool {
	end, _, fault := jsontext.Number(s, 0)
	return fault == jsontext.NoFault && end == len(s)
}

// str returns the content of the string at p.i, its opening quote. A string without escapes is a part of the text,
// and needs no memory of its own.
func (p *jsonParser) str() string {
	start := p.i + 1
	end, isPlain, fault := jsontext.String(p.s, p.i)
	p.i = end
	if fault != jsontext.NoFault {
		p.failString(end, fault)
	}
	content := p.s[start : end-1]
	if isPlain {
		return content
	}
	b, position, fault := jsontext.Unescape(nil, content, true)
	if fault != jsontext.NoFault {
		p.failString(start+position, fault)
	}
	return string(b)
}

// failString panics with the error for a fault at a position of a text: what was expected there, and a hint.
func (p *jsonParser) failString(position int, fault jsontext.Fault) {
	switch fault {
	case jsontext.ControlCharacter:
		p.fail(position, "the end of the text that starts before", "line breaks and control characters in text are escaped, as \\n")
	case jsontext.BadEscape:
		p.fail(position, `an escape that JSON knows: \" \\ \/ \b \f \n \r \t \uXXXX`, "")
	case jsontext.BadHex:
		p.fail(position, `four hexadecimal digits after \u`, "")
	case jsontext.HalfSurrogate:
		p.fail(position, "the second half of a surrogate pair", "")
	default:
		p.fail(position, "the closing quote of a text", "the file ends too early; was it cut off?")
	}
}
