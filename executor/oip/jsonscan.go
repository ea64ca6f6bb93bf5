package oip

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"inferplan/executor/httplimit"
	"inferplan/formats/jsontext"
)

// cursor reads JSON (RFC 8259) from a byte slice without building values. It
// is strict: no trailing commas, no NaN, no text after the value, valid UTF-8.
type cursor struct {
	b []byte
	i int
	progress
}

// syntax is an error in the JSON text itself, at the cursor.
func (c *cursor) syntax(format string, args ...any) *Error {
	return Invalid("", "JSON, byte %d: %s", c.i, fmt.Sprintf(format, args...))
}

func (c *cursor) found() string {
	if c.i >= len(c.b) {
		return "the end of the text"
	}
	return strconv.QuoteRuneToASCII(rune(c.b[c.i]))
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	if c.i = jsontext.Space(c.b, c.i); c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

func (c *cursor) expect(ch byte) *Error {
	if c.peek() != ch || c.i >= len(c.b) {
		return c.syntax("found %s where %q is expected", c.found(), rune(ch))
	}
	c.i++
	return nil
}

// end checks that nothing follows.
func (c *cursor) end() *Error {
	if c.peek(); c.i < len(c.b) {
		return c.syntax("found %s after the end of the value", c.found())
	}
	return nil
}

// more reads the separator after a member: true when another follows.
func (c *cursor) more(closing byte) (bool, *Error) {
	switch c.peek() {
	case ',':
		c.i++
		return true, nil
	case closing:
		c.i++
		return false, nil
	}
	return false, c.syntax("found %s where ',' or %q is expected", c.found(), rune(closing))
}

// object calls member with each key; member reads the value. A key may alias
// the text.
func (c *cursor) object(member func(key []byte) *Error) *Error {
	if err := c.expect('{'); err != nil {
		return err
	}
	if c.peek() == '}' {
		c.i++
		return nil
	}
	for {
		if c.peek() != '"' {
			return c.syntax("found %s where a field name is expected", c.found())
		}
		key, err := c.str()
		if err != nil {
			return err
		}
		if err := c.expect(':'); err != nil {
			return err
		}
		at := c.i
		if err := member(key); err != nil {
			return err
		}
		if err := c.read(c.i - at); err != nil {
			return err
		}
		if again, err := c.more('}'); err != nil || !again {
			return err
		}
	}
}

// array calls element before each element; element reads it.
func (c *cursor) array(element func(i int) *Error) *Error {
	if err := c.expect('['); err != nil {
		return err
	}
	if c.peek() == ']' {
		c.i++
		return nil
	}
	for i := 0; ; i++ {
		at := c.i
		if err := element(i); err != nil {
			return err
		}
		if err := c.read(c.i - at); err != nil {
			return err
		}
		if again, err := c.more(']'); err != nil || !again {
			return err
		}
	}
}

// str reads a string; the result aliases the text when it holds no escape.
func (c *cursor) str() ([]byte, *Error) {
	if c.peek() != '"' {
		return nil, c.syntax("found %s where a string is expected", c.found())
	}
	start := c.i + 1
	end, plain, fault := jsontext.String(c.b, c.i)
	c.i = end
	switch fault {
	case jsontext.Unclosed:
		return nil, c.syntax("a string without its closing quote")
	case jsontext.Control:
		return nil, c.syntax("control character in a string")
	}
	s := c.b[start : end-1]
	if !plain {
		out, place, fault := jsontext.Unescape(make([]byte, 0, len(s)), s, false)
		if fault != jsontext.NoFault {
			c.i = start + place
			return nil, c.syntax("faulty escape in a string")
		}
		s = out
	}
	if !utf8.Valid(s) {
		return nil, c.syntax("a string that is not UTF-8")
	}
	return s, nil
}

// number reads a number's text and says whether it is written as an integer.
func (c *cursor) number() (text []byte, integer bool, err *Error) {
	ch := c.peek()
	if ch != '-' && (ch < '0' || ch > '9') {
		if ch == 'N' || ch == 'I' {
			return nil, false, c.syntax("NaN and Infinity are not JSON; send the tensor as binary data")
		}
		return nil, false, c.syntax("found %s where a number is expected", c.found())
	}
	start := c.i
	end, integer, fault := jsontext.Number(c.b, start)
	c.i = end
	if fault != jsontext.NoFault {
		return nil, false, c.syntax("a number lacks a digit here")
	}
	return c.b[start:end], integer, nil
}

// integer reads an integer that fits in int64.
func (c *cursor) integer() (int64, *Error) {
	at := c.i
	text, whole, err := c.number()
	if err != nil {
		return 0, err
	}
	v, perr := strconv.ParseInt(alias(text), 10, 64)
	if !whole || perr != nil {
		c.i = at
		return 0, c.syntax("%s is not an integer of 64 bits", httplimit.Clip(string(text)))
	}
	return v, nil
}

// literal reads the word if it is next.
func (c *cursor) literal(word string) bool {
	c.peek()
	if !bytes.HasPrefix(c.b[c.i:], []byte(word)) {
		return false
	}
	c.i += len(word)
	return true
}

func (c *cursor) boolean() (bool, *Error) {
	if c.literal("true") {
		return true, nil
	}
	if c.literal("false") {
		return false, nil
	}
	return false, c.syntax("found %s where true or false is expected", c.found())
}

// param reads a parameter's value: the protocol allows scalars only.
func (c *cursor) param() (Param, *Error) {
	switch ch := c.peek(); {
	case ch == '"':
		s, err := c.str()
		return string(s), err
	case ch == 't' || ch == 'f':
		return asParam(c.boolean())
	case ch == '-' || ch >= '0' && ch <= '9':
		text, whole, err := c.number()
		if err != nil {
			return nil, err
		}
		if whole {
			if v, perr := strconv.ParseInt(alias(text), 10, 64); perr == nil {
				return v, nil
			}
			if v, perr := strconv.ParseUint(alias(text), 10, 64); perr == nil {
				return v, nil
			}
		}
		v, perr := strconv.ParseFloat(alias(text), 64)
		if perr != nil || math.IsInf(v, 0) {
			return nil, c.syntax("%s does not fit in FP64", httplimit.Clip(string(text)))
		}
		return v, nil
	}
	return nil, c.syntax("found %s; a parameter is a string, a number or a boolean", c.found())
}

func asParam[T any](v T, err *Error) (Param, *Error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// skipArray passes over an array whose elements are numbers, strings, booleans
// or arrays, without looking at their meaning.
func (c *cursor) skipArray(depth int) *Error {
	if depth > maxRank {
		return c.syntax("arrays nested deeper than %d", maxRank)
	}
	return c.array(func(int) *Error {
		switch ch := c.peek(); ch {
		case '[':
			return c.skipArray(depth + 1)
		case '"':
			_, err := c.str()
			return err
		case 't', 'f':
			_, err := c.boolean()
			return err
		default:
			_, _, err := c.number()
			return err
		}
	})
}

// alias views bytes as a string for the length of a call that does not keep it.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
