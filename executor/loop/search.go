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

// search is a re-plan that runs beside the loop.
type search struct {
	tag    int32
	number int64 // tells it from an earlier one with the same tag
	cancel context.CancelFunc
}

// result is what a search has found.
type result struct {
	tag    int32
	number int64
	list   []int32
}

// replan has the policy's search, if it has one, run beside the loop. A search under way with
// the same tag is stopped, and its result forgotten.
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

// found runs a search. One that panics has found nothing: the policy goes on with the
// order that it has.
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

func searchContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if limit > 0 {
		return context.WithTimeout(context.Background(), limit)
	}
	return context.WithCancel(context.Background())
}

// Found tells the policy what searches have found. It is part of a round.
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

// stopSearches ends searches that nobody waits for any more.
func (l *Loop) stopSearches() {
	l.turn.Lock()
	defer l.turn.Unlock()
	for i := range l.searches {
		if l.searches[i].cancel != nil {
			l.searches[i].cancel()
		}
	}
}
