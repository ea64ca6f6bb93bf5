package worker

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// relay acts as a worker on a control socket (ctl), while the worker itself runs on another machine, the host: it
// passes the parent's commands on to the host, until either side ends. It returns nil after a shutdown, and otherwise
// why it ended.
func (g *joinedWorker) relay(ctl *net.UnixConn) error {
	g.ctlMu.Lock()
	g.ctl = ctl
	g.ctlMu.Unlock()
	err := g.handleCommands(ctl)
	g.link.conn.Close()
	ctl.Close()
	<-g.ended
	for _, s := range g.segments() {
		s.Close()
	}
	if err == nil {
		err = g.cause
	}
	if errors.Is(err, errShutdown) {
		return nil
	}
	return err
}

// handleCommands reads the frames of the parent (the process that uses the worker) from the control socket, and
// handles them until the parent closes the socket.
func (g *joinedWorker) handleCommands(ctl *net.UnixConn) error {
	select {
	case <-g.ended: // the connection ended while the worker was taken
		return g.cause
	default:
	}
	var dec Decoder
	descriptorBuf := make([]byte, unix.CmsgSpace(16*4))
	r := server{segments: map[uint32]*Segment{}} // of the parent: the part that needs no engine
	defer func() { g.setSegments(&r) }()
	for {
		// Read frames, with the descriptors that come beside them, and carry them out.
		t, p, ok, err := dec.NextFrame()
		if err != nil {
			return err
		}
		if !ok {
			n, oobn, _, _, err := ctl.ReadMsgUnix(dec.Space(), descriptorBuf)
			if oobn > 0 {
				if err := r.control.takeDescriptors(descriptorBuf[:oobn]); err != nil {
					return err
				}
			}
			if n == 0 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read control socket: %w", err)
			}
			dec.MarkFilled(n)
			continue
		}
		if err := g.handleCommand(&r, t, p); err != nil {
			return err
		}
	}
}

// setSegments keeps the attached segments until the connection has ended, because outputs may still arrive in them.
// relay closes them then.
func (g *joinedWorker) setSegments(r *server) {
	for _, fd := range r.control.fds {
		unix.Close(fd)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.attachedSegments = r.segments
}

// segments returns the segments that were attached.
func (g *joinedWorker) segments() map[uint32]*Segment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.attachedSegments
}

// handleCommand handles a frame of the parent (the process that uses the worker): most go on to the host (the other
// machine), without what is of this machine only. Segments, shared memory, stay here.
func (g *joinedWorker) handleCommand(r *server, t Type, p []byte) error {
	switch t {
	case TypeRun:
		return g.sendRun(r, p)
	case TypeSegment:
		ready, err := r.segment(p)
		if err != nil {
			return err
		}
		g.mu.Lock()
		g.outputSegment = r.outputSegment
		g.mu.Unlock()
		return g.replyJSON(TypeReady, ready)
	case TypeHello:
		h, err := parseJSON[Hello](t, p)
		if err != nil {
			return err
		}
		// The host decides which CPUs and which library its worker uses.
		h.Device.CPUs, h.Device.Threads, h.Library = nil, 0, ""
		return g.link.writeJSON(t, h)
	case TypeLoad:
		s, err := parseJSON[StageSpec](t, p)
		if err != nil {
			return err
		}
		g.expectStage(&s)
		return g.link.writeJSON(t, s)
	case TypeKeep:
		k, err := parseJSON[KeepRequest](t, p)
		if err != nil {
			return err
		}
		if k.Size != 0 || k.FreeBytes != 0 {
			return fmt.Errorf("%w: memory of this machine for a model of another host", ErrProtocol)
		}
		g.expectStage(&k.Stage)
		return g.link.writeJSON(t, k)
	case TypeSwap:
		g.mu.Lock()
		g.swapSentAt = monotonic()
		g.mu.Unlock()
		return g.link.write(t, p, nil)
	case TypePrepare:
		return g.link.write(t, p, nil)
	case TypeShutdown:
		return errShutdown
	}
	return fmt.Errorf("%w: %s frame from the parent", ErrProtocol, t)
}

// sendRun sends a run to the host, the other machine, as a push frame with its input, which lies in shared memory
// here.
func (g *joinedWorker) sendRun(r *server, p []byte) error {
	run, err := ParseRun(p)
	if err != nil {
		return err
	}
	inputBytes, outputBytes, ok := g.stages.stage(run.Stage).tensorBytes(run.Batch)
	seg := r.segments[run.Segment]
	if !ok || seg == nil || r.outputSegment == nil || int64(run.InputOffset) > int64(len(seg.Data))-inputBytes || int64(run.OutputOffset) > int64(len(r.outputSegment.Data))-outputBytes {
		return fmt.Errorf("%w: run of stage %d, batch %d, in segment %d", ErrProtocol, run.Stage, run.Batch, run.Segment)
	}
	g.mu.Lock()
	g.pendingRuns = append(g.pendingRuns, pendingRun{run, outputBytes, monotonic()})
	g.mu.Unlock()
	remoteRun := RunCommand{ID: run.ID, Stage: run.Stage, Batch: run.Batch, InputOffset: uint64(inputBytes)}
	payload := AppendRun(nil, &remoteRun)[HeaderSize:] // write adds a header itself
	return g.link.write(TypePush, payload, seg.Data[run.InputOffset:int64(run.InputOffset)+inputBytes])
}
