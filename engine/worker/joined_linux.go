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
	link  link
	offer *offer
	owner any // the owner that started it, or nil while it is idle; guarded by the JoinServer's mu

	ended chan struct{} // closed when serve has ended
	cause error         // why serve ended, valid once ended is closed

	stages stageTable[linkStage]
	ctlMu  sync.Mutex
	ctl    *net.UnixConn // the worker's end of the control socket; nil until a Process is started on it

	mu               sync.Mutex
	outputSegment    *Segment            // shared memory that outputs are stored in
	pendingRuns      []pendingRun        // runs that the host has not answered, in order
	maxBatch         map[uint32]int      // largest batch of each stage that the parent asked for, by stage
	attachedSegments map[uint32]*Segment // by number, set when the parent has ended
	hostClock        clockSkew           // estimates how far the host's clock is ahead of ours
	swapSentAt       int64               // our clock when the last swap was sent
}

// pendingRun is a run that was sent to the host.
type pendingRun struct {
	run         RunCommand
	outputBytes int64 // bytes of output that the host returns
	sentAt      int64 // by our clock, nanoseconds
}

// serve runs in the server, for a worker on another machine (the host). It handles the frames of the host, and sends
// beats (signs of life) to it, until the connection ends. It then closes the control socket, by which the parent
// learns it.
func (g *joinedWorker) serve() (err error) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Send beats often enough for a host that has the usual limit of silence.
		t := time.NewTicker(min(g.link.silence, DefaultSilence) / 5)
		defer t.Stop()
		var buf [beatSize]byte
		for {
			if g.link.write(TypeBeat, appendBeat(buf[:0], monotonic(), 0), nil) != nil {
				g.link.conn.Close()
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
		g.link.conn.Close()
		close(stop)
		wg.Wait()
		g.cause = err
		close(g.ended)
		g.ctlMu.Lock()
		if g.ctl != nil {
			g.ctl.Close()
		}
		g.ctlMu.Unlock()
	}()
	for {
		t, p, err := g.link.nextFrame()
		if err != nil {
			return err
		}
		if err := g.handleFrame(t, p); err != nil {
			return err
		}
	}
}

// handleFrame handles a frame of the host, the other machine on which the worker runs. Answers go on to the parent.
// Stages and the clock are noted, and outputs stored in shared memory.
func (g *joinedWorker) handleFrame(t Type, p []byte) error {
	switch t {
	case TypeBeat:
		return g.updateClock(p)
	case TypeLoaded:
		l, err := parseJSON[LoadedStage](t, p)
		if err == nil {
			err = g.addStage(&l)
		}
		if err != nil {
			return err
		}
		return g.reply(AppendFrame(nil, t, p))
	case TypeKept:
		k, err := parseJSON[KeptStage](t, p)
		if err == nil {
			err = g.addStage(&k.Stage)
		}
		if err != nil {
			return err
		}
		return g.replyJSON(t, KeptStage{Stage: k.Stage}) // the model is in that host's memory
	case TypeSwapped:
		a, err := parseJSON[SwapResult](t, p)
		if err != nil {
			return err
		}
		g.mu.Lock()
		a.Start, a.End = g.hostClock.toLocal(g.swapSentAt, monotonic(), a.Start, a.End)
		g.mu.Unlock()
		return g.replyJSON(t, a)
	case TypeWelcome, TypeReady, TypeError:
		return g.reply(AppendFrame(nil, t, p))
	case TypeDone:
		return g.storeOutput(p)
	}
	return fmt.Errorf("%w: %s frame from a worker's host", ErrProtocol, t)
}

// addStage records the tensors of a stage (a range of a model's blocks) that the host has loaded. A stage that the
// parent has not asked for, or with impossible tensors, is an error.
func (g *joinedWorker) addStage(l *LoadedStage) error {
	g.mu.Lock()
	batch := g.maxBatch[l.ID]
	g.mu.Unlock()
	if batch == 0 {
		return fmt.Errorf("%w: stage %d was loaded and not asked for", ErrProtocol, l.ID)
	}
	if err := errors.Join(checkSpecs(l.Inputs, batch), checkSpecs(l.Outputs, batch)); err != nil {
		return err
	}
	g.stages.setStage(l.ID, &linkStage{batch, l.Inputs, l.Outputs})
	return nil
}

// expectStage records that the parent asks for a stage (a range of a model's blocks), before the request goes to the
// host.
func (g *joinedWorker) expectStage(s *StageSpec) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.maxBatch == nil {
		g.maxBatch = map[uint32]int{}
	}
	g.maxBatch[s.ID] = s.MaxBatch
	s.Path = "" // the host decides where its models lie
}

// replyJSON sends a frame with a JSON document to the parent, the process that uses the worker.
func (g *joinedWorker) replyJSON(t Type, doc any) error {
	b, err := appendJSON(nil, t, doc)
	if err != nil {
		return err
	}
	return g.reply(b)
}

// reply sends a frame to the parent, the process that uses the worker, as a worker of this machine would.
func (g *joinedWorker) reply(frame []byte) error {
	g.ctlMu.Lock()
	defer g.ctlMu.Unlock()
	if g.ctl == nil {
		return fmt.Errorf("%w: a frame from an idle worker", ErrProtocol)
	}
	_, err := g.ctl.Write(frame)
	return err
}

// updateClock improves the estimate of the host's clock by an answered beat, which holds our time when the beat was
// sent and the host's time.
func (g *joinedWorker) updateClock(p []byte) error {
	sentAt, hostTime, err := parseBeat(p)
	if err != nil {
		return err
	}
	now := monotonic()
	if sentAt > now {
		return fmt.Errorf("%w: a beat from the future", ErrProtocol)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hostClock.update(sentAt, now, hostTime, hostTime)
	return nil
}

// storeOutput handles a done frame of the host: it reads the run's output, which follows the frame, into shared
// memory and sends the result to the parent, with its times by our clock. Frames on the connection come in the order
// of the runs.
func (g *joinedWorker) storeOutput(p []byte) error {
	n, r, err := parseDone(p)
	if err != nil {
		return err
	}

	// The result must be that of the oldest run without one.
	g.mu.Lock()
	if len(g.pendingRuns) == 0 || g.pendingRuns[0].run.ID != r.ID {
		g.mu.Unlock()
		return fmt.Errorf("%w: result of run %d, which is not the next", ErrProtocol, r.ID)
	}
	run := g.pendingRuns[0]
	g.pendingRuns = g.pendingRuns[:copy(g.pendingRuns, g.pendingRuns[1:])]
	segment := g.outputSegment
	g.mu.Unlock()

	// Read the output, which follows the frame, to where the run wants it.
	if r.Code == OK {
		if n != run.outputBytes {
			return fmt.Errorf("%w: output of %d bytes, expected %d", ErrProtocol, n, run.outputBytes)
		}
		if err := g.link.readData(segment.Data[run.run.OutputOffset : int64(run.run.OutputOffset)+n]); err != nil {
			return err
		}
	}
	g.mu.Lock()
	r.Start, r.End = g.hostClock.toLocal(run.sentAt, monotonic(), r.Start, r.End)
	g.mu.Unlock()
	return g.reply(AppendResult(nil, &r))
}
