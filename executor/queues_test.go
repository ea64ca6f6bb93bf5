package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

// sheet takes what becomes of a request, as a front end does.
type sheet struct {
	mu     sync.Mutex
	text   strings.Builder
	tokens int
	stored string // by Partial
	stores int
	result *completions.Result
	done   chan struct{}
	first  chan struct{} // closed with the first text
	at     time.Time     // of the last text
	order  *[]int        // of ends
	number int
}

var ends sync.Mutex

func newSheet() *sheet { return &sheet{done: make(chan struct{}), first: make(chan struct{})} }

func (s *sheet) Text(delta string, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() == 0 {
		close(s.first)
	}
	s.text.WriteString(delta)
	s.tokens += tokens
	s.at = time.Now()
}

func (s *sheet) Partial() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = s.text.String()
	s.stores++
	return nil
}

func (s *sheet) Done(r completions.Result) {
	s.mu.Lock()
	if s.result != nil {
		panic("a request ends twice")
	}
	s.result = &r
	s.mu.Unlock()
	if s.order != nil {
		ends.Lock()
		*s.order = append(*s.order, s.number)
		ends.Unlock()
	}
	close(s.done)
}

func (s *sheet) written() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.tokens
}

// wait waits for the end of a request.
func (s *sheet) wait(t *testing.T) completions.Result {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		text, _ := s.written()
		t.Fatalf("no end after 20 s; so far %q", text)
	}
	return *s.result
}

// queuePlan is a plan of queues with the models, each on every instance, as many
// requests at once on an instance, and one class with an SLO.
func queuePlan(instances, sequences int, slo time.Duration, models ...string) *formats.Plan {
	q := &formats.QueuePlan{}
	p := &formats.Plan{Kind: formats.PlanQueue, Section: q, Policy: formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"every_s": 0.05}}}
	p.Pools = []formats.Pool{{Device: "L4", Count: instances, MaxShares: 1}}
	it := formats.Iteration{BaseNS: 1e6, SequenceNS: 1e3}
	var most []int
	for _, m := range models {
		p.Deployment = append(p.Deployment, formats.Deployed{Model: m})
		q.Classes = append(q.Classes, formats.QueueClass{Served: formats.Served{Model: m, SLOUS: document.Micros(slo), Percentile: "p99", Weight: 1, RPS: 10}, Figure: formats.FigureE2E})
		q.Models = append(q.Models, formats.LLMProfile{Model: m, WeightBytes: 1 << 20, KVBytesPerToken: 100, Instances: []formats.LLMInstance{
			{Device: "L4", TensorParallel: 1, Iteration: it, KVTokens: 1 << 16, KVSource: "measured", Loads: &formats.ModelLoads{ColdUS: document.Micros(20 * time.Millisecond), WarmUS: document.Micros(20 * time.Millisecond)}}}})
		q.Estimates = append(q.Estimates, formats.QueueEstimate{Model: m, Device: "L4", PromptNS: 1e4, OutputNS: 1e6 / float64(sequences), PrefillNS: 1e6, DecodeNS: 1e6, Batch: float64(sequences), PromptMean: 20, OutputMean: 30, OutputSD: 5})
		most = append(most, sequences)
	}
	for i := range instances {
		q.Instances = append(q.Instances, formats.QueueInstance{Device: "L4", FirstDevice: i, TensorParallel: 1, Model: models[0], Models: models, Sequences: most, TokenBudget: 512})
	}
	return p
}

// shownLog is a log that is shown where a test fails.
func shownLog(t *testing.T) *slog.Logger {
	to := locked{&sync.Mutex{}, &bytes.Buffer{}}
	t.Cleanup(func() {
		to.mu.Lock()
		defer to.mu.Unlock()
		if t.Failed() {
			t.Log(to.b.String())
		}
	})
	return slog.New(slog.NewTextHandler(to, nil))
}

// desk is an executor of queues with its fake servers.
type desk struct {
	t       *testing.T
	x       *Executor
	q       *text.Queues
	servers []*fake.Server
	ids     int
}

