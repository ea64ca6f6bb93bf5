package profiler

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"inferplan/engine"
	"inferplan/formats"
)

// halfRound returns the float32 nearest to x that float16 can hold (ties to even), as if a tensor crossed a cut in
// float16.
func halfRound(x float32) float32 { return engine.FromFP16(engine.ToFP16(x)) }

// halfRoundBytes rounds every float32 of a tensor's memory in place.
func halfRoundBytes(b []byte) {
	for ; len(b) >= 4; b = b[4:] {
		binary.LittleEndian.PutUint32(b, math.Float32bits(halfRound(math.Float32frombits(binary.LittleEndian.Uint32(b)))))
	}
}

// fp16Chain is a chain of blocks bound at batch 1, with a way to read the
// answer that is compared.
type fp16Chain struct {
	bindings []engine.Binding
	logits   func() ([]float32, []int64, error) // returns the logits of the latest run
}

// checkFP16 measures how crossing each inner cut in float16 changes the model's answer. c is the chain of bound
// blocks, and fill writes the inputs of a sample. Each cut is tried separately. The result has one entry per inner
// cut: the largest difference, and how often the most likely class stayed the same. It is nil for a cut that no
// float32 crosses. agree and total count, by cut, the compared classes that stayed the same and all.
func checkFP16(ctx context.Context, c fp16Chain, samples int, fill func(sample int) error) ([]*formats.FP16Check, error) {
	n := len(c.bindings)
	out := make([]*formats.FP16Check, n-1)
	agree := make([]int, n-1)
	total := make([]int, n-1)
	for s := range samples {
		if err := fill(s); err != nil {
			return nil, err
		}
		// Run exactly once, and keep the tensors at each cut.
		exactCuts := make([][][]byte, n)
		for i, b := range c.bindings {
			if err := b.Run(ctx); err != nil {
				return nil, err
			}
			if i == n-1 {
				break
			}
			for _, t := range b.Outputs() {
				data := make([]byte, t.Spec().BytesAt(t.Batch()))
				if err := t.Read(data); err != nil {
					return nil, err
				}
				exactCuts[i] = append(exactCuts[i], data)
			}
		}
		exact, shape, err := c.logits()
		if err != nil {
			return nil, err
		}

		// Round the tensors at one cut after the other, and run the blocks behind it.
		for cut := range n - 1 {
			crosses := false
			for k, t := range c.bindings[cut].Outputs() {
				data := append([]byte(nil), exactCuts[cut][k]...)
				if t.Spec().Type == engine.F32 {
					halfRoundBytes(data)
					crosses = true
				}
				if err := t.Write(data); err != nil {
					return nil, err
				}
			}
			if !crosses {
				continue
			}
			for _, b := range c.bindings[cut+1:] {
				if err := b.Run(ctx); err != nil {
					return nil, err
				}
			}
			rounded, _, err := c.logits()
			if err != nil {
				return nil, err
			}
			if out[cut] == nil {
				out[cut] = &formats.FP16Check{Samples: samples}
			}
			out[cut].MaxAbsDiff = max(out[cut].MaxAbsDiff, maxAbsDiff(exact, rounded))
			a, t := countTop1(exact, rounded, shape)
			agree[cut] += a
			total[cut] += t
		}
	}

	// Turn the counts into shares.
	for cut, f := range out {
		if f != nil {
			f.Top1Agreement = float64(agree[cut]) / float64(max(1, total[cut]))
		}
	}
	return out, nil
}

// maxAbsDiff returns the largest absolute difference between two answers, value by value. A value that is NaN or
// infinite in only one of the two counts as the largest float32.
func maxAbsDiff(a, b []float32) float64 {
	maxDiff := 0.0
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) || math.IsInf(d, 0) {
			if a[i] == b[i] || a[i] != a[i] && b[i] != b[i] {
				continue
			}
			d = math.MaxFloat32
		}
		maxDiff = max(maxDiff, d)
	}
	return maxDiff
}

// countTop1 counts in how many places two answers of the same shape have the largest entry at the same index (the
// same class). Classes are the last dimension of outputs of up to three dimensions (classes, or classes at each
// position). Larger outputs are maps, and compared as one place.
func countTop1(a, b []float32, shape []int64) (agree, total int) {
	classes := len(a)
	if n := len(shape); n >= 2 && n <= 3 && shape[n-1] > 1 {
		classes = int(shape[n-1])
	}
	for i := 0; classes > 0 && i+classes <= len(a); i += classes {
		total++
		if argmax(a[i:i+classes]) == argmax(b[i:i+classes]) {
			agree++
		}
	}
	return agree, total
}

// argmax returns the index of the largest value.
func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// readFloats copies a float32 tensor, which may lie on a GPU, into host memory, and returns its values and shape.
func readFloats(t engine.Tensor) ([]float32, []int64, error) {
	spec := t.Spec()
	if spec.Type != engine.F32 {
		return nil, nil, fmt.Errorf("tensor %s is %s, not float32", spec.Name, spec.Type)
	}
	raw := make([]byte, spec.BytesAt(t.Batch()))
	if err := t.Read(raw); err != nil {
		return nil, nil, err
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out, spec.ShapeAt(t.Batch()), nil
}
