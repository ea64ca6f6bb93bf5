// Package underway keeps account of dispatched batches for the policies of pooled
// pipelines: who is in a batch, where it goes and how far it is; and what else
// baselines that reserve nothing beyond a tail per resource have in common
// (baseline.go).
package underway
