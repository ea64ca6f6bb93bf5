package jsontext

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// AppendQuoted appends s to dst as a JSON string. It escapes what JSON requires and DEL, and nothing for HTML.
// Bytes that are not UTF-8 become U+FFFD.
func AppendQuoted[T Text](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0 // of the bytes that are copied unchanged
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' || c == 0x7f {
				dst = appendEscaped(append(dst, s[start:i]...), c)
				start = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		if r == utf8.RuneError && size == 1 {
			dst = utf8.AppendRune(append(dst, s[start:i]...), r)
			start = i + 1
		}
		i += size
	}
	return append(append(dst, s[start:]...), '"')
}

// appendEscaped appends the JSON escape of a character below 128 that may not stand in a text as it is.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\t':
		return append(dst, '\\', 't')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
