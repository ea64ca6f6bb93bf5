package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"

	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/sim"
)

// maxWindows bounds the time windows of a report, maxRuns the replications.
const (
	maxWindows = 100_000
	maxRuns    = 100_000
)

// checkFlags checks the numbers of flags before any file is read.
func (o *simulateOptions) checkFlags() error {
	if o.window > 0 && (o.duration/o.window >= maxWindows || o.trace != "" && !o.durationGiven && o.window < time.Second) {
		return usageErrorf("--window: found %s, expected at most %d windows of the run, and at least 1s with a --trace that is played to its end", o.window, maxWindows)
	}
	if !(o.upTo >= sim.LoadStep && o.upTo <= sim.MaxSearchLoad) {
		return usageErrorf("--up-to: found %v, expected a load from %v to %v", o.upTo, sim.LoadStep, sim.MaxSearchLoad)
	}
	return firstError(o.checkSingleRun(), checkDuration("duration", o.duration), checkDuration("warmup", o.warmup), checkDuration("window", o.window), usage.CheckWhole("runs", o.runCount, 1, maxRuns),
		checkTypedShare("attainment", o.attainment, o.attainmentGiven), usage.CheckRange("jitter", o.jitter, 0, maxJitter))
}

// maxSimulatedRequests bounds the requests of the runs at one load: their report keeps some 30 bytes of each.
const maxSimulatedRequests = 1e8

// checkSimulatedRequests refuses a duration and a number of runs in which more requests than maxSimulatedRequests arrive
// at rates, at the highest load. The default duration is shortened elsewhere, apart from its warm-up.
func (o *simulateOptions) checkSimulatedRequests(rates []float64) error {
	duration, loads := o.duration, []float64{o.load}
	if !o.durationGiven {
		duration = o.warmup
	}
	if o.loads != "" {
		var err error
		if loads, err = o.parseLoads(); err != nil {
			return err
		}
	}
	total := floats.Sum(rates) * slices.Max(loads) * duration.Seconds() * float64(max(1, o.runCount))
	if !(total <= maxSimulatedRequests) {
		return usageErrorf("--duration %s, --warmup %s, --runs %d: %.3g requests would arrive, expected at most %g", o.duration, o.warmup, o.runCount, total, float64(maxSimulatedRequests))
	}
	return nil
}

// maxJitter is the largest coefficient of variation. Beyond it service times have nothing in common, and the
// simulated times would mean nothing.
const maxJitter = 100

// maxLoads bounds the points of a sweep.
const maxLoads = 1000

// parseLoads reads --loads. A list has commas, and FROM:TO:STEP includes both ends.
func (o *simulateOptions) parseLoads() ([]float64, error) {
	bad := func(wrongPart string) error {
		return usageErrorf("--loads %s: found %s, expected loads above 0 such as 0.5,0.8,1 or FROM:TO:STEP such as 0.1:1.2:0.1, at most %d", o.loads, wrongPart, maxLoads)
	}
	switch {
	case o.findMaxLoad:
		return nil, usageErrorf("--loads and --find-max-load exclude each other")
	case o.load != 1:
		return nil, usageErrorf("--loads and --load exclude each other")
	}
	parse := func(text string) (float64, error) {
		v, err := document.ParseShare(text)
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return 0, bad(strconv.Quote(text))
		}
		return v, nil
	}
	parts := strings.Split(o.loads, ":")
	list := len(parts) == 1
	if list {
		parts = strings.Split(o.loads, ",")
	}
	var values []float64
	for _, part := range parts {
		v, err := parse(part)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	if list {
		return values, nil
	}
	if len(values) != 3 || values[1] < values[0] || (values[1]-values[0])/values[2] >= maxLoads {
		return nil, bad(strconv.Quote(o.loads))
	}
	var out []float64
	for i := range int(math.Floor((values[1]-values[0])/values[2]+1e-9)) + 1 {
		// Round, so that a step of 0.1 gives 0.3 and not 0.30000000000000004.
		out = append(out, math.Round((values[0]+float64(i)*values[2])*1e9)/1e9)
	}
	return out, nil
}

// checkSingleRun refuses flags that show one run if there are several.
func (o *simulateOptions) checkSingleRun() error {
	flag := ""
	switch {
	case o.loads != "":
		flag = "--loads " + o.loads
	case o.findMaxLoad:
		flag = "--find-max-load"
	case o.runCount > 1:
		flag = fmt.Sprintf("--runs %d", o.runCount)
	default:
		return nil
	}
	for _, f := range []struct{ flag, path string }{{"chrome-trace", o.chromeTrace}, {"event-log", o.eventLog}, {"outcomes", o.outcomes}} {
		if f.path != "" {
			return usageErrorf("--%s shows one run; found %s", f.flag, flag)
		}
	}
	return nil
}
