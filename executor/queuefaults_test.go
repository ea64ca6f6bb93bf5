package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/text"
	"inferplan/testkit/llm/fake"
)

// Requests that leave their instance again and again end with the text of one that
// was never disturbed: no token is repeated and none is missing.
func TestEvictedRequestsKeepTheirText(t *testing.T) {
	d := openDesk(t, queuePlan(2, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond}, nil)
	const n, tokens = 40, 40
	var sheets []*sheet
	for i := range n {
		sheets = append(sheets, d.send("a", fmt.Sprint("prompt ", i), tokens))
	}
	c, rng, evicted := d.x.core.Load(), rand.New(rand.NewPCG(1, 2)), 0
	for open := true; open; time.Sleep(3 * time.Millisecond) {
		c.Loop.CallInRound(func() {
			for slot := range int32(64) {
				b := c.Batches.BatchIn(slot)
				if b != nil && rng.IntN(3) == 0 {
					c.Backends.BackendOf(b.Device()).EvictBatch(b, false)
					evicted++
					break
				}
			}
			open = c.Ledger.Pending() > 0
		})
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint("prompt ", i), tokens)
	}
	if again := int(d.completions()) - n; again < 20 {
		t.Errorf("%d evictions, %d of %d requests were sent again: too few to show anything", evicted, again, n)
	}
	if r := d.x.Report(); *r.Evictions < 20 {
		t.Errorf("%d evictions in the report", *r.Evictions)
	}
}

// A server dies with requests half answered: others go on with them within 2 s, where
// they were. When it is there again it works again.
func TestQueuesServerDies(t *testing.T) {
	d := openDesk(t, queuePlan(2, 32, time.Minute, "a"), fake.Options{Models: []string{"a"}, Slots: 32, Token: 2 * time.Millisecond}, nil)
	var sheets []*sheet
	for i := range 16 {
		sheets = append(sheets, d.send("a", fmt.Sprint("prompt ", i), 200))
	}
	for _, s := range sheets {
		<-s.first
	}
	dies, other := d.servers[0], d.servers[1]
	if other.Counts().Completions > dies.Counts().Completions {
		dies, other = other, dies
	}
	before, died := other.Counts().Completions, time.Now()
	dies.Stop()
	for other.Counts().Completions == before {
		if time.Since(died) > 2*time.Second {
			t.Fatal("no request was taken over after 2 s")
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("the first request was taken over after %v", time.Since(died))
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint("prompt ", i), 200)
	}
	if err := dies.Again(); err != nil {
		t.Fatal(err)
	}
	for c := d.x.core.Load(); !c.Backends.BackendOf(0).IsUp(0) || !c.Backends.BackendOf(1).IsUp(1); {
		time.Sleep(time.Millisecond)
	}
	done := dies.Counts().Completions
	sheets = sheets[:0]
	for i := range 80 {
		sheets = append(sheets, d.send("a", fmt.Sprint("again ", i), 20))
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint("again ", i), 20)
	}
	if dies.Counts().Completions == done {
		t.Error("the server that came back is given nothing")
	}
}

// A server that stands still is given up by the deadline rule, and so is one that
// answers everything but a request it has begun. The other models and instances go on.
func TestQueuesServerStandsStill(t *testing.T) {
	short := func(o *Options) { o.SilenceTimeout = 300 * time.Millisecond }
	t.Run("whole", func(t *testing.T) {
		d := openDesk(t, queuePlan(2, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond}, short)
		var sheets []*sheet
		for i := range 8 {
			sheets = append(sheets, d.send("a", fmt.Sprint(i), 100))
		}
		for _, s := range sheets {
			<-s.first
		}
		d.servers[0].Freeze()
		for i, s := range sheets {
			answeredWhole(t, s, "a", fmt.Sprint(i), 100)
		}
	})
	t.Run("one stream", func(t *testing.T) {
		d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond, Fault: func(n int, _ string) fake.Fault {
			if n == 0 {
				return fake.Fault{HangAt: 9}
			}
			return fake.Fault{}
		}}, short)
		answeredWhole(t, d.send("a", "hangs", 50), "a", "hangs", 50)
	})
}

