package gear

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// byPrograms is a problem on identical devices as one on two kinds, of which the second one
// has no devices: everything comes from linear programs.
func byPrograms(p *Problem) *Problem {
	return mix(p, p.Devices, 0, slices.Repeat([]float64{1}, len(p.Models)))
}

// differ tells whether numbers are further apart than a part of them, or one of them is none.
func differ(a, b, part float64) bool {
	return math.IsNaN(a) != math.IsNaN(b) || math.IsInf(a, 1) != math.IsInf(b, 1) || math.Abs(a-b) > part*max(1, math.Abs(a))
}

// What is found on identical devices without programs is what programs find there: loads of
// cascades on any placement, with a split that comes to them, what bounds all plans, which
// placement is the best and what it is allowed.
func TestIdenticalDevicesByPrograms(t *testing.T) {
	s, ctx := solver(t), context.Background()
	loads, unplaced, unserved := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		fast, err := wholeFleet(t.Context(), p, s, nil)
		slow, other := wholeFleet(t.Context(), byPrograms(p), s, nil)
		if (err == nil) != (other == nil) {
			t.Fatalf("%v, by programs %v", err, other)
		}
		if err != nil {
			return
		}
		if !slices.EqualFunc(fast.list, slow.list, func(a, b Cascade) bool { return slices.Equal(a.Reach, b.Reach) && a.Correct == b.Correct }) {
			t.Fatalf("%d cascades, by programs %d others", len(fast.list), len(slow.list))
		}
		var placed [][]Config
		fast.placements(func(configs []Config) { placed = append(placed, configs) })
		for range 4 {
			configs := rapid.SampledFrom(placed).Draw(t, "placement")
			a, b, i := fast.layoutOf(configs, nil), slow.layoutOf(configs, nil), rapid.IntRange(0, len(fast.list)-1).Draw(t, "cascade")
			want, err := b.split(ctx, i)
			if err != nil {
				t.Fatal(err)
			}
			if math.IsInf(want.taken, 1) {
				unplaced++
			}
			if got := a.atLeast(i); differ(want.taken, got, 1e-9) {
				t.Fatalf("load %v on %v, by a program %v", got, configs, want.taken)
			}
			if loads++; b.atLeast(i) > want.taken+1e-9 {
				t.Fatalf("load %v, bounded from below by %v", want.taken, b.atLeast(i))
			}
		}
		bounds, total := relaxation{p}.boundsOf(fast)
		want, _, err := slow.bounds(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for r := range want {
			if differ(want[r], bounds[r], 1e-6) {
				t.Fatalf("bounds %v, by programs %v", bounds, want)
			}
		}
		if math.IsNaN(total) {
			unserved++
			return // nor does the program that places models say anything
		}
		sameRanking(t, fast, slow)
	})
	if t.Logf("%d loads, %d infinite; %d without a bound", loads, unplaced, unserved); loads < 100 || unplaced == 0 || unserved == 0 {
		t.Errorf("%d loads, %d infinite; %d without a bound: expected 100 and some", loads, unplaced, unserved)
	}
}

// sameRanking checks that the best placements are allowed the same.
func sameRanking(t *rapid.T, fast, slow *fleet) {
	const first = 5
	got, all, err := fast.ranked(context.Background(), first)
	if err != nil || !all {
		t.Fatalf("ranked %v, %v", all, err)
	}
	want, _, err := slow.ranked(context.Background(), first)
	if err != nil || len(want) != len(got) {
		t.Fatalf("%d placements, by programs %d, %v", len(got), len(want), err)
	}
	for k := range got {
		if len(got[k].ranges) != len(want[k].ranges) || differ(want[k].accuracy, got[k].accuracy, 1e-9) {
			t.Fatalf("placement %d is allowed %v in %v, by programs %v in %v", k, got[k].accuracy, got[k].ranges, want[k].accuracy, want[k].ranges)
		}
	}
}

// Plans on identical devices are as accurate as those by programs, with the same bounds.
func TestPlansOnIdenticalDevicesByPrograms(t *testing.T) {
	s, ctx := solver(t), context.Background()
	plans, seeds := 0, 130
	if long {
		seeds = 1000
	}
	for seed := 1; seed <= seeds; seed++ {
		p := rapid.Custom(draw).Example(seed)
		fast, err := Solve(ctx, p, s, Options{Seed: 1})
		slow, other := Solve(ctx, byPrograms(p), s, Options{Seed: 1})
		_, none := errors.AsType[*Infeasible](err)
		if _, also := errors.AsType[*Infeasible](other); none && also {
			continue
		}
		if err != nil || other != nil {
			t.Errorf("problem %d: %v, by programs %v", seed, err, other)
			continue
		}
		plans++
		if differ(slow.Accuracy, fast.Accuracy, 1e-9) || differ(slow.GearBound, fast.GearBound, 1e-9) || differ(slow.Bound, fast.Bound, 1e-6) {
			t.Errorf("problem %d: accuracy %v of %v and %v, by programs %v of %v and %v", seed, fast.Accuracy, fast.GearBound, fast.Bound, slow.Accuracy, slow.GearBound, slow.Bound)
		}
	}
	if t.Logf("%d plans", plans); plans < seeds/4 {
		t.Errorf("only %d problems have a plan", plans)
	}
}
