package executor

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/policy/vqueue"
	"inferplan/testkit/llm/fake"
)

func (l locked) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Answers that are longer than planned are learnt by the policy, and the log asks for
// another plan with what it needs.
func TestQueuesLearnLengths(t *testing.T) {
	plan := queuePlan(1, 8, time.Minute, "a")
	plan.Policy.Params["follow"] = 1
	q := formats.QueueOf(plan)
	q.Classes[0].OutputMean, q.Estimates[0].OutputMean = 30, 45 // the estimate is of all classes of the model
	plan.Inputs = []formats.Input{{Role: "workload", Path: "w.yaml"}, {Role: "profile", Path: "p.json"}}
	log := locked{&sync.Mutex{}, &bytes.Buffer{}}
	d := openDesk(t, plan, fake.Options{Models: []string{"a"}, Slots: 8}, func(o *Options) {
		o.RatesURL = "http://127.0.0.1:8002/rates"
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	var sheets []*sheet
	for range 2 * text.MinAnswers {
		sheets = append(sheets, d.send("a", "hello", 60)) // planned are 30
	}
	for _, s := range sheets {
		answeredWhole(t, s, "a", "hello", 60)
	}
	c := d.x.core.Load()
	k := c.Answerer.(*text.TextAnswers)
	c.Loop.CallInRound(func() { k.EverySecond(c.Loop.Now()) })
	said := log.text()
	for _, want := range []string{"answers of a are not as long as planned (60 tokens, planned 30)", "curl -fsS 'http://127.0.0.1:8002/lengths?of=a' -o lengths-a.csv", "lengths_file: lengths-a.csv", "plan solve --workload w.yaml --profile p.json -o plan.json"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log lacks %q:\n%s", want, said)
		}
	}
	var r formats.Report
	c.Loop.CallInRound(func() { k.Report(&r) })
	if len(r.Work) != 1 || r.Work[0].Model != "a" || r.Work[0].Device == "" || r.Work[0].Factor <= 0 || r.Work[0].PlannedUS <= 0 {
		t.Errorf("the report has the work %+v, expected that of a", r.Work)
	}
	w := httptest.NewRecorder()
	text.ServeLengths(w, httptest.NewRequest(http.MethodGet, "/lengths?of=a", nil), d.x.core.Load())
	if lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n"); len(lines) != 1+2*text.MinAnswers || lines[0] != "prompt_tokens,output_tokens" || !strings.HasSuffix(lines[1], ",60") {
		t.Errorf("%d lengths: %.200s", len(lines), w.Body)
	}
}

// shown is a policy that tells what a test wants.
type shown struct{ late, waiting int }

func (s *shown) Observations() []vqueue.ModelObservation     { return nil }
func (s *shown) ExpectedLateness() (int, int, time.Duration) { return s.late, s.waiting, time.Minute }

// Requests that stay late for 30 s are told with the instances that are missing, once,
// and that they are late no more.
func TestLateRequestsGiveScaleAdvice(t *testing.T) {
	log := locked{&sync.Mutex{}, &bytes.Buffer{}}
	d := openDesk(t, queuePlan(2, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}}, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	c := d.x.core.Load()
	k, s := c.Answerer.(*text.TextAnswers), &shown{late: 40, waiting: 100}
	look := func(from, to time.Duration) {
		for now := from; now <= to; now += time.Second {
			c.Loop.CallInRound(func() { k.Monitor.Policy = s; k.Monitor.UpdateScaleAdvice(now) })
		}
	}
	look(time.Second, 29*time.Second)
	if strings.Contains(log.text(), "too few") {
		t.Errorf("it is said too early:\n%s", log.text())
	}
	look(30*time.Second, 60*time.Second)
	if n := strings.Count(log.text(), "the instances are too few: for 30s, 40 of 100 requests"); n != 1 || !strings.Contains(log.text(), "with 2 instances more, of 2 that work") {
		t.Errorf("it is said %d times:\n%s", n, log.text())
	}
	c.Loop.CallInRound(func() { s.late = 0 })
	look(61*time.Second, 61*time.Second)
	if !strings.Contains(log.text(), "expected late any more") {
		t.Errorf("the end is not said:\n%s", log.text())
	}
}
