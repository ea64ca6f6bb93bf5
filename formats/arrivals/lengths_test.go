package arrivals

import (
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/seeded"
)

// What is drawn has the moments that were asked for, and stays within its bounds.
func TestLengthsHaveGivenMoments(t *testing.T) {
	for _, c := range []struct {
		name     string
		l        *formats.Lengths
		mean, sd float64 // 0: not checked
		most     int32
	}{
		{"nothing", nil, 1, 0, 1},
		{"fixed", &formats.Lengths{Distribution: "fixed", Mean: 300}, 300, 0, 300},
		{"normal", &formats.Lengths{Distribution: "normal", Mean: 300, SD: 40}, 300, 40, 600},
		{"lognormal", &formats.Lengths{Distribution: "lognormal", Mean: 800, SD: 900}, 800, 900, longest},
		{"lognormal, cut", &formats.Lengths{Distribution: "lognormal", Mean: 800, SD: 900, Max: 1000}, 0, 0, 1000},
		{"log-t", &formats.Lengths{Distribution: "log-t", Location: 5, Scale: .5, Tail: 3, Max: 4096}, 0, 0, 4096},
		{"empirical", &formats.Lengths{Distribution: "empirical", Tokens: []int{100, 200, 400}, Weights: []float64{1, 2, 1}}, 225, 108.97, 400},
		{"empirical, equal", &formats.Lengths{Distribution: "empirical", Tokens: []int{100, 300}}, 200, 100, 300},
	} {
		draw := Lengths(c.l, seeded.New(1, c.name))
		const n = 100000
		sum, squares := 0.0, 0.0
		over := 0
		for range n {
			x := draw()
			if x < 1 || x > c.most {
				t.Fatalf("%s: drew %d", c.name, x)
			}
			if x > 148 { // e^5: the median of the log-t
				over++
			}
			sum += float64(x)
			squares += float64(x) * float64(x)
		}
		mean := sum / n
		sd := math.Sqrt(max(0, squares/n-mean*mean))
		if c.mean > 0 && (math.Abs(mean/c.mean-1) > 0.02 || math.Abs(sd-c.sd) > 0.05*c.sd+1e-6) {
			t.Errorf("%s: mean %.1f, deviation %.1f, want %g and %g", c.name, mean, sd, c.mean, c.sd)
		}
		if c.name == "log-t" && math.Abs(float64(over)/n-0.5) > 0.01 {
			t.Errorf("%s: %d of %d above the median", c.name, over, n)
		}
	}
	s := WithLengths(Slice([]Request{{ArrivedAt: time.Second}}), seeded.New(1, "x"), &formats.Lengths{Distribution: "fixed", Mean: 7}, nil)
	var r Request
	if !s.Next(&r) || r.PromptTokens != 7 || r.OutputTokens != 1 || r.ArrivedAt != time.Second || s.Next(&r) {
		t.Errorf("%+v", r)
	}
}

// Sessions have as many requests as was asked for in the mean, each with all that
// was said before in its prompt.
func TestWithSessions(t *testing.T) {
	rng := seeded.New(2, "s")
	src := WithLengths(Poisson(rng, 0, 5, 2000*time.Second), seeded.New(2, "l"), &formats.Lengths{Distribution: "fixed", Mean: 50}, &formats.Lengths{Distribution: "fixed", Mean: 100})
	src = WithSessions(src, seeded.New(2, "w"), &formats.Sessions{Turns: 4, SharedTokens: 20, ThinkUS: 5e9}, 1000)
	type turn struct {
		prompt int32
		n      int
	}
	seen := map[int64]turn{}
	var r Request
	requests, at := 0, time.Duration(0)
	for ; src.Next(&r); requests++ {
		was, again := seen[r.Session]
		want := int32(70)
		if again {
			want = was.prompt + 150
		}
		if r.PromptTokens != want || r.ArrivedAt < at || r.Session <= 1000 {
			t.Fatalf("turn %d of session %d: a prompt of %d, want %d", was.n+1, r.Session, r.PromptTokens, want)
		}
		seen[r.Session], at = turn{r.PromptTokens, was.n + 1}, r.ArrivedAt
	}
	if mean := float64(requests) / float64(len(seen)); math.Abs(mean-4) > 0.2 {
		t.Errorf("%d requests in %d sessions: %.2f each, want 4", requests, len(seen), mean)
	}
}
