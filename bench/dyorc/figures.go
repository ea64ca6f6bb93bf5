package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// figure is a claim with what was measured.
type figure struct {
	Claim    string      `json:"claim"`
	Source   string      `json:"source"`
	Asked    string      `json:"asked"`
	Measured float64     `json:"measured"`
	Interval *[2]float64 `json:"interval,omitempty"`
	Unit     string      `json:"unit"`
	Holds    any         `json:"holds"` // true, false or "partly"
	Command  string      `json:"command"`
}

const paper = "DyOrc (SoCC '25)"

// page is what is written: tables, and claims below them.
type page struct {
	out     io.Writer
	figures []figure
}

// claim adds a figure and says it below the table.
func (p *page) claim(f figure) {
	f.Command = cmp.Or(f.Command, "make bench-dyorc")
	p.figures = append(p.figures, f)
	interval := ""
	if f.Interval != nil {
		interval = fmt.Sprintf(" [%.3g, %.3g]", f.Interval[0], f.Interval[1])
	}
	fmt.Fprintf(p.out, "%s: %.4g %s%s; asked: %s; holds: %v\n", f.Claim, f.Measured, f.Unit, interval, f.Asked, f.Holds)
}

// writeFigures writes the claims that were made. Others that the file has stay.
func (p *page) writeFigures(path string) error {
	var kept []figure
	if was, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(was, &kept); err != nil {
			return fmt.Errorf("reading the figures: %w", err)
		}
	}
	for _, f := range p.figures {
		if i := slices.IndexFunc(kept, func(k figure) bool { return k.Claim == f.Claim }); i >= 0 {
			kept[i] = f
		} else {
			kept = append(kept, f)
		}
	}
	p.figures = kept
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p.figures); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

// interval is the mean with its 95 % interval over seeds (Student's t); of one
// value there is none.
func interval(list []float64) (mean float64, ci *[2]float64) {
	mean = stat.Mean(list, nil)
	if len(list) < 2 {
		return mean, nil
	}
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(list) - 1)}.Quantile(.975) * stat.StdDev(list, nil) / math.Sqrt(float64(len(list)))
	return mean, &[2]float64{mean - half, mean + half}
}
