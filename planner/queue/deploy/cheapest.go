package deploy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// ErrTooFewDevices is returned when all devices of the cluster together do not suffice.
var ErrTooFewDevices = errors.New("all devices of the cluster are too few")

// LayoutResult is a layout with what its runs showed.
type LayoutResult struct {
	Layout      *Layout
	Score       Score
	Price       float64 // in the unit of the objective; for a goal to be maximized, the negative of its value
	Simulations int     // pools and layouts that were simulated
	// BacklogGrows says that the work of the rates is more than the instances do, so that the score is only
	// that of runs of this length.
	BacklogGrows bool
}

// screeningSlack is how many times the allowed misses a first run may have before the other runs are made.
const screeningSlack = 1.5

// highPenalty is the penalty from which on a large pool gets more than one instance at a time. Instances
// that are too many are removed later.
const highPenalty = 6

// CheapestLayout returns the cheapest layout (pools of instances) that it finds whose classes keep their SLOs
// in simulation, also with one more instance. No layout costs less than minPrice, a bound. onBetter is called
// with every better layout; it may be nil.
func (p *Search) CheapestLayout(ctx context.Context, o SearchOptions, minPrice float64, onBetter func(*LayoutResult)) (*LayoutResult, error) {
	return p.searchStructures(ctx, o, minPrice, func(s Structure, maxPrice float64) (*LayoutResult, error) {
		return p.growStructure(ctx, s, minPrice, maxPrice, !o.FirstFeasible)
	}, onBetter)
}

// growStructure makes a layout (pools of instances) for a structure, which lists the items (classes of requests for a model) that share
// each pool: it adds instances to the pools until the layout passes testLayout, then removes those that are not needed if shrinkAfter is
// true. It returns nil once the price exceeds maxPrice, that of the best layout so far. At maxPrice it goes on, because instances may
// still be removed. minPrice is a lower bound on the price of any layout that holds for long.
func (p *Search) growStructure(ctx context.Context, s Structure, minPrice, maxPrice float64, shrinkAfter bool) (*LayoutResult, error) {
	l, err := p.emptyLayout(s)
	if err != nil {
		return nil, err
	}
	if err := p.addInitialInstances(l); err != nil {
		return nil, err
	}
	requestCounts := p.Trials.requestCounts()

	// Add instances to the pool that testLayout names, the one with the highest penalty.
	for {
		if l.Price(p.Problem) > maxPrice*(1+1e-9) {
			return nil, nil
		}
		ok, worstPool, err := p.testLayout(ctx, l, requestCounts)
		if err != nil {
			return nil, err
		}
		if ok {
			break
		}
		poolScore, err := p.Trials.trialPool(ctx, &l.Pools[worstPool])
		if err != nil {
			return nil, err
		}

		// A pool far from its SLOs gets an eighth more instances at a time.
		addedInstances := 1
		if p.Problem.missPenalty(&poolScore, requestCounts) > highPenalty {
			addedInstances += l.Pools[worstPool].InstanceCount() / 8
		}
		for range addedInstances {
			if err := p.addInstance(l, worstPool); err != nil {
				return nil, err
			}
		}
	}
	if shrinkAfter {
		if err := p.removeInstances(ctx, l, requestCounts, minPrice); err != nil && ctx.Err() == nil {
			return nil, err // if it was interrupted, the layout as it is still passes
		}
	}

	// If the layout costs less than the bound, it only passes because runs are short: no layout of its size holds for long. It gets
	// instances up to the bound. The bound does not say which pool is too small, so the first one gets them.
	for l.Price(p.Problem) < minPrice*(1-1e-9) {
		if err := p.addInstance(l, 0); err != nil {
			return nil, err
		}
	}

	// Judge the final layout as its plan is simulated, for the figures of the plan.
	score, err := p.Trials.judgeLayout(ctx, l)
	if err != nil {
		return nil, err
	}
	return &LayoutResult{Layout: l, Score: score, Price: l.Price(p.Problem)}, nil
}

