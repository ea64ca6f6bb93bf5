package oip

import (
	"cmp"
	"slices"
)

// Merge adds the figures of another SLO class of the same model and version, because the protocol's statistics
// know no classes. Batches are sorted by size.
func (s *ModelStatistics) Merge(o *ModelStatistics) {
	s.LastInference = max(s.LastInference, o.LastInference)
	s.InferenceCount += o.InferenceCount
	s.ExecutionCount += o.ExecutionCount
	a, b := &s.Inference, &o.Inference
	for _, p := range [...][2]*DurationStat{
		{&a.Success, &b.Success}, {&a.Fail, &b.Fail}, {&a.Queue, &b.Queue},
		{&a.ComputeInput, &b.ComputeInput}, {&a.ComputeInfer, &b.ComputeInfer}, {&a.ComputeOutput, &b.ComputeOutput},
	} {
		p[0].merge(p[1])
	}
	for i := range o.Batches {
		source := &o.Batches[i]
		index, found := slices.BinarySearchFunc(s.Batches, source.BatchSize, func(b BatchStats, size uint64) int { return cmp.Compare(b.BatchSize, size) })
		if !found {
			s.Batches = slices.Insert(s.Batches, index, *source)
			continue
		}
		target := &s.Batches[index]
		target.ComputeInput.merge(&source.ComputeInput)
		target.ComputeInfer.merge(&source.ComputeInfer)
		target.ComputeOutput.merge(&source.ComputeOutput)
	}
}

func (s *DurationStat) merge(o *DurationStat) {
	s.Count += o.Count
	s.NS += o.NS
}
