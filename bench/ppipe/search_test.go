package main

import (
	"context"
	"testing"

	"inferplan/bench/instrument"
)

// Wherever a search starts, it ends where the whole grid shows it: at a step that attains, below one that does not.
func TestSearchAgainstGrid(t *testing.T) {
	within(t, func(b *bench, _ *instrument.Table) error {
		ctx := context.Background()
		scenes, err := b.scenes("^maf19/G3/HC3/", b.recorded(algorithms...))
		if err != nil {
			return err
		}
		for _, p := range []process{poisson, gamma(2)} {
			for _, m := range []manner{asArtifact, asOurs} {
				for _, algorithm := range []string{"PPipe", "NP"} {
					s, err := b.subject(ctx, &scenes[0], algorithm, m, p)
					if err != nil {
						return err
					}
					for model := range s.planned {
						passes := make([]bool, gridSteps+2)
						passes[0] = true
						for step := 1; step <= gridSteps; step++ {
							p, err := s.simulate(ctx, model, step)
							if err != nil {
								return err
							}
							passes[step] = p.Models[model].attained() >= asked
						}
						for _, start := range []float64{0, .05, .35, 1, 2} {
							s.planned[model] = start
							got, err := s.highest(ctx, model)
							if err != nil {
								return err
							}
							if !passes[got] || passes[got+1] {
								t.Errorf("%s, %v, %s, model %d from %g: %d; by the grid %v", algorithm, m, p.name, model, start, got, passes)
							}
						}
					}
				}
			}
		}
		return nil
	})
}

// within calls a function as the part of an instrument that has read the reference data.
func within(t *testing.T, measure func(b *bench, t *instrument.Table) error, args ...string) {
	t.Helper()
	i, b := newInstrument()
	i.Parts = []instrument.Part{{Name: "test", Measure: func(_ *instrument.Run, tab *instrument.Table) error { return measure(b, tab) }}}
	if err := start(t, i, args...); err != nil {
		t.Error(err)
	}
}
