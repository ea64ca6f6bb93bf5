package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/engine/graph"
	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/executor/workers"
	"inferplan/formats"
	"inferplan/formats/document"
)

// With this variable the test binary is a host that joins the server at the
// address in it.
const (
	asHost    = "INFERPLAN_TEST_JOIN"
	hostToken = "a token of the hosts' tests"
)

func joinForTest(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := hostConfig(address, "cpu-b", 2)
	c.Silence = 2 * time.Second // a wire that is cut closes nothing
	return worker.Join(ctx, c)
}

func hostConfig(address, kind string, count int) worker.JoinConfig {
	return worker.JoinConfig{
		Address: address, Token: []byte(hostToken), Host: fmt.Sprint("host of ", os.Getpid()), Kind: kind, Count: count, Models: "models",
		Silence: patient, Command: []string{os.Args[0]}, Env: []string{asWorker + "=1", asHost + "="}, Log: quiet(),
	}
}

func openLobby(t testing.TB, address string, silence time.Duration) (*worker.JoinServer, string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := worker.NewJoinServer(l, []byte(hostToken), silence, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, l.Addr().String()
}

// joinHere offers devices from this process.
func joinHere(t testing.TB, c worker.JoinConfig) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { worker.Join(ctx, c); close(ended) }()
	leave = func() { cancel(); <-ended }
	t.Cleanup(leave)
	return leave
}

// hostsOptions puts two of the three fast devices of pooledPlan on another host:
// the whole pipeline on the third is the way without it.
func hostsOptions(b *worker.JoinServer) Options {
	o := replayOptions(false)
	o.Lobby, o.Remote = b, map[string]int{"cpu-b": 2}
	return o
}

// lossPlan is the plan of the tests that lose a host, and the samples of their
// requests. INFERPLAN_LONG takes the figures against an SLO that a machine must
// keep up with; else every request has time enough for what is left.
func lossPlan() (plan *formats.Plan, n int) {
	if long() {
		return pooledPlan(3*time.Millisecond, 2, 400*time.Millisecond), 1
	}
	return pooledPlan(3*time.Millisecond, 2, patient), 2
}

