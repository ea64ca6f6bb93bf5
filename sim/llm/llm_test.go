package llm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
)

var costs = formats.Iteration{BaseNS: 13.35e6, SequenceNS: .087e6, ContextNS: 183, PromptNS: .064e6, HingeTokens: 128, AttentionNS: 2}

func (n *naiveInstance) work() (w formats.IterationWork) {
	for _, q := range n.running {
		if q.contextDone == q.contextNeeded {
			w.DecodingSequences++
			w.ContextTokens += int64(q.heldTokens)
		}
	}
	return w
}

// drawInstance draws an instance with little memory and requests for it.
func drawInstance(t *rapid.T) (Options, Model, []Request) {
	o := Options{
		TokenBudget: rapid.SampledFrom([]int32{8, 33, 512}).Draw(t, "budget"), BlockTokens: rapid.SampledFrom([]int32{1, 4, 16}).Draw(t, "block"),
		ByPriority: rapid.Bool().Draw(t, "priority"), ReserveAnswer: rapid.IntRange(0, 3).Draw(t, "reserve") == 0, SwapOut: rapid.Bool().Draw(t, "swap"), SwapBytesPerSecond: 1e9, HiddenShare: 0.7,
		ProgressTokens: rapid.SampledFrom([]int32{0, 1, 7}).Draw(t, "progress"),
	}
	m := Model{Iteration: costs, KVTokens: 160, MaxSequences: rapid.Int32Range(1, 12).Draw(t, "sequences"), TokenBytes: 1 << 17}
	var list []Request
	at := time.Duration(0)
	for range rapid.IntRange(1, 30).Draw(t, "requests") {
		at += time.Duration(rapid.Int64Range(0, 3e8).Draw(t, "gap"))
		list = append(list, Request{ArrivedAt: at, Prompt: rapid.Int32Range(1, 60).Draw(t, "prompt"), Output: rapid.Int32Range(1, 80).Draw(t, "output"), Priority: rapid.Int32Range(0, 2).Draw(t, "rank")})
	}
	return o, m, list
}

// The sums give the same times, to the nanosecond, as looking at every sequence in
// every iteration.
func TestInstanceIsTheNaiveOne(t *testing.T) {
	left := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		o, m, list := drawInstance(t)
		got, counts, err := ServeAll(o, m, list)
		if err != nil {
			t.Fatal(err)
		}
		n := &naiveInstance{o: o, m: m}
		want := n.serveAll(list)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("request %d: %+v, want %+v", i, got[i], want[i])
			}
		}
		if counts.Preempted != n.preempted || counts.PeakKV != n.maxUsed*int64(o.BlockTokens) {
			t.Fatalf("%d left and %d tokens in use, want %d and %d", counts.Preempted, counts.PeakKV, n.preempted, n.maxUsed*int64(o.BlockTokens))
		}
		left += n.preempted
	})
	if left == 0 {
		t.Error("no draw had a sequence leave")
	}
}

