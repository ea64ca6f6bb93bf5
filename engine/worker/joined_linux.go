package worker

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// joinedWorker is a connection from another host. To the Process, at the other end of a control socket, it acts as
// the worker. To the host it acts as the parent.
type joinedWorker struct {
	link
	lobby *Lobby
	offer *offer
	owner any // the owner that started it, or nil while it is idle; guarded by lobby.mu

	sleeping chan struct{} // closed when serve has ended
	cause    error         // why serve ended, valid once ended is closed

	stages farStages
	ctlMu  sync.Mutex
	ctl    *net.UnixConn // nil until a Process is started on it

	mu       sync.Mutex
	own      *Segment
	pending  []sent
	maxBatch map[uint32]int
	attached map[uint32]*Segment
	clock    skew  // estimates how far the host's clock is ahead of ours
	swapped  int64 // our clock when the last swap was sent
}

type sent struct {
	run Run
	out int64 // bytes of output that the host returns
	at  int64
}

// serve handles the frames of the host, and sends beats to it, until the connection ends.
func (g *joinedWorker) live() (err error) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Send beats often enough for a host that has the usual limit of silence.
		t := time.NewTicker(min(g.silence, DefaultSilence) / 5)
		defer t.Stop()
		var buf [beatSize]byte
		for {
			if g.write(TypeBeat, appendBeat(buf[:0], monotonic(), 0), nil) != nil {
				g.conn.Close()
				return
			}
			select {
			case <-t.C:
			case <-stop:
				return
			}
		}
	})
	defer func() {
		g.conn.Close()
		close(stop)
		wg.Wait()
		g.cause = err
		close(g.sleeping)
		g.ctlMu.Lock()
		if g.ctl != nil {
			g.ctl.Close()
		}
		g.ctlMu.Unlock()
	}()
	for {
		t, p, err := g.next()
		if err != nil {
			return err
		}
		if err := g.frame(t, p); err != nil {
			return err
		}
	}
}

func (g *joinedWorker) frame(t Type, p []byte) error {
	switch t {
	case TypeBeat:
		return g.beat(p)
	case TypeLoaded:
		l, err := parseJSON[Loaded](t, p)
		if err == nil {
			err = g.note(&l)
		}
		if err != nil {
			return err
		}
		return g.reply(AppendFrame(nil, t, p))
	case TypeKept:
		k, err := parseJSON[Kept](t, p)
		if err == nil {
			err = g.note(&k.Loaded)
		}
		if err != nil {
			return err
		}
		return g.replyJSON(t, Kept{Loaded: k.Loaded}) // the model is in that host's memory
	case TypeSwapped:
		a, err := parseJSON[Swapped](t, p)
		if err != nil {
			return err
		}
		g.mu.Lock()
		a.Start, a.End = g.clock.here(g.swapped, monotonic(), a.Start, a.End)
		g.mu.Unlock()
		return g.replyJSON(t, a)
	case TypeWelcome, TypeReady, TypeError:
		return g.reply(AppendFrame(nil, t, p))
	case TypeDone:
		return g.done(p)
	}
	return fmt.Errorf("%w: %s frame from a worker's host", ErrProtocol, t)
}

// addStage records a stage that the host has loaded.
func (g *joinedWorker) note(l *Loaded) error {
	g.mu.Lock()
	batch := g.maxBatch[l.ID]
	g.mu.Unlock()
	if batch == 0 {
		return fmt.Errorf("%w: stage %d was loaded and not asked for", ErrProtocol, l.ID)
	}
	if err := errors.Join(checkSpecs(l.Inputs, batch), checkSpecs(l.Outputs, batch)); err != nil {
		return err
	}
	g.stages.set(l.ID, &farStage{batch, l.Inputs, l.Outputs})
	return nil
}

// expectStage records that the parent asks for a stage.
func (g *joinedWorker) expect(s *StageSpec) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.maxBatch == nil {
		g.maxBatch = map[uint32]int{}
	}
	g.maxBatch[s.ID] = s.MaxBatch
	s.Path = "" // the host decides where its models lie
}

func (g *joinedWorker) replyJSON(t Type, doc any) error {
	b, err := appendJSON(nil, t, doc)
	if err != nil {
		return err
	}
	return g.reply(b)
}

// reply sends a frame to the parent, as the worker would.
func (g *joinedWorker) reply(frame []byte) error {
	g.ctlMu.Lock()
	defer g.ctlMu.Unlock()
	if g.ctl == nil {
		return fmt.Errorf("%w: a frame from an idle worker", ErrProtocol)
	}
	_, err := g.ctl.Write(frame)
	return err
}

// updateClock takes an answered beat into the estimate of the host's clock.
func (g *joinedWorker) beat(p []byte) error {
	mine, theirs, err := parseBeat(p)
	if err != nil {
		return err
	}
	now := monotonic()
	if mine > now {
		return fmt.Errorf("%w: a beat from the future", ErrProtocol)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock.see(mine, now, theirs, theirs)
	return nil
}

// storeOutput reads a run's output into shared memory and sends the result to the parent.
func (g *joinedWorker) done(p []byte) error {
	n, r, err := parseDone(p)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if len(g.pending) == 0 || g.pending[0].run.ID != r.ID {
		g.mu.Unlock()
		return fmt.Errorf("%w: result of run %d, which is not the next", ErrProtocol, r.ID)
	}
	s := g.pending[0]
	g.pending = g.pending[:copy(g.pending, g.pending[1:])]
	own := g.own
	g.mu.Unlock()
	if r.Code == OK {
		if n != s.out {
			return fmt.Errorf("%w: output of %d bytes, expected %d", ErrProtocol, n, s.out)
		}
		if err := g.data(own.Data[s.run.Out : int64(s.run.Out)+n]); err != nil {
			return err
		}
	}
	g.mu.Lock()
	r.Start, r.End = g.clock.here(s.at, monotonic(), r.Start, r.End)
	g.mu.Unlock()
	return g.reply(AppendResult(nil, &r))
}
