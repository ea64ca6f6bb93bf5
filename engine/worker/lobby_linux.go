package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lobby is where workers of other hosts wait (see Join) until a plan wants
// them. A worker that it starts looks like one of this machine: its outputs
// come into shared memory here, from where others read them.
type Lobby struct {
	listener net.Listener
	token    []byte
	silence  time.Duration
	log      *slog.Logger

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when somebody comes or goes
	closed   bool
	joined   map[*joinedWorker]struct{}
	wg       sync.WaitGroup
	unproven chan struct{} // limits connections that have proved nothing yet
}

// NewLobby takes workers from a listener, which it then owns. A host that is
// silent for longer than silence (0: DefaultSilence) is lost.
func NewLobby(l net.Listener, token []byte, silence time.Duration, log *slog.Logger) (*Lobby, error) {
	if err := CheckToken(token); err != nil {
		return nil, err
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	b := &Lobby{listener: l, token: token, silence: silence, log: log, changed: make(chan struct{}), joined: map[*joinedWorker]struct{}{}, unproven: make(chan struct{}, 64)}
	b.wg.Go(b.accept)
	return b, nil
}

// Close sends everybody away.
func (b *Lobby) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for g := range b.joined {
		g.conn.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
	return err
}

func (b *Lobby) accept() {
	for {
		conn, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			b.log.Error("accept a worker's connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case b.unproven <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		b.wg.Go(func() { b.welcome(conn) })
	}
}

// welcome is the life of a connection.
func (b *Lobby) welcome(conn net.Conn) {
	defer conn.Close()
	g := &joinedWorker{link: link{conn: conn, silence: handshakeTime}, lobby: b, sleeping: make(chan struct{})}
	over := time.AfterFunc(handshakeTime, func() { conn.Close() })
	var o *offer
	var err error
	if t, ok := conn.(*tls.Conn); ok {
		if err = t.Handshake(); err != nil {
			err = fmt.Errorf("TLS: %w", err)
		}
	}
	if err == nil {
		o, err = g.admit(b.token)
	}
	<-b.unproven
	if !over.Stop() || err != nil {
		b.log.Warn("a worker was not admitted", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	g.silence, g.offer = b.silence, o
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.joined[g] = struct{}{}
	b.news()
	b.mu.Unlock()
	b.log.Info("a worker joined", "host", o.Host, "kind", o.Kind, "index", o.Index, "from", conn.RemoteAddr().String())
	err = g.live()
	b.mu.Lock()
	delete(b.joined, g)
	b.news()
	b.mu.Unlock()
	b.log.Info("a worker's connection ended", "host", o.Host, "kind", o.Kind, "index", o.Index, "error", err)
}

// news wakes those who wait in take.
func (b *Lobby) news() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// take waits for an idle worker of a kind. A device offers itself more than
// once, so that the next plan can load beside the one in force; one owner gets
// each device once.
func (b *Lobby) take(ctx context.Context, owner any, kind string) (*joinedWorker, error) {
	type device struct {
		host  string
		index int
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, net.ErrClosed
		}
		mine, used := map[device]bool{}, map[device]int{}
		for g := range b.joined {
			if g.owner != nil {
				d := device{g.offer.Host, g.offer.Index}
				used[d]++
				mine[d] = mine[d] || g.owner == owner
			}
		}
		var best *joinedWorker
		for g := range b.joined {
			d := device{g.offer.Host, g.offer.Index}
			if g.owner != nil || g.offer.Kind != kind || mine[d] {
				continue
			}
			if best == nil || used[d] < used[device{best.offer.Host, best.offer.Index}] ||
				used[d] == used[device{best.offer.Host, best.offer.Index}] && (d.host < best.offer.Host || d.host == best.offer.Host && d.index < best.offer.Index) {
				best = g
			}
		}
		if best != nil {
			best.owner = owner
			b.mu.Unlock()
			return best, nil
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no worker of kind %s has joined: %w (start one on its host with: plan worker --join ADDRESS --token FILE --device %s)", kind, ctx.Err(), kind)
		}
	}
}

// Start is Start on a device of another host. owner tells the plans apart that
// take devices.
func (b *Lobby) Start(ctx context.Context, owner any, c Config) (*Process, error) {
	g, err := b.take(ctx, owner, c.Hello.Device.Kind)
	if err != nil {
		return nil, err
	}
	p, fd, err := newProcess()
	if err != nil {
		g.conn.Close()
		return nil, err
	}
	ctl, err := parentConn(fd)
	if err != nil {
		p.conn.Close()
		g.conn.Close()
		return nil, err
	}
	if p, err = p.begin(ctx, c, func() error { return g.relay(ctl) }); err != nil {
		return nil, fmt.Errorf("host %s: %w", g.offer.Host, err)
	}
	return p, nil
}

// joinedWorker is a connection from another host: it stands between the control
// socket of a Process, where it plays the worker, and the host, where it plays
// the parent.
type joinedWorker struct {
	link
	lobby *Lobby
	offer *offer
	owner any // of lobby.mu: nil while idle

	sleeping chan struct{} // closed when live has ended
	cause    error         // of live, once sleeping is closed

	stages farStages
	ctlMu  sync.Mutex
	ctl    *net.UnixConn // nil until taken

	mu       sync.Mutex
	own      *Segment
	pending  []sent
	maxBatch map[uint32]int
	attached map[uint32]*Segment
	clock    skew  // the host's against ours
	swapped  int64 // when the last swap was sent
}

type sent struct {
	run Run
	out int64 // bytes that come back
	at  int64
}

// live reads what the host sends until the connection ends.
func (g *joinedWorker) live() (err error) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Often enough for a host whose own patience is the usual one.
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
	case TypeWelcome, TypeReady, TypeError, TypePong:
		return g.reply(AppendFrame(nil, t, p))
	case TypeDone:
		return g.done(p)
	}
	return fmt.Errorf("%w: %s frame from a worker's host", ErrProtocol, t)
}

// note enters a stage that the host has.
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

// expect notes a stage that the parent asks for.
func (g *joinedWorker) expect(s *StageSpec) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.maxBatch == nil {
		g.maxBatch = map[uint32]int{}
	}
	g.maxBatch[s.ID] = s.MaxBatch
	s.Path = "" // where its models lie is the host's to say
}

