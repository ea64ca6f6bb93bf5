package deploy

import (
	"context"
	"errors"
)

// AllDevicesSuffice returns whether all devices of the cluster together keep the SLOs in any structure. If
// they do not, no smaller layout needs to be searched for.
func Enough(ctx context.Context, p *Search, o Structures) (bool, error) {
	list, err := p.structures(o)
	if err != nil {
		return false, err
	}
	for _, s := range list {
		l, err := p.laid(s)
		if err != nil {
			return false, err
		}
		if err := p.start(l); errors.Is(err, ErrTooFew) {
			continue
		} else if err != nil {
			return false, err
		}

		// Give the pools instances in turn until no device is left.
		for grew := true; grew; {
			grew = false
			for i := range l.Pools {
				grew = p.grow(l, i) || grew
			}
		}
		ok, _, err := p.passes(ctx, l, p.totals())
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
