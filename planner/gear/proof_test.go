package gear

import (
	"context"
	"testing"
)

// The longer trials may go on, the less they leave, and never less than a plan has: with
// no work what devices have the time for, with enough next to nothing. The plan is never
// worse for it.
func TestTrialsLeaveLess(t *testing.T) {
	ctx, s := context.Background(), solver(t)
	for _, seed := range []uint64{1010, 1053, 1055} {
		p, before := instance(seed), &Outcome{TriedBound: 1}
		for _, left := range []int{0, 10_000, 100_000, provingRequests} {
			out, err := (&search{p: p, o: &Options{Seed: 1}, solver: s, known: newCatalogue(), left: &left}).once(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if out.TriedBound > before.TriedBound || out.TriedBound < out.Accuracy || out.Accuracy < before.Accuracy {
				t.Errorf("instance %d: %.4f of at most %.4f, with less work %.4f of at most %.4f", seed, out.Accuracy, out.TriedBound, before.Accuracy, before.TriedBound)
			}
			if before.Gears == nil && (out.TriedBound != out.GearBound || out.settled()) {
				t.Errorf("instance %d: at most %.4f without trials, devices have the time for %.4f", seed, out.TriedBound, out.GearBound)
			}
			before = out
		}
		if !before.settled() || before.Proved {
			t.Errorf("instance %d: %.4f of at most %.4f in trials, expected next to nothing between them; at most %.4f by time", seed, before.Accuracy, before.TriedBound, before.GearBound)
		}
	}
}
