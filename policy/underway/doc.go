// Package underway keeps account of dispatched batches for policies that
// reserve nothing beyond a tail per resource: who is in a batch, where it goes
// and how far it is; and what else such baselines have in common
// (baseline.go).
package underway
