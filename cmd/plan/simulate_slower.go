package main

import (
	"context"
	"errors"

	"inferplan/formats"
	"inferplan/sim"
)

// lengthen puts into a report what each model shows on the same arrivals where runs take longer
// than profiled. Of several loads, of recorded service times and after an interrupt it does nothing.
// If ctx is cancelled meanwhile, it marks the report as interrupted and returns true.
func (o *simulateOptions) lengthen(ctx context.Context, sc *sim.Scenario, plan *formats.Plan, rep *formats.Report) (interrupted bool, err error) {
	if o.loads != "" || o.findMaxLoad || o.service != "" || rep.Interrupted {
		return false, nil
	}
	slower, err := sim.Lengthened(sc, func(slow *sim.Scenario) (*formats.Report, error) {
		src, closeSource, err := o.open(plan)
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
