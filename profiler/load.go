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
	"inferplan/formats/report"
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

// boundModel has the bindings of a loaded model at one batch size.
type boundModel struct {
	blocks     []engine.Binding
	wholeModel engine.Binding
	ranges     map[[2]int]engine.Binding
}

// close closes all bindings (tensors bound to loaded blocks), and then the blocks and the whole model.
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

// closeRanges closes the ranges (neighbouring blocks that are loaded in one piece). It must come before the blocks,
// whose tensors they read.
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

// loadRange loads a range (neighbouring blocks) in one piece, as a stage would run it, and binds it at batch sizes to
// the input tensors of its first block. c is the model whose blocks are loaded already. blockRange is [from, to). The
// loaded range and its bindings are added to c, which closes them.
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

// closeAll closes bindings, the last one first, because each reads the tensors of the one before.
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

// loadSlices loads every block of a cut model on its own, or none if one fails.
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

// loadSlice cuts the blocks [i,j) out of a model and loads them. Block j is not included. A float16 target converts
// the slice.
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

// bindChain binds consecutive blocks at a batch size so that each reads the outputs of the block before, and fills
// the inputs of the first with the values v for the first sample.
func bindChain(list []engine.Block, batch int, v inputValues) ([]engine.Binding, error) {
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
	if err := v.fillAll(out[0].Inputs(), 0); err != nil {
		closeAll(out)
		return nil, err
	}
	return out, nil
}

// runOnce runs the bindings, the blocks of a chain, one after the other.
func runOnce(ctx context.Context, list []engine.Binding) error {
	for _, b := range list {
		if err := b.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bindingBytes returns the bytes of the tensors that cross between the blocks of a chain, with its inputs and
// outputs. Each tensor counts once, because a block's outputs are the next one's inputs.
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

// timeAtoms times every atom (the part of a model between two possible cuts) at a batch size, and returns the median
// times in nanoseconds, in the atoms' order. prepare divides the model by them into blocks of about equal time. p is
// the device with its engine, rounds the number of samples of each atom, and now a clock.
func timeAtoms(ctx context.Context, p loadTarget, m model, batch, rounds int, now func() time.Time) ([]float64, error) {
	// Load and bind every atom as a block of its own.
	list, err := p.loadSlices(ctx, m.eachAtom())
	if err != nil {
		return nil, err
	}
	c := loadedModel{blocks: list}
	defer c.close()
	bindings, err := bindChain(list, batch, m.info().values)
	if err != nil {
		return nil, err
	}
	c.bound = map[int]*boundModel{batch: {blocks: bindings}}

	// Take the samples. A half width of 1 and equal limits fix the number of rounds, because the cut needs no exact
	// times.
	set := &probeSet{name: m.info().name + " atoms", onCPU: isTimedByCPU(p.dev)}
	for i, b := range bindings {
		set.probes = append(set.probes, &probe{name: fmt.Sprintf("atom %d", i), run: b.RunN})
	}
	s := &sampler{rule: Precision{HalfWidth: 1, MinRounds: rounds, MaxRounds: rounds}, now: now}
	if err := s.warmUp(ctx, set); err != nil {
		return nil, err
	}
	if err := s.run(ctx, []*probeSet{set}); err != nil {
		return nil, err
	}

	// Take the medians over the quiet rounds (the half that other work disturbed least), of CPU times if one thread
	// does all the work, else of wall times.
	costs := make([]float64, len(set.probes))
	quiet := set.quietRounds()
	for i, pr := range set.probes {
		costs[i] = float64(report.Median(pickRounds(set.decisiveTimes(pr), quiet)))
	}
	return costs, nil
}

// isTimedByCPU reports whether the cost of a run is the CPU time of the calling thread.
func isTimedByCPU(d engine.Device) bool { return d.IsCPU() && len(d.CPUs) <= 1 }
