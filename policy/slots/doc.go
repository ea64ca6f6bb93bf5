// Package slots numbers values that come and go: the number (slot) of a value that has ended is used again, so no memory
// is allocated for the next one (slots.go).
package slots
