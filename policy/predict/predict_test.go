package predict

import (
	"slices"
	"testing"

	"inferplan/formats/seeded"
)

// A table predicts what followed most often, backs off to the last token where a
// prefix is rare, and to the end where nothing is known.
func TestPredictionIsLikeliestAndBacksOff(t *testing.T) {
	tab := New(Options{})
	a, b, c := tab.TokenNumber(0, 0, []int32{0}), tab.TokenNumber(1, 0, []int32{1}), tab.TokenNumber(2, 250_000, []int32{1, 2})
	learn := func(times int, path ...int32) {
		for range times {
			tab.Learn(0, NoFeature, path, 1)
		}
	}
	ahead := func(path ...int32) []int32 {
		cur := tab.CursorAtStart(0, NoFeature)
		for _, k := range path {
			tab.Advance(&cur, k)
		}
		return tab.PredictTokens(cur, 10, nil)
	}
	if got := ahead(a); len(got) != 0 {
		t.Errorf("an empty table expects %v", got)
	}
	learn(5, a, b, c)
	learn(4, a, c)
	if got := ahead(a); !slices.Equal(got, []int32{b, c}) {
		t.Errorf("after a: %v, expected b, c", got)
	}
	if got := ahead(a, b, c); len(got) != 0 {
		t.Errorf("after the whole: %v, expected the end", got)
	}
	// b, c was never a prefix; after c alone came nothing, after b alone c.
	if got := ahead(b); !slices.Equal(got, []int32{c}) {
		t.Errorf("after b alone: %v, expected c by the last token", got)
	}
	learn(2, a, a, b) // two samples of the prefix a, a are too few
	if got := ahead(a, a); !slices.Equal(got[:1], []int32{b}) {
		t.Errorf("after a rare prefix: %v, expected what follows a", got)
	}
	if got := tab.Token(c); got.Service != 2 || got.Work != 250_000 || !slices.Equal(got.Inputs, []int32{1, 2}) {
		t.Errorf("token %+v", got)
	}
	other := tab.CursorAtStart(1, NoFeature)
	if got := tab.PredictTokens(other, 10, nil); len(got) != 0 {
		t.Errorf("another application expects %v", got)
	}
}

// Shares are the relative counts, and samples follow them.
func TestChancesAreRelativeCounts(t *testing.T) {
	tab := New(Options{Sampled: true, Seed: 3})
	a, b, c := tab.TokenNumber(0, 0, nil), tab.TokenNumber(1, 0, nil), tab.TokenNumber(2, 0, nil)
	for i := range 100 {
		path := []int32{a, b}
		if i%4 == 0 {
			path = []int32{a, c}
		}
		tab.Learn(0, NoFeature, path, 1)
	}
	cur := tab.CursorAtStart(0, NoFeature)
	tab.Advance(&cur, a)
	got := map[int32]float64{}
	for _, s := range tab.NextChances(&cur, nil) {
		got[s.Token] = s.Chance
	}
	if got[b] != .75 || got[c] != .25 || len(got) != 2 {
		t.Errorf("shares %v", got)
	}
	n := 0
	for range 4000 {
		if tab.PredictTokens(cur, 1, nil)[0] == b {
			n++
		}
	}
	if n < 2900 || n > 3100 {
		t.Errorf("b was drawn %d times of 4000, expected about 3000", n)
	}
}

// A prediction ends where the next token is not sure enough, also where a token behind
// it would be.
func TestPredictionEndsBelowMinChance(t *testing.T) {
	for _, want := range []struct {
		sure   float64
		length int
	}{{0, 2}, {.5, 2}, {.6, 2}, {.61, 0}} {
		tab := New(Options{MinChance: want.sure})
		a, b, c := tab.TokenNumber(0, 0, nil), tab.TokenNumber(1, 0, nil), tab.TokenNumber(2, 0, nil)
		for i := range 10 {
			path := []int32{a, b, c}
			if i < 4 {
				path = []int32{a, c}
			}
			tab.Learn(0, NoFeature, path, 1)
		}
		cur := tab.CursorAtStart(0, NoFeature)
		tab.Advance(&cur, a)
		if got := tab.PredictTokens(cur, 8, nil); len(got) != want.length {
			t.Errorf("sure %v: %v is expected, not %d tasks", want.sure, got, want.length)
		}
	}
}

// A feature that decides the way is used, one that says nothing is not.
func TestFeatureIsUsedOnlyIfItPredictsBetter(t *testing.T) {
	for _, tells := range []bool{true, false} {
		tab, rng := New(Options{}), seeded.New(1, "features")
		first := tab.TokenNumber(0, 0, nil)
		right, plain := 0, 0
		for i := range 4000 {
			feature := rng.Int32N(4)
			way := feature
			if !tells {
				way = min(3, rng.Int32N(6)) // 3 is most likely
			}
			path := []int32{first, tab.TokenNumber(1+way, 0, nil)}
			c, d := tab.CursorAtStart(0, feature), tab.CursorAtStart(0, NoFeature)
			tab.Advance(&c, first)
			tab.Advance(&d, first)
			if i > 2000 {
				if got := tab.PredictTokens(c, 1, nil); len(got) > 0 && got[0] == path[1] {
					right++
				}
				if got := tab.PredictTokens(d, 1, nil); len(got) > 0 && got[0] == path[1] {
					plain++
				}
			}
			tab.Learn(0, feature, path, 1)
		}
		if tells && right < 1990 || !tells && right < plain-20 {
			t.Errorf("feature tells: %v: %d right with it, %d without, of 1999", tells, right, plain)
		}
	}
}

// A table of prefixes stays within its rows.
func TestRowsAreBounded(t *testing.T) {
	tab := New(Options{MaxRows: 50})
	rng := seeded.New(1, "rows")
	for range 2000 {
		var path []int32
		for range 6 {
			path = append(path, tab.TokenNumber(rng.Int32N(8), 0, nil))
		}
		tab.Learn(0, NoFeature, path, 1)
	}
	if n := len(tab.rows); n > 50+8+1 {
		t.Errorf("%d rows", n)
	}
	c := tab.CursorAtStart(0, NoFeature)
	tab.Advance(&c, 1)
	if len(tab.PredictTokens(c, 3, nil)) == 0 {
		t.Error("nothing is expected where prefixes are many")
	}
}

// In steady state prediction and learning allocate nothing.
func TestAllocatesNothing(t *testing.T) {
	tab, path, ahead := learntTable()
	if n := testing.AllocsPerRun(100, func() { ahead = predictAndLearn(tab, path, ahead) }); n > 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	tab, path, ahead := learntTable()
	b.ReportAllocs()
	for b.Loop() {
		ahead = predictAndLearn(tab, path, ahead)
	}
}

func learntTable() (tab *TransitionTable, path, ahead []int32) {
	tab = New(Options{})
	rng := seeded.New(1, "learn")
	for range 1000 {
		path = path[:0]
		for i := range 4 {
			path = append(path, tab.TokenNumber(rng.Int32N(8), 0, []int32{int32(min(i, 1))}))
		}
		tab.Learn(0, 1, path, 1)
	}
	return tab, path, make([]int32, 0, 16)
}

func predictAndLearn(tab *TransitionTable, path, ahead []int32) []int32 {
	c := tab.CursorAtStart(0, 1)
	for i := range path {
		k := tab.Token(path[i])
		tab.Advance(&c, tab.TokenNumber(k.Service, k.Work, k.Inputs))
		ahead = tab.PredictTokens(c, 12, ahead[:0])
	}
	tab.Learn(0, 1, path, 1)
	return ahead
}
