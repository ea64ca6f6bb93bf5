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
		{"decoding", IterationWork{Decoding: 10, Context: 5000}, (10300 + 1000 + 500 + 300) * time.Microsecond},
		{"a prompt below the hinge", IterationWork{Prefill: 1, Prompt: 100, Pairs: 5000}, (10300 + 30 + 10) * time.Microsecond},
		{"a prompt beside sequences", IterationWork{Decoding: 28, Prefill: 1, Prompt: 200, Context: 1000, Pairs: 1e6}, (10300 + 2800 + 100 + 29*30 + 2000 + 5000) * time.Microsecond},
	} {
		if got := it.Time(c.work); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	whole := it.Prefill(3000, 0)
	if want := it.Time(IterationWork{Prefill: 1, Prompt: 3000, Pairs: 4.5e6}); whole != want {
		t.Errorf("a prompt at once: %v, want %v", whole, want)
	}
	// In two chunks the same pairs are read, the base is paid twice and the hinge spared twice.
	if got, want := it.Prefill(3000, 2048)-whole, 10330*time.Microsecond-128*50*time.Microsecond; got != want {
		t.Errorf("a second chunk costs %v, want %v", got, want)
	}
	if got, want := it.PerToken(10, 500), it.Time(IterationWork{Decoding: 10, Context: 5000}); got != want {
		t.Errorf("a token takes %v, want %v", got, want)
	}
}