// A sequence that is taken out and comes back with what it made ends with as many
// tokens, wherever it was; blocks are all free at the end.
func TestRemoveAndComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, m, list := drawInstance(t)
		o.PrefixCache = rapid.Bool().Draw(t, "prefix")
		in := NewInstance(o, m)
		made := make([]int32, len(list))
		tokens := int64(0)
		for i, r := range list {
			tokens += int64(r.Output)
			if err := in.Add(Sequence{ID: int32(i), Prompt: r.Prompt, Output: r.Output, Priority: r.Priority, Session: int64(i%3 + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		open := len(list)
		for step := 0; open > 0; step++ {
			if step > 100000 {
				t.Fatal("the instance gets nowhere")
			}
			if _, _, ok := in.Begin(); !ok {
				t.Fatalf("%d sequences are open and nothing is to be done", open)
			}
			if step%5 == 2 && step < 400 {
				id := int32(rapid.IntRange(0, len(list)-1).Draw(t, "out"))
				if _, here := in.slot(id); here {
					r := &list[id]
					keep := rapid.Bool().Draw(t, "keep")
					was := in.GeneratedTokens(id)
					n, swapped := in.Remove(id, keep)
					if n != was || swapped && !keep {
						t.Fatalf("taken out with %d tokens, had %d", n, was)
					}
					if err := in.Add(Sequence{ID: id, Prompt: r.Prompt, Output: r.Output, Generated: n, Priority: r.Priority, Session: int64(id%3 + 1), InHostMemory: swapped}); err != nil {
						t.Fatal(err)
					}
					made[id] = n
				}
			}
			open -= len(in.End().Finished)
		}
		if all, waits := in.SequenceCounts(); all != 0 || waits != 0 || in.UsedKV() != 0 || in.decodingCount != 0 || in.decodingTokens != 0 || slices.Max(in.phaseCounts) != 0 {
			t.Fatalf("at the end %d sequences, %d tokens in use, %d decoding over %d", all, in.UsedKV(), in.decodingCount, in.decodingTokens)
		}
		if c := in.Counts(); c.Output < tokens {
			t.Fatalf("%d tokens made, the answers have %d", c.Output, tokens)
		}
	})
}

// With room for all, the answer of one request takes its prompt and a token per
// iteration.
func TestOneRequest(t *testing.T) {
	m := Model{Iteration: costs, KVTokens: 100000, MaxSequences: 8}
	out, _, err := ServeAll(Options{TokenBudget: 512}, m, []Request{{ArrivedAt: time.Second, Prompt: 1000, Output: 3}})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Second + costs.PrefillTime(1000, 512)
	want := Outcome{FirstIteration: time.Second, FirstToken: first, LastToken: first + costs.TokenTime(1, 1000) + costs.TokenTime(1, 1001)}
	if out[0] != want {
		t.Errorf("got %+v, want %+v", out[0], want)
	}
	if got := out[0].TPOT(3); got != (want.LastToken-first)/2 {
		t.Errorf("%v per token", got)
	}
}

// Free blocks hold prefixes until they are needed, the end of the one that was used
// least recently goes first.
func TestPrefixCache(t *testing.T) {
	m := Model{Iteration: costs, KVTokens: 1600, MaxSequences: 8}
	turn := func(prefix bool, other int32) Counts {
		list := []Request{{Prompt: 500, Output: 12, Session: 1}, {ArrivedAt: 10 * time.Second, Prompt: other, Output: 8, Session: 2}, {ArrivedAt: 20 * time.Second, Prompt: 700, Output: 8, Session: 1}}
		_, c, err := ServeAll(Options{TokenBudget: 4096, PrefixCache: prefix}, m, list)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := turn(false, 100); c.CachedPrompt != 0 || c.ComputedPrompt != 1300 {
		t.Errorf("without a cache: %+v", c)
	}
	// The first turn leaves 511 tokens: 31 whole blocks.
	if c := turn(true, 100); c.CachedPrompt != 496 || c.ComputedPrompt != 1300-496 {
		t.Errorf("with room for both: %+v", c)
	}
	// The second session needs 87 blocks of 100, and so 18 of the 31.
	if c := turn(true, 1380); c.CachedPrompt != 13*16 {
		t.Errorf("with 13 blocks left: %+v", c)
	}
	if c := turn(true, 1580); c.CachedPrompt != 0 {
		t.Errorf("without a block left: %+v", c)
	}
}

// Bad sequences are refused with what is wrong.
func TestAddRefuses(t *testing.T) {
	in := NewInstance(Options{}, Model{Iteration: costs, KVTokens: 160, MaxSequences: 2})
	for _, c := range []struct {
		s    Sequence
		want string
	}{
		{Sequence{Prompt: 0, Output: 1}, "at least 1 token"},
		{Sequence{Prompt: 1, Output: 4, Generated: 4}, "some to make"},
		{Sequence{Prompt: 150, Output: 20}, "does not fit the KV memory of 160"},
	} {
		if err := in.Add(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}

// BenchmarkIterations: what an iteration costs, with a full batch that turns over.
func BenchmarkIterations(b *testing.B) {
	for _, batch := range []int32{16, 64, 256} {
		b.Run(fmt.Sprintf("batch-%d", batch), func(b *testing.B) {
			in := NewInstance(Options{TokenBudget: 2048, PrefixCache: true, ProgressTokens: 32}, Model{Iteration: costs, KVTokens: 424000, MaxSequences: batch})
			next := int32(0)
			add := func(id int32) {
				next++
				if err := in.Add(Sequence{ID: id, Prompt: 200 + next*131%1900, Output: 20 + next*37%400, Session: int64(next)}); err != nil {
					b.Fatal(err)
				}
			}
			step := func() {
				in.Begin()
				for _, id := range in.End().Finished {
					add(id)
				}
			}
			for i := range 2 * batch {
				add(i)
			}
			for range 20000 {
				step()
			}
			served := next
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(next-served)/float64(b.N), "requests/op")
		})
	}
}

// An instance that is emptied keeps the most tokens that were in use, also if its blocks have another size from then on.
func TestResetKeepsThePeakInTokens(t *testing.T) {
	model := Model{Iteration: costs, KVTokens: 160, MaxSequences: 2}
	in := NewInstance(Options{BlockTokens: 4}, model)
	in.memory.maxUsedBlocks = 10
	if in.Reset(Options{}, model); in.Counts().PeakKV != 40 {
		t.Errorf("found a peak of %d tokens, expected 40", in.Counts().PeakKV)
	}
}
