//go:build race

package ort

// The race detector sees Go's side only, and makes the comparisons of tensors
// ten times slower: under it the chain tests take the two small CNNs.
const raced = true
