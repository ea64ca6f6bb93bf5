package sim

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
)

// testSlowdowns are the shares by which SimulateSlowdowns makes runs longer than profiled.
var testSlowdowns = []float64{0.05, 0.1}

// SimulateSlowdowns simulates a scenario with runs that take longer, by each share of testSlowdowns in turn, and
// returns, by model and slowdown, the share of requests in time (attainment) and the latencies. `run` simulates a
// scenario once.
func SimulateSlowdowns(scenario *Scenario, run func(*Scenario) (*formats.Report, error)) ([][]formats.Slower, error) {
	slowedByModel := make([][]formats.Slower, len(scenario.Tables.Models))
	for _, slowdown := range testSlowdowns {
		report, err := run(scenario.WithSlowdown(slowdown))
		if err != nil {
			return nil, fmt.Errorf("simulating runs that take %g %% longer: %w", 100*slowdown, err)
		}
		for modelIndex := range slowedByModel {
			model := &report.Models[modelIndex]
			slowedByModel[modelIndex] = append(slowedByModel[modelIndex], formats.Slower{ExtraShare: slowdown, Attainment: model.Attainment, P50US: model.Latency.P50US, P99US: model.Latency.P99US})
		}
	}
	return slowedByModel, nil
}

// WithSlowdown returns a copy of the scenario in which runs of batches, and iterations of language models, take
// longer than profiled by a share. A slowdown that the scenario has already is replaced.
func (scenario *Scenario) WithSlowdown(slowdown float64) *Scenario {
	slowScenario := *scenario

	// Keep the service before the slowdown, so that a second slowdown replaces the first.
	if scenario.slowdown == 0 {
		slowScenario.profiledService = scenario.Service
	}
	slowScenario.slowdown, slowScenario.Service = slowdown, slowScenario.profiledService
	if slowdown == 0 {
		return &slowScenario
	}
	slowScenario.Service = func(seed uint64) (Service, error) {
		service := ExactService(scenario.Tables)
		if slowScenario.profiledService != nil {
			var err error
			if service, err = slowScenario.profiledService(seed); err != nil {
				return nil, err
			}
		}
		return SlowedService(service, slowdown), nil
	}
	return &slowScenario
}

// SlowedService returns a service (model of run times) whose runs take longer than those of another one by a share,
// such as 0.1 for 10 %.
func SlowedService(service Service, slowdown float64) Service { return slowService{service, slowdown} }

// slowService is the service of SlowedService. Loads and the delays of reports are those of the service that is slowed.
type slowService struct {
	Service
	slowdown float64
}

// RunTime returns the time of the service that is slowed, longer by the share slowdown. It implements Service.
func (s slowService) RunTime(stage, batch int32) time.Duration {
	return time.Duration(math.Round(float64(s.Service.RunTime(stage, batch)) * (1 + s.slowdown)))
}
