package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inferplan/executor/durable"
	"inferplan/executor/durable/jetstream"
	"inferplan/executor/series"
	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// fleet are front ends and agents of several machines, in this process.
type fleet struct {
	t        *testing.T
	nats     string
	plan     string
	log      *slog.Logger
	fakes    []*fake.Server
	key      *durable.Sealer
	adapters []text.ModelAdapter // of all agents
	shaky    int                 // so often the first front end loses the right to plan, and takes it again
}

func openFleet(t *testing.T, plan *formats.Plan, opt fake.Options) *fleet {
	t.Helper()
	plan.Policy.Params["every_s"] = 0.5 // searches leave processors to the servers of the queue, also under the race detector
	f := &fleet{t: t, nats: natstest.Run(t), plan: filepath.Join(t.TempDir(), "plan.json"), log: shownLog(t)}
	if _, err := document.WriteFile(f.plan, completePlan(plan)); err != nil {
		t.Fatal(err)
	}
	for range formats.QueueOf(plan).Instances {
		s, err := fake.Start(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		f.fakes = append(f.fakes, s)
	}
	return f
}

// share opens the store. A machine of tests is slow at times: nobody is taken to be gone
// who only waits for its disk.
func (f *fleet) share() (durable.Shared, error) {
	return jetstream.Open(context.Background(), f.nats, jetstream.Options{Replicas: 1, AckWait: 6 * time.Second, Sealer: f.key, Log: f.log})
}

// shakyStore loses the right to lead some times, after a while each.
type shakyStore struct {
	durable.Shared
	left int
}

func (s *shakyStore) Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error {
	for ; s.left > 0; s.left-- {
		once, cancel := context.WithCancel(ctx)
		err := s.Shared.Lead(once, func(ctx context.Context, term uint64) {
			time.AfterFunc(400*time.Millisecond, cancel)
			lead(ctx, term)
		})
		if cancel(); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return s.Shared.Lead(ctx, lead)
}

// front starts a front end; its address, and what ends it.
func (f *fleet) front() (url string, stop func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addresses, ended := make(chan Addresses, 1), make(chan error, 1)
	o := ServeOptions{Plan: f.plan, HTTP: "127.0.0.1:0", GRPC: AddressOff, Metrics: AddressOff, DrainTimeout: 200 * time.Millisecond, OnReady: func(a Addresses) { addresses <- a }}
	shaky := f.shaky
	f.shaky = 0
	o.Log, o.SilenceTimeout, o.Queue.OpenShared = f.log, 10*time.Second, func(context.Context) (durable.Shared, error) {
		store, err := f.share()
		if err == nil && shaky > 0 {
			store = &shakyStore{store, shaky}
		}
		return store, err
	}
	go func() {
		_, err := Serve(ctx, o)
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	select {
	case a := <-addresses:
		return "http://" + a.HTTP, stop
	case err := <-ended:
		f.t.Fatal(err)
		return "", nil
	}
}

// agent starts the agent of an instance.
func (f *fleet) agent(i int) (stop func()) {
	f.t.Helper()
	store, err := f.share()
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- text.ServeAgent(ctx, text.AgentOptions{Store: store, Servers: []text.InstanceServer{{Instance: i, URL: f.fakes[i].URL()}}, Adapters: f.adapters, TextStoreInterval: 20 * time.Millisecond, Log: f.log, OnReady: func() { close(ready) }})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
		if err := store.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		f.t.Fatal(err)
	}
	return stop
}

// answeredWithin bounds how long a fleet may take to answer.
const answeredWithin = 3 * time.Minute

// ask sends a request that is kept, until ctx ends, and gives its text.
func (f *fleet) ask(ctx context.Context, url, model, prompt string, tokens int) string {
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d}`, model, prompt, tokens)))
		if err != nil {
			return err.Error()
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", prompt)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var body map[string]any
		if err == nil && resp.StatusCode == http.StatusOK && json.Unmarshal(data, &body) == nil {
			return textOf(body)
		}
	}
	return "no answer"
}

// Two front ends take requests in, two agents have them answered. Each of the four ends
// in turn, with requests under way, and another takes its place: all are answered, each
// with its text.
func TestQueuesOfSeveralMachines(t *testing.T) {
	f := openFleet(t, queuePlan(2, 4, time.Minute, "a", "b"), fake.Options{Models: []string{"a", "b"}, Token: 2 * time.Millisecond, Manual: true})
	first, stopFirst := f.front()
	second, _ := f.front()
	there, firstGone := context.WithCancel(t.Context())
	defer firstGone()
	stopAgent := f.agent(0)
	f.agent(1)
	const n = 60
	texts := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if i/2%2 == 0 {
				texts[i] = f.ask(there, first, []string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 40+i)
				return
			}
			texts[i] = f.ask(t.Context(), second, []string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 40+i)
		})
	}
	until := func(completions int) {
		for end := time.Now().Add(answeredWithin); f.fakes[0].Counts().Completions+f.fakes[1].Counts().Completions < completions; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %d completions within %v", completions, answeredWithin)
			}
		}
	}
	until(15)
	stopAgent()
	until(25)
	f.agent(0)
	until(35)
	stopFirst() // it planned: it was there first
	firstGone()
	for i := range n {
		if i/2%2 == 0 { // its clients ask the other
			wg.Go(func() {
				if text := f.ask(t.Context(), second, []string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 40+i); text != fake.Text([]string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 40+i) {
					t.Errorf("request %d by the other front end: %q", i, text)
				}
			})
		}
	}
	wg.Wait()
	for i, text := range texts {
		if want := fake.Text([]string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 40+i); text != want && (i/2%2 == 1 || text != "no answer") {
			t.Errorf("request %d: %q, expected %q", i, text, want)
		}
	}
}

// A process that loses the right to plan again and again, and takes it again at once, has
// all requests answered: what ran before is given out anew, also while it ends.
func TestQueuesWhosePlannerChanges(t *testing.T) {
	f := openFleet(t, queuePlan(2, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond})
	f.shaky = 8
	url, _ := f.front()
	f.agent(0)
	f.agent(1)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			prompt, tokens := fmt.Sprint("prompt ", i), 20+i%40
			if text, want := f.ask(t.Context(), url, "a", prompt, tokens), fake.Text("a", prompt, tokens); text != want {
				t.Errorf("request %d: %q, expected %q", i, text, want)
			}
		})
	}
	wg.Wait()
}

// Where the store has a key, who reaches NATS without it changes nothing: orders, news
// and rubbish of any size are refused, and requests go on.
func TestAgentsUnderAttack(t *testing.T) {
	f := openFleet(t, queuePlan(2, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond})
	var err error
	if f.key, err = durable.NewSealer([]byte(strings.Repeat("ab", 32))); err != nil {
		t.Fatal(err)
	}
	url, _ := f.front()
	f.agent(0)
	f.agent(1)
	conn, err := nats.Connect(f.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop, sent := make(chan struct{}), 0
	var attack sync.WaitGroup
	attack.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for what := []string{text.OrderLook, text.OrderPrepare, text.OrderLoad, text.OrderUnload, text.OrderRun, text.OrderLeave}; ; sent++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			name, data := []string{text.AgentName(0), text.AgentName(1), text.PlannerName}[rng.IntN(3)], make([]byte, rng.IntN(1<<uint(rng.IntN(18))+1))
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			if rng.IntN(2) == 0 {
				data = text.Encode(text.AgentOrder{Term: rng.Uint64(), Kind: what[rng.IntN(len(what))], Number: rng.Uint64(), Model: "a", ID: "x", Ticket: "$JS.ACK.x"})
			}
			if err := conn.PublishRequest("inferplan.talk."+name, "nowhere", data); err != nil {
				t.Error(err)
				return
			}
		}
	})
	const n = 40
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if text, want := f.ask(t.Context(), url, "a", fmt.Sprint("prompt ", i), 60), fake.Text("a", fmt.Sprint("prompt ", i), 60); text != want {
				t.Errorf("request %d: %q, expected %q", i, text, want)
			}
		})
	}
	wg.Wait()
	close(stop)
	attack.Wait()
	if got := f.fakes[0].Counts().Completions + f.fakes[1].Counts().Completions; got > n+4 { // and four canaries
		t.Errorf("%d messages had requests begin anew: %d completions of %d requests", sent, got, n)
	}
}

// What is no message of ours is passed over, also where the store has no key.
func TestAgentRefusesRubbish(t *testing.T) {
	f := openFleet(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}})
	url, _ := f.front()
	f.agent(0)
	conn, err := nats.Connect(f.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, data := range []string{"", "{", "null", "[]", `{"term":"x"}`, `{"term":-1}`, `{"term":0,"what":"run","id":"","ticket":""}`, `{"term":1,"what":"look"}`, `{"term":1,"what":"` + strings.Repeat("x", 1<<17) + `"}`, `{"runs":[{"number":7}],"term":0}`} {
		for _, name := range []string{text.AgentName(0), text.PlannerName} {
			if err := conn.PublishRequest("inferplan.talk."+name, "nowhere", []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text, want := f.ask(t.Context(), url, "a", "still", 20), fake.Text("a", "still", 20); text != want {
		t.Errorf("after rubbish: %q, expected %q", text, want)
	}
}

// An instance has one agent.
func TestInstanceHasOneAgent(t *testing.T) {
	f := openFleet(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}})
	f.agent(0)
	store, err := f.share()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	err = text.ServeAgent(t.Context(), text.AgentOptions{Store: store, Servers: []text.InstanceServer{{URL: f.fakes[0].URL()}}, Log: f.log})
	if err == nil || !strings.Contains(err.Error(), "instance 0 has an agent already") {
		t.Errorf("the second agent: %v", err)
	}
}

// Where the store has no key, whoever reaches NATS may send what looks like ours. It
// stops no agent: terms that nobody has and orders that are none are refused and counted,
// and requests go on.
func TestAgentsRefuseStrangers(t *testing.T) {
	f := openFleet(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond})
	url, _ := f.front()
	store, err := f.share()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	conn, err := nats.Connect(f.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(name string, data []byte) {
		if err := conn.PublishRequest("inferplan."+name, "nowhere", data); err != nil {
			t.Error(err)
		}
	}
	agentStore, err := f.share()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	port := freeAddress(t)
	go func() {
		ended <- text.ServeAgent(ctx, text.AgentOptions{Store: agentStore, Servers: []text.InstanceServer{{URL: f.fakes[0].URL()}}, Log: f.log, Metrics: port, OnReady: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		agentStore.Close()
	}()
	strangers := func() {
		for i := range 50 {
			send("talk.agent-0", text.Encode(text.AgentOrder{Term: math.MaxUint64 - uint64(i), Kind: text.OrderPrepare, Number: math.MaxUint64}))
			send("talk.agent-0", text.Encode(text.AgentOrder{Kind: text.OrderRun, Number: uint64(i), ID: "x", Ticket: "$JS.ACK.x"}))
			send("talk.agent-0", []byte("{"))
			send("talk.planner", []byte("["))
			// Records and ends that are none.
			send(fmt.Sprint("req.stranger-", i), []byte("no record"))
			send(fmt.Sprint("due.stranger-", i), nil)
		}
	}
	strangers()
	if text, want := f.ask(t.Context(), url, "a", "first", 30), fake.Text("a", "first", 30); text != want {
		t.Fatalf("%q, expected %q", text, want)
	}
	term, err := store.Term(t.Context())
	if err != nil || term == 0 {
		t.Fatalf("the term is %d, %v", term, err)
	}
	send("talk.agent-0", text.Encode(text.AgentOrder{Term: term, Kind: "dance"}))
	strangers()
	for i := range 5 {
		prompt := fmt.Sprint("again ", i)
		if text, want := f.ask(t.Context(), url, "a", prompt, 30), fake.Text("a", prompt, 30); text != want {
			t.Fatalf("%q, expected %q", text, want)
		}
	}
	resp, err := http.Get("http://" + port + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	n := 0.0
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, series.Prefix+"refused_messages_total "); ok {
			n, _ = strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	if n < 100 {
		t.Errorf("%v messages were refused as the agent says:\n%s", n, data)
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
