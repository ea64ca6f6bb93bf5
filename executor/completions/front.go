package completions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// Front is the front end. Its goroutines run until Close.
type Front struct {
	opt      Options
	gate     httplimit.Gate
	passing  httplimit.Gate // of requests that pass through to servers, behind gate
	notReady atomic.Bool    // its health check answers that it is not ready
	server   *http.Server
	routes   *http.ServeMux

	ctx         context.Context // ends at Close
	stop        context.CancelFunc
	closeSignal <-chan struct{} // done channel of ctx
	background  sync.WaitGroup
	claiming    sync.WaitGroup // of the goroutine that claims requests

	requests requestTable
	batches  runningBatches
	files    fileService
	space    storeSpace

	mu     sync.Mutex
	closed bool // no background work may start any more
}

// Errors of the end of the front end: errDraining of a request that was accepted and is kept, errClosed of one that comes
// too late.
var (
	errDraining = httplimit.Unavailable("draining", "the server is shutting down; the request is kept, ask for its id later")
	errClosed   = httplimit.Unavailable("draining", "the server is shutting down; ask again, or ask another server")
)

// New makes the front end for text of a served plan (the HTTP protocol of OpenAI) and starts its background work: it
// takes over the requests in its store that have no answer. It does not listen until Serve. The caller closes the store,
// after Close.
func New(opt Options) (*Front, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Front{
		opt:      opt,
		requests: requestTable{byID: map[string]*trackedRequest{}, bySender: map[string]int{}},
		batches:  runningBatches{byID: map[string]*runningBatch{}},
	}
	f.files.opt = &f.opt
	f.space.log = rate.Sometimes{First: 1, Interval: time.Minute}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.closeSignal = f.ctx.Done()
	f.routes = newAPI(f).newMux()
	f.server = opt.Door.Server(f)

	// Start the background work: claim stored requests (unless another process serves them), store texts, delete what
	// has expired.
	if !opt.ServedElsewhere {
		f.claiming.Go(f.claimRequests)
	}
	f.background.Go(f.storeTexts)
	f.background.Go(f.cleanUp)

	// Learn of requests that other processes end.
	if sharedStore, ok := opt.Store.(durable.Shared); ok && !opt.ServedElsewhere {
		if err := sharedStore.FollowEnds(f.ctx, f.handleRemoteEnd); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Serve accepts connections until Drain or Close; it then returns nil.
func (f *Front) Serve(l net.Listener) error {
	return httplimit.Serve(f.server, l, "completions")
}

// MarkNotReady makes the health check answer "not ready". Requests are still served.
func (f *Front) MarkNotReady() { f.notReady.Store(true) }

// Drain refuses new requests and waits for those on whose answers clients wait. If ctx ends first, it returns an error,
// and a later Close has those clients try again. Stored requests whose clients do not wait are not waited for.
func (f *Front) Drain(ctx context.Context) error {
	err := f.gate.Close(ctx)
	if err == nil {
		err = f.server.Shutdown(ctx)
	}
	if err != nil {
		return fmt.Errorf("draining the front end: %w", err)
	}
	return nil
}

// DrainForwarded refuses requests that would pass through to servers, and waits for those that do. If ctx ends first, it
// returns an error.
func (f *Front) DrainForwarded(ctx context.Context) error { return f.passing.Close(ctx) }

// Close ends the front end: it stops the background work, stores the text of answers so far, gives requests without an
// answer back to the store, so that another process or a later one continues them, and closes the server's connections.
func (f *Front) Close() error {
	f.stop()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()

	// A request that was claimed at the last moment is given back with the others. A claim that stays would hide it from every process while
	// this one lives.
	f.claiming.Wait()

	// Let no further work begin, and store what has come.
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.storeAllTexts(ctx)
	for _, e := range f.requests.served() {
		if err := f.opt.Store.Release(ctx, e.id); err != nil && !errors.Is(err, durable.ErrFinished) {
			f.opt.Log.Warn("a request was not given back to the store", "id", e.id, "error", err)
		}
	}
	// Tell clients that the server leaves before their connections are cut.
	shutdownCtx, cancelShutdown := context.WithTimeout(ctx, time.Second)
	defer cancelShutdown()
	err := f.server.Shutdown(shutdownCtx)
	if err != nil {
		err = f.server.Close()
	}
	f.background.Wait()
	return err
}

// claimRequests runs in the background. It takes requests that nobody serves over from the store and has them
// served, until the front end closes. One whose record cannot be read ends with an error, because it would be
// claimed again and again.
func (f *Front) claimRequests() {
	for {
		st, err := f.opt.Store.Claim(f.ctx)
		if err == nil {
			err = f.TakeOver(st)
		}
		switch {
		case err == nil:
		case errors.Is(err, errUnreadableRecord), errors.Is(err, durable.ErrDamagedRecord): // it would be claimed again and again
			f.opt.Log.Error("a request in the store is given up", "error", err)
			if _, _, err := f.storeResult(st.ID, &requestResult{Error: toClientError(err)}); err != nil {
				f.opt.Log.Error("the end of a request was not stored", "id", st.ID, "error", err)
			}
		case f.ctx.Err() != nil || errors.Is(err, durable.ErrClosed):
			if st != nil { // another process may be able to serve it
				if err := f.release(st.ID); err != nil {
					f.opt.Log.Warn("a request was not given back to the store", "id", st.ID, "error", err)
				}
			}
			return
		default:
			f.opt.Log.Error("a request could not be taken over", "error", err)
			pause(f, time.Second)
		}
	}
}

// pause sleeps for d, or until the front end closes.
func pause(f *Front, d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.closeSignal:
	}
}

// TakeOver starts to serve a claimed request: it runs a batch, or hands a request to the server with the text that
// was stored. It returns an error if the record cannot be read.
func (f *Front) TakeOver(st *durable.State) error {
	record, _, err := readRecord(st)
	if err != nil {
		return err
	}
	if record.Batch == st.ID {
		if !f.startBackground(func() { f.runBatch(st.ID) }) {
			return f.release(st.ID) // the front end has closed
		}
		return nil
	}
	e, _ := f.requests.findOrAdd(&trackedRequest{front: f, id: st.ID, record: record})
	e.adoptStoredText(st)
	e.mu.Lock()
	r := record.serverRequest(st.ID, string(e.text), e.tokens)
	ended := e.resultKnown
	e.handedToServer = !ended
	e.mu.Unlock()
	if !ended {
		f.opt.Server.Serve(r, e)
	}
	return nil
}

// release gives a claimed record back to the store, also while the front end closes.
func (f *Front) release(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return f.opt.Store.Release(ctx, id)
}

// finishTracking takes a request that has ended out of the table of open ones; handlers that still send its answer hold
// it. A line of a batch is marked as ended in its batch. It calls Options.OnRequestGone, with whether the result was
// stored.
func (f *Front) finishTracking(e *trackedRequest) {
	f.requests.remove(e)
	if b := f.batches.find(e.record.Batch); b != nil {
		b.markLine(e.record.Line, e.result.Error == nil)
	}
	if f.opt.OnRequestGone != nil {
		e.mu.Lock()
		resultStored := !e.storeFailed
		e.mu.Unlock()
		f.opt.OnRequestGone(e.id, resultStored)
	}
}

// submit stores a new request under an id, so that it survives a crash, and returns it; from the store it is claimed and
// served. If a request with this id was accepted before, submit returns that one. Errors are those that the client gets;
// such a request has ended.
func (f *Front) submit(id string, record *requestRecord) (*trackedRequest, error) {
	e, isNew := f.requests.findOrAdd(&trackedRequest{front: f, id: id, record: record})
	if !isNew {
		return e, nil
	}
	durableRec, err := record.durableRecord(id)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		isNew, err = f.opt.Store.Accept(ctx, durableRec)
		cancel()
	}

	// If it was not stored, end it with the error, which those who found it in the table see, too. If it was stored
	// before or is served elsewhere, follow its answer in the store.
	switch storeFull := f.noteWriteResult(err); {
	case storeFull:
		e.publishResult(&requestResult{Error: toClientError(errStoreFull)}, nil)
		return nil, errStoreFull
	case err != nil:
		if errors.Is(err, durable.ErrTooLarge) {
			err = httplimit.TooLarge("", "the request is larger than the store takes")
			e.publishResult(&requestResult{Error: toClientError(err)}, nil)
			return nil, err
		}
		f.opt.Log.Error("a request was not stored", "id", id, "error", err)
		e.publishResult(&requestResult{Error: toClientError(errNotStored)}, nil)
		return nil, errNotStored
	case !isNew || f.opt.ServedElsewhere:
		f.startBackground(e.follow)
	}
	return e, nil
}

// startBackground runs work in a goroutine for which Close waits. It returns false, without running it, if the
// front end closes.
func (f *Front) startBackground(work func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.background.Go(work)
	return true
}
