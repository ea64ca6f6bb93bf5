// Package jsonscan reads the JSON of strangers, in time and memory linear in its bytes
// and without building values.
//
//	cursor.go    Cursor: objects, arrays, strings, numbers, and what to pass over
//	progress.go  Progress: who waits for the answer, and the memory that decoding takes
package jsonscan
