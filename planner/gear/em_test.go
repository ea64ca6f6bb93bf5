package gear

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Algorithm 1 always ends and never gets worse; what it ends with fits in memory,
// keeps every device below full load and was seen to hold.
func TestEMEndsAndNeverGetsWorse(t *testing.T) {
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		if held > 40 { // simulations take time
			return
		}
		p := draw(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := Solve(ctx, p, nil, Options{Seed: rapid.Uint64Range(1, 9).Draw(t, "seed"), Algorithm: EM})
		if inf, ok := errors.AsType[*Infeasible](err); ok {
			if inf.Error() == "" {
				t.Fatal("infeasible without a reason")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		if !slices.IsSorted(out.Steps) || out.Steps[len(out.Steps)-1] != out.Accuracy {
			t.Fatalf("plans of accuracy %v, the last %v", out.Steps, out.Accuracy)
		}
		for _, set := range out.Placement.Sets {
			if total := (&em{p: p}).memoryOf(set); total > p.Memory {
				t.Fatalf("models %b take %d of %d bytes", set, total, p.Memory)
			}
		}
		for r := range out.Gears {
			g := &out.Gears[r]
			reach, correct := p.Planned.Replay(g.Cascade.Models, g.Cascade.Levels)
			for k := range reach {
				if int32(reach[k]) != g.Cascade.Reach[k] || int32(correct) != g.Cascade.Correct {
					t.Fatalf("range %d: %+v, the records say %v and %d right", r, g.Cascade, reach, correct)
				}
			}
			if g.Load > 1 || !g.Trial.Passed || g.Trial.Latency > p.SLO {
				t.Fatalf("range %d: load %v, trial %+v", r, g.Load, g.Trial)
			}
			used := uint32(0)
			for _, m := range g.Cascade.Models {
				used |= 1 << m
			}
			if placed := out.Placement.union(); used&^placed != 0 {
				t.Fatalf("range %d asks models %b, %d of them nowhere", r, used, bits.OnesCount32(used&^placed))
			}
		}
	})
	if held < 10 {
		t.Errorf("only %d instances had a plan", held)
	}
}

func (pl *Placement) union() uint32 {
	all := uint32(0)
	for i, s := range pl.Sets {
		if pl.Counts[i] > 0 {
			all |= s
		}
	}
	return all
}

// The paper's algorithm beside the exact method on published families,
// with memory to spare and without.
func TestEMOnPublishedFamilies(t *testing.T) {
	tight := bert5
	for _, c := range []struct {
		name    string
		f       *family
		devices int
		memory  int64
	}{{"bert5", &bert5, 1, 32000}, {"bert5", &bert5, 3, 32000}, {"bert5tight", &tight, 2, 700}, {"llama4", &llama4, 4, 48000}, {"llama4", &llama4, 6, 48000}} {
		if c.f != &llama4 && c.devices > 1 && !long {
			continue
		}
		p := c.f.problem(t, c.devices, 10)
		p.Memory = c.memory
		exact, err := Solve(context.Background(), p, nil, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		start := cpuMS(t)
		out, err := Solve(context.Background(), p, nil, Options{Seed: 1, Algorithm: EM})
		if err != nil {
			t.Errorf("%s on %d: %v", c.name, c.devices, err)
			continue
		}
		t.Logf("%s on %d: accuracy %.4f after %d plans, exact %.4f, %d simulations, %.0f ms of CPU", c.name, c.devices, out.Accuracy, len(out.Steps), exact.Accuracy, out.Runs, cpuMS(t)-start)
		if out.Accuracy > exact.Bound+1e-9 || out.Accuracy < exact.Accuracy-.03 {
			t.Errorf("%s on %d: accuracy %.4f, exact %.4f of at most %.4f", c.name, c.devices, out.Accuracy, exact.Accuracy, exact.Bound)
		}
	}
}
