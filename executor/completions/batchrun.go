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
type runningBatch struct {
	front *Front
	ctx   context.Context // ends when the batch is cancelled, expires or the front end closes

	mu            sync.Mutex
	state         *batchState
	marks         []lineMark    // by line
	unmarkedLines int           // lines that are still open
	allMarked     chan struct{} // closed when no line is open
	stop          context.CancelCauseFunc
	lineErrors    map[int]*clientError // by line, of lines that were not accepted
}

// lineMark is the state of a line.
type lineMark byte

const (
	lineOpen lineMark = iota
	lineAnswered
	lineFailed
)

var (
	errBatchCancelled = &httplimit.Error{Code: httplimit.CodeCancelled, Reason: "batch_cancelled", Msg: "the batch was cancelled before this request was answered"}
	errBatchExpired   = &httplimit.Error{Code: httplimit.CodeDeadline, Reason: "batch_expired", Msg: "this request could not be answered within the completion window"}
)

// lineID returns the id of a line's request, which is the same in every run of the batch.
func lineID(batch string, line int) string { return fmt.Sprintf("%s-%06d", batch, line) }

// runBatch runs the batch of an id, which this process has claimed from the store, until it is over or the front end
// closes. Lines that were answered in an earlier run are not run again. At the end the claim is marked as done; after an
// error, and if the front end closes, it is released, so that the batch is run again.
func (f *Front) runBatch(id string) {
	s, err := readValue[batchState](f.ctx, f.opt.Store, batchKeys+id)
	if err == nil && !s.hasEnded() {
		b := &runningBatch{front: f, state: s, allMarked: make(chan struct{}), lineErrors: map[int]*clientError{}}
		err = b.run()
	}
	switch {
	case f.ctx.Err() != nil: // another process, or this one after its restart, runs it again
		err = f.release(id)
	case err != nil && !errors.Is(err, durable.ErrNotFound): // a batch that was deleted is done, too
		f.opt.Log.Error("a batch could not be run", "batch", id, "error", err)
		pause(f, time.Second)
		err = f.release(id)
	default:
		_, _, err = f.storeResult(id, &requestResult{})
	}
	if err != nil && !errors.Is(err, durable.ErrFinished) {
		f.opt.Log.Error("a batch was not given back", "batch", id, "error", err)
	}
}

