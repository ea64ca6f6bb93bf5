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
	"inferplan/planner/lists"
	"inferplan/policy/vqueue"
	"inferplan/sim"
)

// Trials simulate pools and layouts. Each is simulated once.
type Trials struct {
	problem    *Problem
	estimators *Estimators
	plans      *PlanWriter
	scores     map[string]Score
}

// Requests of a run with drawn arrivals, as far as the rates allow, and the least length of a run in
// multiples of the longest SLO.
const (
	minRequests = 2000
	maxRequests = 20000
	minSLOSpans = 3 // multiples of the longest SLO
)

// Span returns for how long requests arrive in a run. At effort 1 it is the time of minRequests requests or minSLOSpans times the longest
// SLO, whichever is longer, so that postponed work counts, but no longer than the time of maxRequests requests. A higher effort
// multiplies both numbers of requests. It is rounded up to whole seconds or, below one, to milliseconds.
func (p *Trials) Span() time.Duration {
	// An SLO on the time per token says nothing about how long a request may take, so it does not count.
	longest := time.Duration(0)
	for i := range p.problem.Classes {
		if longest = max(longest, p.problem.Classes[i].WaitingSLO); p.problem.Classes[i].Figure != formats.FigureTPOT {
			longest = max(longest, p.problem.Classes[i].SLO)
		}
	}
	rps := max(p.problem.RPS(), 1e-6)
	effort := float64(max(p.problem.Effort, 1))
	seconds := min(max(effort*minRequests/rps, minSLOSpans*longest.Seconds()), effort*maxRequests/rps)
	if seconds < 1 { // rounding up to a second would mean many more requests
		return max(time.Duration(math.Ceil(1e3*seconds))*time.Millisecond, time.Millisecond)
	}
	return time.Duration(math.Ceil(seconds)) * time.Second
}

// trialPool simulates a pool of instances alone, in one run and with the search's limit on re-plans, and returns its score: how many
// requests of each item (class for a model) came and were late.
func (p *Trials) trialPool(ctx context.Context, x *Pool) (Score, error) {
	return p.simulate(ctx, &Layout{Pools: []Pool{*x}}, x.Items, 1, p.problem.SearchWork, "")
}

// judgeLayout simulates a layout as a whole, in all runs, just as plan simulate runs its plan: with the plan's rates, random numbers and
// limits of the run-time policy. The plan states the figures of these runs.
func (p *Trials) judgeLayout(ctx context.Context, l *Layout) (Score, error) {
	return p.simulateLayout(ctx, l, 0)
}

// simulateLayout simulates a layout as a whole in all runs, and returns the sum of their outcomes. searchWork
// limits how many positions the policy tries when it orders groups anew; with 0, the limit is that of a run of
// the plan. Replayed requests always have the limit of the search.
func (p *Trials) simulateLayout(ctx context.Context, l *Layout, searchWork int64) (Score, error) {
	if p.problem.Replay != nil {
		searchWork = p.problem.SearchWork
	}
	return p.simulate(ctx, l, p.problem.AllItems(), max(p.problem.Runs, 1), searchWork, fmt.Sprint("whole ", searchWork))
}

// simulate simulates some items (classes of requests for a model) on the pools of layout l in runCount runs, and returns the sum of their
// outcomes. Scores are cached by name and by the pools, so the same simulation is not repeated: name stands for what items, runCount and
// searchWork do not share with another simulation of the same pools. Unless the goal is goodput, a layout with a pool that cannot do the
// work of its rates gets a broken score without a run; that is quick to compute and not cached. searchWork limits how many positions the
// policy tries when it orders groups anew; with 0, the limit is that of a run of the plan.
func (p *Trials) simulate(ctx context.Context, l *Layout, items []int, runCount int, searchWork int64, name string) (Score, error) {
	key := name
	for i := range l.Pools {
		key += " " + l.Pools[i].cacheKey(p.problem)
		if !p.problem.Goodput {
			if fits, err := p.fitsCapacity(&l.Pools[i]); err != nil || !fits {
				return Score{ByItem: p.problem.newScore().ByItem, Broken: true}, err
			}
		}
	}
	return p.simulatePlan(ctx, key, items, runCount, searchWork, func() (*formats.Plan, error) { return p.plans.Plan(l, items) })
}

