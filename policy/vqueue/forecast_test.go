package vqueue_test

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
)

// TestCoverageAdapts: nine of ten waits are below the quantile where they stray half as much as was thought, twice as
// much, or are later by a deviation in turns. The quantile of a normal is below 84 % there, or above 98.
func TestCoverageAdapts(t *testing.T) {
	for _, x := range []struct {
		name  string
		wait  func(i int, normal float64) float64
		fixed bool // a quantile that stays is right
	}{
		{"as was thought", func(_ int, n float64) float64 { return n }, true},
		{"half as much", func(_ int, n float64) float64 { return n / 2 }, false},
		{"twice as much", func(_ int, n float64) float64 { return 2 * n }, false},
		{"later in turns", func(i int, n float64) float64 { return n + float64(i/300%2) }, false},
	} {
		rng := seeded.New(1, x.name)
		var c, still vqueue.WaitQuantile
		below, fixed := 0.0, 0.0
		const n = 3000
		for i := range n {
			wait := x.wait(i, rng.NormFloat64())
			if wait <= c.Width() {
				below++
			}
			if wait <= still.Width() {
				fixed++
			}
			c.Observe(wait, c.Width(), 24)
		}
		t.Logf("%s: %.3f are below the quantile, %.3f below one that stays", x.name, below/n, fixed/n)
		if below/n < 0.89 || below/n > 0.94 {
			t.Errorf("%s: %.3f are below the quantile", x.name, below/n)
		}
		if right := fixed/n > 0.88 && fixed/n < 0.92; right != x.fixed {
			t.Errorf("%s: %.3f are below one that stays, so this shows nothing", x.name, fixed/n)
		}
	}
}

// TestForecastIsOfWhatWasKnown: a forecast is held against the prices at its beginning. Requests that take what was
// expected never pass the quantile, those that take twice as much always do, even once the prices are right.
func TestForecastIsOfWhatWasKnown(t *testing.T) {
	width := func(each float64, price func(i int) float64) (float64, float64) {
		var c vqueue.WaitQuantile
		var pace vqueue.Follower
		f := vqueue.NewForecast(2, &c, &pace)
		for i := range 100 {
			own := vqueue.RequestWork{PerPromptToken: 0.05, PerRequest: price(i) - 0.5, Variance: 0.01}
			f.ObserveStart(each*float64(i), 4, 1, 10, own, []vqueue.RequestWork{{PerRequest: 1000}, own}, 0.01)
		}
		return c.Width(), pace.Slowdown()
	}
	var none vqueue.WaitQuantile
	for _, x := range []struct {
		name        string
		each        float64
		price       func(i int) float64
		least, most float64 // width over that of a normal
		pace        float64
	}{
		{"what was expected", 1, func(int) float64 { return 1 }, -1.2, -0.1, 1},
		{"twice as much", 2, func(int) float64 { return 1 }, 0.5, 3, 1.75},
		{"twice as much, and so expected after the first batch", 2, func(i int) float64 { return 1 + float64(min(i/10, 1)) }, -0.5, 1, 1},
	} {
		got, pace := width(x.each, x.price)
		if by := got - none.Width(); by < x.least || by > x.most || math.Abs(pace-x.pace) > 0.1 {
			t.Errorf("requests take %s: the width is %.2f above that of a normal, the pace %.2f", x.name, by, pace)
		}
	}
	var c vqueue.WaitQuantile
	var pace vqueue.Follower
	f := vqueue.NewForecast(1, &c, &pace)
	for i := range 100 { // never full for long
		if i%6 == 0 {
			f.Reset()
		}
		f.ObserveStart(float64(3*i), 4, 0, 0, vqueue.RequestWork{PerRequest: 1}, []vqueue.RequestWork{{PerRequest: 1}}, 0.01)
	}
	if c.Width() != none.Width() {
		t.Errorf("no forecast was due, and the width is %.2f", c.Width())
	}
}

// TestWaitsWiden: answers are as long as planned in the mean and stray much more. Starts are then foretold with a wider
// spread, after a while. Where nothing follows the spread stays.
func TestWaitsWiden(t *testing.T) {
	for _, follow := range []bool{false, true} {
		tab := instanceTables([]int32{0}, 1, 4)
		for i := range vqueue.TablesOf(tab).RCT {
			vqueue.TablesOf(tab).RCT[i].OutputVar = 1
		}
		var lists [][]testRequest
		for from := time.Duration(0); from < 240*time.Second; from += 20 * time.Second {
			lists = append(lists, steadyRequests(10, from, from+10*time.Second, 1, 20), steadyRequests(10, from+10*time.Second, from+20*time.Second, 1, 180))
		}
		p := playRequests(t, tab, vqueue.Options{FollowInstances: follow, NoReplan: true}, byTime(lists...))
		wide := p.pol.(*vqueue.Policy).StartSDScale()
		t.Logf("follows: %v: %.2f times the spread", follow, wide)
		if follow != (wide > 1.05) {
			t.Errorf("follows: %v: %.2f times the spread", follow, wide)
		}
	}
}
