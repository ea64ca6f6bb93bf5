package completions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// Front is the front end.
type Front struct {
	opt    Options
	gate   httplimit.Gate
	hidden atomic.Bool // its health says that it is not ready
	server *http.Server
	routes *http.ServeMux

	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	closing    <-chan struct{} // ctx's
	background sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	closed  bool           // nothing begins any more
	open    map[string]int // by sender: requests that have not ended
	running map[string]*batch

	room room
}

var errLeaves = httplimit.Unavailable("draining", "the server is shutting down; the request is kept, ask for its id later")

// New makes a front end and takes over what its store has not finished. Nothing listens
// until Serve. The store stays the caller's to close, after Close.
func New(opt Options) (*Front, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Front{opt: opt, entries: map[string]*entry{}, open: map[string]int{}, running: map[string]*batch{}}
	f.room.log = rate.Sometimes{First: 1, Interval: time.Minute}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.closing = f.ctx.Done()
	f.routes = newAPI(f).paths()
	f.server = opt.Door.Server(f)
	if !opt.Elsewhere {
		f.background.Go(f.claim)
	}
	f.background.Go(f.storeTexts)
	f.background.Go(f.cleanUp)
	if shared, ok := opt.Store.(durable.Shared); ok && !opt.Elsewhere {
		if err := shared.Ends(f.ctx, away{f}.endedElsewhere); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Serve accepts connections until Drain or Close; it then returns nil.
func (f *Front) Serve(l net.Listener) error {
	return httplimit.Serve(f.server, l, "completions")
}

// Hide serves on, and has the front end's health say that it is not ready.
func (f *Front) Hide() { f.hidden.Store(true) }

// Drain refuses new requests and waits for those whose clients wait. When ctx ends
// first, their clients are told to come again.
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

// Close ends the front end. Text that came is stored. What has not ended is given back
// to the store.
func (f *Front) Close() error {
	f.stop()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.storeAll(ctx)
	for _, e := range f.held() {
		if err := f.opt.Store.Release(ctx, e.id); err != nil && !errors.Is(err, durable.ErrFinished) {
			f.opt.Log.Warn("a request was not given back to the store", "id", e.id, "error", err)
		}
	}
	// Clients hear that the server leaves before their connections are cut.
	leave, end := context.WithTimeout(ctx, time.Second)
	defer end()
	err := f.server.Shutdown(leave)
	if err != nil {
		err = f.server.Close()
	}
	f.background.Wait()
	return err
}

// held lists the requests that are served here and have not ended. An entry's lock is
// never taken while f.mu is held: entries that end take the two the other way round.
func (f *Front) held() (out []*entry) {
	f.mu.Lock()
	every := slices.Collect(maps.Values(f.entries))
	f.mu.Unlock()
	for _, e := range every {
		e.mu.Lock()
		if e.served && !e.ending {
			out = append(out, e)
		}
		e.mu.Unlock()
	}
	return out
}

// claim takes requests over and has them served.
func (f *Front) claim() {
	for {
		st, err := f.opt.Store.Claim(f.ctx)
		if err == nil {
			err = f.Take(st)
		}
		switch {
		case err == nil:
		case f.ctx.Err() != nil || errors.Is(err, durable.ErrClosed):
			return
		case errors.Is(err, errRecord), errors.Is(err, durable.ErrRecord): // it would come again and again
			f.opt.Log.Error("a request in the store is given up", "error", err)
			if _, _, err := f.storeEnd(st.ID, &end{Error: failed(err)}); err != nil {
				f.opt.Log.Error("the end of a request was not stored", "id", st.ID, "error", err)
			}
		default:
			f.opt.Log.Error("a request could not be taken over", "error", err)
			pause(f, time.Second)
		}
	}
}

func pause(f *Front, d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.closing:
	}
}

// Take hands a request that was taken over to the server.
func (f *Front) Take(st *durable.State) error {
	rec, _, err := readRecord(st)
	if err != nil {
		return err
	}
	if rec.Batch == st.ID {
		f.begin(func() { f.runBatch(st.ID) })
		return nil
	}
	e, _ := f.entry(st.ID, rec)
	e.restore(st)
	e.mu.Lock()
	r := rec.request(st.ID, string(e.text), e.tokens)
	over := e.ending
	e.served = !over
	e.mu.Unlock()
	if !over {
		f.opt.Server.Serve(r, e)
	}
	return nil
}

// entry finds a request, or makes its entry.
func (f *Front) entry(id string, rec *record) (e *entry, fresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e = f.entries[id]; e != nil {
		return e, false
	}
	e = &entry{front: f, id: id, rec: rec}
	f.entries[id] = e
	f.open[rec.sender()]++
	return e, true
}

// ended takes a request off the list; its readers have it still.
func (f *Front) ended(e *entry) {
	f.drop(e)
	f.mu.Lock()
	b := f.running[e.rec.Batch]
	f.mu.Unlock()
	if b != nil {
		b.mark(e.rec.Line, e.end.Error == nil)
	}
	if f.opt.Gone != nil {
		e.mu.Lock()
		stored := !e.failed
		e.mu.Unlock()
		f.opt.Gone(e.id, stored)
	}
}

// submit stores a request. What was accepted before under this id is found instead.
func (f *Front) submit(id string, rec *record) (*entry, error) {
	e, fresh := f.entry(id, rec)
	if !fresh {
		return e, nil
	}
	stored, err := rec.stored(id)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		fresh, err = f.opt.Store.Accept(ctx, stored)
		cancel()
	}
	switch full := f.took(err); {
	case full:
		e.settle(&end{Error: failed(errFull)}, nil)
		return nil, errFull
	case err != nil:
		if errors.Is(err, durable.ErrTooLarge) {
			err = httplimit.TooLarge("", "the request is larger than the store takes")
			e.settle(&end{Error: failed(err)}, nil)
			return nil, err
		}
		f.opt.Log.Error("a request was not stored", "id", id, "error", err)
		e.settle(&end{Error: failed(errNotStored)}, nil)
		return nil, errNotStored
	case !fresh || f.opt.Elsewhere:
		f.begin(func() { away{f}.follow(e) })
	}
	return e, nil
}

// begin starts work beside the caller, unless the front end closes.
func (f *Front) begin(work func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.background.Go(work)
	return true
}
