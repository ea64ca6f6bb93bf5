package jsonscan

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

// MaxRank bounds the nesting of arrays.
const MaxRank = 16

// Cursor reads JSON (RFC 8259) from a byte slice without building values. It is strict: no trailing commas, no NaN,
// no text after the value, valid UTF-8.
type Cursor struct {
	B []byte // the text
	I int    // offset of the next byte
	Progress
}

// Syntax returns an error about the JSON text at the cursor.
func (c *Cursor) Syntax(format string, args ...any) *httplimit.Error {
	return httplimit.Invalid("", "JSON, byte %d: %s", c.I, fmt.Sprintf(format, args...))
}

// DescribeNext returns the next byte for a message.
func (c *Cursor) DescribeNext() string {
	if c.I >= len(c.B) {
		return "the end of the text"
	}
	return strconv.QuoteRuneToASCII(rune(c.B[c.I]))
}

// Peek skips white space and returns the next byte. At the end it returns 0.
func (c *Cursor) Peek() byte {
	if c.I = jsontext.Space(c.B, c.I); c.I < len(c.B) {
		return c.B[c.I]
	}
	return 0
}

// Expect reads a given byte, after white space. It returns an error if another one is next.
func (c *Cursor) Expect(ch byte) *httplimit.Error {
	if c.Peek() != ch || c.I >= len(c.B) {
		return c.Syntax("found %s where %q is expected", c.DescribeNext(), rune(ch))
	}
	c.I++
	return nil
}

// CheckEnd returns an error unless only white space follows.
func (c *Cursor) CheckEnd() *httplimit.Error {
	if c.Peek(); c.I < len(c.B) {
		return c.Syntax("found %s after the end of the value", c.DescribeNext())
	}
	return nil
}

// ReadSeparator reads the comma or the closing bracket (`closing`: '}' or ']') after a member of an object or array. It
// returns true after a comma: another member follows.
func (c *Cursor) ReadSeparator(closing byte) (bool, *httplimit.Error) {
	switch c.Peek() {
	case ',':
		c.I++
		return true, nil
	case closing:
		c.I++
		return false, nil
	}
	return false, c.Syntax("found %s where ',' or %q is expected", c.DescribeNext(), rune(closing))
}

// Object reads an object: it calls member with each key, and member reads the value at the cursor. The key may alias the
// text. The bytes of each value are reported (AddBytes), which ends the parse with an error if the client is gone.
func (c *Cursor) Object(member func(key []byte) *httplimit.Error) *httplimit.Error {
	if err := c.Expect('{'); err != nil {
		return err
	}
	if c.Peek() == '}' {
		c.I++
		return nil
	}
	for {
		if c.Peek() != '"' {
			return c.Syntax("found %s where a field name is expected", c.DescribeNext())
		}
		key, err := c.Str()
		if err != nil {
			return err
		}
		if err := c.Expect(':'); err != nil {
			return err
		}
		start := c.I
		if err := member(key); err != nil {
			return err
		}
		if err := c.AddBytes(c.I - start); err != nil {
			return err
		}
		if hasMore, err := c.ReadSeparator('}'); err != nil || !hasMore {
			return err
		}
	}
}

// Array reads an array: it calls element with the index of each element, and element reads it at the cursor. The bytes
// of each are reported as in Object.
func (c *Cursor) Array(element func(i int) *httplimit.Error) *httplimit.Error {
	if err := c.Expect('['); err != nil {
		return err
	}
	if c.Peek() == ']' {
		c.I++
		return nil
	}
	for i := 0; ; i++ {
		start := c.I
		if err := element(i); err != nil {
			return err
		}
		if err := c.AddBytes(c.I - start); err != nil {
			return err
		}
		if hasMore, err := c.ReadSeparator(']'); err != nil || !hasMore {
			return err
		}
	}
}

// Str reads a string. The result aliases the text if the string has no escape.
func (c *Cursor) Str() ([]byte, *httplimit.Error) {
	if c.Peek() != '"' {
		return nil, c.Syntax("found %s where a string is expected", c.DescribeNext())
	}
	start := c.I + 1
	end, hasNoEscape, fault := jsontext.String(c.B, c.I)
	c.I = end
	switch fault {
	case jsontext.UnclosedString:
		return nil, c.Syntax("a string without its closing quote")
	case jsontext.ControlCharacter:
		return nil, c.Syntax("control character in a string")
	}
	s := c.B[start : end-1]
	if !hasNoEscape {
		unescaped, offset, fault := jsontext.Unescape(make([]byte, 0, len(s)), s, false)
		if fault != jsontext.NoFault {
			c.I = start + offset
			return nil, c.Syntax("faulty escape in a string")
		}
		s = unescaped
	}
	if !utf8.Valid(s) {
		return nil, c.Syntax("a string that is not UTF-8")
	}
	return s, nil
}

