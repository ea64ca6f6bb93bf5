package sim

import (
	"fmt"
	"time"
)

// Budget is the work that a series of runs may still take, in requests of a plan with few
// devices. It counts requests instead of time, so that the same runs are made on every machine.
type Budget struct{ Remaining float64 }

// requestCost is the cost of simulating a request, in requests of a plan with few devices.
type requestCost struct{ perRequest, perDevice float64 } // perDevice is added for each device

// OverBudgetError is returned when runs would take more work than their budget allows. None of them was made.
type OverBudgetError struct {
	Runs     int
	Duration time.Duration // of the arrivals of a run
	Requests float64       // in all of these runs
	Devices  int
}

// Error says how large the runs would be.
func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("%d more runs of %v would have about %.3g requests for %d devices, more than a search simulates", e.Runs, e.Duration, e.Requests, e.Devices)
}

// CheckBudget returns an *OverBudgetError if the budget does not allow a number of runs. Without a
// budget all are allowed.
func (sc *Scenario) CheckBudget(numRuns int) error {
	requests := sc.expectedRequests() * float64(numRuns)
	if sc.Budget == nil || sc.workOf(requests) <= sc.Budget.Remaining {
		return nil
	}
	return &OverBudgetError{Runs: numRuns, Duration: sc.Duration, Requests: requests, Devices: len(sc.Tables.Devices)}
}

// spendBudget takes the work of numRuns runs from the search's budget before they are made. It returns an error,
// and takes nothing, if the budget does not allow them. Without a budget all runs are allowed.
func (sc *Scenario) spendBudget(numRuns int) error {
	if err := sc.CheckBudget(numRuns); err != nil || sc.Budget == nil {
		return err
	}
	sc.Budget.Remaining -= sc.workOf(sc.expectedRequests() * float64(numRuns))
	return nil
}

// workOf returns the cost of requests, in requests of a plan with few devices.
func (sc *Scenario) workOf(requests float64) float64 {
	cost := requestCostOf(sc.Tables)
	return requests * (cost.perRequest + cost.perDevice*float64(len(sc.Tables.Devices)))
}

// expectedRequests returns about how many requests a run has: the rates of the models, times the load factor and
// the duration.
func (sc *Scenario) expectedRequests() float64 {
	rps := 0.0
	for i := range sc.Tables.Models {
		if sc.Rates != nil && i < len(sc.Rates) {
			rps += sc.Rates[i]
		} else {
			rps += sc.Tables.Models[i].RPS
		}
	}
	return rps * sc.Load * sc.Duration.Seconds()
}
