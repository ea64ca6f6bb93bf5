package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/formats/modelfile"
)

const testToken = "0123456789abcdef-test"

// lobby is a join server that a busy machine does not lose, unless told otherwise.
func lobby(t testing.TB, silence time.Duration) *JoinServer {
	t.Helper()
	if silence == 0 {
		silence = patient
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewJoinServer(l, []byte(testToken), silence, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func joinConfig(b *JoinServer) JoinConfig {
	return JoinConfig{
		Address: b.listener.Addr().String(), Token: []byte(testToken), Host: "far", Kind: "L4", Models: ".", Silence: patient,
		Command: []string{os.Args[0]}, Env: []string{asWorker + "=1"}, Log: slog.New(slog.DiscardHandler),
	}
}

// join offers devices in the background.
func join(t testing.TB, c JoinConfig) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Join(ctx, c) }()
	var err error
	done := false
	stop = func() error {
		if !done {
			cancel()
			err, done = <-ended, true
		}
		return err
	}
	t.Cleanup(func() { stop() })
	return stop
}

// The same inputs give the same outputs near and far.
func TestFarWorkerAnswersAsANearOne(t *testing.T) {
	c := replayConfig(time.Millisecond, 2*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	b := lobby(t, 0)
	join(t, joinConfig(b))
	outputs := func(p *Process, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		layout := layoutOf(p.Stages[0], 2, 4)
		seg, err := NewSegment(7, layout.Stride*4)
		if err != nil {
			t.Fatal(err)
		}
		defer seg.Close()
		if err := p.Attach(ctx, seg, true); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Prepare(ctx, layout); err != nil {
			t.Fatal(err)
		}
		for slot := range 4 {
			for k := range layout.InBytes {
				seg.Data[layout.InputOffset(slot)+k] = byte(int(k)*7 + slot)
			}
		}
		before := monotonic()
		for slot := range 4 {
			if err := p.Send(RunCommand{ID: uint64(slot), Batch: uint32(1 + slot%2), Segment: 7, InputOffset: uint64(layout.InputOffset(slot)), OutputOffset: uint64(layout.OutputOffset(slot))}); err != nil {
				t.Fatal(err)
			}
		}
		var results []Result
		for len(results) < 4 {
			if results, err = p.Receive(results); err != nil {
				t.Fatal(err)
			}
		}
		after := monotonic()
		for i, r := range results {
			if r.Code != OK || r.ID != uint64(i) || r.Start < before || r.End > after || r.End-r.Start < int64(time.Millisecond)/2 {
				t.Errorf("result %+v, between %d and %d", r, before, after)
			}
		}
		var out []byte
		for slot := range 4 {
			at := layout.OutputOffset(slot)
			out = append(out, seg.Data[at:at+Span(p.Stages[0].Outputs, 1+slot%2)]...)
		}
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		return out
	}
	near := outputs(Start(ctx, c))
	for range 3 { // the device offers itself again and again
		if far := outputs(b.Start(ctx, t, c)); string(far) != string(near) {
			t.Errorf("far %x, near %x", far, near)
		}
	}
}

func TestOneOwnerGetsADeviceOnce(t *testing.T) {
	b := lobby(t, 0)
	c := joinConfig(b)
	c.Count = 2
	join(t, c)
	ctx := context.Background()
	got := map[int]int{}
	for range 2 {
		g, err := b.takeWorker(ctx, "plan", "L4")
		if err != nil {
			t.Fatal(err)
		}
		got[g.offer.Index]++
		g.link.conn.SetReadDeadline(time.Now().Add(time.Hour))
	}
	if len(got) != 2 {
		t.Errorf("devices %v, want both", got)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.takeWorker(short, "plan", "L4"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third device for one plan: %v", err)
	}
	if _, err := b.takeWorker(ctx, "next plan", "L4"); err != nil {
		t.Errorf("the next plan: %v", err)
	}
}

func TestWrongTokenIsRefused(t *testing.T) {
	b := lobby(t, 0)
	c := joinConfig(b)
	c.Token = []byte("another token of length")
	if err := Join(context.Background(), c); !errors.Is(err, ErrToken) {
		t.Errorf("joined with %v", err)
	}
	c.Token = []byte("short")
	if err := Join(context.Background(), c); err == nil {
		t.Error("a token that can be guessed was taken")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.workers) != 0 {
		t.Errorf("%d workers joined", len(b.workers))
	}
}

// Who repeats what another host said when it joined, or changes some of it, does not join
// and harms nobody.
func TestReplayedAndGarbledJoins(t *testing.T) {
	b := lobby(t, 0)
	rng := rand.New(rand.NewPCG(5, 5))
	// said joins as far as the host's proof and returns what a host says. change changes it
	// before it is sent; admitted: the server has shown its proof.
	said := func(change func([]byte) []byte) (sent []byte, admitted bool) {
		t.Helper()
		conn, err := net.Dial("tcp", b.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		l := &link{conn: conn, silence: patient}
		c, err := expect[challenge](l, TypeChallenge)
		if err != nil {
			t.Fatal(err)
		}
		o := offer{Host: "far", Kind: "L4", Nonce: newNonce()}
		o.MAC = proofMAC([]byte(testToken), "worker", c.Nonce, &o)
		frame, err := appendJSON(nil, TypeOffer, o)
		if err != nil {
			t.Fatal(err)
		}
		sent = change(append([]byte{}, frame...))
		if _, err := conn.Write(sent); err != nil {
			return sent, false
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return sent, false
		}
		p, err := expect[proof](l, TypeProof)
		return sent, err == nil && provesToken([]byte(testToken), "server", c.Nonce, &o, p.MAC)
	}
	same := func(b []byte) []byte { return b }
	first, admitted := said(same)
	if !admitted {
		t.Fatal("a host that says the truth is not admitted")
	}
	changes := map[string]func(frame []byte) []byte{
		"repeated": func([]byte) []byte { return first },
		"cut":      func(f []byte) []byte { return f[:rng.IntN(len(f))] },
		"a bit":    func(f []byte) []byte { f[rng.IntN(len(f))] ^= 1 << rng.IntN(8); return f },
		"a length": func(f []byte) []byte { binary.LittleEndian.PutUint32(f, rng.Uint32()); return f },
		"rubbish": func(f []byte) []byte {
			for i := range f {
				f[i] = byte(rng.Uint32())
			}
			return f
		},
		"another": func(f []byte) []byte { return bytes.Replace(f, []byte(`"L4"`), []byte(`"A1"`), 1) },
	}
	for _, how := range slices.Sorted(maps.Keys(changes)) {
		for range 20 {
			if sent, admitted := said(changes[how]); admitted && how != "a bit" { // a letter's case may mean the same
				t.Errorf("%s: admitted with %q", how, sent)
			}
		}
	}
	join(t, joinConfig(b))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	p, err := b.Start(ctx, t, replayConfig(time.Millisecond))
	if err != nil {
		t.Fatalf("a host that joins afterwards: %v", err)
	}
	if err := p.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// A host that joins without TLS a server that waits for TLS hears soon what both wait for.
func TestJoinSaysWhatItWaitsFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	said := make(chan string, 16)
	c := JoinConfig{Address: l.Addr().String(), Token: []byte(testToken), Kind: "L4", Log: slog.New(slog.NewTextHandler(lines(said), nil))}
	go func() { _ = Join(ctx, c) }()
	select {
	case line := <-said:
		if !strings.Contains(line, "waits for TLS") {
			t.Errorf("the first word is %q", line)
		}
	case <-time.After(handshakeTime - time.Second):
		t.Error("nothing was said")
	}
}

// lines writes lines to a channel while it has room.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// A server that does not know the token is left.
func TestServerMustKnowTheToken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := NewJoinServer(l, []byte("a token of its own, guessed"), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		s := &link{conn: near, silence: patient}
		s.writeJSON(TypeChallenge, challenge{newNonce()})
		expect[offer](s, TypeOffer)
		s.writeJSON(TypeProof, proof{"00"})
	}()
	w := &link{conn: far, silence: patient}
	if err := w.proveToServer([]byte(testToken), offer{Host: "h", Kind: "k"}); !errors.Is(err, ErrToken) {
		t.Errorf("a server without the token: %v", err)
	}
}

// A host that falls silent, without closing anything, counts as lost.
func TestSilentHostIsLost(t *testing.T) {
	b := lobby(t, 300*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ctx.Err() == nil { // a busy machine may lose it before it is taken: another one comes
			conn, err := net.Dial("tcp", b.listener.Addr().String())
			if err != nil {
				continue
			}
			l := &link{conn: conn, silence: patient}
			if l.proveToServer([]byte(testToken), offer{Host: "h", Kind: "L4"}) == nil {
				io.Copy(io.Discard, conn) // until the server closes
			}
			conn.Close()
		}
	}()
	if _, err := b.Start(ctx, t, replayConfig(time.Millisecond)); err == nil || ctx.Err() != nil {
		t.Errorf("started on a silent host: %v", err)
	}
	cancel()
	b.Close()
	<-gone
}

// A server that is patient itself still shows often enough that it lives: the
// host has a patience of its own.
func TestPatientServerBeats(t *testing.T) {
	b := lobby(t, 24*time.Hour)
	conn, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &link{conn: conn, silence: patient}
	if err := l.proveToServer([]byte(testToken), offer{Host: "h", Kind: "L4"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ty, _, err := l.nextFrame(); err != nil || ty != TypeBeat {
			t.Fatalf("%v frame, %v; want a beat", ty, err)
		}
	}
}

func TestHostRefusesModelsOutsideItsFolder(t *testing.T) {
	b := lobby(t, 0)
	join(t, joinConfig(b))
	c := replayConfig(time.Millisecond)
	for _, name := range []string{"../m", "/etc/passwd", "a/b", "..", ".hidden"} {
		c.Stages[0].Model = name
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		var remote *RemoteError
		if _, err := b.Start(ctx, t, c); !errors.As(err, &remote) {
			t.Errorf("model %q: %v", name, err)
		}
		cancel()
	}
}

// bytesConn is a connection that says given bytes and takes any.
type bytesConn struct {
	net.Conn
	in []byte
}

func (c *bytesConn) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}
func (c *bytesConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *bytesConn) Close() error                     { return nil }
func (c *bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bytesConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzLink feeds what a stranger, a joined host and a server could send to the
// three readers of the network.
func FuzzLink(f *testing.F) {
	frame := func(t Type, doc any) []byte {
		b, err := appendJSON(nil, t, doc)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	out := []engine.Spec{{Name: "z", Type: engine.F32, Shape: []int64{-1, 3}}}
	loaded := frame(TypeLoaded, LoadedStage{Inputs: out, Outputs: out})
	f.Add(frame(TypeOffer, offer{Host: "h", Kind: "L4", Nonce: "n", MAC: "m"}))
	f.Add(append(loaded, AppendFrame(nil, TypeDone, appendDone(nil, 64, &Result{ID: 1}))...))
	f.Add(append(AppendFrame(nil, TypeDone, appendDone(nil, 64, &Result{ID: 1})), make([]byte, 64)...))
	f.Add(AppendFrame(nil, TypeBeat, appendBeat(nil, 1, 2)))
	f.Add(AppendFrame(nil, TypePush, AppendRun(nil, &RunCommand{ID: 1, Batch: 1, InputOffset: 64})[HeaderSize:]))
	f.Add(append(frame(TypeHello, Hello{Engine: "replay"}), frame(TypeLoad, StageSpec{Model: "m", To: 1, Blocks: 1, MaxBatch: 1})...))
	f.Add(frame(TypeLoaded, LoadedStage{Inputs: []engine.Spec{{Type: engine.F32, Shape: []int64{1 << 40, 1 << 40}}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		stranger := &link{conn: &bytesConn{in: data}}
		if _, err := stranger.admitWorker([]byte(testToken)); err == nil {
			t.Error("admitted without the token")
		}
		// A joined host may say anything: at most 64 bytes are asked of it.
		seg := &Segment{Data: make([]byte, 4096)}
		g := &joinedWorker{link: link{conn: &bytesConn{in: data}}, outputSegment: seg, maxBatch: map[uint32]int{0: 4}, pendingRuns: []pendingRun{{run: RunCommand{ID: 1, OutputOffset: 4032}, outputBytes: 64}}}
		for {
			ty, p, err := g.link.nextFrame()
			if err != nil {
				break
			}
			_ = g.handleFrame(ty, p) // replies fail: nobody listens
		}
		a := &agent{link: link{conn: &bytesConn{in: data}, silence: time.Millisecond}, config: &JoinConfig{Models: "."}, setUps: make(chan setUpStep, 4)}
		if err := a.readFrames(); err == nil {
			t.Error("the stream ended without error")
		}
		for len(a.setUps) > 0 {
			s := <-a.setUps
			if s.t == TypeLoad {
				if _, err := a.load(context.Background(), s.payload); err == nil {
					t.Error("loaded without a worker")
				}
			}
		}
		for _, st := range g.stages.byID {
			if st != nil {
				if in, out, ok := st.tensorBytes(4); ok && (in < 0 || out < 0) {
					t.Errorf("sizes %d and %d of %+v", in, out, st)
				}
			}
		}
	})
}

// A host runs the custom operators of its own libraries alone: what a server names is found by its hash.
func TestOperatorsOfAHost(t *testing.T) {
	mine := modelfile.OperatorLibrary{Path: "/srv/ops.so", SHA256: strings.Repeat("a", 64)}
	c := &JoinConfig{Operators: []modelfile.OperatorLibrary{mine}}
	got, err := c.localOperators([]modelfile.OperatorLibrary{{Path: "/elsewhere/other.so", SHA256: mine.SHA256}})
	if err != nil || len(got) != 1 || got[0] != mine {
		t.Errorf("found %v, %v", got, err)
	}
	_, err = c.localOperators([]modelfile.OperatorLibrary{{Path: "/srv/ops.so", SHA256: strings.Repeat("b", 64)}})
	if !errors.Is(err, engine.ErrModel) || !strings.Contains(err.Error(), "the models need ops.so, a library of custom operators with SHA-256 bbbb") {
		t.Errorf("another library: %v", err)
	}
}

// A device with CPUs of its own has a thread for each. One without has as many as its kind says.
func TestThreadsOfAJoinedDevice(t *testing.T) {
	for name, row := range map[string]struct {
		config JoinConfig
		cpus   []int
		want   int
	}{
		"own CPUs":   {JoinConfig{Kind: "cpu-4", Count: 2, CPUs: []int{4, 5, 6, 7}, Threads: 4}, []int{6, 7}, 2},
		"any CPUs":   {JoinConfig{Kind: "cpu-4", Count: 2, Threads: 4}, nil, 4},
		"no threads": {JoinConfig{Kind: "L4", Count: 2}, nil, 0},
	} {
		d := row.config.deviceAt(1, 2)
		if d.Kind != row.config.Kind || d.Index != 1 || d.Share != 2 || !slices.Equal(d.CPUs, row.cpus) || d.Threads != row.want {
			t.Errorf("%s: %+v, want CPUs %v and %d threads", name, d, row.cpus, row.want)
		}
	}
}
