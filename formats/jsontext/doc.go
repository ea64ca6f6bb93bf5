// Package jsontext is the lexical layer of JSON (RFC 8259): white space, numbers, strings and their escapes, in a
// string or a slice of bytes.
//
// Two readers use it. Package formats/document reads documents, and reports the line and the field of errors.
// Package executor/oip reads tensors from requests without building values. Each scan starts at an index and
// returns the index behind what it read, or a Fault and its index.
//
//	scan.go    Space, Number, String, Unescape
//	quote.go   AppendQuoted
package jsontext
