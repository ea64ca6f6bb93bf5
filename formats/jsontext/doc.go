// Package jsontext is the lexical layer of JSON (RFC 8259): white space, numbers,
// strings and their escapes, over a string or a slice of bytes.
//
// Two readers stand on it. Package formats/document reads documents and tells people the line and
// the field of what is wrong. Package executor/oip reads tensors out of requests and
// builds no values. What a number and a string are is said here once. Each scan starts at
// an index and returns the index behind what it read, or a Fault and the place of it.
//
//	scan.go    Space, Number, String, Unescape
//	quote.go   AppendQuoted
package jsontext
