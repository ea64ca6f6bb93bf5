package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// figure is one claim with its measurement.
type figure struct {
	Claim    string     `json:"claim"`
	Source   string     `json:"source"`
	Asked    string     `json:"asked"`
	Measured float64    `json:"measured"`
	Interval [2]float64 `json:"interval"` // least and most of what was measured
	Unit     string     `json:"unit"`
	Holds    any        `json:"holds"` // true, false, "partly"
	Command  string     `json:"command"`
}

// atMost adds a figure that must not be above a limit; values are what was
// measured, of which the largest counts.
func (b *bench) atMost(claim, source string, limit float64, unit string, values ...float64) {
	b.figure(claim, source, fmt.Sprintf("<= %g", limit), unit, func(most float64) bool { return most <= limit }, values)
}

// exactly adds a figure that must be one value each time.
func (b *bench) exactly(claim, source string, want float64, unit string, values ...float64) {
	b.figure(claim, source, fmt.Sprintf("%g", want), unit, func(x float64) bool { return x == want }, values)
}

func (b *bench) figure(claim, source, asked, unit string, holds func(float64) bool, values []float64) {
	f := figure{Claim: claim, Source: source, Asked: asked, Unit: unit, Command: b.command, Interval: [2]float64{values[0], values[0]}}
	all := true
	for _, v := range values {
		f.Interval[0], f.Interval[1] = min(f.Interval[0], v), max(f.Interval[1], v)
		all = all && holds(v)
	}
	f.Measured, f.Holds = f.Interval[1], all
	b.figures = append(b.figures, f)
}

func (b *bench) writeFigures(path string) error {
	text, err := json.MarshalIndent(b.figures, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
