// Package outcomes writes and reads what became of every request of a run: as a CSV file of our own, and as the lines of JSON
// that vegeta report and vegeta plot read.
package outcomes
