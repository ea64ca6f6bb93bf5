package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Of many measured rates climbing looks at a part: windows of so many SLOs, which come to
// about so many requests.
const (
	windowSLOs = 10
	mostOfPart = 200_000
)

// partOf is a problem with so much of many measured rates as climbing looks at. It takes
// windows at equal steps down their order by rate, from the busiest on. So all rates are
// in it about as often as they come. They stay in the order of time.
func partOf(p *Problem) *Problem {
	if !p.many() {
		return p
	}
	windows := slices.Collect(slices.Chunk(p.Measured, int(math.Ceil(windowSLOs*p.SLO.Seconds()))))
	order := upTo(len(windows))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sum(windows[b]), sum(windows[a])) })
	var taken []int
	for k := 0; k < len(order); k += int(math.Ceil(sum(p.Measured) / mostOfPart)) {
		taken = append(taken, order[k])
	}
	slices.Sort(taken)
	q := *p
	q.Measured = nil
	for _, w := range taken {
		q.Measured = append(q.Measured, windows[w]...)
	}
	return &q
}

// follow takes the steps that a climb on a part of the rates took, as far as the rates as
// a whole allow them. Where they refuse one, it goes on without that range.
func (c *climber) follow(ctx context.Context, steps []raised) error {
	for len(steps) > 0 {
		path, gears := make([]raised, len(steps)), c.gears
		for k, up := range steps {
			gears = slices.Clone(gears)
			gears[up.r] = up.gears[up.r]
			path[k] = raised{r: up.r, gears: gears}
		}
		passed, err := c.highest(ctx, path)
		if err != nil || passed == len(steps) {
			return err
		}
		refused := steps[passed].r
		steps = slices.DeleteFunc(steps[passed:], func(up raised) bool { return up.r == refused })
	}
	return nil
}