// The process of a model dies behind a router that lives: the model is loaded again,
// and the request goes on.
func TestQueuesChildDies(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a", "b"), fake.Options{Models: []string{"a", "b"}, Token: 2 * time.Millisecond, Manual: true}, nil)
	s := d.send("a", "x", 150)
	<-s.first
	d.servers[0].Kill("a")
	answeredWhole(t, s, "a", "x", 150)
	if loads := d.servers[0].Counts().Loads; len(loads) != 2 {
		t.Errorf("loads %v, expected a twice", loads)
	}
}

// A server that fails a request each time ends it with an error; it is not asked for
// ever. One that gets further each time is asked until the end.
func TestFailingRequestIsGivenUp(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Fault: func(_ int, prompt string) fake.Fault {
		if prompt == "bad" {
			return fake.Fault{DieAt: -1}
		}
		return fake.Fault{DieAt: 3}
	}}, nil)
	bad, good := d.send("a", "bad", 20), d.send("a", "good", 20)
	answeredWhole(t, good, "a", "good", 20)
	var said *completions.ServerError
	if r := bad.wait(t); !errors.As(r.Err, &said) || said.Status != 502 {
		t.Errorf("the end is %+v", r)
	}
	if n := d.completions(); n != 7+text.MaxAttempts {
		t.Errorf("%d completions, expected 7 of three tokens and %d attempts", n, text.MaxAttempts)
	}
}

// A server that writes without end is stopped soon after what it was asked for.
func TestQueuesEndlessAnswer(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Fault: func(_ int, prompt string) fake.Fault { return fake.Fault{Endless: prompt == "bad"} }}, nil)
	bad := d.send("a", "bad", 20)
	if r := bad.wait(t); r.Err != nil || r.Finish != "length" {
		t.Errorf("the end is %+v", r)
	}
	if written, n := bad.written(); !strings.HasPrefix(written, fake.Text("a", "bad", 20)) || n > 20+text.MaxOverrun {
		t.Errorf("%d tokens: %q", n, written)
	}
	answeredWhole(t, d.send("a", "good", 20), "a", "good", 20)
}

// The order in which a swap-aware queue serves: A B A A C A B C on one slot with three
// loads, the first included. First come, first served, takes seven.
func TestSwapAwareQueueSavesLoads(t *testing.T) {
	loads := func(name string) ([]string, time.Duration) {
		plan := queuePlan(1, 1, time.Minute, "a", "b", "c")
		plan.Policy.Name = name
		d := openDesk(t, plan, fake.Options{Models: []string{"a", "b", "c"}, Slots: 1, Token: 2 * time.Millisecond, Load: 20 * time.Millisecond, Manual: true}, nil)
		var sheets []*sheet
		began := time.Now()
		for i, m := range "abaacabc" {
			sheets = append(sheets, d.send(string(m), fmt.Sprint(i), 30))
		}
		for i, m := range "abaacabc" {
			answeredWhole(t, sheets[i], string(m), fmt.Sprint(i), 30)
		}
		return d.servers[0].Counts().Loads, time.Since(began)
	}
	planned, took := loads("vqueue")
	fifo, _ := loads("fcfs")
	t.Logf("planned %v in %v, first come first served %v", planned, took, fifo)
	if len(planned) != 3 || len(fifo) != 7 {
		t.Errorf("%d loads %v, first come first served %d %v; expected 3 and 7", len(planned), planned, len(fifo), fifo)
	}
}

// An executor ends with requests half answered, and the next one goes on with what
// was stored.
func TestQueuesContinueAfterRestart(t *testing.T) {
	plan := queuePlan(1, 4, time.Minute, "a")
	var opt Options
	d := openDesk(t, plan, fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond}, func(o *Options) { opt = *o })
	var sheets []*sheet
	for i := range 8 {
		sheets = append(sheets, d.send("a", fmt.Sprint(i), 100))
	}
	<-sheets[0].first
	time.Sleep(20 * time.Millisecond)
	d.close()
	d.again(plan, opt)
	continued := 0
	for i, s := range sheets {
		r := d.request("a", fmt.Sprint(i), 100)
		text, tokens := s.written()
		if s.result != nil {
			t.Errorf("request %d ended with %+v while the executor did", i, s.result)
		}
		if s.stored != text {
			t.Errorf("request %d: stored %q of %q", i, s.stored, text)
		}
		r.Partial, r.PartialTokens = text, tokens
		if tokens > 0 {
			continued++
		}
		d.q.Serve(r, s)
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint(i), 100)
	}
	if continued == 0 {
		t.Error("no request had an answer in part")
	}
}