// addInitialInstances gives every pool of an empty layout the instances with which the search begins: as many as the work of its rates
// keeps busy, of the kinds of servers on which that work is cheapest. Work may take MaxUtilization of an instance's time, as the search
// refuses layouts with more (fitsCapacity). That does not hold for replayed requests. They may still be worked on after the last arrival,
// for as long as the shortest SLO of the pool, so fewer instances are enough. If some pool gets none, it returns ErrTooFewDevices.
func (p *Search) addInitialInstances(l *Layout) error {
	for i := range l.Pools {
		x := &l.Pools[i]

		// remainingWork is the part of the pool's work that no instance does yet, enlarged or reduced for the time in which it is done.
		remainingWork := 1 / MaxUtilization
		if p.Problem.Replay != nil {
			urgentItems, _ := p.Problem.splitUrgentClass(x.Items) // of one class, that of the shortest SLO
			shortestSLO := p.Problem.Classes[p.Problem.Items[urgentItems[0]].Class].SLO.Seconds()
			arrivalSpan := p.replaySeconds()
			remainingWork = arrivalSpan / (arrivalSpan + shortestSLO)
		}
		kinds, err := p.kindsByCost(x)
		if err != nil {
			return err
		}

		// Fill the cheapest kind first, and go on to the next one where its devices run out.
		for _, k := range kinds {
			need, err := p.Trials.busyInstances(x, k) // instances that all of the work keeps busy there
			if err != nil {
				return err
			}
			x.Counts[k] = min(max(int(math.Ceil(remainingWork*need-1e-9)), 1), l.remainingServers(p.Problem, k))
			// One instance does 1 / need of the work.
			if remainingWork -= float64(x.Counts[k]) / max(need, 1e-9); remainingWork <= 0 {
				break
			}
		}
		if x.InstanceCount() == 0 {
			return ErrTooFewDevices
		}
	}
	return nil
}

// replaySeconds returns how long replayed requests arrive in a run, in seconds.
func (p *Search) replaySeconds() float64 {
	lastArrival := time.Duration(0)
	for _, r := range p.Problem.Replay(0) {
		lastArrival = max(lastArrival, r.ArrivedAt)
	}
	return max(lastArrival.Seconds(), 1)
}

// kindsByCost returns the kinds of servers (indexes of Kinds) that can run all models of a pool, the cheapest first, by the price of the
// instances that the pool's work keeps busy there. If the work on some kind cannot be estimated, it returns an error.
func (p *Search) kindsByCost(x *Pool) ([]int, error) {
	var kinds []int
	prices := make([]float64, len(p.Problem.Kinds))
	for k := range p.Problem.Kinds {
		if !p.Problem.canRunItems(k, x.Items) {
			continue
		}
		busyInstances, err := p.Trials.busyInstances(x, k)
		if err != nil {
			return nil, err
		}
		kinds, prices[k] = append(kinds, k), busyInstances*p.Problem.Kinds[k].Price
	}
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(prices[a], prices[b]) })
	return kinds, nil
}

// busyInstances returns how many instances of a kind of servers the work of a pool's rates keeps busy on average. The work is estimated,
// per item of the pool (a class of requests for a model): requests per second times the seconds of an instance for a mean request, at the
// cap that the pool has there (how many sequences run at once). Prompts of sessions count nothing, because they may be cached.
func (p *Trials) busyInstances(x *Pool, kind int) (float64, error) {
	busy := 0.0
	for _, m := range p.problem.ModelsOf(x.Items) {
		e, err := p.estimators.estimateFor(m, kind, x.Caps[kind][m])
		if err != nil {
			return 0, err
		}

		// Alpha and Beta are the seconds of an instance per token of a prompt and of an answer.
		for _, i := range x.Items {
			if p.problem.Items[i].Model == m {
				prompt, output, _ := lengthMoments(p.problem.Classes[p.problem.Items[i].Class].Sample)
				if p.problem.Classes[p.problem.Items[i].Class].Sessions != nil {
					prompt = 0
				}
				busy += p.problem.Items[i].RPS * (e.rct.Alpha*prompt + e.rct.Beta*output)
			}
		}
	}
	return busy, nil
}

