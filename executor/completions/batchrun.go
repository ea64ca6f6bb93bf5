package completions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// batch is a batch that runs here.
type batch struct {
	front *Front
	ctx   context.Context // ends when the batch is cancelled, expires or the front end closes

	mu       sync.Mutex
	state    *batchState
	marks    []mark
	left     int           // lines that have no mark
	none     chan struct{} // closed when left is 0
	stop     context.CancelCauseFunc
	failures map[int]*failure // of lines that were not accepted
}

// mark is what became of a line.
type mark byte

const (
	unmarked mark = iota
	answered
	unanswered
)

var (
	errBatchCancelled = &httplimit.Error{Code: httplimit.CodeCancelled, Reason: "batch_cancelled", Msg: "the batch was cancelled before this request was answered"}
	errBatchExpired   = &httplimit.Error{Code: httplimit.CodeDeadline, Reason: "batch_expired", Msg: "this request could not be answered within the completion window"}
)

// lineID is the id of a line's request: the same in every run.
func lineID(batch string, line int) string { return fmt.Sprintf("%s-%06d", batch, line) }

// runBatch runs a batch until it is over, or the front end closes. What was done before
// is found again.
func (f *Front) runBatch(id string) {
	s, err := stored[batchState](f.ctx, f.opt.Store, batchKeys+id)
	if err == nil && !s.over() {
		b := &batch{front: f, state: s, none: make(chan struct{}), failures: map[int]*failure{}}
		err = b.run()
	}
	if f.ctx.Err() != nil {
		return // it comes again
	}
	if err != nil && !errors.Is(err, durable.ErrNotFound) {
		f.opt.Log.Error("a batch could not be run", "batch", id, "error", err)
		pause(f, time.Second)
		err = f.opt.Store.Release(f.ctx, id)
	} else {
		_, _, err = f.storeEnd(id, &end{})
	}
	if err != nil && f.ctx.Err() == nil {
		f.opt.Log.Error("a batch was not given back", "batch", id, "error", err)
	}
}

func (b *batch) run() error {
	f, s := b.front, b.state
	var end context.CancelFunc
	b.ctx, b.stop = context.WithCancelCause(f.ctx)
	b.ctx, end = context.WithTimeoutCause(b.ctx, s.deadline().Sub(f.opt.Now()), errBatchExpired)
	defer end()
	defer b.stop(nil)
	total, bad, err := b.validate(f.ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.marks, b.left = make([]mark, total), total
	s.Counts = batchCounts{Total: total}
	if bad != nil {
		s.Errors = &batchErrors{"list", bad}
		s.move(batchFailed, f.opt.Now())
	} else if s.InProgress == nil {
		s.move(batchInProgress, f.opt.Now())
	}
	b.mu.Unlock()
	if err := b.save(f.ctx); err != nil || bad != nil {
		return err
	}
	f.mu.Lock()
	f.running[s.ID] = b
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.running, s.ID)
		f.mu.Unlock()
	}()
	watch := make(chan struct{})
	defer close(watch)
	f.begin(func() { b.watch(watch) })
	if err := b.submitAll(); err != nil && b.ctx.Err() == nil {
		return err
	}
	select {
	case <-b.none:
	case <-b.ctx.Done():
		if f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		if err := b.giveUp(context.Cause(b.ctx)); err != nil {
			return err
		}
	}
	return b.finalize()
}

// save stores the batch as it is now.
func (b *batch) save(ctx context.Context) error {
	b.mu.Lock()
	s := *b.state
	b.mu.Unlock()
	return batches{b.front}.save(ctx, &s)
}

// watchEvery is how often the store is asked whether a batch was cancelled elsewhere,
// and the counts are stored.
const watchEvery = 2 * time.Second

func (b *batch) watch(end <-chan struct{}) {
	for {
		_, err := b.front.opt.Store.Value(b.ctx, cancelKeys+b.state.ID)
		if err == nil {
			b.cancel()
		}
		select {
		case <-end:
			return
		case <-b.ctx.Done():
			return
		case <-time.After(watchEvery):
		}
		if err := b.save(b.ctx); err != nil && b.ctx.Err() == nil {
			b.front.opt.Log.Warn("the counts of a batch were not stored", "batch", b.state.ID, "error", err)
		}
	}
}

// cancel stops the batch.
func (b *batch) cancel() {
	b.mu.Lock()
	if b.state.Cancelling == nil && b.state.Finalizing == nil {
		b.state.move(batchCancelling, b.front.opt.Now())
	}
	b.mu.Unlock()
	b.stop(errBatchCancelled)
}

// mark says that a line has ended.
func (b *batch) mark(line int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if line >= len(b.marks) || b.marks[line] != unmarked {
		return
	}
	if ok {
		b.marks[line] = answered
		b.state.Counts.Completed++
	} else {
		b.marks[line] = unanswered
		b.state.Counts.Failed++
	}
	if b.left--; b.left == 0 {
		close(b.none)
	}
}

// submitAll has all lines accepted, several at once.
func (b *batch) submitAll() error {
	type job struct {
		n   int
		rec *record
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for j := range jobs {
				b.submit(j.n, j.rec)
			}
		})
	}
	err := b.lines(b.ctx, func(n int, line []byte) error {
		_, q, refusal := b.question(line)
		if refusal != nil {
			return refusal // it was valid before
		}
		rec, err := b.record(n, q)
		if err != nil {
			b.fail(n, err) // the model is gone meanwhile
			return nil
		}
		select {
		case jobs <- job{n, rec}:
			return nil
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	})
	close(jobs)
	wg.Wait()
	return err
}

// submit has a line accepted. Where there is no room it waits.
func (b *batch) submit(n int, rec *record) {
	id := lineID(b.state.ID, n)
	for b.ctx.Err() == nil {
		_, err := b.front.opt.Store.Get(b.ctx, id)
		if err != nil {
			err = b.front.admit(httplimit.Anybody, rec.request(id, "", 0))
		}
		var refusal *Refusal
		wait := time.Second
		switch {
		case err == nil:
			if _, err = b.front.submit(id, rec); err == nil {
				return
			}
		case errors.As(err, &refusal):
			wait = min(max(refusal.RetryAfter, wait), time.Minute)
		default:
			b.fail(n, err)
			return
		}
		select {
		case <-time.After(wait):
		case <-b.ctx.Done():
		}
	}
}

// fail ends a line that was not accepted.
func (b *batch) fail(n int, err error) {
	b.mu.Lock()
	b.failures[n] = failed(err)
	b.mu.Unlock()
	b.mark(n, false)
}

// giveUp ends the lines that have not ended.
func (b *batch) giveUp(why error) error {
	f := b.front
	b.mu.Lock()
	var rest []int
	for n, m := range b.marks {
		if m == unmarked {
			rest = append(rest, n)
		}
	}
	b.mu.Unlock()
	for _, n := range rest {
		id := lineID(b.state.ID, n)
		f.mu.Lock()
		e := f.entries[id]
		f.mu.Unlock()
		if e != nil {
			f.cancel(e, why)
			continue
		}
		// It was not accepted, or nobody has taken it over, or it has ended.
		x, _, err := f.storeEnd(id, &end{Error: failed(why)})
		if errors.Is(err, durable.ErrNotFound) {
			b.fail(n, why)
		} else if err != nil {
			return err
		} else {
			b.mark(n, x.Error == nil)
		}
	}
	select {
	case <-b.none:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}
