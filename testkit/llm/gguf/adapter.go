package gguf

import (
	"fmt"
	"io"
	"math"
)

// Adapter is a LoRA adapter of random weights for a model: the model writes something
// else with it.
type Adapter struct {
	Of   *Model
	Rank int
	Seed uint64
}

// Write writes the adapter's file. Each layer's feed-forward part gets a product of two
// thin matrices.
func (a *Adapter) Write(out io.Writer) error {
	if err := a.Of.check(); err != nil {
		return err
	}
	if a.Rank < 1 || a.Rank > a.Of.Width {
		return fmt.Errorf("adapter of %s: rank %d: expected 1 to %d", a.Of.Name, a.Rank, a.Of.Width)
	}
	from := Model{Seed: a.Seed}
	var tensors []tensor
	for l := range a.Of.Layers {
		name := fmt.Sprintf("blk.%d.ffn_up.weight", l)
		thin := func(part string, in, out int) {
			tensors = append(tensors, half(name+part, in, out, func() []float32 {
				return from.random(name+part, out, in, 1/math.Sqrt(float64(in)))
			}))
		}
		thin(".lora_a", a.Of.Width, a.Rank)
		thin(".lora_b", a.Rank, a.Of.Hidden)
	}
	fields := []field{
		{"general.type", "adapter"}, {"general.architecture", "llama"}, {"general.alignment", uint32(alignment)},
		{"adapter.type", "lora"}, {"adapter.lora.alpha", float32(a.Rank)},
	}
	if err := write(out, fields, tensors); err != nil {
		return fmt.Errorf("writing an adapter of %s: %w", a.Of.Name, err)
	}
	return nil
}
