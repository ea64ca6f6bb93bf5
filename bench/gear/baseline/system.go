package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/planner/gear/cascades"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
)

// DynBa is dynamic batching with one model on every device: no cascade, no
// switching, whatever waits goes.
func DynBa(p *cascades.Problem, model int) *policy.Tables {
	pl := newPlacement(len(p.Models), []uint32{1 << model}, []int{p.Kinds[0].Devices})
	c := single(p, model)
	return tablesOn(p, pl, []policygear.Gear{gearOn(p, pl, &c, p.RangeEdges[len(p.RangeEdges)-1])})
}

func single(p *cascades.Problem, model int) cascades.Cascade {
	right := int32(0)
	for _, ok := range p.PlanningSamples.Correct[model] {
		if ok {
			right++
		}
	}
	return cascades.Cascade{Models: []uint8{uint8(model)}, ReachCounts: []int32{int32(p.PlanningSamples.N)}, CorrectCount: right}
}

// Single is the accuracy of a model alone on the samples planned on.
func Single(p *cascades.Problem, model int) float64 {
	c := single(p, model)
	return Accuracy(p, &c)
}

// Accuracy of a cascade on the samples planned on.
func Accuracy(p *cascades.Problem, c *cascades.Cascade) float64 {
	return float64(c.CorrectCount) / float64(p.PlanningSamples.N)
}

// Singles is a problem without cascades: no answer is uncertain, so that no
// threshold forwards anything. Planned as any other it is the ablation "no
// cascade".
func Singles(p *cascades.Problem) *cascades.Problem {
	out := *p
	planned := *p.PlanningSamples
	planned.Levels = make([][]uint8, len(p.PlanningSamples.Levels))
	for m := range planned.Levels {
		planned.Levels[m] = make([]uint8, planned.N)
	}
	out.PlanningSamples, out.HeldOutSamples = &planned, nil
	return &out
}

// ModelSwitching (MS+) answers all requests with the most accurate model whose
// devices hold the rate with the headroom eta, in batches within half the SLO.
// Models stand where the fluid optimum of single models puts them.
func ModelSwitching(p *cascades.Problem, eta float64) (*policy.Tables, error) {
	s := Singles(p)
	pl, front, err := fluid(s)
	if err != nil {
		return nil, err
	}
	type choice struct {
		c     cascades.Cascade
		batch int
		to    float64
	}
	slices.SortFunc(front, func(a, b cascades.Cascade) int { return cmp.Compare(b.CorrectCount, a.CorrectCount) })
	var list []choice
	for _, c := range front {
		m := &p.Models[c.Models[0]]
		best := choice{c: c, batch: 1, to: 1 / m.FastestTimes[0].Seconds()}
		for b, t := range m.FastestTimes {
			if rate := float64(b+1) / t.Seconds(); t <= p.SLO/2 && rate > best.to {
				best.batch, best.to = b+1, rate
			}
		}
		best.to *= eta * float64(len(pl.DevicesOf(int(c.Models[0]))))
		if len(list) == 0 || best.to > list[len(list)-1].to {
			list = append(list, best)
		}
	}
	peak := p.RangeEdges[len(p.RangeEdges)-1]
	var gears []policygear.Gear
	for i := range list {
		to := list[i].to
		if i == len(list)-1 {
			to = max(to, peak)
		}
		gears = append(gears, gearOn(s, pl, &list[i].c, to))
	}
	t := tablesOn(s, pl, gears)
	for i := range list {
		at := policygear.TablesOf(t).Gears[i].Stages[0].Pipeline
		t.Pipelines[at].Batch = int32(list[i].batch)
		t.Stages[at].Infer = p.Models[list[i].c.Models[0]].FastestTimes[:list[i].batch]
	}
	return t, nil
}

// Runner shows a system on the arrivals that it is tuned on; its variants
// differ by name. Of several streams it gives the mean accuracy and the worst
// percentile. Where it ends with ErrLate the system is not in time.
type Runner func(name string, t *policy.Tables) (*Run, error)

// On is a runner over one stream of arrivals.
func On(ctx context.Context, source func() arrivals.Source) Runner {
	return func(_ string, t *policy.Tables) (*Run, error) { return Execute(ctx, t, source(), Watch{}) }
}

// inTime shows a system; nil where it is not in time.
func (run Runner) inTime(name string, t *policy.Tables, target time.Duration) (*Run, error) {
	r, err := run(name, t)
	if errors.Is(err, ErrLate) || err == nil && r.P95 > target {
		return nil, nil
	}
	return r, err
}

// Tuned is a system with the variant of it that was best.
type Tuned struct {
	Name   string
	Tables *policy.Tables
	Run    *Run
}

// Etas are the headrooms that MS+ is tried with. A model that is used up to a
// higher rate answers more requests, so that the first one in time is the most
// accurate.
var Etas = []float64{1, .9, .8, .7, .6, .5}

// BestModelSwitching is MS+ with the headroom that is most accurate among those
// in time on the arrivals; nil where none is.
func BestModelSwitching(p *cascades.Problem, target time.Duration, run Runner) (*Tuned, error) {
	for _, eta := range Etas {
		t, err := ModelSwitching(p, eta)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("MS+ %.1f", eta)
		if r, err := run.inTime(name, t, target); err != nil || r != nil {
			return &Tuned{name, t, r}, err
		}
	}
	return nil, nil
}

// BestSingle is dynamic batching with the most accurate model that is in time on
// the arrivals; nil where none is. Models below the least accuracy are left out.
func BestSingle(p *cascades.Problem, target time.Duration, least float64, run Runner) (*Tuned, error) {
	usable := make([]int, 0, len(p.Models))
	for m := range p.Models {
		if p.Models[m].FastestTimes[0] <= target && (p.Kinds[0].Memory == 0 || p.Models[m].Variants[0].Memory <= p.Kinds[0].Memory) && Single(p, m) >= least {
			usable = append(usable, m)
		}
	}
	slices.SortStableFunc(usable, func(a, b int) int { return cmp.Compare(Single(p, b), Single(p, a)) })
	for _, m := range usable {
		t, name := DynBa(p, m), "DynBa "+p.Models[m].Name
		if r, err := run.inTime(name, t, target); err != nil || r != nil {
			return &Tuned{name, t, r}, err
		}
	}
	return nil, nil
}

// NoSwitching answers all requests with one cascade: the most accurate one of
// the front that is in time on the very arrivals, found by bisection and by
// trying the next few. Nil where not even the cheapest is.
func NoSwitching(p *cascades.Problem, target time.Duration, run Runner) (*Tuned, error) {
	pl, front, err := fluid(p)
	if err != nil {
		return nil, err
	}
	peak := p.RangeEdges[len(p.RangeEdges)-1]
	var best *Tuned
	try := func(i int) (bool, error) {
		t := tablesOn(p, pl, []policygear.Gear{gearOn(p, pl, &front[i], peak)})
		name := fmt.Sprintf("no switching %d", i)
		r, err := run.inTime(name, t, target)
		if err != nil || r == nil {
			return false, err
		}
		if best == nil || r.Expected > best.Run.Expected {
			best = &Tuned{name, t, r}
		}
		return true, nil
	}
	lo, hi := 0, len(front) // front[lo-1] is in time, front[hi] is not
	for lo < hi {
		mid := (lo + hi) / 2
		ok, err := try(mid)
		if err != nil {
			return nil, err
		}
		if ok {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo + 1; i < min(lo+furtherTries, len(front)); i++ {
		if _, err := try(i); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// furtherTries are cascades above the bisection's end: latency does not quite
// rise along the front.
const furtherTries = 4
