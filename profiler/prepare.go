package profiler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
)

// prepare cuts a model into blocks of about equal time, unless the profile's cuts were taken over, and counts the
// work of its blocks. Without a profile's cut, it times the atoms (parts between two possible cuts) first, unless
// every atom becomes a block or the model stays whole.
func (g *jobGroup) prepare(ctx context.Context, j *modelJob) error {
	if j.cut == nil {
		g.run.progress.event(Event{Stage: StageCut, Model: j.info.name, DoneShare: g.run.progress.fraction(0)})
		n := min(g.run.options.Blocks, j.m.atomCount())
		costs := make([]float64, j.m.atomCount())
		if n < len(costs) && n > 1 {
			var err error
			if costs, err = timeAtoms(ctx, g.run.target(), j.m, j.quickBatch(), j.atomRounds(g.run), g.run.options.now); err != nil {
				return fmt.Errorf("time the parts of %s: %w", j.info.path, err)
			}
		}
		cut, err := j.m.partition(costs, n)
		if err != nil {
			return fmt.Errorf("cut %s: %w", j.info.path, err)
		}
		j.cut = cut
		j.entry.Blocks = describeBlocks(cut)
	}
	return g.countWork(ctx, j)
}

// describeBlocks returns the profile's entries for the blocks of a cut model, without measurements: operators, bytes
// of weights, and the tensors at the cut behind each.
func describeBlocks(b cutModel) []formats.Block {
	out := make([]formats.Block, b.Len())
	for i := range out {
		out[i] = formats.Block{Name: fmt.Sprintf("block%d", i), Nodes: b.Nodes(i, i+1), WeightBytes: b.WeightBytes(i, i+1)}
		if i == b.Len()-1 {
			break
		}
		c := b.Cut(i + 1)
		out[i].Cut = tensorInfos(c.Tensors)
		out[i].CutBytesFP32, out[i].CutBytesFP16 = formats.CutBytes(c.Bytes), formats.CutBytes(c.HalfBytes)
	}
	return out
}

// load loads a model's blocks and the whole model at a share, and binds them at every batch that is to be measured
// there. places are where it is loaded: one, or one per share of a GPU. It also records the memory that each batch
// needs and, once per model, checks float16.
func (g *jobGroup) load(ctx context.Context, j *modelJob, share int, places []loadTarget) error {
	g.run.progress.event(Event{Stage: StageLoad, Model: j.info.name, Share: share, DoneShare: g.run.progress.fraction(0)})
	batches := j.batches(share)
	debug.FreeOSMemory()
	memoryBefore := residentMemory()

	// At every place, load and bind the blocks. Memory and half precision are looked at on the first place only.
	for k, p := range places {
		c := &loadedModel{bound: map[int]*boundModel{}}
		j.loadedByShare[share] = append(j.loadedByShare[share], c) // closed with the job, also after an error
		var err error
		if c.blocks, err = p.loadSlices(ctx, j.cut); err != nil {
			return err
		}
		debug.FreeOSMemory() // frees the bytes of the slices
		for _, batch := range batches {
			b, err := bindChain(c.blocks, batch, j.info.values)
			if err != nil {
				return err
			}
			c.bound[batch] = &boundModel{blocks: b}
			if err := runOnce(ctx, b); err != nil {
				return err
			}
			if k > 0 {
				continue
			}

			// The memory is that of tensors and weights or, on a CPU, what the process has grown by, if that is
			// more.
			need := bindingBytes(b)
			for _, blk := range c.blocks {
				need += blk.Submodel().WeightBytes
			}
			if memoryNow := residentMemory(); g.run.dev.IsCPU() && memoryBefore > 0 {
				need = max(need, memoryNow-memoryBefore)
			}
			j.memory[measurementKey{share, batch}] = need
		}
		switch {
		case k > 0:
		case g.run.needsModelFP16Check(j):
			if err := g.checkModelFP16(ctx, j, p); err != nil {
				return err
			}
		case g.run.needsCutFP16Check(j):
			if err := g.checkCutsFP16(ctx, j, p, c); err != nil {
				return err
			}
		}

		// Load and bind the uncut model.
		uncut := j.m.wholeModel()
		if c.wholeModel, err = p.loadSlice(ctx, uncut, 0, uncut.Len(), graph.SliceOptions{}); err != nil {
			return err
		}
		for _, batch := range batches {
			// The whole model reads the same input tensors as the first block.
			b, err := c.wholeModel.Bind(engine.BindOptions{Batch: batch, Inputs: c.bound[batch].blocks[0].Inputs()})
			if err != nil {
				return err
			}
			c.bound[batch].wholeModel = b
		}
	}
	return nil
}

// needsCutFP16Check reports whether the effect of crossing a model's cuts in float16 is still to be checked: the
// profile has no result for a cut that a float32 crosses.
func (r *runner) needsCutFP16Check(j *modelJob) bool {
	// A model that computes in float16 loses nothing by crossing in it.
	if r.options.FP16Samples < 0 || j.info.batch > 0 || r.options.FP16 {
		return false
	}
	if j.cut == nil {
		return j.m.atomCount() > 1
	}
	for i := range max(0, j.cut.Len()-1) {
		float := slices.ContainsFunc(j.cut.Cut(i+1).Tensors, func(s engine.Spec) bool { return s.Type == engine.F32 })
		if float && j.entry.Blocks[i].FP16 == nil {
			return true
		}
	}
	return false
}

