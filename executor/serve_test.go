package executor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/load"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
)

// serving is a server that runs in the background.
type serving struct {
	Addresses
	stop     context.CancelFunc
	reloaded chan error
	done     chan struct{}
	report   *formats.Report
	err      error
}

func serve(t testing.TB, plan *formats.Plan, o Options, change ...func(*ServeOptions)) (*serving, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, plan)
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{stop: cancel, reloaded: make(chan error, 8), done: make(chan struct{})}
	ready := make(chan Addresses, 1)
	go func() {
		defer close(s.done)
		opt := ServeOptions{
			Options: o, Plan: path, HTTP: ":0", GRPC: ":0", Metrics: ":0", DrainTimeout: 2 * time.Second, retryDelay: 10 * time.Millisecond,
			OnReady: func(a Addresses) { ready <- a }, OnReloaded: func(err error) { s.reloaded <- err },
		}
		for _, f := range change {
			f(&opt)
		}
		s.report, s.err = Serve(ctx, opt)
	}()
	select {
	case s.Addresses = <-ready:
	case <-s.done:
		t.Fatalf("server did not start: %v", s.err)
	}
	t.Cleanup(func() { s.stop(); <-s.done })
	return s, path
}

func writePlan(t testing.TB, path string, plan *formats.Plan) {
	t.Helper()
	if _, err := document.WriteFile(path, plan, document.Force(true)); err != nil {
		t.Fatal(err)
	}
}

