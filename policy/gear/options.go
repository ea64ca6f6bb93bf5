package gear

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// Name is the policy's name in plans.
const Name = "gear"

// Options are the policy's parameters.
type Options struct {
	Window     time.Duration // time over which arrivals are counted
	Alpha      float64       // a slower gear waits while qps < Alpha * requests queued at the first model
	Hysteresis int           // windows in a row that must ask for a slower gear
	Flush      time.Duration // a queue whose head has waited this long is ready
	RefuseLate bool          // requests that could not be in time are refused at their arrival
}

// DefaultOptions returns the parameters for a plan that names none: a window of about 30 arrivals per range, half
// a second of hysteresis, and a quarter of the SLO as flush time.
func DefaultOptions(tables *policy.Tables) Options {
	options := Options{Window: 100 * time.Millisecond, Alpha: 8, Flush: tables.Models[0].SLO / 4, RefuseLate: true}
	if gearTables := TablesOf(tables); gearTables != nil && len(gearTables.Gears) > 0 {
		options.Window, options.Hysteresis = WindowFor(gearTables.MaxQPS / float64(len(gearTables.Gears)))
	}
	return options
}

// OptionsWithoutRefusals returns the default parameters for plans on trial: the lateness of requests shows whether
// a gear sustains a rate.
func OptionsWithoutRefusals(tables *policy.Tables) Options {
	options := DefaultOptions(tables)
	options.RefuseLate = false
	return options
}

// WindowFor returns the window for the width of a range: long enough for 30 arrivals, between 0.1 s and 1 s, with
// the hysteresis that makes half a second.
func WindowFor(rangeQPS float64) (window time.Duration, hysteresis int) {
	seconds := min(1, max(0.1, 30/rangeQPS))
	window = time.Duration(math.Round(seconds*1000)) * time.Millisecond
	return window, max(1, int(math.Round(0.5/seconds)))
}

// Parameters returns the options in the form of a plan. RefuseLate is the default and is left out.
func (o Options) Parameters() map[string]float64 {
	out := map[string]float64{
		"window_us": float64(o.Window) / 1e3, "alpha": o.Alpha,
		"hysteresis": float64(o.Hysteresis), "flush_us": float64(o.Flush) / 1e3,
	}
	if !o.RefuseLate {
		out["shed"] = 0
	}
	return out
}

// ParseOptions returns the default options, changed by the parameters of a plan: window_us, alpha, hysteresis,
// flush_us and shed. It returns an error for an unknown parameter or a value outside its range.
func ParseOptions(tables *policy.Tables, params map[string]float64) (Options, error) {
	options := DefaultOptions(tables)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		inRange := value >= 0 && value <= 1e12
		switch name {
		case "window_us":
			inRange, options.Window = inRange && value >= 1000, time.Duration(math.Round(value*1e3))
		case "alpha":
			inRange, options.Alpha = inRange && value <= 1e6, value
		case "hysteresis":
			inRange, options.Hysteresis = inRange && value == math.Trunc(value) && value <= 1e6, int(min(value, 1e6))
		case "flush_us":
			options.Flush = time.Duration(math.Round(value * 1e3))
		case "shed":
			inRange, options.RefuseLate = value == 0 || value == 1, value == 1
		default:
			return options, fmt.Errorf("policy %s: parameter %q: unknown, expected one of window_us, alpha, hysteresis, flush_us, shed", Name, name)
		}
		if !inRange {
			return options, fmt.Errorf("policy %s: parameter %s: found %v, expected a number of at least 0 (window_us: 1000, hysteresis: whole, shed: 0 or 1) and at most 1e12 (alpha, hysteresis: 1e6)", Name, name, value)
		}
	}
	return options, nil
}
