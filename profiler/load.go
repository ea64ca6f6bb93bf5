package profiler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// loadedModel is a model loaded on one device (or one share of it): its blocks, which form a chain, and the whole
// model.
type loadedModel struct {
	blocks     []engine.Block
	wholeModel engine.Block
	ranges     map[[2]int]engine.Block // neighbouring blocks, loaded in one piece
	// bound holds the bindings by batch size. The outputs of a block are the inputs of the next, in the same
	// tensors.
	bound map[int]*boundModel
}

type boundModel struct {
	blocks     []engine.Binding
	wholeModel engine.Binding
	ranges     map[[2]int]engine.Binding
}

func (c *loadedModel) close() error {
	var errs []error
	errs = append(errs, c.closeRanges())
	for _, b := range c.bound {
		if b.wholeModel != nil { // it reads the tensors of the blocks
			errs = append(errs, b.wholeModel.Close())
		}
		errs = append(errs, closeAll(b.blocks))
	}
	for _, b := range c.blocks {
		errs = append(errs, b.Close())
	}
	if c.wholeModel != nil {
		errs = append(errs, c.wholeModel.Close())
	}
	*c = loadedModel{}
	return errors.Join(errs...)
}

// closeRanges closes the ranges, which read the tensors of the blocks.
func (c *loadedModel) closeRanges() error {
	var errs []error
	for _, b := range c.bound {
		for _, x := range b.ranges {
			errs = append(errs, x.Close())
		}
		b.ranges = nil
	}
	for _, x := range c.ranges {
		errs = append(errs, x.Close())
	}
	c.ranges = nil
	return errors.Join(errs...)
}

// loadRange loads neighbouring blocks in one piece and binds them, at batch sizes, to the inputs of the first of
// them.
func (c *loadedModel) loadRange(ctx context.Context, p loadTarget, cut cutModel, blockRange [2]int, batches []int) error {
	blk, err := p.loadSlice(ctx, cut, blockRange[0], blockRange[1], graph.SliceOptions{})
	if err != nil {
		return err
	}
	if c.ranges == nil {
		c.ranges = map[[2]int]engine.Block{}
	}
	c.ranges[blockRange] = blk
	for _, batch := range batches {
		b := c.bound[batch]
		x, err := blk.Bind(engine.BindOptions{Batch: batch, Inputs: b.blocks[blockRange[0]].Inputs()})
		if err != nil {
			return fmt.Errorf("bind %s blocks [%d,%d) at batch %d: %w", blk.Submodel().Model, blockRange[0], blockRange[1], batch, err)
		}
		if b.ranges == nil {
			b.ranges = map[[2]int]engine.Binding{}
		}
		b.ranges[blockRange] = x
	}
	return nil
}

func closeAll(b []engine.Binding) error {
	var errs []error
	for _, x := range slices.Backward(b) {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

// loadTarget says where and how a model is loaded: an engine, its device, the load options, and whether it computes
// in float16.
type loadTarget struct {
	eng     engine.Engine
	dev     engine.Device
	options engine.Options
	fp16    bool
}

// loadSlices loads every block of a cut model.
func (p loadTarget) loadSlices(ctx context.Context, b cutModel) ([]engine.Block, error) {
	var out []engine.Block
	for i := range b.Len() {
		blk, err := p.loadSlice(ctx, b, i, i+1, graph.SliceOptions{})
		if err != nil {
			for _, x := range out {
				x.Close()
			}
			return nil, err
		}
		out = append(out, blk)
	}
	return out, nil
}

func (p loadTarget) loadSlice(ctx context.Context, b cutModel, i, j int, o graph.SliceOptions) (engine.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.FP16 = p.fp16
	sub, err := b.Slice(i, j, o)
	if err != nil {
		return nil, err
	}
	blk, err := p.eng.Load(ctx, sub, p.dev, p.options)
	if err != nil {
		return nil, fmt.Errorf("load %s blocks [%d,%d): %w", sub.Model, i, j, err)
	}
	return blk, nil
}

// bindChain binds blocks at a batch size so that each reads the outputs of the block before, and fills the inputs
// of the first.
func bindChain(list []engine.Block, batch, sample int, v inputValues) ([]engine.Binding, error) {
	var out []engine.Binding
	for i, b := range list {
		o := engine.BindOptions{Batch: batch}
		if i > 0 {
			o.Inputs = out[i-1].Outputs()
			if inputCount := len(b.Submodel().Inputs); len(o.Inputs) > inputCount {
				o.Inputs = o.Inputs[:inputCount] // the additional outputs are only for checks
			}
		}
		x, err := b.Bind(o)
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("bind %s block %d at batch %d: %w", b.Submodel().Model, b.Submodel().From, batch, err)
		}
		out = append(out, x)
	}
	if err := v.fillAll(out[0].Inputs(), sample); err != nil {
		closeAll(out)
		return nil, err
	}
	return out, nil
}

// runOnce runs the bindings one after the other.
func runOnce(ctx context.Context, list []engine.Binding) error {
	for _, b := range list {
		if err := b.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bindingBytes returns the memory of the tensors at all cuts of a chain.
func bindingBytes(list []engine.Binding) int64 {
	var sum int64
	for i, b := range list {
		if i == 0 {
			for _, t := range b.Inputs() {
				sum += t.Spec().BytesAt(b.Batch())
			}
		}
		for _, t := range b.Outputs() {
			sum += t.Spec().BytesAt(b.Batch())
		}
	}
	return sum
}

// residentMemory returns the process's resident memory in bytes, or 0 if it is not known.
func residentMemory() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// Every atom is timed this many times, within these bounds, before the model is cut.
const minAtomRounds, maxAtomRounds = 5, 21

// timeAtoms times every atom at batch 1 (or the model's own), in rounds, and
// returns the medians in nanoseconds.
func timeAtoms(ctx context.Context, p loadTarget, m model, batch, rounds int, now func() time.Time) ([]float64, error) {
	list, err := p.loadSlices(ctx, m.eachAtom())
	if err != nil {
		return nil, err
	}
	c := loadedModel{blocks: list}
	defer c.close()
	bindings, err := bindChain(list, batch, 0, m.info().values)
	if err != nil {
		return nil, err
	}
	c.bound = map[int]*boundModel{batch: {blocks: bindings}}
	l := &probeSet{name: m.info().name + " atoms", onCPU: isTimedByCPU(p.dev)}
	for i, b := range bindings {
		l.probes = append(l.probes, &probe{name: fmt.Sprintf("atom %d", i), run: b.RunN})
	}
	s := &sampler{rule: Precision{HalfWidth: 1, MinRounds: rounds, MaxRounds: rounds}, now: now}
	if err := s.warmUp(ctx, l); err != nil {
		return nil, err
	}
	if err := s.run(ctx, []*probeSet{l}); err != nil {
		return nil, err
	}
	costs := make([]float64, len(l.probes))
	quiet := l.quietRounds()
	for i, pr := range l.probes {
		costs[i] = float64(median(pickRounds(l.decisiveTimes(pr), quiet)))
	}
	return costs, nil
}

// isTimedByCPU reports whether the cost of a run is the CPU time of the calling thread.
func isTimedByCPU(d engine.Device) bool { return d.IsCPU() && len(d.CPUs) <= 1 }
