package deploy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/sim"
)

// Trials simulate pools and layouts. Each is simulated once.
type Trials struct {
	*Writer
	kept map[string]Score
}

// Requests of a run with drawn arrivals, as far as the rates allow, and the least length of a run in
// multiples of the longest SLO.
const (
	leastRequests = 2000
	mostRequests  = 20000
	spans         = 3 // multiples of the longest SLO
)

// Span returns how long arrivals are drawn. At effort 1 it is the time of minRequests requests or
// minSLOSpans times the longest SLO, so that postponed work counts, but no longer than that of maxRequests
// requests.
func (p *Trials) Span() time.Duration {
	longest := time.Duration(0)
	for i := range p.Classes {
		if longest = max(longest, p.Classes[i].Waiting); p.Classes[i].Of != formats.OfTPOT {
			longest = max(longest, p.Classes[i].SLO)
		}
	}
	rps := max(p.RPS(), 1e-6)
	effort := float64(max(p.Effort, 1))
	seconds := min(max(effort*leastRequests/rps, spans*longest.Seconds()), effort*mostRequests/rps)
	if seconds < 1 { // rounding up to a second would mean many more requests
		return max(time.Duration(math.Ceil(1e3*seconds))*time.Millisecond, time.Millisecond)
	}
	return time.Duration(math.Ceil(seconds)) * time.Second
}

// trialPool simulates a pool alone in one run. A pool that was simulated before has its score. A pool that
// cannot do the work of its rates is refused without a run.
func (p *Trials) trial(ctx context.Context, x *Pool) (Score, error) {
	if !p.Goodput {
		fits, err := p.fitsWork(x)
		if err != nil || !fits {
			return Score{ByItem: p.newScore().ByItem, Broken: true}, err
		}
	}
	key := x.key(p.Problem)
	if s, ok := p.kept[key]; ok {
		return s, nil
	}
	sc, err := p.scenario(&Layout{Pools: []Pool{*x}}, x.Items)
	if err != nil {
		return Score{}, err
	}
	s, err := p.simulate(ctx, sc, x.Items, 0, p.SearchWork)
	if err == nil {
		p.kept[key] = s
	}
	return s, err
}

// judgeLayout simulates a layout as a whole, as its plan is simulated: with the plan's rates, random
// numbers and limits of the run-time policy.
func (p *Trials) judge(ctx context.Context, l *Layout) (Score, error) { return p.together(ctx, l, 0) }