// No instance works for longer than an SLO: what was accepted waits, and is answered
// when one does.
func TestQueuesAllDown(t *testing.T) {
	plan := queuePlan(1, 4, 50*time.Millisecond, "a")
	plan.Policy.Params["queue_limit"] = 2
	d := openDesk(t, plan, fake.Options{Models: []string{"a"}, Token: time.Millisecond}, nil)
	d.servers[0].Stop()
	var sheets []*sheet
	for i := range 6 {
		sheets = append(sheets, d.send("a", fmt.Sprint(i), 20))
	}
	time.Sleep(400 * time.Millisecond)
	if err := d.servers[0].Again(); err != nil {
		t.Fatal(err)
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint(i), 20)
	}
	if r := d.x.Report(); r.Late != 6 {
		t.Errorf("%d are late, expected all", r.Late)
	}
}

// Another plan takes over what the one before has not answered.
func TestNewPlanTakesOverRequests(t *testing.T) {
	plan := queuePlan(1, 2, time.Minute, "a")
	d := openDesk(t, plan, fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond}, func(o *Options) { o.FlushTimeout = 20 * time.Millisecond })
	var sheets []*sheet
	for i := range 6 {
		sheets = append(sheets, d.send("a", fmt.Sprint(i), 60))
	}
	<-sheets[0].first
	next := queuePlan(1, 4, time.Minute, "a")
	if err := d.x.Reload(context.Background(), next, ""); err != nil {
		t.Fatal(err)
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint(i), 60)
	}
	if r := d.x.Report(); r.Requests != 6 || r.Completed != 6 || len(r.Plans) != 2 {
		t.Errorf("%d requests, %d answered, by %d plans, expected 6 of 6 by 2", r.Requests, r.Completed, len(r.Plans))
	}
}

// What may not come in is refused with when to come again.
func TestRefusedRequestsGetRetryAfter(t *testing.T) {
	plan := queuePlan(1, 1, 60*time.Millisecond, "a")
	plan.Policy.Params["admission"] = 1
	d := openDesk(t, plan, fake.Options{Models: []string{"a"}, Slots: 1, Token: 2 * time.Millisecond}, nil)
	if _, err := d.q.Admit(d.request("a", "x", 10)); err != nil {
		t.Fatalf("an idle instance: %v", err)
	}
	for range 40 {
		d.send("a", "x", 30)
	}
	again, err := d.q.Admit(d.request("a", "x", 10))
	if err == nil || again < time.Second {
		t.Errorf("behind 40 requests: come again in %v, %v", again, err)
	}
	batch := d.request("a", "x", 10)
	batch.Deadline = time.Now().Add(time.Hour)
	if _, err := d.q.Admit(batch); err != nil {
		t.Errorf("with an hour to go: %v", err)
	}
	if _, err := d.q.Admit(d.request("none", "x", 10)); err == nil {
		t.Error("a model that there is none of is admitted")
	}
}

// What the plan asks for needs servers.
func TestQueuesNeedServers(t *testing.T) {
	for name, servers := range map[string][]text.InstanceServer{
		"none":          nil,
		"one of two":    {{Instance: 0, URL: "http://localhost:1"}},
		"no address":    {{Instance: 0, URL: "localhost"}, {Instance: 1, URL: "http://localhost:1"}},
		"no instance":   {{Instance: 0, URL: "http://localhost:1"}, {Instance: 7, URL: "http://localhost:1"}},
		"another model": {{Instance: 0, Model: "b", URL: "http://localhost:1"}, {Instance: 1, URL: "http://localhost:1"}},
	} {
		x, err := New(context.Background(), queuePlan(2, 1, time.Second, "a"), Options{InstanceOptions: InstanceOptions{Servers: servers, SilenceTimeout: time.Second}})
		if err == nil {
			x.Close()
			t.Errorf("%s: no error", name)
		}
	}
}
