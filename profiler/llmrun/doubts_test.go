package llmrun

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats"
)

func TestDoubtsNameWhatIsUncertain(t *testing.T) {
	for _, c := range []struct {
		name      string
		allReduce string
		cpu       time.Duration
		given     bool
		r2        float64
		want      string
	}{
		{"nothing", "", time.Millisecond, false, .99, ""},
		{"all-reduces are absent", formats.NoAllReduce, time.Millisecond, true, .99, "WITHOUT ALL-REDUCES"},
		{"the fit is at its edge", "", maxSum / 2, false, .99, "the most that is looked at"},
		{"the constants were given", "", maxSum / 2, true, .99, ""},
		{"the run is poorly explained", "", 0, true, .5, "R2 0.50"},
	} {
		got := (&Run{AllReduce: c.allReduce}).Doubts(CPUCost{Iteration: c.cpu}, c.given, &Comparison{R2: c.r2})
		if text := strings.Join(got, "; "); !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %q, expected %q", c.name, text, c.want)
		}
	}
}
