package main

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/bench/figures"
)

const paper = "DyOrc (SoCC '25)"

// page is the written page: tables, and claims below them.
type page struct {
	out     io.Writer
	of      string           // seeds of this run, where they are not the usual ones
	figures []figures.Figure // of the table that is made
}

// claim adds a figure and says it below the table.
func (p *page) claim(f figures.Figure) {
	f.Claim += p.of
	p.figures = append(p.figures, f)
	interval := ""
	if f.Interval != nil {
		interval = fmt.Sprintf(" [%.3g, %.3g]", f.Interval[0], f.Interval[1])
	}
	fmt.Fprintf(p.out, "%s: %.4g %s%s; asked: %s; holds: %v\n", f.Claim, f.Measured, f.Unit, interval, f.Asked, f.Holds)
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
