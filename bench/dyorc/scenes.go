package main

import (
	"fmt"
	"time"
)

// warmup is how long arrivals are not counted.
const warmup = 300 * time.Second

// sceneOf is an application at a rate on a fleet; app -1 is all three at a third
// of the rate each.
func sceneOf(app int, rps float64, devices int, gigabytes float64) *scene {
	sc := &scene{Devices: devices, Gigabytes: gigabytes, Minutes: 30, Warmup: warmup}
	name := "MIX"
	if app >= 0 {
		sc.Rates.rps[app] = rps
		name = [3]string{"GILL", "KC", "DEBATE"}[app]
	} else {
		sc.Rates.rps = [3]float64{rps / 3, rps / 3, rps / 3}
	}
	sc.Name = fmt.Sprintf("%s %g", name, rps)
	return sc
}

// row is the rates of an application.
type row struct {
	app int
	rps []float64
}

// ample are the rows of 32 devices with 40 GB, scarce those of 8 with 24 GB.
var (
	ample  = []row{{0, []float64{4, 12, 24}}, {1, []float64{4, 12, 30}}, {2, []float64{2, 6, 20}}, {-1, []float64{4, 12, 24}}}
	scarce = []row{{0, []float64{1, 3, 5}}, {1, []float64{1, 3, 7}}, {2, []float64{2, 5}}, {-1, []float64{1, 3, 6}}}
)

func scenesOf(rows []row, devices int, gigabytes float64) (out []*scene) {
	for _, r := range rows {
		for _, rps := range r.rps {
			out = append(out, sceneOf(r.app, rps, devices, gigabytes))
		}
	}
	return out
}

// starts are the first ten minutes of an empty fleet.
func starts() (out []*scene) {
	for _, sc := range scenesOf([]row{{0, []float64{12}}, {1, []float64{12}}, {2, []float64{6}}, {-1, []float64{12}}}, 32, 40) {
		sc.Minutes, sc.Warmup = 10, 0
		out = append(out, sc)
	}
	return out
}

// shifts are two hours, in the middle of which one application doubles and the
// others halve.
func shifts() (out []*scene) {
	for _, one := range []struct {
		devices   int
		gigabytes float64
		rps       float64
	}{{32, 40, 12}, {32, 40, 24}, {8, 24, 3}} {
		sc := sceneOf(-1, one.rps, one.devices, one.gigabytes)
		sc.Name += fmt.Sprintf(" on %d with %g GB", one.devices, one.gigabytes)
		sc.Rates.shift, sc.Minutes, sc.Windows = true, minutes, true
		out = append(out, sc)
	}
	return out
}

// memories are the fleets of the curve of cold starts over memory.
func memories() (out []*scene) {
	for _, gb := range []float64{20, 24, 32, 40, 56, 80} {
		sc := sceneOf(-1, 3, 8, gb)
		sc.Name += fmt.Sprintf(" with %g GB", gb)
		out = append(out, sc)
	}
	return out
}
