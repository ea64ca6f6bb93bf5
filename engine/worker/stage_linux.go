package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"inferplan/engine"
)

// stageContent is a loaded block. Stages that run the same block share it, as those of a model's SLO classes do:
// runs take turns, so the weights need to be in memory only once.
type stageContent struct {
	spec  StageSpec // without the fields that belong to one stage
	block engine.Block
	users int // stages that share it
}

// contentOf returns the part of a stage's specification that determines what is loaded.
func contentOf(s *StageSpec) StageSpec {
	c := *s
	c.ID, c.MaxBatch = 0, 0
	return c
}

// stage is a loaded block with its bindings.
type stage struct {
	spec      StageSpec
	content   *stageContent
	inputs    []engine.Spec
	outputs   []engine.Spec
	bindings  map[bindingKey]engine.Binding
	bindOrder []bindingKey // oldest first, for eviction
}

// bindingKey says which memory a binding uses, and at which batch size.
type bindingKey struct {
	batch, segment                uint32
	inputOffset, outputOffset     uint64
	inputOnDevice, outputOnDevice bool
}

// executedBatch returns the batch size at which a batch runs: the smallest that was made ready and is not smaller.
// For a stage with several inputs or outputs it is the batch's own size, because tensors lie side by side, at
// offsets that depend on it.
func (st *stage) executedBatch(batch int) int {
	if len(st.inputs) != 1 || len(st.outputs) != 1 {
		return batch
	}
	if i, _ := slices.BinarySearch(st.spec.Sizes, batch); i < len(st.spec.Sizes) {
		return st.spec.Sizes[i]
	}
	return batch
}

// maxBindings bounds the bindings that a stage keeps: pairs of slots, times batch sizes.
const maxBindings = 4096

// newStage makes a stage of loaded content, which it may share with others.
func newStage(spec *StageSpec, c *stageContent) *stage {
	c.users++
	sub := c.block.Submodel()
	return &stage{spec: *spec, content: c, inputs: sub.Inputs, outputs: sub.Outputs, bindings: map[bindingKey]engine.Binding{}}
}

// close frees the stage's bindings and, if no other stage uses it, the loaded block.
func (st *stage) close() error {
	var errs []error
	for _, key := range st.bindOrder {
		errs = append(errs, st.bindings[key].Close())
	}
	if st.content.users--; st.content.users == 0 {
		errs = append(errs, st.content.block.Close())
	}
	return errors.Join(errs...)
}

// sharedContent returns the loaded block of another stage with the same model and blocks, or nil if there is none.
// The new stage then uses it, too.
func (s *server) sharedContent(spec *StageSpec) *stageContent {
	wantedContent := contentOf(spec)
	for _, st := range s.stages.loaded() {
		if reflect.DeepEqual(st.content.spec, wantedContent) {
			return st.content
		}
	}
	return nil
}

// makeReady binds the first slots of a stage (places of inputs and outputs in shared memory, l.WarmSlots of them) at
// every batch size that is made ready, and runs the stage once at each, so that no first request pays for that. Slots
// follow each other in the worker's own segment, from l.Base on.
func (s *server) makeReady(ctx context.Context, st *stage, l Layout) error {
	switch {
	case s.outputSegment == nil:
		return fmt.Errorf("%w: slots before the worker's own segment", ErrProtocol)
	case l.Slots < 1 || l.Stride < 0 || l.Base < 0 || l.Base+int64(l.Slots)*l.Stride > int64(len(s.outputSegment.Data)):
		return fmt.Errorf("%w: %d slots of %d bytes from %d do not fit segment %d (%d bytes)", ErrProtocol, l.Slots, l.Stride, l.Base, s.outputSegment.ID, len(s.outputSegment.Data))
	}
	if l, ok := s.loader.(interface{ Loaded() }); ok {
		l.Loaded() // all stages are loaded: the engine can drop the models that it has read
	}
	// Large batches first: the engine's memory then grows once.
	for b := st.spec.MaxBatch; b >= 1 && l.WarmSlots > 0; b-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		if st.executedBatch(b) != b {
			continue
		}
		for slot := range min(l.WarmSlots, l.Slots) {
			if l.InBytes == 0 {
				break // the input's offset is known only when the batch arrives
			}
			key := bindingKey{batch: uint32(b), segment: s.outputSegment.ID, inputOffset: uint64(l.InputOffset(slot)), outputOffset: uint64(l.OutputOffset(slot))}
			if _, err := s.bind(st, key); err != nil {
				return err
			}
		}
		if err := s.warm(ctx, st, l, b); err != nil {
			return err
		}
	}
	return nil
}

