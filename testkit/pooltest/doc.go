// Package pooltest holds the documents of a small world of pooled pipelines, for
// tests.
package pooltest
