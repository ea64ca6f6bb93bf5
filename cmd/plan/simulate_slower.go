package main

import (
	"context"
	"errors"
	"fmt"

	"inferplan/formats"
	"inferplan/sim"
)

// The two simulations with longer runs are left out if the first one has more work than this, so that all three
// end within seconds. The work is counted in events. For policies that look at all open requests when one arrives,
// it is also counted in meetings: requests times the requests that are open.
const (
	maxLengthenedEvents   = 5e6
	maxLengthenedMeetings = 5e6
)

// whyNotLengthened returns why longer runs are not simulated besides those of a report, or "" if they are.
func (o *simulateOptions) whyNotLengthened(rep *formats.Report) string {
	if rep.Events > maxLengthenedEvents {
		return fmt.Sprintf("%d events, of at most %.0f", rep.Events, float64(maxLengthenedEvents))
	}
	requests, rps, openRequests := 0.0, 0.0, 0.0
	for i := range rep.Models {
		m := &rep.Models[i]
		requests, rps, openRequests = requests+float64(m.Requests), rps+m.OfferedRPS, openRequests+m.OfferedRPS*m.Latency.MeanUS.D().Seconds()
	}
	if meetings := requests * min(openRequests, requests); o.meetsAll && meetings > maxLengthenedMeetings {
		return fmt.Sprintf("%.0f requests at %.3g a second meet about %.0f each that are open, %.0f in all, of at most %.0f", requests, rps, min(openRequests, requests), meetings, float64(maxLengthenedMeetings))
	}
	return ""
}

// addSlowdowns simulates the same arrivals again with model executions that take longer than profiled, and stores what each
// model then attains in its Slower in rep: a user sees how much a plan depends on its profile. It leaves Slower empty if
// there is no single load or the service times are recorded, if rep is interrupted already, and, with a message that
// says so, if the simulation was large. If ctx is cancelled meanwhile, it marks rep as interrupted and returns true.
func (o *simulateOptions) addSlowdowns(ctx context.Context, p *printer, sc *sim.Scenario, plan *formats.Plan, rep *formats.Report) (interrupted bool, err error) {
	// Leave out what slower executions cannot be compared with, or would take too long for.
	if o.loads != "" || o.findMaxLoad || o.service != "" || rep.Interrupted {
		return false, nil
	}
	if reason := o.whyNotLengthened(rep); reason != "" {
		p.printAssumptions([]string{"longer runs: none are simulated beside these (" + reason + "); a shorter --duration has them"})
		return false, nil
	}

	// Simulate each slowdown with the same arrivals: a trace is read anew, others are drawn.
	slower, err := sim.SimulateSlowdowns(sc, func(slow *sim.Scenario) (*formats.Report, error) {
		src, closeSource, err := o.openRecorded(plan)
		if err != nil {
			return nil, err
		}
		if src == nil {
			res, err := sim.Replicate(ctx, slow, 1)
			if err != nil {
				return nil, err
			}
			return res.Report, nil
		}
		defer closeSource()
		cfg, err := slow.Replay(src)
		if err != nil {
			return nil, err
		}
		res, err := sim.Run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return res.Report, nil
	})
	if errors.Is(err, context.Canceled) {
		rep.Interrupted = true
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i := range rep.Models {
		rep.Models[i].Slower = slower[i]
	}
	return false, nil
}