func (g *joinedWorker) replyJSON(t Type, doc any) error {
	b, err := appendJSON(nil, t, doc)
	if err != nil {
		return err
	}
	return g.reply(b)
}

// reply plays the worker.
func (g *joinedWorker) reply(frame []byte) error {
	g.ctlMu.Lock()
	defer g.ctlMu.Unlock()
	if g.ctl == nil {
		return fmt.Errorf("%w: a frame from an idle worker", ErrProtocol)
	}
	_, err := g.ctl.Write(frame)
	return err
}

// beat learns how the host's clock stands to ours.
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

// done takes a run's output into shared memory.
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

// relay plays the worker on a control socket until either side ends.
func (g *joinedWorker) relay(ctl *net.UnixConn) error {
	g.ctlMu.Lock()
	g.ctl = ctl
	g.ctlMu.Unlock()
	err := g.obey(ctl)
	g.conn.Close()
	ctl.Close()
	<-g.sleeping
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

// obey does what the parent says.
func (g *joinedWorker) obey(ctl *net.UnixConn) error {
	select {
	case <-g.sleeping: // it went while it was taken
		return g.cause
	default:
	}
	var dec Decoder
	oob := make([]byte, unix.CmsgSpace(16*4))
	r := relayState{server: server{segments: map[uint32]*Segment{}}}
	defer func() { g.setSegments(&r) }()
	for {
		t, p, ok, err := dec.Next()
		if err != nil {
			return err
		}
		if !ok {
			n, oobn, _, _, err := ctl.ReadMsgUnix(dec.Space(), oob)
			if oobn > 0 {
				if err := r.takeDescriptors(oob[:oobn]); err != nil {
					return err
				}
			}
			if n == 0 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read control socket: %w", err)
			}
			dec.Filled(n)
			continue
		}
		if err := g.command(&r, t, p); err != nil {
			return err
		}
	}
}

// relayState keeps the segments that the parent attached: the part of a server
// that needs no engine.
type relayState struct{ server }

func (g *joinedWorker) setSegments(r *relayState) {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.attached = r.segments
}

func (g *joinedWorker) segments() map[uint32]*Segment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.attached
}

func (g *joinedWorker) command(r *relayState, t Type, p []byte) error {
	switch t {
	case TypeRun:
		return g.push(r, p)
	case TypeSegment:
		ready, err := r.segment(p)
		if err != nil {
			return err
		}
		g.mu.Lock()
		g.own = r.own
		g.mu.Unlock()
		return g.replyJSON(TypeReady, ready)
	case TypeHello:
		h, err := parseJSON[Hello](t, p)
		if err != nil {
			return err
		}
		// Which CPUs and which library is the host's to say.
		h.Device.CPUs, h.Device.Threads, h.Library = nil, 0, ""
		return g.writeJSON(t, h)
	case TypeLoad:
		s, err := parseJSON[StageSpec](t, p)
		if err != nil {
			return err
		}
		g.expect(&s)
		return g.writeJSON(t, s)
	case TypeKeep:
		k, err := parseJSON[Keep](t, p)
		if err != nil {
			return err
		}
		if k.Size != 0 || k.Room != 0 {
			return fmt.Errorf("%w: memory of this machine for a model of another host", ErrProtocol)
		}
		g.expect(&k.Stage)
		return g.writeJSON(t, k)
	case TypeSwap:
		g.mu.Lock()
		g.swapped = monotonic()
		g.mu.Unlock()
		return g.write(t, p, nil)
	case TypePrepare, TypeUnload, TypePing:
		return g.write(t, p, nil)
	case TypeShutdown:
		return errShutdown
	}
	return fmt.Errorf("%w: %s frame from the parent", ErrProtocol, t)
}

// push sends a run with its input.
func (g *joinedWorker) push(r *relayState, p []byte) error {
	run, err := ParseRun(p)
	if err != nil {
		return err
	}
	in, out, ok := g.stages.get(run.Stage).spans(run.Batch)
	seg := r.segments[run.Segment]
	if !ok || seg == nil || r.own == nil || int64(run.In) > int64(len(seg.Data))-in || int64(run.Out) > int64(len(r.own.Data))-out {
		return fmt.Errorf("%w: run of stage %d, batch %d, in segment %d", ErrProtocol, run.Stage, run.Batch, run.Segment)
	}
	g.mu.Lock()
	g.pending = append(g.pending, sent{run, out, monotonic()})
	g.mu.Unlock()
	far := Run{ID: run.ID, Stage: run.Stage, Batch: run.Batch, In: uint64(in)}
	return g.write(TypePush, AppendRun(nil, &far)[HeaderSize:], seg.Data[run.In:int64(run.In)+in])
}
