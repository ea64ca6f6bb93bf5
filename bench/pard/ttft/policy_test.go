package ttft

import (
	"math"
	"testing"
	"time"
)

const (
	slo  = 5 * time.Second
	idle = 10 * time.Millisecond
)

func made(t *testing.T, name string) *Policy {
	t.Helper()
	p, err := New(name, slo, idle, 2, .5, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// taught lets a second of short rewrites of kind 0 and long ones of kind 1 end.
func taught(p *Policy) (now time.Duration) {
	for i := range 40 {
		now = time.Duration(i) * 25 * time.Millisecond
		kind, tokens := i%2, int32(50+450*(i%2))
		p.Rewritten(now, time.Duration(tokens)*idle, kind, tokens)
		p.Ended(now, Search, 500*time.Millisecond)
		p.Ended(now, Generate, 100*time.Millisecond)
	}
	return now
}

// Each policy takes another time for a rewrite: the mean is about 2.75 s, that of a
// long one 5 s, and half a second of search and the like comes on top.
func TestWhoGoesOn(t *testing.T) {
	for _, c := range []struct {
		name        string
		short, long bool          // with the whole SLO left
		left        time.Duration // so much is left
		then        bool          // a short one goes on
	}{
		{"reactive", true, true, time.Millisecond, true},
		{"proactive", true, true, 2 * time.Second, false},
		{"predicted", true, false, 2 * time.Second, true},
		{"oracle", true, false, 2 * time.Second, true},
	} {
		p := made(t, c.name)
		now := taught(p)
		ask := func(kind int, output int32, left time.Duration) bool {
			return p.Keep(now, Rewrite, &Request{Deadline: now + left, Kind: kind, Output: output, Prefill: 50 * time.Millisecond})
		}
		if got := ask(0, 50, slo); got != c.short {
			t.Errorf("%s keeps a short one: %v", c.name, got)
		}
		if got := ask(1, 500, slo); got != c.long {
			t.Errorf("%s keeps a long one: %v", c.name, got)
		}
		if got := ask(0, 50, c.left); got != c.then {
			t.Errorf("%s keeps a short one with %v left: %v", c.name, c.left, got)
		}
		if p.Keep(now, Generate, &Request{Deadline: now - 1}) {
			t.Errorf("%s keeps what is late", c.name)
		}
		if p.Keep(now, Generate, &Request{Deadline: now + 120*time.Millisecond, Prefill: 50 * time.Millisecond}) != (c.name == "reactive") {
			t.Errorf("%s: the wait and the prompt of generation do not count", c.name)
		}
	}
}

// The entry turns away more the longer requests take, and nothing at other stages.
func TestProbabilistic(t *testing.T) {
	p := made(t, "probabilistic")
	now := taught(p) // about 3.35 of 5 s: a share of .17
	kept := 0
	for range 10_000 {
		if p.Keep(now, Rewrite, &Request{Deadline: now + slo}) {
			kept++
		}
	}
	if share := 1 - float64(kept)/10_000; math.Abs(share-p.turned(now)) > .02 || share < .1 || share > .25 {
		t.Errorf("%v are turned away, want %v", share, p.turned(now))
	}
	if !p.Keep(now, Generate, &Request{Deadline: now + 1}) {
		t.Error("one is turned away behind the entry")
	}
}

// What ended long ago is forgotten, so that a policy that drops all goes on again.
func TestForgets(t *testing.T) {
	p := made(t, "proactive")
	for i := range 100 {
		p.Rewritten(time.Duration(i)*time.Millisecond, 20*time.Second, 0, 100)
	}
	r := Request{Deadline: time.Second + slo}
	if p.Keep(time.Second, Rewrite, &r) {
		t.Error("20 s of rewriting go on")
	}
	if r.Deadline = time.Minute + slo; !p.Keep(time.Minute, Rewrite, &r) {
		t.Error("a minute later nothing goes on")
	}
}

func TestQuantiles(t *testing.T) {
	var l lengths
	if _, ok := l.quantile(.5); ok {
		t.Error("a quantile of nothing")
	}
	for i := range 200 {
		l.add(int32(i))
	}
	if q, ok := l.quantile(.5); !ok || q != 168 {
		t.Errorf("%d, want the median of the last 64 lengths, 168", q)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New("guess", slo, idle, 1, .5, 1); err == nil {
		t.Error("an unknown policy")
	}
	if _, err := New("oracle", slo, idle, 1, 1, 1); err == nil {
		t.Error("a quantile of 1")
	}
}
