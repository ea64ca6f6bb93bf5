package jsontext

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Text is the type of scanned texts.
type Text interface{ ~string | ~[]byte }

// Fault says what is wrong with a text.
type Fault uint8

// The faults. NoFault means that there is none.
const (
	NoFault          Fault = iota
	NoDigit                // a digit is missing
	UnclosedString         // the text ends before the closing quote of a string
	ControlCharacter       // a control character inside a string
	BadEscape              // an unknown escape; the index is behind the backslash
	BadHex                 // fewer than four hexadecimal digits after \u
	HalfSurrogate          // one half of a surrogate pair alone; the index is behind it
)

// Space returns the index of the first byte from i that is not white space.
func Space[T Text](s T, i int) int {
	for i < len(s) {
		switch s[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// Number scans -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? from i. It returns the index behind it and whether
// it is written as an integer. For NoDigit it returns the index at which the digit is missing.
func Number[T Text](s T, i int) (end int, integer bool, fault Fault) {
	if i < len(s) && s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if end = digits(s, i); end == i {
		return i, false, NoDigit
	} else {
		i = end
	}

	// Then the fraction and the exponent, if there are any.
	integer = true
	if i < len(s) && s[i] == '.' {
		integer = false
		if end = digits(s, i+1); end == i+1 {
			return end, false, NoDigit
		}
		i = end
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		integer = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if end = digits(s, i); end == i {
			return i, false, NoDigit
		}
		i = end
	}
	return i, integer, NoFault
}

// digits returns the position behind the decimal digits that start at s[i].
func digits[T Text](s T, i int) int {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i
}

// String scans the string whose opening quote is s[i]. It returns the index behind the closing quote. The content
// is s[i+1 : end-1]. If isPlain is false, it has escapes, which Unescape reads. It only finds UnclosedString and
// ControlCharacter.
func String[T Text](s T, i int) (end int, isPlain bool, fault Fault) {
	isPlain = true
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1, isPlain, NoFault
		case c == '\\':
			isPlain = false
			i++
		case c < ' ':
			return i, isPlain, ControlCharacter
		}
	}
	return len(s), isPlain, UnclosedString
}

// Unescape appends the content of a string to dst with its escapes replaced. The position of a fault is an index
// into content. Half of a surrogate pair is a fault if strict is set, and otherwise becomes U+FFFD.
func Unescape[T Text](dst []byte, content T, strict bool) (out []byte, position int, fault Fault) {
	for i := 0; i < len(content); {
		if c := content[i]; c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		r, next, fault := escape(content, i)
		if fault != NoFault && (strict || fault != HalfSurrogate) {
			return dst, next, fault
		}
		dst = utf8.AppendRune(dst, r)
		i = next
	}
	return dst, 0, NoFault
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape returns the character of the escape whose backslash is s[i], and the position behind it. Half of a
// surrogate pair is read with its other half.
func escape[T Text](s T, i int) (r rune, next int, fault Fault) {
	if i++; i == len(s) {
		return 0, i, BadEscape
	}
	if s[i] != 'u' {
		if e := escapes[s[i]]; e != 0 {
			return rune(e), i + 1, NoFault
		}
		return 0, i, BadEscape
	}

	// Read \u and four digits.
	r, ok := hex4(s, i+1)
	if !ok {
		return 0, i + 1, BadHex
	}
	i += 5
	if !utf16.IsSurrogate(r) {
		return r, i, NoFault
	}
	if i+1 < len(s) && s[i] == '\\' && s[i+1] == 'u' {
		lowHalf, ok := hex4(s, i+2)
		if !ok {
			return 0, i + 2, BadHex
		}
		if pair := utf16.DecodeRune(r, lowHalf); pair != utf8.RuneError {
			return pair, i + 6, NoFault
		}
	}
	return utf8.RuneError, i, HalfSurrogate
}

// hex4 returns the value of the four hexadecimal digits at s[i], as in \u00e9, or false if there are not four.
func hex4[T Text](s T, i int) (rune, bool) {
	if len(s) < i+4 {
		return 0, false
	}
	var v rune
	for k := range 4 {
		switch c := s[i+k]; {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
