package sim

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
)

// testSlowdowns are the shares by which SimulateSlowdowns makes runs longer than profiled.
var lengthenings = []float64{0.05, 0.1}

// SimulateSlowdowns simulates a scenario with runs that take longer, by each share of
// testSlowdowns, and returns for every model what it attains then. run simulates a scenario
// once.
func Lengthened(sc *Scenario, run func(*Scenario) (*formats.Report, error)) ([][]formats.Slower, error) {
	out := make([][]formats.Slower, len(sc.Tables.Models))
	for _, by := range lengthenings {
		report, err := run(sc.Slower(by))
		if err != nil {
			return nil, fmt.Errorf("simulating runs that take %g %% longer: %w", 100*by, err)
		}
		for i := range out {
			m := &report.Models[i]
			out[i] = append(out[i], formats.Slower{By: by, Attainment: m.Attainment, P50US: m.Latency.P50US, P99US: m.Latency.P99US})
		}
	}
	return out, nil
}

// WithSlowdown returns the scenario with runs of batches and iterations of language models
// that take longer than profiled by a share.
func (sc *Scenario) Slower(by float64) *Scenario {
	slow := *sc
	if sc.slower == 0 {
		slow.profiled = sc.Service
	}
	slow.slower, slow.Service = by, slow.profiled
	if by == 0 {
		return &slow
	}
	slow.Service = func(seed uint64) (Service, error) {
		service := Exact(sc.Tables)
		if slow.profiled != nil {
			var err error
			if service, err = slow.profiled(seed); err != nil {
				return nil, err
			}
		}
		return SlowerService(service, by), nil
	}
	return &slow
}

// SlowedService returns a service whose runs take longer than those of another one by a share.
func SlowerService(service Service, by float64) Service {
	s := &slower{Service: service, by: by}
	s.clock, _ = service.(Clocked)
	s.rested, _ = service.(Rested)
	s.served, _ = service.(Served)
	return s
}

// slowService is the service of SlowedService.
type slower struct {
	Service
	by     float64
	clock  Clocked // the other service, if it implements this; likewise below
	rested Rested
	served Served
}

func (s *slower) Run(stage, batch int32) time.Duration {
	return time.Duration(math.Round(float64(s.Service.Run(stage, batch)) * (1 + s.by)))
}

// Tick implements TickObserver.
func (s *slower) Tick(now time.Duration) {
	if s.clock != nil {
		s.clock.Tick(now)
	}
}

// Idle implements IdleObserver.
func (s *slower) Idle(since time.Duration) {
	if s.rested != nil {
		s.rested.Idle(since)
	}
}

// ReportDelay implements ServingTimes.
func (s *slower) Told() time.Duration {
	if s.served == nil {
		return 0
	}
	return s.served.Told()
}

// LoadTime implements ServingTimes.
func (s *slower) Load(network int32) (time.Duration, bool) {
	if s.served == nil {
		return 0, false
	}
	return s.served.Load(network)
}
