package worker

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

const ms = int64(1e6)

func TestSkewNarrowsAndFollows(t *testing.T) {
	const ahead = 7_000_000 * ms
	var s clockSkew
	// A first beat on a busy machine: 40 ms, nearly all of it on the way out.
	s.update(1000*ms, 1040*ms, 1039*ms+ahead, 1039*ms+ahead)
	if s.minAhead > ahead || s.maxAhead < ahead || s.maxAhead-s.minAhead != 40*ms {
		t.Fatalf("band %+v", s)
	}
	// A run of 1 ms, sent at 1050 and answered at 1051.2, narrows it at once.
	start, end := s.toLocal(1050*ms, 1051*ms+200_000, 1050*ms+100_000+ahead, 1051*ms+100_000+ahead)
	if start < 1050*ms || end > 1051*ms+200_000 || end-start != ms {
		t.Errorf("a run of 1 ms from 1050 to 1051.2 ms stands at %d to %d", start, end)
	}
	if s.maxAhead-s.minAhead > 200_000+10*400 {
		t.Errorf("band still %d ns wide", s.maxAhead-s.minAhead)
	}
	// The other clock runs 100 ppm fast for an hour, with a beat each 10 s.
	now, there := 2000*ms, 2000*ms+ahead
	for range 360 {
		now, there = now+10_000*ms, there+10_001*ms
		s.update(now, now+ms, there, there)
		if got := there - now; s.minAhead > got || s.maxAhead < got {
			t.Fatalf("band %+v lost the skew %d", s, got)
		}
	}
	// It was suspended for a minute: the band begins anew.
	now = now + 60_000*ms
	s.update(now, now+ms, there, there)
	if got := there - now; s.minAhead > got || s.maxAhead < got {
		t.Errorf("band %+v after a jump to %d", s, got)
	}
}

// Whatever the ways take and whatever the other side claims, a run lies
// between its sending and its result; when the claims are true it keeps its
// length.
func TestSkewKeepsRunsInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const began = int64(1) << 50
		ahead := rapid.Int64Range(-began, 1<<60).Draw(t, "ahead")
		var s clockSkew
		now := began
		for range rapid.IntRange(1, 20).Draw(t, "runs") {
			sent := now + rapid.Int64Range(0, 100*ms).Draw(t, "idle")
			start := sent + rapid.Int64Range(0, 50*ms).Draw(t, "way out")
			end := start + rapid.Int64Range(0, 50*ms).Draw(t, "run")
			now = end + rapid.Int64Range(0, 50*ms).Draw(t, "way back")
			if rapid.Bool().Draw(t, "liar") {
				a, b := s.toLocal(sent, now, start+ahead+rapid.Int64Range(-1000*ms, 1000*ms).Draw(t, "lie"), rapid.Int64Range(math.MinInt64, math.MaxInt64).Draw(t, "any"))
				if a < sent || b > now || a > b {
					t.Fatalf("%d to %d outside %d to %d", a, b, sent, now)
				}
				s = clockSkew{}
				continue
			}
			a, b := s.toLocal(sent, now, start+ahead, end+ahead)
			if a < sent || b > now || b-a != end-start {
				t.Fatalf("a run of %d ns stands at %d to %d, sent %d, got %d", end-start, a, b, sent, now)
			}
			if s.minAhead > ahead || s.maxAhead < ahead {
				t.Fatalf("band %+v lost %d", s, ahead)
			}
		}
	})
}
