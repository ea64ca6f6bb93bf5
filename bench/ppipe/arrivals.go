package main

import (
	"fmt"

	"inferplan/formats"
)

// process is a kind of arrivals by name. All of them draw a run's requests from its seed alone and stretch them with the load: common
// random numbers.
type process struct {
	name string
	spec *formats.Arrivals
}

var poisson = process{"poisson", &formats.Arrivals{Process: "poisson"}}

// gamma is of gaps with a coefficient of variation.
func gamma(cv float64) process {
	return process{fmt.Sprintf("gamma:%g", cv), &formats.Arrivals{Process: "gamma", CV: cv}}
}
