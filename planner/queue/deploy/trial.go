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

// Trials are simulations of pools, each run once.
type Trials struct {
	*Writer
	kept map[string]Score
}

// Score is what runs of a pool came to, by judged figure.
type Score struct{ Requests, Missed []int64 }

func (p *Trials) newScore() Score {
	return Score{make([]int64, p.judged()), make([]int64, p.judged())}
}

func (s *Score) add(o *Score) {
	for j := range o.Requests {
		s.Requests[j] += o.Requests[j]
		s.Missed[j] += o.Missed[j]
	}
}

// Attained is the share in time of a figure.
func (s *Score) Attained(judged int) float64 {
	if s.Requests[judged] == 0 {
		return 1
	}
	return 1 - float64(s.Missed[judged])/float64(s.Requests[judged])
}

// holds tells whether every figure is as good as it must be. slack times as many
// misses are allowed.
func (p *Trials) holds(s *Score, slack float64) bool {
	for j := range s.Requests {
		if float64(s.Missed[j]) > slack*(1-p.share(j))*float64(s.Requests[j])*(1+1e-12) {
			return false
		}
	}
	return true
}

// pain weighs the misses of a pool by what is allowed of all requests, of which
// totals are the numbers. It is what a search makes smaller.
func (p *Trials) pain(s *Score, totals []int64) float64 {
	sum := 0.0
	for j := range s.Missed {
		if totals[j] > 0 {
			sum += float64(s.Missed[j]) / max((1-p.share(j))*float64(totals[j]), 0.5)
		}
	}
	return sum
}

// Requests of a run of drawn arrivals, where the rates allow it.
const (
	leastRequests = 2000
	mostRequests  = 20000
	spans         = 3 // of the longest SLO
)

// Span is how long arrivals are drawn: at effort 1, until there are some thousand
// requests, and three times the longest SLO, so that work which is put off counts.
func (p *Trials) Span() time.Duration {
	longest := time.Duration(0)
	for i := range p.Classes {
		if p.Classes[i].Of != "tpot" {
			longest = max(longest, p.Classes[i].SLO)
		}
	}
	rps := max(p.RPS(), 1e-6)
	effort := float64(max(p.Effort, 1))
	seconds := min(max(effort*leastRequests/rps, spans*longest.Seconds()), effort*mostRequests/rps)
	return time.Duration(math.Ceil(seconds)) * time.Second
}

// trial simulates a pool in so many runs, at a multiple of the rates. What was
// simulated before is not simulated again.
func (p *Trials) trial(ctx context.Context, x *Pool, runs int, load float64) (Score, error) {
	key := fmt.Sprint(x.key(p.Problem), " ", runs, " ", load)
	if s, ok := p.kept[key]; ok {
		return s, nil
	}
	sc, err := p.scenario(&Layout{Pools: []Pool{*x}}, x.Items)
	if err != nil {
		return Score{}, err
	}
	sc.Load = load
	scores, errs := make([]Score, runs), make([]error, runs)
	var wg sync.WaitGroup
	for run := range runs {
		one := fmt.Sprint(x.key(p.Problem), " run ", run, " ", load)
		if s, ok := p.kept[one]; ok {
			scores[run] = s
			continue
		}
		wg.Go(func() { scores[run], errs[run] = p.simulate(ctx, sc, x, run) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Score{}, err
	}
	sum := p.newScore()
	for run := range scores {
		p.kept[fmt.Sprint(x.key(p.Problem), " run ", run, " ", load)] = scores[run]
		sum.add(&scores[run])
	}
	p.kept[key] = sum
	return sum, nil
}

// scenario is a layout with its policy, for the items that it serves.
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

// simulate runs a pool once. Runs share the scenario, which none of them changes.
func (p *Trials) simulate(ctx context.Context, sc *sim.Scenario, x *Pool, run int) (Score, error) {
	var cfg sim.Config
	var err error
	if p.Replay == nil {
		cfg, err = sc.Config(run)
	} else {
		cfg, err = sc.Replay(arrivals.Slice(p.replayed(x.Items, run, sc.Load)))
	}
	if err != nil {
		return Score{}, err
	}
	cfg.SearchWork, cfg.SearchTime = p.SearchWork, p.SearchTime
	if p.Make != nil {
		if cfg.Policy, err = p.Make(sc.Tables); err != nil {
			return Score{}, err
		}
	}
	totals := p.requestsOf(x, run, sc.Load)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := p.watch(x, totals, cancel)
	watch.Policy, cfg.Policy = cfg.Policy, watch
	res, err := sim.Run(inner, cfg)
	if watch.ended && ctx.Err() == nil {
		return watch.score(totals), nil
	}
	if err != nil {
		return Score{}, err
	}
	out := p.newScore()
	for n := range res.Report.Models {
		m, j := &res.Report.Models[n], p.Classes[p.Items[x.Items[n]].Class].Judged
		out.Requests[j] += m.Requests
		out.Missed[j] += m.Requests - (m.Completed - m.Late)
	}
	return out, nil
}

// watch ends a run of a pool that cannot hold: one pool may have all the late
// requests that the others leave.
func (p *Trials) watch(x *Pool, totals []int64, stop context.CancelFunc) *hopeless {
	all := p.totals(1)
	h := &hopeless{stop: stop, arrived: make([]int64, len(totals)), late: make([]int64, len(totals))}
	for j := range totals {
		h.allowed = append(h.allowed, max(give*(1-p.share(j))*float64(all[j]), 10))
	}
	for _, i := range x.Items {
		c := &p.Classes[p.Items[i].Class]
		slo := c.SLO
		if c.Of == formats.OfTPOT {
			slo = never
		}
		h.figure, h.slo = append(h.figure, c.Judged), append(h.slo, slo)
	}
	return h
}

// never is later than any run ends.
const never = 1 << 60

// requestsOf is how many requests of a pool a run has, by figure.
func (p *Trials) requestsOf(x *Pool, run int, load float64) []int64 {
	out := make([]int64, p.judged())
	if p.Replay != nil {
		for _, r := range p.replayed(x.Items, run, load) {
			out[p.Classes[p.Items[x.Items[r.Model]].Class].Judged]++
		}
		return out
	}
	for _, i := range x.Items {
		out[p.Classes[p.Items[i].Class].Judged] += int64(load * p.Items[i].RPS * p.Span().Seconds())
	}
	return out
}

// replayed are the given requests for some items, at a multiple of their rate.
func (p *Trials) replayed(items []int, run int, load float64) []arrivals.Request {
	var out []arrivals.Request
	for _, r := range p.Replay(run) {
		if n := slices.Index(items, int(r.Model)); n >= 0 {
			r.Model = int32(n)
			r.At = time.Duration(float64(r.At) / load)
			out = append(out, r)
		}
	}
	return out
}

// judge is what a layout comes to in so many runs, by pool and in all.
func (p *Trials) judge(ctx context.Context, l *Layout, runs int, load float64) (all Score, by []Score, err error) {
	all = p.newScore()
	for i := range l.Pools {
		s, err := p.trial(ctx, &l.Pools[i], runs, load)
		if err != nil {
			return all, nil, err
		}
		by = append(by, s)
		all.add(&s)
	}
	return all, by, nil
}
