package gear

import (
	"cmp"
	"context"
	"slices"
)

// Of placements on several kinds: up to how many all are ranked, and how many are tried
// where the SLO is over all requests.
const (
	fewPlacements     = 400
	overallPlacements = 10
)

// laid is a placement on several kinds with what the fluid model allows it at most.
type laid struct {
	l        *layout
	ranges   []float64
	accuracy float64 // weighted; below 0: some range is not served
}

// ranked are the placements that are worth a try, the best first. A placement that stands
// alone is allowed what bounds say.
func (x *mixed) ranked(ctx context.Context, bounds []float64) ([]*laid, error) {
	placements, err := x.worthwhilePlacements(ctx)
	if err != nil {
		return nil, err
	}
	if len(placements) == 1 {
		return []*laid{{x.lay(placements[0], nil), bounds, x.p.weighted(bounds)}}, nil
	}
	var list []*laid
	for _, placed := range placements {
		l := x.lay(placed, nil)
		ranges, err := l.fluidRanges(ctx)
		if err != nil {
			return nil, err
		}
		c := &laid{l, ranges, -1}
		if len(ranges) == len(x.p.Edges) {
			c.accuracy = x.p.weighted(ranges)
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b *laid) int { return cmp.Compare(b.accuracy, a.accuracy) })
	return list, nil
}

// fluidRanges are the accuracies of the most accurate cascades that devices have the time
// for at the upper edges of the ranges, up to the first range that has none.
func (l *layout) fluidRanges(ctx context.Context) (ranges []float64, err error) {
	x, at, order := l.x, 0, l.x.byAccuracy()
	for _, edge := range x.p.Edges {
		for ; at < len(order); at++ {
			if l.atLeast(order[at])*edge > 1 {
				continue
			}
			s, err := l.split(ctx, order[at])
			if err != nil {
				return nil, err
			}
			if s.taken*edge <= 1 {
				break
			}
		}
		if at == len(order) {
			return ranges, nil
		}
		ranges = append(ranges, accuracyOn(x.p, &x.list[order[at]]))
	}
	return ranges, nil
}

// worthwhilePlacements are the placement of a program over all of them, and the others
// where they are few.
func (x *mixed) worthwhilePlacements(ctx context.Context) (list [][]Config, err error) {
	placed, _, err := x.place(ctx)
	list = append(list, placed)
	if err != nil || !x.few(fewPlacements) {
		return list, err
	}
	x.placements(func(other []Config) {
		if len(other) > 0 && !slices.Equal(other, placed) {
			list = append(list, other)
		}
	})
	return list, nil
}
