// Package jsonscan reads the JSON of untrusted clients, in time and memory linear in its bytes and without building
// values. It stops when the client has disconnected.
//
// Order of reading: cursor.go (Cursor: reads objects, arrays, strings and numbers), progress.go (Progress: checks
// whether the client still waits, and books memory).
package jsonscan
