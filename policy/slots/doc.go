// Package slots numbers values that come and go: the number (slot) of a value that has ended is used again, so no memory
// is allocated for the next one (slots.go). Lists of such values are linked by their numbers (list.go).
// Ring is a queue of values that have no numbers (ring.go).
package slots