// testLayout returns whether a layout keeps the SLOs in simulation. keepsSLOs, which decides, also holds back a part of the allowed late
// requests (the problem's Surplus). It screens each pool alone in one run, in which it also changes the pool's caps (limits on concurrent
// sequences) for the better, and then simulates all runs of the whole. The layout must also pass with one more instance, if there is a
// device for it: else it has passed by luck.
//
// worstPool is the index of the pool with the highest penalty, which gets the next instance if the test fails. A pool's penalty
// (missPenalty) is the number of its late requests, each divided by how many its judge group (classes judged together) may have late of its
// requestCounts. It is that of the runs of the whole if these fail, else that of the pools alone.
func (p *Search) testLayout(ctx context.Context, l *Layout, requestCounts []int64) (ok bool, worstPool int, err error) {
	// Screen the pools, each alone.
	poolScores := make([]Score, len(l.Pools))
	sum := p.Problem.newScore()
	for i := range l.Pools {
		if poolScores[i], err = p.tuneCaps(ctx, &l.Pools[i], requestCounts); err != nil {
			return false, 0, err
		}
		sum.add(&poolScores[i])
	}
	worstPool, err = p.worstPool(l, poolScores, requestCounts)
	passesScreening := p.Problem.keepsSLOs(&sum, screeningSlack) // with more late requests than may be: it is only one run
	if err != nil || !passesScreening {
		return false, worstPool, err
	}

	// Judge the layout as a whole: with the search's limit on re-plans first, then as the plan runs. The second argument of keepsSLOs
	// multiplies the late requests that are allowed.
	score, err := p.Trials.simulateLayout(ctx, l, p.Problem.SearchWork)
	if err == nil && p.Problem.keepsSLOs(&score, 1) {
		score, err = p.Trials.judgeLayout(ctx, l)
	}
	if err != nil {
		return false, worstPool, err
	}
	if !p.Problem.keepsSLOs(&score, 1) {
		for i := range l.Pools {
			poolScores[i] = p.Trials.poolScore(&score, &l.Pools[i])
		}
		worstPool, err = p.worstPool(l, poolScores, requestCounts)
		return false, worstPool, err
	}

	// A layout that passes only by luck often fails with one more instance.
	larger := l.clone()
	switch err := p.addInstance(larger, worstPool); {
	case errors.Is(err, ErrTooFewDevices):
		return true, worstPool, nil
	case err != nil:
		return false, worstPool, err
	}
	score, err = p.Trials.simulateLayout(ctx, larger, p.Problem.SearchWork)
	return err == nil && p.Problem.keepsSLOs(&score, 1), worstPool, err
}

// worstPool returns the index of the pool with the highest penalty, which gets the next instance: its late requests divided by those that
// its judge groups (classes judged together) allow of requestCounts. Among equals it is the pool whose work takes the largest share of
// its instances' time. poolScores has the runs' outcomes by pool.
func (p *Search) worstPool(l *Layout, poolScores []Score, requestCounts []int64) (int, error) {
	worstIndex, maxPenalty, maxBusy := 0, -1.0, 0.0
	for i := range poolScores {
		busy, err := p.Trials.busyShare(&l.Pools[i])
		if err != nil {
			return 0, err
		}
		if penalty := p.Problem.missPenalty(&poolScores[i], requestCounts); penalty > maxPenalty || penalty == maxPenalty && busy > maxBusy {
			worstIndex, maxPenalty, maxBusy = i, penalty, busy
		}
	}
	return worstIndex, nil
}

// addInstance adds an instance to a pool, of the cheapest kind for its work that has devices left. If none
// has, it returns ErrTooFewDevices.
func (p *Search) addInstance(l *Layout, pool int) error {
	kinds, err := p.kindsByCost(&l.Pools[pool])
	for _, k := range kinds {
		if l.remainingServers(p.Problem, k) > 0 {
			l.Pools[pool].Counts[k]++
			return nil
		}
	}
	return cmp.Or(err, ErrTooFewDevices)
}

// removeInstances removes instances from layout l, in place and one at a time, as long as it passes the test without them and costs at
// least minPrice, a lower bound on the price of all layouts. Every pool retains one instance. growStructure calls it because the search
// adds several instances at a time.
func (p *Search) removeInstances(ctx context.Context, l *Layout, requestCounts []int64, minPrice float64) error {
	for removed := true; removed; {
		removed = false
		for i := range l.Pools {
			for k := range p.Problem.Kinds {
				if l.Pools[i].Counts[k] == 0 || l.Pools[i].InstanceCount() == 1 || l.Price(p.Problem)-p.Problem.Kinds[k].Price < minPrice*(1-1e-9) {
					continue
				}
				smaller := l.clone()
				smaller.Pools[i].Counts[k]--
				ok, _, err := p.testLayout(ctx, smaller, requestCounts)
				if err != nil {
					return err
				}
				if ok {
					*l, removed = *smaller, true
				}
			}
		}
	}
	return nil
}
