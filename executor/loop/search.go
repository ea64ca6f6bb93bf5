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
type search struct {
	tag    int32
	number int64              // distinguishes it from earlier ones with the same tag
	cancel context.CancelFunc // nil once its result was told
}

// searchResult is the result of a search.
type result struct {
	tag    int32
	number int64
	list   []int32
}

// startSearch runs the policy's search, if it has one, beside the loop. A running search with the same tag is cancelled,
// and its result is ignored.
func (l *Loop) replan(tag int32) {
	if l.searcher == nil {
		return
	}
	find := l.searcher.Search(l.last, tag)
	ctx, cancel := searchContext(l.SearchLimit)
	at := slices.IndexFunc(l.searches, func(s search) bool { return s.tag == tag })
	if at < 0 {
		at = len(l.searches)
		l.searches = append(l.searches, search{tag: tag})
	} else if l.searches[at].cancel != nil {
		l.searches[at].cancel()
	}

	// Run it on a goroutine of its own, which leaves the result for a later round.
	s := &l.searches[at]
	s.number++
	s.cancel = cancel
	number := s.number
	l.wg.Go(func() {
		list := found(ctx, find, func(err error) {
			if l.SearchFailed != nil {
				l.SearchFailed(tag, err)
			}
		})
		l.mu.Lock()
		l.found = append(l.found, result{tag, number, list})
		l.mu.Unlock()
		l.Attend()
	})
}

// runSearch runs a search and returns its result. If the search panics, the result is empty: the policy keeps the order
// that it has.
func found(ctx context.Context, find func(context.Context, int64, []int32) ([]int32, int64), failed func(error)) (list []int32) {
	defer func() {
		if p := recover(); p != nil {
			list = nil
			failed(fmt.Errorf("%v\n%s", p, debug.Stack()))
		}
	}()
	list, _ = find(ctx, math.MaxInt64, nil)
	return list
}

// searchContext returns a context with a limit, or without one if the limit is 0.
func searchContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if limit > 0 {
		return context.WithTimeout(context.Background(), limit)
	}
	return context.WithCancel(context.Background())
}

// TellResults tells the policy the results of searches. It is part of a round.
func (l *Loop) Found() {
	l.mu.Lock()
	l.results, l.found = l.found, l.results[:0]
	l.mu.Unlock()
	for _, r := range l.results {
		at := slices.IndexFunc(l.searches, func(s search) bool { return s.tag == r.tag })
		if s := &l.searches[at]; s.number == r.number {
			s.cancel()
			s.cancel = nil
			l.Tell(policy.Event{Kind: policy.ReplanResult, Value: int64(r.tag), List: r.list})
			l.host.Flush()
		}
	}
}

// stopSearches cancels all running searches.
func (l *Loop) stopSearches() {
	l.turn.Lock()
	defer l.turn.Unlock()
	for i := range l.searches {
		if l.searches[i].cancel != nil {
			l.searches[i].cancel()
		}
	}
}