func openDesk(t *testing.T, plan *formats.Plan, opt fake.Options, change func(*Options)) *desk {
	t.Helper()
	d := &desk{t: t}
	o := Options{CoreOptions: CoreOptions{Log: shownLog(t)}, InstanceOptions: InstanceOptions{SilenceTimeout: 2 * time.Second}}
	for i := range formats.QueueOf(plan).Instances {
		s, err := fake.Start(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		d.servers = append(d.servers, s)
		o.Servers = append(o.Servers, text.InstanceServer{Instance: i, URL: s.URL()})
	}
	if change != nil {
		change(&o)
	}
	d.again(plan, o)
	t.Cleanup(d.close)
	return d
}

// again makes an executor for the same servers.
func (d *desk) again(plan *formats.Plan, o Options) {
	d.t.Helper()
	x, err := New(context.Background(), plan, o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.x, d.q = x, text.NewQueues(x.textHost())
}

func (d *desk) close() {
	if err := d.x.Close(); err != nil {
		d.t.Error(err)
	}
	d.q.Wait()
}

// request makes a request for so many tokens.
func (d *desk) request(model, prompt string, tokens int) *completions.Request {
	d.ids++
	return &completions.Request{ID: fmt.Sprint("r", d.ids), Model: model, Body: fmt.Appendf(nil, `{"model":%q,"prompt":%q,"max_tokens":%d,"temperature":0}`, model, prompt, tokens),
		PromptTokens: len(prompt), MaxTokens: tokens, Accepted: time.Now()}
}

// send has a request served.
func (d *desk) send(model, prompt string, tokens int) *sheet {
	s := newSheet()
	d.q.Serve(d.request(model, prompt, tokens), s)
	return s
}

// answeredWhole checks an answer against the text that the model writes undisturbed.
func answeredWhole(t *testing.T, s *sheet, model, prompt string, tokens int) {
	t.Helper()
	r := s.wait(t)
	text, n := s.written()
	if want := fake.Text(model, prompt, tokens); r.Err != nil || text != want || n != tokens || r.OutputTokens != tokens || r.Finish != "length" {
		t.Errorf("%s after %q: %q of %d tokens, result %+v; expected %q", model, prompt, text, n, r, want)
	}
}

// Requests for several models on several instances are answered, each with its text.
func TestQueuesAnswerSeveralModels(t *testing.T) {
	d := openDesk(t, queuePlan(2, 4, time.Minute, "a", "b"), fake.Options{Models: []string{"a", "b"}, Token: time.Millisecond / 2, Manual: true}, nil)
	var sheets []*sheet
	for i := range 40 {
		sheets = append(sheets, d.send([]string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 10+i%7))
	}
	for i, s := range sheets {
		answeredWhole(t, s, []string{"a", "b"}[i%2], fmt.Sprint("prompt ", i), 10+i%7)
	}
	r := d.x.Report()
	if r.Completed != 40 || r.Dropped != 0 || *r.Swaps < 1 || len(r.Classes) != 1 || r.Classes[0].Requests != 40 || r.Classes[0].TTFTP99US <= 0 {
		t.Errorf("the report has %d completed, %d dropped, %d swaps, classes %+v", r.Completed, r.Dropped, *r.Swaps, r.Classes)
	}
	if r.Completed != d.completions() {
		t.Errorf("%d requests took %d completions", r.Completed, d.completions())
	}
}

// completions is how many the servers began in all.
func (d *desk) completions() (n int64) {
	for _, s := range d.servers {
		n += int64(s.Counts().Completions)
	}
	return n
}

// A request that its server refuses ends with that server's words; others go on. So
// does one for a model that there is none of.
func TestQueuesRefusedByServer(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Fault: func(n int, prompt string) fake.Fault {
		return fake.Fault{Refuse: prompt == "too long"}
	}}, nil)
	bad, good := d.send("a", "too long", 5), d.send("a", "fine", 5)
	answeredWhole(t, good, "a", "fine", 5)
	var said *completions.ServerError
	if r := bad.wait(t); !errors.As(r.Err, &said) || said.Status != 400 || !strings.Contains(said.Msg, "context size") {
		t.Errorf("the end is %+v", r)
	}
	if r := d.send("c", "x", 5).wait(t); !errors.As(r.Err, &said) || said.Status != 404 {
		t.Errorf("the end is %+v", r)
	}
}

// A server that is full keeps nothing: the request stays here until it is taken.
func TestQueuesServerFull(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Fault: func(n int, _ string) fake.Fault { return fake.Fault{Full: n < 6} }}, nil)
	var sheets []*sheet
	for i := range 8 {
		sheets = append(sheets, d.send("a", fmt.Sprint(i), 5))
	}
	for i, s := range sheets {
		answeredWhole(t, s, "a", fmt.Sprint(i), 5)
	}
}

// Chats are answered, and continued by the server's own template.
func TestQueuesContinueChats(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond, Fault: func(n int, _ string) fake.Fault {
		if n == 0 {
			return fake.Fault{DieAt: 7}
		}
		return fake.Fault{}
	}}, nil)
	r := d.request("a", "", 20)
	r.Chat, r.Body = true, []byte(`{"model":"a","messages":[{"role":"user","content":"hello"}],"max_tokens":20}`)
	s := newSheet()
	d.q.Serve(r, s)
	answeredWhole(t, s, "a", "<user>hello\n<assistant>", 20)
	if s.stores == 0 || s.stored != fake.Text("a", "<user>hello\n<assistant>", 7) {
		t.Errorf("%q was stored when the stream broke, expected the first 7 tokens", s.stored)
	}
}

// A client that wants nothing more stops the request at its server.
func TestForgottenRequestStopsAtServer(t *testing.T) {
	d := openDesk(t, queuePlan(1, 1, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: 5 * time.Millisecond}, nil)
	r := d.request("a", "long", 100_000)
	s := newSheet()
	d.q.Serve(r, s)
	waiting := d.request("a", "waits", 10)
	s2 := newSheet()
	d.q.Serve(waiting, s2)
	<-s.first
	d.q.Forget(waiting.ID)
	d.q.Forget(r.ID)
	s.wait(t)
	s2.wait(t)
	answeredWhole(t, d.send("a", "next", 5), "a", "next", 5)
	d.q.Forget("no such request")
}

// When a request is due does not depend on steps of the machine's clock: neither one that
// was read back from the store, nor a line of a batch.
func TestDueAfterAClockStep(t *testing.T) {
	o := replayOptions(true)
	o.Clock = durable.SteadyClock(func() time.Time { return time.Now().Round(0).AddDate(3, 0, 0) })
	x := open(t, onePlan(time.Millisecond, 1, 1, patient), o)
	c := x.core.Load()
	until(func() bool { return c.Loop.Now() > 20*time.Millisecond })
	m, now := c.ServedModels.Models[0], x.opt.Clock().Round(0)
	arrived, deadline := text.ArrivalAndDeadline(c, m, &completions.Request{Accepted: now.Add(-10 * time.Millisecond), Deadline: now.Add(time.Hour)})
	if waited, left := c.Loop.Now()-arrived, deadline-c.Loop.Now(); waited < 10*time.Millisecond || waited > 10*time.Second || left > time.Hour || left < 59*time.Minute {
		t.Errorf("it waited %v and has %v left, expected 10 ms and an hour", waited, left)
	}
}