// checkAnswers holds the ends of an open loop against the executor's own counts: every
// request has one answer, served or, with INFERPLAN_LONG, dropped with a reason.
func checkAnswers(t *testing.T, x *Executor, all []shot, n int) map[string]int {
	t.Helper()
	ended := map[string]int{}
	for _, a := range all {
		ended[a.how]++
	}
	if ended["served"]+ended["deadline"]+ended["worker_lost"] != len(all) || ended["served"] != len(all) && !long() {
		t.Errorf("%d requests ended as %v", len(all), ended)
	}
	r := x.Report()
	if int(r.Requests) != n*len(all) || int(r.Completed) != n*ended["served"] || int(r.Dropped) != n*(len(all)-ended["served"]) {
		t.Errorf("the report counts %+v, the clients %v", r.Counts, ended)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
	return ended
}

func streamed(x *Executor) int64 {
	for _, tier := range x.Report().Transfer.Tiers {
		if tier.Name == "stream" {
			return tier.Bytes
		}
	}
	return 0
}

func devicesUp(x *Executor) (n int) {
	for _, d := range workersOf(x.core.Load()).Devices {
		if d.IsUp.Load() {
			n++
		}
	}
	return n
}

// A plan over two hosts loses one under load, goes on with what is left, and
// takes it back when it joins again.
func TestHostLostUnderLoad(t *testing.T) {
	b, address := openLobby(t, "127.0.0.1:0", patient)
	leave := joinHere(t, hostConfig(address, "cpu-b", 2))
	plan, n := lossPlan()
	x := open(t, plan, hostsOptions(b))
	var noticed time.Duration
	all := openLoop(x, 0, n, 260/float64(n), func() {
		until(func() bool { return streamed(x) > 10_000 })
		lost := time.Now()
		leave()
		until(func() bool { return devicesUp(x) == 4 })
		noticed = time.Since(lost)
		served := x.Report().Completed
		until(func() bool { return x.Report().Completed > served+50 }) // with what is left
		joinHere(t, hostConfig(address, "cpu-b", 2))
		until(func() bool { return devicesUp(x) == 6 })
		bytes := streamed(x)
		until(func() bool { return streamed(x) > bytes })
	})
	ended := checkAnswers(t, x, all, n)
	t.Logf("%d requests: %v; the loss was noticed after %v; %d bytes between hosts", len(all), ended, noticed, streamed(x))
}

// A plan switch takes the same devices of the other host for both plans.
func TestSwitchOverTwoHosts(t *testing.T) {
	b, address := openLobby(t, "127.0.0.1:0", patient)
	joinHere(t, hostConfig(address, "cpu-b", 2))
	plan := pooledPlan(3*time.Millisecond, 2, patient)
	x := open(t, plan, hostsOptions(b))
	got := during(x, 0, 2, 40, func() {
		for range 2 {
			until(func() bool { return inForce(x).Completed >= 20 })
			if err := x.Reload(context.Background(), plan, ""); err != nil {
				t.Error(err)
			}
		}
		until(func() bool { return inForce(x).Completed >= 20 })
	})
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
}

// A real graph whose second half is on another host answers as it does here.
func TestRealModelOverTwoHosts(t *testing.T) {
	eng := withORT(t)
	dir, far := t.TempDir(), t.TempDir()
	g, err := graph.MLP(32, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "m.onnx")
	if err := errors.Join(g.WriteFile(path), g.WriteFile(filepath.Join(far, "m.onnx"))); err != nil {
		t.Fatal(err)
	}
	read, err := graph.Open(path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := read.Chain(context.Background(), eng.Probe, graph.ChainOptions{MaxLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	plan := twoStagePlan(2*time.Millisecond, 2, patient)
	m := &plan.Deployment[0]
	sum, err := document.Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	m.Inputs, m.Outputs, m.SHA256 = nil, nil, sum
	plan.Pools = []formats.Pool{{Device: "cpu-a", Count: 1, PerNode: 1, Sharing: formats.SharingTime}, {Device: "cpu-b", Count: 1, PerNode: 1, Sharing: formats.SharingTime}}
	st := m.Pipelines[0].Stages
	st[0].Device, st[1].Device = "cpu-a", "cpu-b"
	st[1].Placement[0].FirstDevice = 0
	for _, c := range chain.Cuts {
		if c.Bytes == 4*32 {
			st[0].Cut = &formats.Cut{Tensors: c.Names(), DType: "FP32", Bytes: 4 * 32, TransferUS: make([]document.Micros, 2)}
		}
	}
	near := onnxOptions(dir)
	near.CPUPlaces = map[string]workers.CPUPlace{"cpu-a": {CPUs: []int{0}}, "cpu-b": {CPUs: []int{0}}}
	want := open(t, plan, near)
	b, address := openLobby(t, "127.0.0.1:0", patient)
	c := hostConfig(address, "cpu-b", 1)
	c.Models, c.CPUs = far, []int{0}
	joinHere(t, c)
	o := near
	o.Lobby, o.Remote = b, map[string]int{"cpu-b": 1}
	x := open(t, plan, o)
	for n := 2; n <= 4; n += 2 {
		req := sample(x, n)
		image(req)
		a, err := want.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		if string(a.Outputs[0].Data) != string(got.Outputs[0].Data) || len(got.Outputs[0].Data) != 40*n {
			t.Errorf("%d samples: answers differ between one host and two", n)
		}
	}
	if streamed(x) != 6*4*32 {
		t.Errorf("%d bytes between hosts, want %d", streamed(x), 6*4*32)
	}
	// A model that differs over there is refused by its hash.
	if err := os.WriteFile(filepath.Join(far, "m.onnx"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(context.Background(), plan, o); err == nil || !strings.Contains(err.Error(), "host ") {
		t.Errorf("another model over there: %v", err)
	}
}

func TestRemoteDevicesThatCannotBe(t *testing.T) {
	b, _ := openLobby(t, "127.0.0.1:0", 0)
	plan := pooledPlan(time.Millisecond, 1, time.Second)
	for name, spoil := range map[string]func(*Options){
		"unknown kind": func(o *Options) { o.Remote = map[string]int{"cpu-z": 1} },
		"too many":     func(o *Options) { o.Remote = map[string]int{"cpu-b": 4} },
		"negative":     func(o *Options) { o.Remote = map[string]int{"cpu-b": -1} },
		"no lobby":     func(o *Options) { o.Lobby = nil },
		"none for all": func(o *Options) { o.Lobby, o.Remote, o.AllRemote = nil, nil, true },
	} {
		o := hostsOptions(b)
		spoil(&o)
		if _, err := New(context.Background(), plan, o); !errors.Is(err, turn.ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := hostsOptions(b)
	// None of this machine's own, whose start the time-out would catch, too.
	o.Remote, o.AllRemote = nil, true
	o.StartTimeout = 100 * time.Millisecond
	if _, err := New(context.Background(), plan, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "plan worker --join") {
		t.Errorf("nobody joins: %v", err)
	}
}

// Two network namespaces with a wire between them; the wire is cut under load,
// so that nothing says goodbye, and mended.
func TestHostLostBetweenNamespaces(t *testing.T) {
	here, there := fmt.Sprintf("ipl%da", os.Getpid()%100000), fmt.Sprintf("ipl%db", os.Getpid()%100000)
	// Addresses of its own, too: another run, or what a killed one left, may be here.
	subnet := fmt.Sprintf("198.18.%d.", os.Getpid()>>6&255)
	near, far := subnet+fmt.Sprint(os.Getpid()&63<<2+1), subnet+fmt.Sprint(os.Getpid()&63<<2+2)
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := ip("netns", "add", there); err != nil {
		t.Skipf("network namespaces may not be made here (needs root and CAP_SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() { ip("netns", "del", there) })
	// This process stays in its own namespace: one end of the wire is put here.
	if err := ip("link", "add", here, "type", "veth", "peer", "name", there); err != nil {
		t.Skipf("virtual wires may not be made here (needs CAP_NET_ADMIN and the veth module): %v", err)
	}
	t.Cleanup(func() { ip("link", "del", here) })
	if err := errors.Join(
		ip("link", "set", there, "netns", there), ip("addr", "add", near+"/30", "dev", here), ip("link", "set", here, "up"),
		ip("-n", there, "addr", "add", far+"/30", "dev", there), ip("-n", there, "link", "set", there, "up"), ip("-n", there, "link", "set", "lo", "up"),
	); err != nil {
		t.Fatal(err)
	}
	// How long a host may be silent: on a busy machine it may seem lost in between,
	// and is taken back.
	silent := 2 * time.Second
	if long() {
		silent = 500 * time.Millisecond
	}
	b, address := openLobby(t, near+":0", silent)
	host := exec.Command("ip", "netns", "exec", there, os.Args[0])
	host.Env = append(os.Environ(), asHost+"="+address)
	host.Stderr = os.Stderr
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Process.Signal(syscall.SIGTERM); host.Wait() })
	plan, n := lossPlan()
	x := open(t, plan, hostsOptions(b))
	var noticed, back, from, to time.Duration
	start := time.Now()
	all := openLoop(x, 0, n, 260/float64(n), func() {
		until(func() bool { return streamed(x) > 10_000 })
		if err := ip("link", "set", here, "down"); err != nil {
			t.Error(err)
		}
		from = time.Since(start)
		until(func() bool { return devicesUp(x) == 4 })
		noticed = time.Since(start) - from
		served := x.Report().Completed
		until(func() bool { return x.Report().Completed > served+50 }) // with what is left
		if err := ip("link", "set", here, "up"); err != nil {
			t.Error(err)
		}
		mended := time.Now()
		until(func() bool { return devicesUp(x) == 6 })
		back, to = time.Since(mended), time.Since(start)
		bytes := streamed(x)
		until(func() bool { return streamed(x) > bytes })
	})
	ended := checkAnswers(t, x, all, n)
	t.Logf("%d requests: %v; the cut was noticed after %v; all devices back %v after the mend; longest time without an answer %v", len(all), ended, noticed, back, silence(all, from, to))
}
