package deploy

import (
	"context"
	"errors"
)

// AllDevicesSuffice returns whether all devices of the cluster together keep the SLOs in any structure. If
// they do not, no smaller layout needs to be searched for.
func AllDevicesSuffice(ctx context.Context, p *Search, o SearchOptions) (bool, error) {
	list, err := p.listStructures(o)
	if err != nil {
		return false, err
	}
	for _, s := range list {
		l, err := p.emptyLayout(s)
		if err != nil {
			return false, err
		}
		if err := p.addInitialInstances(l); errors.Is(err, ErrTooFewDevices) {
			continue
		} else if err != nil {
			return false, err
		}

		// Give the pools instances in turn until no device is left.
		for anyGrown := true; anyGrown; {
			anyGrown = false
			for i := range l.Pools {
				anyGrown = p.addInstance(l, i) || anyGrown
			}
		}
		ok, _, err := p.testLayout(ctx, l, p.Trials.requestCounts())
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
