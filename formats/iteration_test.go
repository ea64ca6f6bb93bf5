package formats

import (
	"testing"
	"time"
)

// An iteration costs what its formula says, term by term.
func TestIterationTime(t *testing.T) {
	it := Iteration{BaseNS: 10e6, SequenceNS: 1e5, ContextNS: 100, PromptNS: 5e4, HingeTokens: 128, AttentionNS: 2, CPUNS: 3e5, CPUSequenceNS: 3e4}
	for _, c := range []struct {
		name string
		work IterationWork
		want time.Duration
	}{
		{"empty", IterationWork{}, 10300 * time.Microsecond},
		{"decoding", IterationWork{DecodingSequences: 10, ContextTokens: 5000}, (10300 + 1000 + 500 + 300) * time.Microsecond},
		{"a prompt below the hinge", IterationWork{PrefillSequences: 1, PromptTokens: 100, AttentionPairs: 5000}, (10300 + 30 + 10) * time.Microsecond},
		{"a prompt beside sequences", IterationWork{DecodingSequences: 28, PrefillSequences: 1, PromptTokens: 200, ContextTokens: 1000, AttentionPairs: 1e6}, (10300 + 2800 + 100 + 29*30 + 2000 + 5000) * time.Microsecond},
	} {
		if got := it.Duration(c.work); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	whole := it.PrefillTime(3000, 0)
	if want := it.Duration(IterationWork{PrefillSequences: 1, PromptTokens: 3000, AttentionPairs: 4.5e6}); whole != want {
		t.Errorf("a prompt at once: %v, want %v", whole, want)
	}
	// In two chunks the same pairs are read, the base is paid twice and the hinge spared twice.
	if got, want := it.PrefillTime(3000, 2048)-whole, 10330*time.Microsecond-128*50*time.Microsecond; got != want {
		t.Errorf("a second chunk costs %v, want %v", got, want)
	}
	if got, want := it.TokenTime(10, 500), it.Duration(IterationWork{DecodingSequences: 10, ContextTokens: 5000}); got != want {
		t.Errorf("a token takes %v, want %v", got, want)
	}
}
