package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"inferplan/engine"
)

// sessions counts the blocks that an engine has loaded.
type sessions struct{ open, opened atomic.Int64 }

func (n *sessions) engines() map[string]Opener {
	out := Engines()
	of := out["replay"]
	out["replay"] = func(ctx context.Context, h *Hello) (Loader, error) {
		l, err := of(ctx, h)
		return &countingLoader{l, n}, err
	}
	return out
}

type countingLoader struct {
	Loader
	n *sessions
}

func (l *countingLoader) Load(ctx context.Context, s *StageSpec, m *engine.Submodel) (engine.Block, error) {
	b, err := l.Loader.Load(ctx, s, m)
	if err == nil {
		l.n.open.Add(1)
		l.n.opened.Add(1)
	}
	return &countingBlock{b, l.n}, err
}

type countingBlock struct {
	engine.Block
	n *sessions
}

func (b *countingBlock) Close() error {
	b.n.open.Add(-1)
	return b.Block.Close()
}

// Stages that run the same blocks, as those of two SLO classes of a model do,
// share a session, each with a largest batch of its own; it lives as long as
// one of them. Other blocks, other tensors at a cut and other times do not.
func TestSameBlocksAreLoadedOnce(t *testing.T) {
	var n sessions
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	c := replayConfig(0, 0)
	gold := c.Stages[0]
	add := func(change func(*StageSpec)) {
		s := gold
		s.Inputs, s.Outputs, s.InferNS = slices.Clone(s.Inputs), slices.Clone(s.Outputs), slices.Clone(s.InferNS)
		s.ID = uint32(len(c.Stages))
		change(&s)
		c.Stages = append(c.Stages, s)
	}
	add(func(*StageSpec) {})
	add(func(s *StageSpec) { s.MaxBatch = 1 })
	same := len(c.Stages)
	add(func(s *StageSpec) { s.To = 1 })
	add(func(s *StageSpec) { s.FP16Out = true })
	add(func(s *StageSpec) { s.CutOut = []string{"z"} })
	add(func(s *StageSpec) { s.InferNS[1] = 1 })
	add(func(s *StageSpec) { s.Model = "other" })
	p, err := StartInside(ctx, c, n.engines())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.Kill(); p.Wait() }()
	different := int64(1 + len(c.Stages) - same)
	if n.open.Load() != different {
		t.Fatalf("%d sessions for %d stages of %d different contents", n.open.Load(), len(c.Stages), different)
	}

	// Both run, each in slots of its own; the one of batches of one refuses two.
	seg, err := NewSegment(7, 4*4096)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	if err := p.Attach(ctx, seg, true); err != nil {
		t.Fatal(err)
	}
	var layouts []Layout
	for i, id := range []int{1, 2} {
		l := layoutOf(p.Stages[id], c.Stages[id].MaxBatch, 1)
		l.Base, l.WarmSlots = int64(i)*4096, 1
		if _, err := p.Prepare(ctx, l); err != nil {
			t.Fatal(err)
		}
		layouts = append(layouts, l)
	}
	runs := func(want ...Code) {
		t.Helper()
		var all []RunCommand
		for i, batch := range []uint32{2, 1, 2} {
			l := layouts[min(i, 1)]
			all = append(all, RunCommand{ID: uint64(i), Stage: l.ID, Batch: batch, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))})
		}
		if err := p.Send(all...); err != nil {
			t.Fatal(err)
		}
		for i, r := range receive(t, p, len(all)) {
			if r.Code != want[i] {
				t.Errorf("run %d: %+v, want %v", i, r, want[i])
			}
		}
	}
	remove := func(id uint32) {
		t.Helper()
		if r, err := p.Swap(ctx, Swap{ID: uint64(id), Stages: []Layout{{ID: id}}}); err != nil || r.Code != OK {
			t.Fatal(r, err)
		}
	}
	runs(OK, OK, OtherFailure)
	for i, id := range []uint32{0, 1} {
		remove(id)
		if n.open.Load() != different {
			t.Fatalf("%d sessions after %d of 3 stages went, want %d: the last one runs", n.open.Load(), i+1, different)
		}
	}
	runs(OtherFailure, OK, OtherFailure)
	remove(2)
	if n.open.Load() != different-1 {
		t.Errorf("%d sessions after the last of 3 stages went, want %d", n.open.Load(), different-1)
	}
	if n.opened.Load() != different {
		t.Errorf("%d sessions in all, want %d", n.opened.Load(), different)
	}
}
