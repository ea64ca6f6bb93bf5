package sim

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
)

// testSlowdowns are the shares by which SimulateSlowdowns makes runs longer than profiled.
var testSlowdowns = []float64{0.05, 0.1}

// SimulateSlowdowns simulates a scenario with runs that take longer, by each share of
// testSlowdowns, and returns for every model what it attains then. run simulates a scenario
// once.
func SimulateSlowdowns(sc *Scenario, run func(*Scenario) (*formats.Report, error)) ([][]formats.Slower, error) {
	slowedByModel := make([][]formats.Slower, len(sc.Tables.Models))
	for _, slowdown := range testSlowdowns {
		report, err := run(sc.WithSlowdown(slowdown))
		if err != nil {
			return nil, fmt.Errorf("simulating runs that take %g %% longer: %w", 100*slowdown, err)
		}
		for i := range slowedByModel {
			m := &report.Models[i]
			slowedByModel[i] = append(slowedByModel[i], formats.Slower{ExtraShare: slowdown, Attainment: m.Attainment, P50US: m.Latency.P50US, P99US: m.Latency.P99US})
		}
	}
	return slowedByModel, nil
}

// WithSlowdown returns a copy of the scenario in which runs of batches, and iterations of language models, take
// longer than profiled by a share. A slowdown that the scenario has already is replaced.
func (sc *Scenario) WithSlowdown(slowdown float64) *Scenario {
	slow := *sc
	if sc.slowdown == 0 {
		slow.profiledService = sc.Service
	}
	slow.slowdown, slow.Service = slowdown, slow.profiledService
	if slowdown == 0 {
		return &slow
	}
	slow.Service = func(seed uint64) (Service, error) {
		service := ExactService(sc.Tables)
		if slow.profiledService != nil {
			var err error
			if service, err = slow.profiledService(seed); err != nil {
				return nil, err
			}
		}
		return SlowedService(service, slowdown), nil
	}
	return &slow
}

// SlowedService returns a service (model of run times) whose runs take longer than those of another one by a share,
// such as 0.1 for 10 %.
func SlowedService(service Service, slowdown float64) Service {
	s := &slowService{Service: service, slowdown: slowdown}
	s.tickObserver, _ = service.(TickObserver)
	s.idleObserver, _ = service.(IdleObserver)
	s.servingTimes, _ = service.(ServingTimes)
	return s
}

// slowService is the service of SlowedService.
type slowService struct {
	Service
	slowdown     float64
	tickObserver TickObserver // the other service, if it implements this; likewise below
	idleObserver IdleObserver
	servingTimes ServingTimes
}

func (s *slowService) RunTime(stage, batch int32) time.Duration {
	return time.Duration(math.Round(float64(s.Service.RunTime(stage, batch)) * (1 + s.slowdown)))
}

// ObserveTime implements TickObserver.
func (s *slowService) ObserveTime(elapsed time.Duration) {
	if s.tickObserver != nil {
		s.tickObserver.ObserveTime(elapsed)
	}
}

// ObserveIdle implements IdleObserver.
func (s *slowService) ObserveIdle(idleTime time.Duration) {
	if s.idleObserver != nil {
		s.idleObserver.ObserveIdle(idleTime)
	}
}

// ReportDelay returns the report delay (how much later than its end the policy hears of a run) of the service that
// is slowed, which does not grow. It implements ServingTimes.
func (s *slowService) ReportDelay() time.Duration {
	if s.servingTimes == nil {
		return 0
	}
	return s.servingTimes.ReportDelay()
}

// LoadTime returns the load time of the service that is slowed: loads take no longer. It implements ServingTimes.
func (s *slowService) LoadTime(network int32) (time.Duration, bool) {
	if s.servingTimes == nil {
		return 0, false
	}
	return s.servingTimes.LoadTime(network)
}