// preparationShare is the largest share of the budget that timing the atoms may take, and likewise the checks of
// float16.
const preparationShare = 0.25

// affordableRepeats returns how often something that takes the given duration is done before a model is measured:
// maxRepeats times, or as often as the model's part of the preparation budget allows, but at least minRepeats times.
func (r *runner) affordableRepeats(duration time.Duration, minRepeats, maxRepeats int) int {
	if r.options.Budget <= 0 || duration <= 0 {
		return maxRepeats
	}
	available := preparationShare * float64(r.options.Budget) / float64(len(r.jobs))
	return max(minRepeats, min(maxRepeats, int(available/float64(duration))))
}

// fp16Samples returns the number of inputs on which a model's cuts are checked.
func (j *modelJob) fp16Samples(r *runner) int {
	return r.affordableRepeats(j.fp16SampleTime(r.options), 1, r.options.FP16Samples)
}

// atomRounds returns how often every atom of a model is timed before it is cut.
func (j *modelJob) atomRounds(r *runner) int {
	return r.affordableRepeats(j.wholeTime, minAtomRounds, maxAtomRounds)
}

// fp16SampleTime returns the time of checking one input: for every cut, the blocks behind it run once more. On
// average these are half of the n blocks, after one exact run of all.
func (j *modelJob) fp16SampleTime(o *Options) time.Duration {
	var n int
	if j.cut != nil {
		n = j.cut.Len()
	} else {
		n = min(o.Blocks, j.m.atomCount())
	}
	return time.Duration((float64(n)/2 + 1) * float64(j.wholeTime))
}

// checkCutsFP16 measures how crossing each cut of a loaded model (c) in float16 changes its answer, and records that
// in the profile's blocks. The last block is loaded once more with the tensor before its closing softmax as an
// additional output, because softmax hides differences.
func (g *jobGroup) checkCutsFP16(ctx context.Context, j *modelJob, p loadTarget, c *loadedModel) (err error) {
	g.run.progress.event(Event{Stage: StageFP16, Model: j.info.name, DoneShare: g.run.progress.fraction(0)})
	n := j.cut.Len()
	list := slices.Clone(c.blocks)
	answerOf := func(b []engine.Binding) engine.Tensor { return b[n-1].Outputs()[0] }
	if name := j.logits(); name != "" {
		if k := slices.IndexFunc(j.cut.Cut(n-1).Tensors, func(s engine.Spec) bool { return s.Name == name }); k >= 0 {
			// The last block is only the softmax, so compare its input.
			answerOf = func(b []engine.Binding) engine.Tensor { return b[n-1].Inputs()[k] }
		} else if lastBlock, err := p.loadLogits(ctx, j, j.cut, name); err == nil {
			list[n-1] = lastBlock
			answerOf = func(b []engine.Binding) engine.Tensor { return b[n-1].Outputs()[len(j.info.outputs)] }
			defer func() { err = errors.Join(err, lastBlock.Close()) }()
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
		// If neither works, the outputs themselves are compared.
	}
	bindings, err := bindChain(list, 1, j.info.values)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(bindings)) }()
	answer := answerOf(bindings)
	if answer.Spec().Type != engine.F32 {
		return nil // not comparable as numbers
	}
	checks, err := checkFP16(ctx, fp16Chain{bindings, func() ([]float32, []int64, error) { return readFloats(answer) }}, j.fp16Samples(g.run),
		func(sample int) error {
			return j.info.values.fillAll(bindings[0].Inputs(), sample)
		})
	if err != nil {
		return fmt.Errorf("check float16 at the cuts of %s: %w", j.info.path, err)
	}
	for i, check := range checks {
		j.entry.Blocks[i].FP16 = check
	}
	return nil
}

// logits returns the name of the tensor before the first output's closing softmax, or "" if there is none.
func (j *modelJob) logits() string {
	if len(j.info.logits) == 0 || len(j.info.outputs) == 0 || j.info.logits[0] == j.info.outputs[0].Name {
		return ""
	}
	return j.info.logits[0]
}

// needsModelFP16Check reports whether the effect of computing in float16 on a model's answers is still to be
// checked.
func (r *runner) needsModelFP16Check(j *modelJob) bool {
	return r.options.FP16 && r.options.FP16Samples > 0 && j.entry.FP16 == nil
}