// warm runs a stage once at a batch size, on the memory of its first slot. Inputs are zeros (or whatever an earlier
// run left), or the values of the stage's specification.
func (s *server) warm(ctx context.Context, st *stage, l Layout, batch int) error {
	// Fill the inputs with the given values.
	o := engine.BindOptions{Batch: batch, HostIO: true}
	var err error
	if l.InBytes > 0 {
		if o.Inputs, err = s.outputSegment.hostTensors(st.inputs, batch, l.InputOffset(0)); err != nil {
			return err
		}
		for _, t := range o.Inputs {
			spec := t.Spec()
			value, ok := st.spec.Values[spec.Name]
			if size := int64(spec.Type.Size()); ok {
				data, err := value.Fill(spec.Type, spec.BytesAt(batch)/size, spec.BytesAt(1)/size)
				if err != nil {
					return fmt.Errorf("warm-up of %s: input %q: %w", st.spec.Model, spec.Name, err)
				}
				if err := t.Write(data); err != nil {
					return err
				}
			}
		}
	}

	// Bind the outputs, and run.
	if o.Outputs, err = s.outputSegment.hostTensors(st.outputs, batch, l.OutputOffset(0)); err != nil {
		return err
	}
	b, err := st.content.block.Bind(o)
	if err != nil {
		return fmt.Errorf("bind batch %d: %w", batch, err)
	}
	defer b.Close()
	if err := b.Run(ctx); err != nil {
		return fmt.Errorf("warm-up of %s at batch %d: %w", st.spec.Model, batch, err)
	}
	return nil
}

// bind returns the binding of a stage to an input and an output in shared memory at a batch size. The first call for
// a key makes it, and later ones find it.
func (s *server) bind(st *stage, key bindingKey) (engine.Binding, error) {
	if b := st.bindings[key]; b != nil {
		return b, nil
	}

	// Check the run: its segments are attached and its batch size was prepared.
	seg := s.segments[key.segment]
	if seg == nil {
		return nil, fmt.Errorf("segment %d is not attached", key.segment)
	}
	if s.outputSegment == nil {
		return nil, fmt.Errorf("%w: run before the worker's own segment", ErrProtocol)
	}
	if int(key.batch) > st.spec.MaxBatch {
		return nil, fmt.Errorf("batch %d of %s: at most %d was prepared", key.batch, st.spec.Model, st.spec.MaxBatch)
	}

	// Bind the tensors to the segments' memory.
	o := engine.BindOptions{Batch: int(key.batch), HostIO: true}
	var err error
	if o.Inputs, err = seg.placedTensors(key.inputOnDevice, st.inputs, int(key.batch), int64(key.inputOffset)); err != nil {
		return nil, err
	}
	if o.Outputs, err = s.outputSegment.placedTensors(key.outputOnDevice, st.outputs, int(key.batch), int64(key.outputOffset)); err != nil {
		return nil, err
	}
	b, err := st.content.block.Bind(o)
	if err != nil {
		return nil, fmt.Errorf("bind batch %d of %s: %w", key.batch, st.spec.Model, err)
	}

	// Close the oldest binding if there are too many.
	if len(st.bindOrder) >= maxBindings {
		oldestKey := st.bindOrder[0]
		st.bindOrder = append(st.bindOrder[:0], st.bindOrder[1:]...)
		st.bindings[oldestKey].Close()
		delete(st.bindings, oldestKey)
	}
	st.bindings[key] = b
	st.bindOrder = append(st.bindOrder, key)
	return b, nil
}
