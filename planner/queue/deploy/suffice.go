package deploy

import (
	"context"
	"errors"
)

// AllDevicesSuffice returns whether all devices of the cluster together keep the SLOs in some structure (which classes share a pool of
// instances). If they do not, no smaller layout needs to be searched for, and an explanation need not look for missing devices.
func AllDevicesSuffice(ctx context.Context, p *Search) (bool, error) {
	_, err := p.searchAllDevices(ctx, SearchOptions{FirstFeasible: true}, func(l *Layout) (*LayoutResult, error) {
		ok, _, err := p.testLayout(ctx, l, p.Trials.requestCounts())
		if !ok || err != nil {
			return nil, err
		}
		return &LayoutResult{Layout: l, Price: l.Price(p.Problem)}, nil
	}, nil)
	if errors.Is(err, ErrTooFewDevices) {
		return false, nil
	}
	return err == nil, err
}
