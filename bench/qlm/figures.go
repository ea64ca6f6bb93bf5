package main

import (
	"fmt"

	"inferplan/bench/figures"
)

// atMost adds a figure that must not be above a limit; values are the
// measurements, of which the largest counts.
func (b *bench) atMost(claim, source string, limit float64, unit string, values ...float64) {
	b.figure(claim, source, fmt.Sprintf("<= %g", limit), unit, func(most float64) bool { return most <= limit }, values)
}

// exactly adds a figure that must be one value each time.
func (b *bench) exactly(claim, source string, want float64, unit string, values ...float64) {
	b.figure(claim, source, fmt.Sprintf("%g", want), unit, func(x float64) bool { return x == want }, values)
}

func (b *bench) figure(claim, source, asked, unit string, holds func(float64) bool, values []float64) {
	f := figures.Figure{Claim: claim, Source: source, Asked: asked, Unit: unit, Interval: &[2]float64{values[0], values[0]}}
	all := true
	for _, v := range values {
		f.Interval[0], f.Interval[1] = min(f.Interval[0], v), max(f.Interval[1], v)
		all = all && holds(v)
	}
	f.Measured, f.Holds = f.Interval[1], figures.If(all)
	b.figures = append(b.figures, f)
}