// simulateLayout simulates a layout as a whole in all runs. searchWork limits the positions of a re-plan;
// with 0, the limit is that of a run of the plan. Replayed requests always have the limit of the search.
func (p *Trials) together(ctx context.Context, l *Layout, searchWork int64) (Score, error) {
	if p.Replay != nil {
		searchWork = p.SearchWork
	}

	// Refuse layouts that cannot do the work of the rates, and reuse scores.
	key := fmt.Sprint("whole ", searchWork)
	for i := range l.Pools {
		key += " " + l.Pools[i].key(p.Problem)
		if !p.Goodput {
			if fits, err := p.fitsWork(&l.Pools[i]); err != nil || !fits {
				return Score{ByItem: p.newScore().ByItem, Broken: true}, err
			}
		}
	}
	if s, ok := p.kept[key]; ok {
		return s, nil
	}

	// The runs are simulated concurrently, and their outcomes added up.
	items := p.all()
	sc, err := p.scenario(l, items)
	if err != nil {
		return Score{}, err
	}
	runs := max(p.Seeds, 1)
	scores, errs := make([]Score, runs), make([]error, runs)
	var wg sync.WaitGroup
	for run := range runs {
		wg.Go(func() { scores[run], errs[run] = p.simulate(ctx, sc, items, run, searchWork) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Score{}, err
	}
	sum := p.newScore()
	for run := range scores {
		sum.add(&scores[run])
	}
	p.kept[key] = sum
	return sum, nil
}

// MaxUtilization is the share of the instances' time that the work of the rates may take. A layout with
// more only holds for the length of a run.
const Room = 0.97

// fitsCapacity returns whether a pool at its caps can do the work of its rates within MaxUtilization.
func (p *Trials) fitsWork(x *Pool) (bool, error) {
	busy, err := p.busy(x)
	return busy <= Room, err
}

// busyShare returns the share of the time of a pool's instances that the work of its rates takes, by the
// plan's estimators. For replayed requests it returns 0, because they have no rate beyond the run.
func (p *Trials) busy(x *Pool) (float64, error) {
	if p.Replay != nil {
		return 0, nil
	}
	have := 0.0
	for k, n := range x.Counts {
		if n > 0 {
			need, err := p.need(x, k)
			if err != nil {
				return 0, err
			}
			have += float64(n) / max(need, 1e-9)
		}
	}
	return 1 / max(have, 1e-9), nil
}

// allItems returns all items of the problem.
func (p *Problem) all() []int {
	out := make([]int, len(p.Items))
	for i := range out {
		out[i] = i
	}
	return out
}

// scenario returns the scenario in which a layout serves some items under its policy.
func (p *Trials) scenario(l *Layout, items []int) (*sim.Scenario, error) {
	plan, err := p.Plan(l, items)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, err
	}
	if sc.Seed = max(p.Seed, 1); p.Replay == nil {
		sc.Duration = p.Span()
	}
	return sc, nil
}

// simulateRun runs a scenario once. Concurrent runs share the scenario and do not change it.
func (p *Trials) simulate(ctx context.Context, sc *sim.Scenario, items []int, run int, searchWork int64) (Score, error) {
	var cfg sim.Config
	var err error
	if p.Replay == nil {
		cfg, err = sc.Config(run)
	} else {
		cfg, err = sc.Replay(arrivals.Slice(p.replayed(items, run)))
	}
	if err != nil {
		return Score{}, err
	}
	cfg.SearchWork, cfg.SearchTime = searchWork, p.SearchTime
	if p.Make != nil {
		if cfg.Policy, err = p.Make(sc.Tables); err != nil {
			return Score{}, err
		}
	}

	// Watch the answers, and cancel the run once too many are late.
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	out := p.newScore()
	w := &watch{p: p.Problem, items: items, score: &out, span: max(sc.Duration, 3), stop: cancel, late: make([]int64, p.judged())}
	if !p.Goodput {
		for j, n := range p.totals() {
			w.allowed = append(w.allowed, max(give*(1-p.share(j))*float64(n), 10))
		}
	}
	cfg.Judged = w.answered
	res, err := sim.Run(inner, cfg)
	if out.Broken && ctx.Err() == nil {
		return Score{ByItem: p.newScore().ByItem, Broken: true}, nil
	}
	if err != nil {
		return Score{}, err
	}
	w.took(res.Report)
	return out, nil
}

// replayedRequests returns the replayed requests of a run for some items, with indexes of these.
func (p *Trials) replayed(items []int, run int) []arrivals.Request {
	var out []arrivals.Request
	for _, r := range p.Replay(run) {
		if n := slices.Index(items, int(r.Model)); n >= 0 {
			r.Model = int32(n)
			out = append(out, r)
		}
	}
	return out
}

// requestCounts returns the expected number of requests of a run, by judge group. Misses are weighed by it.
func (p *Trials) totals() []int64 {
	out := make([]int64, p.judged())
	if p.Replay != nil {
		for _, r := range p.Replay(0) {
			out[p.Classes[p.Items[r.Model].Class].Judged]++
		}
		return out
	}
	for i := range p.Items {
		out[p.Classes[p.Items[i].Class].Judged] += int64(p.Items[i].RPS * p.Span().Seconds())
	}
	return out
}

// poolScore returns the part of a layout's score that belongs to one of its pools.
func (p *Trials) poolOf(s *Score, x *Pool) Score {
	out := p.newScore()
	out.Broken = s.Broken
	for _, i := range x.Items {
		out.ByItem[i] = s.ByItem[i]
	}
	return out
}
