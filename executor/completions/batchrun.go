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

// runningBatch is a batch that runs in this process.
type batch struct {
	front *Front
	ctx   context.Context // ends when the batch is cancelled, expires or the front end closes

	mu       sync.Mutex
	state    *batchState
	marks    []mark        // by line
	left     int           // lines that are still open
	none     chan struct{} // closed when no line is open
	stop     context.CancelCauseFunc
	failures map[int]*failure // by line, of lines that were not accepted
}

// lineMark is the state of a line.
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

// lineID returns the id of a line's request, which is the same in every run of the batch.
func lineID(batch string, line int) string { return fmt.Sprintf("%s-%06d", batch, line) }

// runBatch runs a batch until it is over or the front end closes. Lines that were answered in an earlier run are not
// run again.
func (f *Front) runBatch(id string) {
	s, err := stored[batchState](f.ctx, f.opt.Store, batchKeys+id)
	if err == nil && !s.over() {
		b := &batch{front: f, state: s, none: make(chan struct{}), failures: map[int]*failure{}}
		err = b.run()
	}
	if f.ctx.Err() != nil {
		return // the store hands it out again after the restart
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

// run checks the input, submits all lines, waits for their ends, and writes the result files.
func (b *batch) run() error {
	f, s := b.front, b.state
	var end context.CancelFunc

	// The batch ends by its deadline at the latest.
	b.ctx, b.stop = context.WithCancelCause(f.ctx)
	b.ctx, end = context.WithTimeoutCause(b.ctx, s.deadline().Sub(f.opt.Now()), errBatchExpired)
	defer end()
	defer b.stop(nil)

	// Check the input. If a line is invalid the batch fails and nothing is submitted.
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

	// From here on requests of this batch mark their lines.
	f.mu.Lock()
	f.running[s.ID] = b
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.running, s.ID)
		f.mu.Unlock()
	}()

	// Watch for a request to cancel, and store the counts meanwhile.
	watch := make(chan struct{})
	defer close(watch)
	f.begin(func() { b.watch(watch) })

	// Submit the lines, and wait until all have ended. At a cancel or the deadline, end those that are open.
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

// watchInterval is the time between two looks at the store for a request to cancel. The counts are stored as often.
const watchEvery = 2 * time.Second

// watch cancels the batch when another process requests it, and stores its counts from time to time, until done is
// closed.
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

// markLine records that a line has ended. ok says that it was answered.
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

// submitAll submits all lines, several at once, and returns when all are accepted or have failed.
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

	// Hand the lines to the submitters.
	err := b.lines(b.ctx, func(n int, line []byte) error {
		_, q, refusal := b.question(line)
		if refusal != nil {
			return refusal // validateInput accepted it, so the file has changed
		}
		rec, err := b.record(n, q)
		if err != nil {
			b.fail(n, err) // the model is no longer served
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

// submitLine submits the request of a line. While it is refused for load, it waits and tries again.
func (b *batch) submit(n int, rec *record) {
	id := lineID(b.state.ID, n)
	for b.ctx.Err() == nil {
		// A request that was accepted in an earlier run needs no admission.
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

// failLine ends a line whose request was not accepted.
func (b *batch) fail(n int, err error) {
	b.mu.Lock()
	b.failures[n] = failed(err)
	b.mu.Unlock()
	b.mark(n, false)
}

// failRemaining ends the lines that are open with the error cause, and waits until they have ended.
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
		// The request was not accepted, or no process has taken it over, or it has ended.
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