// run runs a batch: it checks the input, submits all lines as requests, waits for their ends, and writes the result
// files. A wrong line fails the batch. At a cancel or the deadline it ends the lines that are open. An error means
// that the batch is to be run again later.
func (b *runningBatch) run() error {
	f, s := b.front, b.state
	var cancelTimeout context.CancelFunc

	// The batch ends by its deadline at the latest.
	b.ctx, b.stop = context.WithCancelCause(f.ctx)
	b.ctx, cancelTimeout = context.WithTimeoutCause(b.ctx, s.deadline().Sub(f.opt.Now()), errBatchExpired)
	defer cancelTimeout()
	defer b.stop(nil)

	// Check the input. If a line is invalid the batch fails and nothing is submitted.
	total, inputErrors, err := b.validateInput(f.ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.marks, b.unmarkedLines = make([]lineMark, total), total
	s.RequestCounts = batchCounts{Total: total}
	if inputErrors != nil {
		s.Errors = &batchErrors{"list", inputErrors}
		s.setStatus(batchFailed, f.opt.Now())
	} else if s.InProgress == nil {
		s.setStatus(batchInProgress, f.opt.Now())
	}
	b.mu.Unlock()
	if err := b.save(f.ctx); err != nil || inputErrors != nil {
		return err
	}

	// From here on requests of this batch mark their lines.
	remove := f.batches.add(b)
	defer remove()

	// Watch for a request to cancel, and store the counts meanwhile.
	watchDone := make(chan struct{})
	defer close(watchDone)
	f.startBackground(func() { b.watch(watchDone) })

	// Submit the lines, and wait until all have ended. At a cancel or the deadline, end those that are open.
	if err := b.submitAll(); err != nil && b.ctx.Err() == nil {
		return err
	}
	select {
	case <-b.allMarked:
	case <-b.ctx.Done():
		if f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		if err := b.failRemaining(context.Cause(b.ctx)); err != nil {
			return err
		}
	}
	return b.writeResults()
}

// save stores the batch as it is now.
func (b *runningBatch) save(ctx context.Context) error {
	b.mu.Lock()
	s := *b.state
	b.mu.Unlock()
	return s.save(ctx, b.front.opt.Store)
}

// watchInterval is the time between two looks at the store for a request to cancel. The counts are stored as often.
const watchInterval = 2 * time.Second

// watch runs beside a batch until done is closed or the batch ends. Every watchInterval it stores the batch's counts, so
// that other processes can show them, and cancels the batch if another process has stored the wish to cancel it.
func (b *runningBatch) watch(done <-chan struct{}) {
	for {
		_, err := b.front.opt.Store.Value(b.ctx, cancelKeys+b.state.ID)
		if err == nil {
			b.cancel()
		}
		select {
		case <-done:
			return
		case <-b.ctx.Done():
			return
		case <-time.After(watchInterval):
		}
		if err := b.save(b.ctx); err != nil && b.ctx.Err() == nil {
			b.front.opt.Log.Warn("the counts of a batch were not stored", "batch", b.state.ID, "error", err)
		}
	}
}

// cancel stops a batch that runs here, at the client's wish. Its open lines end with that error. A batch whose
// results are being written is not stopped any more.
func (b *runningBatch) cancel() {
	b.mu.Lock()
	if b.state.Cancelling == nil && b.state.Finalizing == nil {
		b.state.setStatus(batchCancelling, b.front.opt.Now())
	}
	b.mu.Unlock()
	b.stop(errBatchCancelled)
}

// markLine records that a line of the batch (counted from 0) has ended; ok means that it was answered, and not refused
// or failed. A line that is marked already is not counted again. With the last one it closes allMarked, on which run
// waits before it writes the results.
func (b *runningBatch) markLine(line int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if line >= len(b.marks) || b.marks[line] != lineOpen {
		return
	}
	if ok {
		b.marks[line] = lineAnswered
		b.state.RequestCounts.Completed++
	} else {
		b.marks[line] = lineFailed
		b.state.RequestCounts.Failed++
	}
	if b.unmarkedLines--; b.unmarkedLines == 0 {
		close(b.allMarked)
	}
}

// submitAll submits all lines of a batch as requests, several at once, and returns when all are accepted or have
// failed. A line whose model is no longer served fails by itself.
func (b *runningBatch) submitAll() error {
	type job struct {
		n   int
		rec *requestRecord
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range storeConcurrency {
		wg.Go(func() {
			for j := range jobs {
				b.submitLine(j.n, j.rec)
			}
		})
	}

	// Hand the lines to the submitters.
	err := b.forEachLine(b.ctx, func(n int, line []byte) error {
		_, parsed, refusal := b.parseLine(line)
		if refusal != nil {
			return refusal // validateInput accepted it, so the file has changed
		}
		record, err := b.newRecord(n, parsed)
		if err != nil {
			b.failLine(n, err) // the model is no longer served
			return nil
		}
		select {
		case jobs <- job{n, record}:
			return nil
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	})
	close(jobs)
	wg.Wait()
	return err
}

// submitLine submits line n of a batch as a request. While it is refused for load, it waits as long as the refusal
// says (1 s to 1 min) and tries again, until the batch ends. Another error ends the line.
func (b *runningBatch) submitLine(n int, record *requestRecord) {
	id := lineID(b.state.ID, n)
	for b.ctx.Err() == nil {
		// A request that was accepted in an earlier run needs no admission.
		_, err := b.front.opt.Store.Get(b.ctx, id)
		if err != nil {
			err = b.front.admit(httplimit.AnyClient, record.serverRequest(id, "", 0))
		}
		var refusal *Refusal
		retryAfter := time.Second
		switch {
		case err == nil:
			if _, err = b.front.submit(id, record); err == nil {
				return
			}
		case errors.As(err, &refusal):
			retryAfter = min(max(refusal.RetryAfter, retryAfter), time.Minute)
		default:
			b.failLine(n, err)
			return
		}
		select {
		case <-time.After(retryAfter):
		case <-b.ctx.Done():
		}
	}
}

// failLine ends a line of a batch whose request was not accepted. The error goes into the error file.
func (b *runningBatch) failLine(n int, err error) {
	b.mu.Lock()
	b.lineErrors[n] = toClientError(err)
	b.mu.Unlock()
	b.markLine(n, false)
}

// failRemaining ends the lines of a batch that are open, at a cancel or the deadline, with the error cause, and
// waits until they have ended. A line that was answered meanwhile keeps its answer.
func (b *runningBatch) failRemaining(cause error) error {
	f := b.front
	b.mu.Lock()
	var openLines []int
	for n, m := range b.marks {
		if m == lineOpen {
			openLines = append(openLines, n)
		}
	}
	b.mu.Unlock()
	for _, n := range openLines {
		id := lineID(b.state.ID, n)
		if e := f.requests.find(id); e != nil {
			f.cancelRequest(e, cause)
			continue
		}
		// The request was not accepted, or no process has taken it over, or it has ended.
		result, _, err := f.storeResult(id, &requestResult{Error: toClientError(cause)})
		if errors.Is(err, durable.ErrNotFound) {
			b.failLine(n, cause)
		} else if err != nil {
			return err
		} else {
			b.markLine(n, result.Error == nil)
		}
	}
	select {
	case <-b.allMarked:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}