// checkModelFP16 compares a model's answers when it computes in float16 with those in float32 on the same device,
// and records the difference in the profile. A closing softmax, which hides differences, is left out.
func (g *jobGroup) checkModelFP16(ctx context.Context, j *modelJob, p loadTarget) (err error) {
	g.run.progress.event(Event{Stage: StageFP16, Model: j.info.name, DoneShare: g.run.progress.fraction(0)})

	// Load the model twice: in float32, and in float16.
	float32Target := p
	float32Target.fp16 = false
	var bound [2]engine.Binding
	var answer [2]engine.Tensor
	for k, target := range []loadTarget{float32Target, p} {
		uncut := j.m.wholeModel()
		blk, err := target.loadLogits(ctx, j, uncut, j.logits())
		if err != nil && j.logits() != "" && ctx.Err() == nil { // compare the outputs instead
			blk, err = target.loadLogits(ctx, j, uncut, "")
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, blk.Close()) }()
		if bound[k], err = blk.Bind(engine.BindOptions{Batch: 1}); err != nil {
			return err
		}
		outputs := bound[k].Outputs()
		answer[k] = outputs[0]
		if len(outputs) > len(j.info.outputs) {
			answer[k] = outputs[len(j.info.outputs)]
		}
	}
	if answer[0].Spec().Type != engine.F32 || answer[0].Spec().Name != answer[1].Spec().Name {
		return nil // not comparable as numbers
	}

	// Compare the answers, sample by sample.
	check := &formats.FP16Check{Samples: g.run.options.FP16Samples}
	agreeing, total := 0, 0
	for sample := range g.run.options.FP16Samples {
		var answers [2][]float32
		var shape []int64
		for k, b := range bound {
			if err := j.info.values.fillAll(b.Inputs(), sample); err != nil {
				return err
			}
			if err := b.Run(ctx); err != nil {
				return fmt.Errorf("check float16 inside %s: %w", j.info.path, err)
			}
			if answers[k], shape, err = readFloats(answer[k]); err != nil {
				return err
			}
		}
		check.MaxAbsDiff = max(check.MaxAbsDiff, maxAbsDiff(answers[0], answers[1]))
		a, t := countTop1(answers[0], answers[1], shape)
		agreeing, total = agreeing+a, total+t
	}
	check.Top1Agreement = float64(agreeing) / float64(max(1, total))
	j.entry.FP16 = check
	return nil
}

// loadLogits loads the last block of a cut model, with the tensor of a name as an additional output if the name is
// not empty.
func (p loadTarget) loadLogits(ctx context.Context, j *modelJob, b cutModel, name string) (engine.Block, error) {
	n := b.Len()
	if name == "" {
		return p.loadSlice(ctx, b, n-1, n, graph.SliceOptions{})
	}
	sub, err := b.Slice(n-1, n, graph.SliceOptions{Extra: []string{name}, FP16: p.fp16})
	if err != nil {
		return nil, err
	}
	if len(sub.Outputs) == len(j.info.outputs) {
		// If the slice has no additional output, describe one. Softmax changes neither type nor shape.
		spec := j.info.outputs[0]
		spec.Name = name
		s := *sub
		s.Outputs = append(slices.Clone(sub.Outputs), spec)
		sub = &s
	}
	return p.eng.Load(ctx, sub, p.dev, p.options)
}

// copyRate measures the device's copy rate, in gigabits per second, once per run: in host memory for a CPU, from
// host to device for a GPU, with the largest input of the models.
func (g *jobGroup) copyRate() float64 {
	if g.run.dev.IsCPU() {
		return g.run.options.hostCopy()
	}

	// Find the largest input of all loaded models.
	var largest engine.Tensor
	for _, j := range g.members {
		for _, c := range j.loadedByShare[1] {
			for _, b := range c.bound {
				for _, t := range b.blocks[0].Inputs() {
					if largest == nil || t.Spec().BytesAt(t.Batch()) > largest.Spec().BytesAt(largest.Batch()) {
						largest = t
					}
				}
			}
		}
	}
	if largest == nil {
		return 0
	}

	// Write its own values into it, again and again.
	size := largest.Spec().BytesAt(largest.Batch())
	data := make([]byte, size)
	if largest.Read(data) != nil { // the tensor keeps its values
		return 0
	}
	return copyGbps(size, func() error { return largest.Write(data) })
}

// noteCutCost notes in the profile how much longer a model's blocks take together than the whole model: the cost of
// the cuts in lost fusions and layout changes. The ratio is of CPU times if one CPU thread did the work. Only share
// 1, the whole device, counts.
func (r *runner) noteCutCost(j *modelJob) {
	var parts []string
	for _, m := range j.entry.Measurements {
		if m.Device != r.dev.Kind || m.Share != 1 || m.WholeModel == nil || len(m.Blocks) < 2 {
			continue
		}
		cost := func(l formats.Latency) float64 {
			if l.CPUUS > 0 && isTimedByCPU(r.dev) {
				return float64(l.CPUUS)
			}
			return float64(l.WallUS)
		}
		var sum float64
		for _, b := range m.Blocks {
			sum += cost(b)
		}
		if w := cost(*m.WholeModel); w > 0 {
			parts = append(parts, fmt.Sprintf("%.2f (batch %d)", sum/w, m.Batch))
		}
	}

	// Note the ratios, or remove an older note.
	subject := fmt.Sprintf("cost of cutting %s on %s", j.info.name, r.dev.Kind)
	if len(parts) == 0 {
		r.setNote(subject, "")
		return
	}
	r.setNote(subject, fmt.Sprintf("%s: its blocks together take %s times as long as the model in one piece", subject, strings.Join(parts, ", ")))
}