func (s *serving) get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// drive sends Poisson arrivals to a server.
func drive(t testing.TB, url string, rps float64, d time.Duration, slo time.Duration) *load.Result {
	t.Helper()
	src := arrivals.Poisson(seeded.New(1, "arrivals"), 0, rps, d)
	r, err := load.Run(context.Background(), load.Config{URL: url, Models: []load.Model{{Name: "m", SLO: slo}}, Duration: d, Grace: patient, Seed: 1}, src)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestServeReplayEndToEnd(t *testing.T) {
	var log bytes.Buffer
	o := replayOptions(false)
	o.EventLog, o.RecordService = &log, true
	plan := twoStagePlan(3*time.Millisecond, 1, patient)
	s, path := serve(t, plan, o)
	if code, _ := s.get(t, "http://"+s.HTTP+"/v2/health/ready"); code != 200 {
		t.Errorf("readiness: %d", code)
	}
	for _, url := range []string{"http://" + s.HTTP, "grpc://" + s.GRPC} {
		r := drive(t, url, 150, time.Second, patient)
		if r.Report.Requests < 50 || r.Report.Attainment != 1 {
			t.Errorf("%s: %+v", url, r.Report.Counts)
		}
	}
	if code, text := s.get(t, "http://"+s.Metrics+"/metrics"); code != 200 || !strings.Contains(text, `inferplan_requests_total{model="m",outcome="in_time"}`) || !strings.Contains(text, "process_cpu_seconds_total") {
		t.Errorf("metrics: %d, %d bytes", code, len(text))
	}
	// The same file, then another plan, then a broken one.
	for _, step := range []struct {
		change func()
		ok     bool
	}{
		{func() {}, true},
		{func() { writePlan(t, path, onePlan(2*time.Millisecond, 1, 1, patient)) }, true},
		{func() { os.WriteFile(path, []byte("{"), 0o600) }, false},
	} {
		step.change()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := <-s.reloaded; (err == nil) != step.ok {
			t.Errorf("reload: %v, want success %v", err, step.ok)
		}
	}
	if r := drive(t, "http://"+s.HTTP, 100, 300*time.Millisecond, patient); r.Report.Completed == 0 || r.Report.Attainment != 1 {
		t.Errorf("after the switch: %+v", r.Report.Counts)
	}
	s.stop()
	<-s.done
	if s.err != nil {
		t.Error(s.err)
	}
	if s.report == nil || s.report.Completed == 0 || s.report.Dropped != 0 {
		t.Errorf("report %+v", s.report)
	}
	conforms(t, plan, &log)
}

// A plan's file that is watched is switched to without a signal. A broken file is tried once.
func TestServeWatchesThePlan(t *testing.T) {
	const watched = 10 * time.Millisecond
	s, path := serve(t, onePlan(time.Millisecond, 1, 1, patient), replayOptions(false), func(o *ServeOptions) { o.WatchInterval = watched })
	replaced := func(content []byte) {
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// One space more is another file with another hash.
	for _, step := range []struct {
		content []byte
		ok      bool
	}{{append(good, ' '), true}, {[]byte("{"), false}, {append(good, "  "...), true}} {
		replaced(step.content)
		if err := <-s.reloaded; (err == nil) != step.ok {
			t.Errorf("%d bytes: %v, want success %v", len(step.content), err, step.ok)
		}
		select {
		case err := <-s.reloaded:
			t.Errorf("%d bytes were tried twice: %v", len(step.content), err)
		case <-time.After(5 * watched):
		}
	}
}

// A server that leaves closes connections that clients would keep, so that they come to another one before it drains.
func TestLeavingServerClosesConnections(t *testing.T) {
	s, _ := serve(t, onePlan(time.Millisecond, 1, 1, patient), replayOptions(false), func(o *ServeOptions) { o.DrainDelay = 300 * time.Millisecond })
	closes := func(path string) bool {
		resp, err := http.Get("http://" + s.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Close
	}
	if closes("/v2/models/m") {
		t.Error("a server that stays closes connections")
	}
	s.stop()
	for code := 200; code == 200; { // until it says that it is not ready
		code, _ = s.get(t, "http://"+s.HTTP+"/v2/health/ready")
	}
	if !closes("/v2/models/m") {
		t.Error("a server that leaves keeps connections")
	}
}

// Another host joins over TLS by the pin that the server tells, and its devices
// serve.
func TestServeWithHostOverTLS(t *testing.T) {
	o := replayOptions(false)
	o.Remote = map[string]int{"L4": 1}
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, twoStagePlan(time.Millisecond, 1, patient))
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Addresses, 1), make(chan error, 1)
	go func() {
		_, err := Serve(ctx, ServeOptions{
			Options: o, Plan: path, HTTP: ":0", GRPC: AddressOff, Metrics: AddressOff, DrainTimeout: patient,
			Join: ":0", JoinToken: []byte(hostToken), JoinSilence: patient, JoinCert: filepath.Join(filepath.Dir(path), "join.pem"),
			OnJoinable: func(a Addresses) {
				c := hostConfig(a.Join, "L4", 1)
				pinned, err := worker.PinnedTLS(a.JoinPin)
				if err != nil {
					t.Error(err)
				}
				c.TLS = pinned
				joinHere(t, c)
			},
			OnReady: func(a Addresses) { ready <- a },
		})
		done <- err
	}()
	select {
	case a := <-ready:
		if r := drive(t, "http://"+a.HTTP, 100, 200*time.Millisecond, patient); r.Report.Completed == 0 || r.Report.Attainment != 1 {
			t.Errorf("%+v", r.Report.Counts)
		}
	case err := <-done:
		t.Fatalf("server did not start: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// conforms feeds the log of a real run to a fresh policy, which must give the
// same actions.
func conforms(t *testing.T, plan *formats.Plan, log io.Reader) {
	t.Helper()
	tables, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := policies.New(turn.EffectivePolicy(plan.Policy, ""), tables)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := conform.Replay(log, fresh)
	if err != nil || calls < 300 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

func TestServeRefusesToStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, onePlan(time.Millisecond, 1, 1, time.Second))
	for name, spoil := range map[string]func(*ServeOptions){
		"no plan":  func(o *ServeOptions) { o.Plan += "x" },
		"address":  func(o *ServeOptions) { o.HTTP = "nonsense" },
		"no TLS":   func(o *ServeOptions) { o.TLSCert = "/nonexistent" },
		"no model": func(o *ServeOptions) { o.Engine = "onnx" },
	} {
		o := ServeOptions{Options: replayOptions(true), Plan: path, HTTP: ":0", GRPC: ":0", Metrics: AddressOff}
		o.ModelsDir = t.TempDir()
		spoil(&o)
		if _, err := Serve(context.Background(), o); err == nil {
			t.Errorf("%s: it served", name)
		}
	}
	o := ServeOptions{Options: replayOptions(true), Plan: path, HTTP: ":0", GRPC: AddressOff, Metrics: AddressOff}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Serve(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// A client that sends half a body and then nothing does not hold up the end, nor
// does it make a failure of it.
func TestHalfABodyAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, onePlan(time.Millisecond, 1, 1, patient))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ready, done := make(chan Addresses, 1), make(chan error, 1)
	go func() {
		_, err := Serve(ctx, ServeOptions{
			Options: replayOptions(true), Plan: path, HTTP: ":0", GRPC: AddressOff, Metrics: AddressOff, DrainTimeout: time.Hour,
			OnReady: func(a Addresses) { ready <- a },
		})
		done <- err
	}()
	conn, err := net.Dial("tcp", (<-ready).HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "100") { // it now waits for the body
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(conn, `{"inputs":`)
	stop()
	if err := <-done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
