package worker

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// openReplay opens the engine that executes nothing: a run lasts as long as
// the plan says (StageSpec.InferNS) and leaves zeros.
func openReplay(_ context.Context, h *Hello) (Loader, error) {
	// The kernel may wake a sleeper late by its slack, 50 us by default.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack: %w", err)
	}
	return &replay{engine.Device{ID: fmt.Sprintf("replay:%d", h.Device.Index), Kind: h.Device.Kind, Name: "replay", Share: max(h.Device.Share, 1)}}, nil
}

type replay struct{ device engine.Device }

func (r *replay) Info() engine.Info     { return engine.Info{Name: "replay", Version: "1"} }
func (r *replay) Device() engine.Device { return r.device }
func (r *replay) Close() error          { return nil }

func (r *replay) Load(_ context.Context, s *StageSpec) (engine.Block, error) {
	if len(s.InferNS) < s.MaxBatch {
		return nil, fmt.Errorf("%w: times for batches 1 to %d, expected 1 to %d", engine.ErrModel, len(s.InferNS), s.MaxBatch)
	}
	return &replayBlock{r.device, s.InferNS, &engine.Submodel{
		Model: s.Model, Identity: s.SHA256, From: s.From, To: s.To, Blocks: s.Blocks, Inputs: s.Inputs, Outputs: s.Outputs,
	}}, nil
}

type replayBlock struct {
	device engine.Device
	infer  []int64
	sub    *engine.Submodel
}

func (b *replayBlock) Submodel() *engine.Submodel { return b.sub }
func (b *replayBlock) Device() engine.Device      { return b.device }
func (b *replayBlock) Close() error               { return nil }

func (b *replayBlock) Bind(o engine.BindOptions) (engine.Binding, error) {
	if o.Batch < 1 || o.Batch > len(b.infer) {
		return nil, fmt.Errorf("%w: batch %d, expected 1 to %d", engine.ErrShape, o.Batch, len(b.infer))
	}
	return &replayBinding{b, o}, nil
}

type replayBinding struct {
	block *replayBlock
	o     engine.BindOptions
}

func (b *replayBinding) Batch() int               { return b.o.Batch }
func (b *replayBinding) Inputs() []engine.Tensor  { return b.o.Inputs }
func (b *replayBinding) Outputs() []engine.Tensor { return b.o.Outputs }
func (b *replayBinding) Close() error             { return nil }

func (b *replayBinding) Run(ctx context.Context) error {
	return sleepUntil(ctx, monotonic()+b.block.infer[b.o.Batch-1])
}

func (b *replayBinding) RunN(n int) (engine.Timing, error) {
	start := monotonic()
	for range n {
		if err := b.Run(context.Background()); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{Runs: n, Wall: time.Duration(monotonic() - start)}, nil
}
