package loop

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"inferplan/policy"
)

// runningSearch is a search of the policy that runs beside the loop.
type runningSearch struct {
	tag    int32
	number int64              // distinguishes it from earlier ones with the same tag
	cancel context.CancelFunc // nil once its result was told
}

// searchResult is the result of a search.
type searchResult struct {
	tag    int32
	number int64
	list   []int32
}

// startSearch runs a search of the policy (a longer computation, such as a new order of a queue) on a goroutine beside
// the loop, if the policy has any. A later round passes its result to the policy. tag is the policy's number for the
// subject of the search. A running search with the same tag is cancelled, and its result is ignored.
func (l *Loop) startSearch(tag int32) {
	if l.searcher == nil {
		return
	}
	searchFunc := l.searcher.Search(l.lastTime, tag)
	ctx, cancel := searchContext(l.SearchLimit)
	index := slices.IndexFunc(l.searches, func(s runningSearch) bool { return s.tag == tag })
	if index < 0 {
		index = len(l.searches)
		l.searches = append(l.searches, runningSearch{tag: tag})
	} else if l.searches[index].cancel != nil {
		l.searches[index].cancel()
	}

	// Run it. The number lets TellResults see which result is the newest of its tag.
	s := &l.searches[index]
	s.number++
	s.cancel = cancel
	number := s.number
	l.wg.Go(func() {
		list := runSearch(ctx, searchFunc, func(err error) {
			if l.SearchFailed != nil {
				l.SearchFailed(tag, err)
			}
		})
		l.mu.Lock()
		l.newResults = append(l.newResults, searchResult{tag, number, list})
		l.mu.Unlock()
		l.Wake()
	})
}

// runSearch runs a search until it ends or ctx does, and returns its result: a list whose meaning is the policy's. If
// the search panics, it passes the error to onPanic and returns nil, and the policy keeps the order that it has.
func runSearch(ctx context.Context, searchFunc func(context.Context, int64, []int32) ([]int32, int64), onPanic func(error)) (list []int32) {
	defer func() {
		if p := recover(); p != nil {
			list = nil
			onPanic(fmt.Errorf("%v\n%s", p, debug.Stack()))
		}
	}()
	// Only ctx limits the search, not a count of its work.
	list, _ = searchFunc(ctx, math.MaxInt64, nil)
	return list
}

// searchContext returns a context with a limit, or without one if the limit is 0.
func searchContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if limit > 0 {
		return context.WithTimeout(context.Background(), limit)
	}
	return context.WithCancel(context.Background())
}

// TellResults passes the results of ended searches to the policy, and has the host send what the policy decides. A
// result is ignored if a later search of the same tag has begun. It is part of a round.
func (l *Loop) TellResults() {
	l.mu.Lock()
	l.results, l.newResults = l.newResults, l.results[:0]
	l.mu.Unlock()
	for _, r := range l.results {
		index := slices.IndexFunc(l.searches, func(s runningSearch) bool { return s.tag == r.tag })
		if s := &l.searches[index]; s.number == r.number {
			s.cancel()
			s.cancel = nil
			l.TellPolicy(policy.Event{Kind: policy.ReplanResult, Value: int64(r.tag), List: r.list})
			l.host.Flush()
		}
	}
}

// stopSearches cancels all running searches.
func (l *Loop) stopSearches() {
	l.turnLock.Lock()
	defer l.turnLock.Unlock()
	for i := range l.searches {
		if l.searches[i].cancel != nil {
			l.searches[i].cancel()
		}
	}
}
