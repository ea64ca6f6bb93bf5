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

// Error says how large the runs would be that were not made.
func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("%d more runs of %v would have about %.3g requests for %d devices, more than a search simulates", e.Runs, e.Duration, e.Requests, e.Devices)
}

// CheckBudget returns an *OverBudgetError if the scenario's budget does not allow a number of further runs. Without a
// budget all are allowed.
func (scenario *Scenario) CheckBudget(numRuns int) error {
	requests := scenario.expectedRequests() * float64(numRuns)
	if scenario.Budget == nil || scenario.workOf(requests) <= scenario.Budget.Remaining {
		return nil
	}
	return &OverBudgetError{Runs: numRuns, Duration: scenario.Duration, Requests: requests, Devices: len(scenario.Tables.Devices)}
}

// spendBudget takes the work of numRuns runs from the scenario's budget, before they are made. It returns an error,
// and takes nothing, if the budget does not allow them. Without a budget all runs are allowed.
func (scenario *Scenario) spendBudget(numRuns int) error {
	if err := scenario.CheckBudget(numRuns); err != nil || scenario.Budget == nil {
		return err
	}
	scenario.Budget.Remaining -= scenario.workOf(scenario.expectedRequests() * float64(numRuns))
	return nil
}

// workOf returns what it costs to simulate a number of requests, in requests of a plan with few devices, the unit of Budget.
func (scenario *Scenario) workOf(requests float64) float64 {
	cost := requestCostOf(scenario.Tables)
	return requests * (cost.perRequest + cost.perDevice*float64(len(scenario.Tables.Devices)))
}

// expectedRequests returns about how many requests a run of the scenario has: the sum of the models' rates, times the
// load factor and the duration. Rates of the scenario's own go before the planned ones.
func (scenario *Scenario) expectedRequests() float64 {
	rps := 0.0
	for i := range scenario.Tables.Models {
		if scenario.Rates != nil && i < len(scenario.Rates) {
			rps += scenario.Rates[i]
		} else {
			rps += scenario.Tables.Models[i].RPS
		}
	}
	return rps * scenario.Load * scenario.Duration.Seconds()
}