// Number reads the text of a number and reports whether it is written as an integer.
func (c *Cursor) Number() (text []byte, integer bool, err *httplimit.Error) {
	ch := c.Peek()
	if ch != '-' && (ch < '0' || ch > '9') {
		if ch == 'N' || ch == 'I' {
			return nil, false, c.Syntax("NaN and Infinity are not JSON; send the tensor as binary data")
		}
		return nil, false, c.Syntax("found %s where a number is expected", c.DescribeNext())
	}
	start := c.I
	end, integer, fault := jsontext.Number(c.B, start)
	c.I = end
	if fault != jsontext.NoFault {
		return nil, false, c.Syntax("a number lacks a digit here")
	}
	return c.B[start:end], integer, nil
}

// Integer reads an integer of 64 bits.
func (c *Cursor) Integer() (int64, *httplimit.Error) {
	start := c.I
	text, isInteger, err := c.Number()
	if err != nil {
		return 0, err
	}
	v, perr := strconv.ParseInt(Alias(text), 10, 64)
	if !isInteger || perr != nil {
		c.I = start
		return 0, c.Syntax("%s is not an integer of 64 bits", httplimit.Clip(string(text)))
	}
	return v, nil
}

// literal reads a word if it is next, and reports whether it was.
func (c *Cursor) literal(word string) bool {
	c.Peek()
	if !bytes.HasPrefix(c.B[c.I:], []byte(word)) {
		return false
	}
	c.I += len(word)
	return true
}

// Boolean reads true or false.
func (c *Cursor) Boolean() (bool, *httplimit.Error) {
	if c.literal("true") {
		return true, nil
	}
	if c.literal("false") {
		return false, nil
	}
	return false, c.Syntax("found %s where true or false is expected", c.DescribeNext())
}

// Param reads the value of a parameter of a request as string, bool, int64, uint64 (for integers beyond int64) or
// float64. The protocol allows only such scalars.
func (c *Cursor) Param() (any, *httplimit.Error) {
	switch ch := c.Peek(); {
	case ch == '"':
		s, err := c.Str()
		return string(s), err
	case ch == 't' || ch == 'f':
		return paramOf(c.Boolean())
	case ch == '-' || ch >= '0' && ch <= '9':
		text, isInteger, err := c.Number()
		if err != nil {
			return nil, err
		}
		if isInteger {
			if v, parseErr := strconv.ParseInt(Alias(text), 10, 64); parseErr == nil {
				return v, nil
			}
			if v, parseErr := strconv.ParseUint(Alias(text), 10, 64); parseErr == nil {
				return v, nil
			}
		}
		v, parseErr := strconv.ParseFloat(Alias(text), 64)
		if parseErr != nil || math.IsInf(v, 0) {
			return nil, c.Syntax("%s does not fit in FP64", httplimit.Clip(string(text)))
		}
		return v, nil
	}
	return nil, c.Syntax("found %s; a parameter is a string, a number or a boolean", c.DescribeNext())
}

// paramOf returns a value, or nil if there is an error.
func paramOf[T any](v T, err *httplimit.Error) (any, *httplimit.Error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// SkipArray moves the cursor behind an array of numbers, strings, booleans or arrays, whose syntax it checks. depth is 1
// for the outermost; arrays nested deeper than MaxRank, the most dimensions of a tensor, are an error.
func (c *Cursor) SkipArray(depth int) *httplimit.Error {
	if depth > MaxRank {
		return c.Syntax("arrays nested deeper than %d", MaxRank)
	}
	return c.Array(func(int) *httplimit.Error {
		switch ch := c.Peek(); ch {
		case '[':
			return c.SkipArray(depth + 1)
		case '"':
			_, err := c.Str()
			return err
		case 't', 'f':
			_, err := c.Boolean()
			return err
		default:
			_, _, err := c.Number()
			return err
		}
	})
}

// Alias returns bytes as a string without copying them. It may be used only in calls that do not keep the string.
func Alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
