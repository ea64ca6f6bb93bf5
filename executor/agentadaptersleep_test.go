package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/text"
	"inferplan/testkit/llm/fake"
)

// sleepers are a server of a and one of b, which share memory for one. a is awake.
func sleepers(t *testing.T) (*fake.GPU, []*fake.Server, []text.InstanceServer) {
	t.Helper()
	gpu := &fake.GPU{}
	var fakes []*fake.Server
	var servers []text.InstanceServer
	for _, m := range []string{"a", "b"} {
		s, err := fake.Start(fake.Options{Models: []string{m}, Plain: true, Loads: true, Sleeps: gpu})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		fakes, servers = append(fakes, s), append(servers, text.InstanceServer{Model: m, URL: s.URL()})
	}
	return gpu, fakes, servers
}

// Two models that sleep, with an adapter each: a server sleeps where the other one has to
// wake, without its adapter, and not between a model and its adapter.
func TestAdaptersOfServersThatSleep(t *testing.T) {
	gpu, fakes, servers := sleepers(t)
	d := &desk{t: t, servers: fakes}
	d.again(queuePlan(1, 4, time.Minute, "a", "a1", "b", "b1"), Options{CoreOptions: CoreOptions{Log: shownLog(t)}, InstanceOptions: InstanceOptions{Servers: servers, Adapters: []text.ModelAdapter{{Model: "a1", Base: "a", Path: "/adapters/a1"}, {Model: "b1", Base: "b", Path: "/adapters/b1"}}}})
	t.Cleanup(d.close)
	for i, m := range strings.Fields("a a1 a a1 b1 b b1 a1") {
		answeredWhole(t, d.send(m, fmt.Sprint(i), 9), m, fmt.Sprint(i), 9)
	}
	for i, want := range []string{"[a] 1 [a1 -a1 a1 -a1 a1]", "[b] 1 [b1 -b1 b1 -b1]"} {
		n := fakes[i].Counts()
		if got := fmt.Sprint(n.Loads, n.Unloads, n.Adapters); got != want {
			t.Errorf("server %d: wakes, sleeps and adapters are %s, expected %s", i, got, want)
		}
	}
	models := []string{"a", "a1", "b", "b1"}
	var sheets []*sheet
	for i := range 40 {
		sheets = append(sheets, d.send(models[i*i%7%4], fmt.Sprint("mixed ", i), 10+i%7))
	}
	for i, s := range sheets {
		answeredWhole(t, s, models[i*i%7%4], fmt.Sprint("mixed ", i), 10+i%7)
	}
	for _, s := range fakes {
		oneAtOnce(t, s.Counts().Adapters)
	}
	if n := gpu.Refused(); n != 0 {
		t.Errorf("%d times both were to be awake", n)
	}
}

// A server whose adapter does not come is awake all the same: it sleeps before the next
// one wakes. What is loaded is what the server says now, not what it said first.
func TestAdaptersThatFailOfServersThatSleep(t *testing.T) {
	gpu, fakes, servers := sleepers(t)
	ctx, models := t.Context(), []string{"a", "a1", "b", "b1"}
	b, err := llm.Probe(ctx, fakes[1].URL())
	if err == nil { // as a process before this one left it
		err = b.Adapters().Load(ctx, llm.Adapter{Name: "b1", Path: "/adapters/b1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := text.NewLocalServers(servers, []text.ModelAdapter{{Model: "a1", Base: "a", Path: "/nowhere"}, {Model: "b1", Base: "b", Path: "/adapters/b1"}}, 0)
	if err == nil {
		err = r.Prepare(ctx, "a", models)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := fakes[1].Counts().Adapters; !slices.Equal(got, []string{"b1", "-b1"}) {
		t.Errorf("adapters of b: %v, expected that what was there is gone", got)
	}
	loaded := func(model string, want bool) {
		t.Helper()
		if seen, err := r.Status(ctx, model, func() int { return 0 }); seen.Loaded != want || err != nil {
			t.Errorf("%s is loaded: %v, %v, expected %v", model, seen.Loaded, err, want)
		}
	}
	loaded("a", true)
	loaded("b1", false)
	if err := errors.Join(r.SetLoaded(ctx, "a", false), r.SetLoaded(ctx, "a1", true)); !errors.Is(err, llm.ErrNoAdapter) || !strings.Contains(err.Error(), "No adapter found for /nowhere") {
		t.Errorf("an adapter that is not there: %v", err)
	}
	for _, model := range []string{"a", "a1", "b1"} {
		if _, use, err := r.ServerAndUse(model); !errors.Is(err, llm.ErrUnknownModel) {
			t.Errorf("requests for %s are asked as %+v, %v", model, use, err)
		}
	}
	if err := r.SetLoaded(ctx, "b1", true); err != nil || gpu.Refused() != 0 {
		t.Errorf("the next one: %v, %d times out of memory", err, gpu.Refused())
	}
	loaded("b1", true)
	loaded("a", false)
	if err := b.Adapters().Unload(ctx, "b1"); err != nil {
		t.Fatal(err)
	}
	loaded("b1", false)
	loaded("b", true)
	if err := r.SetLoaded(ctx, "b1", true); err != nil { // the policy has it loaded anew
		t.Fatal(err)
	}
	loaded("b1", true)
	r.Servers["b"].Server = nil // as after it was found to lack something
	if err := r.SetLoaded(ctx, "a", true); !errors.Is(err, llm.ErrGone) {
		t.Errorf("while the one that is held is asked anew: %v", err)
	}
}
