package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/testkit/llm/fake"
)

// discoveredDesk is a desk whose servers are the lines of a file.
type discoveredDesk struct {
	*desk
	path string
}

// openDiscoveredDesk opens a desk for so many servers, of which none is in the file.
func openDiscoveredDesk(t *testing.T, instances, servers int, opt fake.Options) *discoveredDesk {
	t.Helper()
	d := &discoveredDesk{path: filepath.Join(t.TempDir(), "servers")}
	d.list(t)
	file, err := text.NewServerFile(d.path, "")
	if err != nil {
		t.Fatal(err)
	}
	d.desk = openDesk(t, queuePlan(instances, 8, time.Minute, "a"), opt, func(o *Options) {
		o.Servers, o.Discovery = nil, &text.Discovery{Sources: []text.ServerSource{file}, Interval: 5 * time.Millisecond, Log: o.Log}
	})
	for range servers - instances {
		s, err := fake.Start(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		d.servers = append(d.servers, s)
	}
	return d
}

// list writes the file with these servers.
func (d *discoveredDesk) list(t *testing.T, servers ...*fake.Server) {
	t.Helper()
	var lines []string
	for _, s := range servers {
		lines = append(lines, s.URL())
	}
	if err := os.WriteFile(d.path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Servers come and go under load, at the end of some the process, too: each request has the whole text of an
// undisturbed run.
func TestServersComeAndGoUnderLoad(t *testing.T) {
	d := openDiscoveredDesk(t, 3, 5, fake.Options{Models: []string{"a"}, Slots: 8, Token: time.Millisecond})
	rng := rand.New(rand.NewPCG(1, 4))
	var sheets []*sheet
	for i := range 240 {
		sheets = append(sheets, d.send("a", fmt.Sprint("prompt ", i), 40))
		if i%12 != 0 {
			continue
		}
		down := d.servers[rng.IntN(len(d.servers))]
		down.Stop()
		d.list(t, d.servers[rng.IntN(3):2+rng.IntN(4)]...)
		time.Sleep(60 * time.Millisecond)
		if err := down.Again(); err != nil {
			t.Fatal(err)
		}
	}
	d.list(t, d.servers...)
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint("prompt ", i), 40)
	}
	if again := int(d.completions()) - len(sheets); again < 20 {
		t.Errorf("%d runs more than requests: too few to show anything", again)
	}
}

// A request waits until a server comes. Where it leaves, another one that stood by goes on; one that comes back works
// again.
func TestServersTakeTurnsAtInstance(t *testing.T) {
	d := openDiscoveredDesk(t, 1, 2, fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond})
	a, b := d.servers[0], d.servers[1]
	s := d.send("a", "x", 200)
	d.list(t, a, b)
	<-s.first
	if n := b.Counts().Completions; n > 0 {
		t.Errorf("the server beyond the plan's instances has %d requests, expected none", n)
	}
	d.list(t, b)
	until(func() bool { return b.Counts().Completions > 0 })
	answeredWhole(t, s, "a", "x", 200)
	if prompts := b.Counts().Prompts; len(prompts[len(prompts)-1]) <= len("x") {
		t.Errorf("the other server began anew: prompts %q", prompts)
	}
	d.list(t)
	c := d.x.core.Load()
	until(func() bool { return !c.Backends.BackendOf(0).IsUp(0) })
	d.list(t, a)
	answeredWhole(t, d.send("a", "y", 20), "a", "y", 20)
}

// A server that takes the place of one that never got ready does not wait for that.
func TestNextServerDoesNotWait(t *testing.T) {
	asked := make(chan struct{}, 99)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	d := openDiscoveredDesk(t, 1, 1, fake.Options{Models: []string{"a"}})
	if err := os.WriteFile(d.path, []byte(silent.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	<-asked
	d.list(t, d.servers[0])
	s, began := d.send("a", "x", 5), time.Now()
	answeredWhole(t, s, "a", "x", 5)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the next server has answered after %v", took)
	}
}

// Another plan comes into force under load: servers keep their instances, one that stood by takes the instance that
// the plan has more, and where the next plan has fewer, one stands by again.
func TestServersKeepInstancesAcrossPlans(t *testing.T) {
	d := openDiscoveredDesk(t, 1, 2, fake.Options{Models: []string{"a"}, Slots: 8, Token: time.Millisecond})
	d.list(t, d.servers...)
	var sheets []*sheet
	for i, instances := range []int{1, 2, 1} {
		if i > 0 {
			if err := d.x.Reload(t.Context(), queuePlan(instances, 8, time.Minute, "a"), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		c := d.x.core.Load()
		for n := range instances {
			until(func() bool { return c.Backends.BackendOf(int32(n)).IsUp(int32(n)) })
		}
		before := d.servers[1].Counts().Completions
		for n := range 16 {
			sheets = append(sheets, d.send("a", fmt.Sprint("prompt ", i, n), 60))
		}
		for _, s := range sheets[16*i:] {
			<-s.first
		}
		if works := d.servers[1].Counts().Completions > before; works != (instances == 2) {
			t.Errorf("plan %d of %d instances: the second server works: %v", i, instances, works)
		}
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint("prompt ", i/16, i%16), 60)
	}
}

// Plans without queues refuse servers that come and go.
func TestOtherPlansRefuseDiscovery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	if err := os.WriteFile(path, []byte("http://localhost:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := text.NewServerFile(path, "")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{CoreOptions: CoreOptions{Engine: "replay"}, InstanceOptions: InstanceOptions{Discovery: &text.Discovery{Sources: []text.ServerSource{file}}}}
	want := "servers that come and go (" + path + "): expected a plan of queues of language models; others take --server N=URL"
	for _, plan := range []*formats.Plan{onePlan(time.Millisecond, 4, 1, patient), ragPlan(1, patient)} {
		if _, err := New(t.Context(), plan, o); !errors.Is(err, turn.ErrPlan) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}
