package verify

import (
	"math"
	"testing"
	"time"

	"inferplan/formats"
)

// The figure of a mean request is that of its chunks one after the other, and does not
// take longer to compute for a longer prompt.
func TestIdleIsTheSumOfChunks(t *testing.T) {
	on := &formats.LLMInstance{Iteration: formats.Iteration{BaseNS: 13e6, SequenceNS: 87000, ContextNS: 183, PromptNS: 64000, HingeTokens: 128, AttentionNS: 2, CPUNS: 300}}
	for _, c := range []struct {
		prompt float64
		budget int
	}{{300, 0}, {300, 512}, {1024, 512}, {1500.5, 512}, {7, 8}, {1, 1}} {
		it, want := &on.Iteration, 0.0
		for left, before := c.prompt, 0.0; left > 0; {
			n := left
			if c.budget > 0 {
				n = min(n, float64(c.budget))
			}
			want += it.BaseNS + it.CPUNS + it.AttentionNS*n*(before+n/2) + it.PromptNS*max(0, n-it.HingeTokens)
			left, before = left-n, before+n
		}
		got := idleFigure(&formats.QueueClass{Figure: formats.FigureTTFT, PromptMean: c.prompt}, on, c.budget)
		if math.Abs(got-want/1e9) > 1e-12*want {
			t.Errorf("prompt of %g in chunks of %d: %g s, expected %g", c.prompt, c.budget, got, want/1e9)
		}
	}
	begun := time.Now()
	if got := idleFigure(&formats.QueueClass{Figure: formats.FigureTTFT, PromptMean: 1 << 63}, on, 512); !(got > 1e15) || time.Since(begun) > time.Second {
		t.Errorf("a prompt of 2^63: %g s, after %v", got, time.Since(begun))
	}
}
