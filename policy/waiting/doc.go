// Package waiting holds the requests of a model that wait for a decision, in the order of their deadlines, for all
// policies (queue.go).
package waiting
