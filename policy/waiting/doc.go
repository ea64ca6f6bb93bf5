// Package waiting holds a model's requests that wait for a decision, in the
// order of their deadlines: what the policies have in common about a queue.
package waiting
