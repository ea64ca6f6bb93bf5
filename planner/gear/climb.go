package gear

import (
	"cmp"
	"context"
	"slices"
)

// climb lets ranges take gears that the measured rates allow as a whole, though their
// upper edge, held for ever, does not: rates may stay below the edge, or pass it in a
// moment. Range by range, those of most requests first, the next gears of the front are
// run on one stream of the measured rates. What the first allows all streams have to.
func (out *Outcome) climb(ctx context.Context, seed uint64) error {
	p := out.Problem
	if !p.shown() || p.many() || p.Mixed() {
		return nil
	}
	b := out.stairs.bench
	list, _ := p.Cascades()
	work := p.works(list)
	load := make([]float64, len(list))
	for i := range list {
		load[i] = out.Placement.Load(work[i])
	}
	var front []stair
	for _, i := range Pareto(load, list) {
		front = append(front, *out.Placement.stair(&list[i], work[i]))
	}
	order := upTo(len(p.Edges))
	slices.SortStableFunc(order, func(a, c int) int { return cmp.Compare(p.Weights[c], p.Weights[a]) })
	best, err := b.onStreams(ctx, out.Gears, streams(p), 1)
	if err != nil || !best.keeps(p) {
		return err
	}
	gears := slices.Clone(out.Gears)
	for news := true; news; {
		news = false
		for _, r := range order {
			if p.Weights[r] == 0 {
				continue
			}
			fails := 0
			for k := range front {
				s := &front[k]
				if s.cascade.Correct <= gears[r].Cascade.Correct {
					continue
				}
				if fails == climbFails {
					break
				}
				next := slices.Clone(gears)
				next[r] = gearOf(p, s, p.Edges[r], Trial{})
				now, err := b.onMeasured(ctx, next, evenly, 1-p.Percentile)
				if err == nil && now.keeps(p) {
					now, err = b.onStreams(ctx, next, streams(p), 1-p.Percentile)
				}
				if err != nil {
					return err
				}
				if !now.keeps(p) || now.accuracy <= best.accuracy {
					fails++
					continue
				}
				next[r].Late, next[r].Trial = now.late, Trial{Latency: now.tail, Stable: true, Passed: true, late: now.late}
				gears, best, news, fails = next, now, true, 0
			}
		}
	}
	out.Gears, out.Tail, out.shown = gears, best.tail, best.accuracy
	out.Accuracy = 0
	for r := range gears {
		out.Accuracy += p.Weights[r] * gears[r].Accuracy
	}
	out.Runs += b.runs
	return nil
}

const climbFails = 2