// simulatePlan returns the score that is cached under a key. If there is none, it simulates the plan that planOf makes of some items, as
// simulate does, and caches the sum of the outcomes of the runs.
func (p *Trials) simulatePlan(ctx context.Context, key string, items []int, runCount int, searchWork int64, planOf func() (*formats.Plan, error)) (Score, error) {
	if s, ok := p.scores[key]; ok {
		return s, nil
	}
	plan, err := planOf()
	if err != nil {
		return Score{}, err
	}
	sc, err := p.scenarioOf(plan)
	if err != nil {
		return Score{}, err
	}
	sum, err := p.simulateRuns(ctx, sc, items, runCount, searchWork)
	if err == nil {
		p.scores[key] = sum
	}
	return sum, err
}

// simulateRuns simulates a scenario in runCount runs, concurrently, and returns the sum of their outcomes. items are those of the scenario
// (classes of requests for a model). searchWork is as in simulate.
func (p *Trials) simulateRuns(ctx context.Context, sc *sim.Scenario, items []int, runCount int, searchWork int64) (Score, error) {
	scores, errs := make([]Score, runCount), make([]error, runCount)
	var wg sync.WaitGroup
	for run := range runCount {
		wg.Go(func() { scores[run], errs[run] = p.simulateRun(ctx, sc, items, run, searchWork) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Score{}, err
	}
	sum := p.problem.newScore()
	for run := range scores {
		sum.add(&scores[run])
	}
	return sum, nil
}

// MaxUtilization is the share of the instances' time that the work of the rates may take. A layout with
// more only holds for the length of a run.
const MaxUtilization = 0.97

// fitsCapacity returns whether the work of a pool's rates takes at most MaxUtilization of its instances' time. A run that starts empty
// may pass without that, but would not hold for long.
func (p *Trials) fitsCapacity(x *Pool) (bool, error) {
	share, err := p.busyShare(x)
	return share <= MaxUtilization, err
}

// busyShare returns which share of the time of a pool's instances the work of its rates takes, by the estimators of request times. Above
// 1 the pool cannot keep up. For replayed requests it returns 0, because they have no rate beyond the run.
func (p *Trials) busyShare(x *Pool) (float64, error) {
	if p.problem.Replay != nil {
		return 0, nil
	}

	// Each kind of servers does a part of the work: its instances over those that all of the work would keep busy there.
	capacity := 0.0
	for k, n := range x.Counts {
		if n > 0 {
			need, err := p.busyInstances(x, k)
			if err != nil {
				return 0, err
			}
			capacity += float64(n) / max(need, 1e-9)
		}
	}
	return 1 / max(capacity, 1e-9), nil
}

// AllItems returns all items of the problem.
func (p *Problem) AllItems() []int {
	return lists.Indexes(len(p.Items))
}

// scenario returns the simulator's input for a layout: its plan for some items, under the run-time policy, the random seed, and for how
// long requests arrive (not set for replayed ones). The seed is the same for all layouts, so they meet the same requests.
func (p *Trials) scenario(l *Layout, items []int) (*sim.Scenario, error) {
	plan, err := p.plans.Plan(l, items)
	if err != nil {
		return nil, err
	}
	return p.scenarioOf(plan)
}

// scenarioOf returns the simulator's input for a plan, with the seed and the length of the search's runs.
func (p *Trials) scenarioOf(plan *formats.Plan) (*sim.Scenario, error) {
	simScenario, err := sim.NewScenario(plan)
	if err != nil {
		return nil, err
	}
	if simScenario.Seed = max(p.problem.Seed, 1); p.problem.Replay == nil {
		simScenario.Duration = p.Span()
	}
	return simScenario, nil
}

// simulateRun simulates a scenario once, with the arrivals of run number `run`, and returns the outcomes by item. It breaks the run off
// once so many requests of a judge group (classes judged together) are late that the layout cannot hold, and then returns a broken score
// without outcomes; for the goal goodput it never does. Concurrent runs share the scenario and do not change it. items are those of the
// scenario (classes of requests for a model). searchWork limits how many positions the policy tries when it orders groups anew.
func (p *Trials) simulateRun(ctx context.Context, scenario *sim.Scenario, items []int, run int, searchWork int64) (Score, error) {
	var cfg sim.Config
	var err error
	if p.problem.Replay == nil {
		cfg, err = scenario.Config(run)
	} else {
		cfg, err = scenario.Replay(arrivals.Slice(p.replayedRequests(items, run)))
	}
	if err != nil {
		return Score{}, err
	}

	// The problem may set the time that re-plans take, and name another policy.
	cfg.SearchWork, cfg.SearchTime = searchWork, p.problem.SearchTime
	if p.problem.NewPolicy != nil {
		if cfg.Policy, err = p.problem.NewPolicy(scenario.Tables); err != nil {
			return Score{}, err
		}
	}

	// Watch the answers, and cancel the run once too many are late.
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	score := p.problem.newScore()
	span := max(scenario.Duration, 3) // nanoseconds: the watcher divides by a third of it, and a replay has no duration
	watcher := &runWatcher{p: p.problem, items: items, score: &score, span: span, stop: cancel, lateCounts: make([]int64, p.problem.judgeGroups())}
	if !p.problem.Goodput {
		for j, n := range p.requestCounts() {
			allowedLate := (1 - p.problem.requiredShare(j)) * float64(n)
			watcher.allowedLate = append(watcher.allowedLate, max(lateAllowance*allowedLate, minLateCount))
		}
	}
	cfg.OnJudged = watcher.recordAnswer
	res, err := sim.Run(runCtx, cfg)
	if score.Broken && ctx.Err() == nil {
		return Score{ByItem: p.problem.newScore().ByItem, Broken: true}, nil
	}
	if err != nil {
		return Score{}, err
	}
	watcher.recordReport(res.Report)
	return score, nil
}

// replayedRequests returns the replayed requests of a run that belong to some items of the problem, each with the index in this list as
// its model, as the simulator numbers the items of a layout that has only these.
func (p *Trials) replayedRequests(items []int, run int) []arrivals.Request {
	var requests []arrivals.Request
	for _, r := range p.problem.Replay(run) {
		if n := slices.Index(items, int(r.Model)); n >= 0 {
			r.Model = int32(n)
			requests = append(requests, r)
		}
	}
	return requests
}

// requestCounts returns how many requests of each judge group (classes judged together) a run is expected to have. By these numbers a
// search weighs late requests (missPenalty) and breaks runs off.
func (p *Trials) requestCounts() []int64 {
	counts := make([]int64, p.problem.judgeGroups())
	if p.problem.Replay != nil {
		for _, r := range p.problem.Replay(0) {
			counts[p.problem.Classes[p.problem.Items[r.Model].Class].JudgeGroup]++
		}
		return counts
	}
	for i := range p.problem.Items {
		counts[p.problem.Classes[p.problem.Items[i].Class].JudgeGroup] += int64(p.problem.Items[i].RPS * p.Span().Seconds())
	}
	return counts
}

// poolScore returns the part of a layout's score (outcomes of runs, by item) that belongs to one of its pools.
func (p *Trials) poolScore(s *Score, x *Pool) Score {
	score := p.problem.newScore()
	score.Broken = s.Broken
	for _, i := range x.Items {
		score.ByItem[i] = s.ByItem[i]
	}
	return score
}

// FirstRequests draws the requests that arrive in the first `duration` of a plan, and returns them in the form from which the planner
// forms the plan's first request groups (requests scheduled as one). Model is there the index of an item (a class of requests for a
// model), the length of an answer is its class's mean in tokens, and times are in seconds.
func (p *Trials) FirstRequests(l *Layout, duration time.Duration) ([]vqueue.RequestFeatures, error) {
	scenario, err := p.scenario(l, p.problem.AllItems())
	if err != nil {
		return nil, err
	}
	scenario.Duration = duration
	source, err := scenario.Source(scenario.Seed)
	if err != nil {
		return nil, err
	}
	list, err := arrivals.Collect(source, 0)
	if err != nil {
		return nil, err
	}
	outputs := make([]float64, len(p.problem.Classes)) // mean tokens of an answer, by class
	for i := range outputs {
		_, outputs[i], _ = lengthMoments(p.problem.Classes[i].Sample)
	}

	// A time per token becomes a time for the whole answer.
	requests := make([]vqueue.RequestFeatures, len(list))
	for i, r := range list {
		class := p.problem.Items[r.Model].Class
		c, output := &p.problem.Classes[class], outputs[class]
		slo := c.SLO.Seconds()
		if c.Figure == "tpot" {
			slo *= output
		}
		requests[i] = vqueue.RequestFeatures{Model: r.Model, Priority: int32(c.Priority), SLO: slo, Prompt: float64(r.PromptTokens), Output: output, ArrivedAt: r.ArrivedAt.Seconds(), Deadline: r.ArrivedAt.Seconds() + slo}
	}
	return requests, nil
}

// Estimator returns the estimator of a model on a kind with a number of concurrent sequences. With mega, it
// is that of mega prompts, if there is one.
func (p *Estimators) Estimator(model, kind, sequences int, mega bool) (*vqueue.RCT, error) {
	e, err := p.estimateFor(model, kind, sequences)
	if err != nil {
		return nil, err
	}
	if mega && e.mega != nil {
		return e.mega, nil
	}
	return e.rct, nil
}
