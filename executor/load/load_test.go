package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/formats/arrivals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a backend whose answers a test chooses.
type fake struct {
	catalog *oip.Catalog
	infer   func(ctx context.Context, r *oip.Request) (*oip.Response, error)
	seen    atomic.Int64
}

func (f *fake) Ready() bool                                     { return true }
func (f *fake) Models() *oip.Catalog                            { return f.catalog }
func (f *fake) Statistics(string, string) []oip.ModelStatistics { return nil }
func (f *fake) Infer(ctx context.Context, r *oip.Request) (*oip.Response, error) {
	f.seen.Add(1)
	return f.infer(ctx, r)
}

func answer(r *oip.Request) *oip.Response {
	return &oip.Response{Outputs: []oip.Tensor{{Name: "y", Datatype: oip.FP32, Shape: []int64{1}, Data: []byte{0, 0, 128, 63}}}}
}

func newFake(t testing.TB, infer func(ctx context.Context, r *oip.Request) (*oip.Response, error)) *fake {
	t.Helper()
	out := []oip.TensorInfo{{Name: "y", Datatype: oip.FP32, Shape: []int64{-1}}}
	c, err := oip.NewCatalog(
		oip.ModelInfo{Name: "mlp", Versions: []string{"1"}, MaxBatch: 8, Outputs: out,
			Inputs: []oip.TensorInfo{{Name: "x", Datatype: oip.FP32, Shape: []int64{-1, 784}}}},
		oip.ModelInfo{Name: "mix", Versions: []string{"1"}, Outputs: out, Inputs: []oip.TensorInfo{
			{Name: "bool", Datatype: oip.Bool, Shape: []int64{3}}, {Name: "u8", Datatype: oip.Uint8, Shape: []int64{3}},
			{Name: "i64", Datatype: oip.Int64, Shape: []int64{-1, 5}}, {Name: "text", Datatype: oip.Bytes, Shape: []int64{2}},
			{Name: "f16", Datatype: oip.FP16, Shape: []int64{4}}, {Name: "f64", Datatype: oip.FP64, Shape: []int64{1}},
		}},
		oip.ModelInfo{Name: "ask", Versions: []string{"1"}, MaxBatch: 8, Outputs: out, Inputs: []oip.TensorInfo{{Name: "text", Datatype: oip.Uint8, Shape: []int64{-1, 16}, Text: true}}},
		oip.ModelInfo{Name: "with/slash %", Versions: []string{"1"}, Outputs: out, Inputs: []oip.TensorInfo{{Name: "x", Datatype: oip.BF16, Shape: []int64{2}}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if infer == nil {
		infer = func(_ context.Context, r *oip.Request) (*oip.Response, error) { return answer(r), nil }
	}
	return &fake{catalog: c, infer: infer}
}

// serve runs a server of the protocol and returns its address.
func serve(t testing.TB, b oip.Backend, p Protocol) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type server interface {
		Serve(net.Listener) error
		Close() error
	}
	ring, err := httplimit.NewKeyring(httplimit.Key{Token: secret, Name: "load"})
	if err != nil {
		t.Fatal(err)
	}
	opt := oip.Options{Door: &httplimit.Door{Keys: ring, Log: slog.New(slog.DiscardHandler)}}
	var s server = oip.NewHTTPServer(b, opt)
	scheme := "http://"
	if p == GRPC {
		s, scheme = oip.NewGRPCServer(b, opt), "grpc://"
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return scheme + l.Addr().String()
}

// patient is an SLO that no machine is busy enough to miss.
const patient = time.Minute

// gated is a schedule that stops before arrival at until open is closed.
type gated struct {
	arrivals.Source
	at, next int
	reached  func() // called once, before the wait
	open     <-chan struct{}
}

func (g *gated) Next(r *arrivals.Request) bool {
	if g.next == g.at {
		g.reached()
		<-g.open
	}
	g.next++
	return g.Source.Next(r)
}

// every makes n arrivals, one each interval.
func every(interval time.Duration, n int, models int) arrivals.Source {
	var list []arrivals.Request
	for i := range n {
		list = append(list, arrivals.Request{ArrivedAt: time.Duration(i) * interval, Model: int32(i % models)})
	}
	return arrivals.Slice(list)
}

func mustRun(t *testing.T, cfg Config, s arrivals.Source) *Result {
	t.Helper()
	cfg.Token = secret
	if cfg.Grace == 0 {
		cfg.Grace = patient
	}
	res, err := Run(t.Context(), cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	conserved(t, res)
	return res
}

// conserved checks that every request ended in exactly one way.
func conserved(t *testing.T, res *Result) {
	t.Helper()
	var requests, completed, dropped, late int64
	for _, m := range res.Models {
		requests, completed, dropped, late = requests+m.Requests, completed+m.Completed, dropped+m.Dropped, late+m.Late
		if m.Requests != m.Completed+m.Dropped {
			t.Errorf("model %s: %d requests, %d completed, %d dropped", m.Model, m.Requests, m.Completed, m.Dropped)
		}
		var sum int64
		for _, n := range m.DroppedByReason {
			sum += n
		}
		if sum != m.Dropped {
			t.Errorf("model %s: reasons sum to %d, dropped %d", m.Model, sum, m.Dropped)
		}
	}
	if requests != res.Requests || completed != res.Completed || dropped != res.Dropped || late != res.Late {
		t.Errorf("models sum to %d/%d/%d/%d, the whole is %+v", requests, completed, dropped, late, res.Counts)
	}
}

// tensorProtocols are those of servers of tensors; texts have tests of their own.
var tensorProtocols = []Protocol{HTTPBinary, HTTPJSON, GRPC}

func TestEveryProtocolCompletesEveryRequest(t *testing.T) {
	for _, p := range tensorProtocols {
		t.Run(string(p), func(t *testing.T) {
			f := newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
				if r.Timeout <= 0 || r.Timeout > patient {
					return nil, fmt.Errorf("timeout %v", r.Timeout)
				}
				return answer(r), nil
			})
			models := []Model{{Name: "mlp", SLO: patient, Batch: 2}, {Name: "mix", SLO: patient}, {Name: "with/slash %", SLO: patient}}
			if p == HTTPJSON {
				models = models[:2] // BF16 has no JSON form
			}
			res := mustRun(t, Config{URL: serve(t, f, p), Protocol: p, Models: models, Warmup: 20 * time.Millisecond}, every(time.Millisecond, 150, len(models)))
			if res.Requests != 130 || res.Completed != 130 || res.Late != 0 || res.Attainment != 1 {
				t.Errorf("got %+v, want 130 completed in time", res.Counts)
			}
			if n := f.seen.Load(); n != 150 {
				t.Errorf("the server saw %d requests, want 150", n)
			}
		})
	}
}

// A server that stops for 200 ms must show in the latency of every request that
// fell due meanwhile, not only of the one that it held.
func TestStallShowsInEveryLatency(t *testing.T) {
	const (
		stall, slo, gap = 200 * time.Millisecond, 100 * time.Millisecond, 2 * time.Millisecond
		n, first        = 400, 100 // requests, and the one that is held
	)
	for _, p := range []Protocol{HTTPBinary, GRPC} {
		t.Run(string(p), func(t *testing.T) {
			var mu sync.Mutex
			var begun, ended time.Time
			var f *fake
			f = newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if begun.IsZero() {
					begun = time.Now()
				}
				if ended.IsZero() && f.seen.Load() > first {
					time.Sleep(stall)
					// A client that waited for answers would send nothing more.
					for start := time.Now(); f.seen.Load() < first+90 && time.Since(start) < patient; {
						time.Sleep(time.Millisecond)
					}
					ended = time.Now()
				}
				return answer(r), nil
			})
			res := mustRun(t, Config{URL: serve(t, f, p), Models: []Model{{Name: "mlp", SLO: slo}}, NoTimeout: true}, every(gap, n, 1))
			if res.Completed != n {
				t.Fatalf("got %+v, want %d completed", res.Counts, n)
			}
			// The run began before its first request was here, so that whatever fell due
			// from the held request on, and over the SLO before the stall's end as seen
			// from that first request, is late for certain. A busy machine makes more of
			// them late, never fewer.
			must := min(int64((ended.Sub(begun)-slo)/gap), n) - first - 1
			if must < 40 || res.Late < must {
				t.Errorf("%d late, want at least %d after a stall that ended at %v", res.Late, must, ended.Sub(begun))
			}
			if most := res.Latency.MaxUS.D(); most < ended.Sub(begun)-(first+1)*gap {
				t.Errorf("the longest wait, %v, does not show a stall that ended at %v", most, ended.Sub(begun))
			}
			if res.PeakInFlight < 90 {
				t.Errorf("at most %d in flight: the client waited for answers", res.PeakInFlight)
			}
		})
	}
}

func TestOutcomesAreCountedOnceEach(t *testing.T) {
	for _, p := range tensorProtocols {
		t.Run(string(p), func(t *testing.T) {
			var n atomic.Int64
			f := newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
				switch n.Add(1) % 5 {
				case 0:
					return nil, httplimit.Dropped("queue_full", "the queue is full")
				case 1:
					return nil, context.DeadlineExceeded
				case 2:
					return nil, httplimit.Unavailable("worker_lost", "no worker")
				case 3:
					return nil, errors.New("broken")
				}
				return answer(r), nil
			})
			ended := map[string]int64{}
			due := map[time.Duration]bool{}
			res := mustRun(t, Config{URL: serve(t, f, p), Protocol: p, Models: []Model{{Name: "mlp"}}, OnOutcome: func(o Outcome) {
				ended[o.Reason]++
				due[o.Due] = true
				if o.Model != 0 || o.Late || (o.Latency > 0) != (o.Reason == "") {
					t.Errorf("outcome %+v", o)
				}
			}}, every(time.Millisecond, 100, 1))
			if ended[""] != res.Completed || len(due) != 100 {
				t.Errorf("%d arrivals ended as %v; completed %d", len(due), ended, res.Completed)
			}
			for reason, n := range res.DroppedByReason {
				if ended[reason] != n {
					t.Errorf("told %v, counted %v", ended, res.DroppedByReason)
				}
			}
			want := map[string]int64{"queue_full": 20, "deadline_exceeded": 20}
			if p == GRPC {
				want["error.grpc_unavailable"], want["error.grpc_internal"] = 20, 20
			} else {
				want["error.http_503"], want["error.http_500"] = 20, 20
			}
			for k, v := range want {
				if res.DroppedByReason[k] != v {
					t.Errorf("dropped by reason: got %v, want %v", res.DroppedByReason, want)
					break
				}
			}
			if res.Completed != 20 || res.Errors != 40 || res.Attainment != 0.2 {
				t.Errorf("got %+v, errors %d", res.Counts, res.Errors)
			}
		})
	}
}

func TestOverloadIsCountedNotDelayed(t *testing.T) {
	hold := make(chan struct{})
	f := newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
		<-hold
		return answer(r), nil
	})
	url := serve(t, f, GRPC)
	// Answers come when the schedule has ended.
	opened := make(chan struct{})
	close(opened)
	schedule := &gated{Source: every(time.Millisecond, 100, 1), at: 100, reached: func() { close(hold) }, open: opened}
	res := mustRun(t, Config{URL: url, Models: []Model{{Name: "mlp"}}, MaxInFlight: 10}, schedule)
	if res.ClientOverload != 90 || res.Completed != 10 || len(res.Warnings) == 0 {
		t.Errorf("got %+v overload %d warnings %v, want 10 completed and 90 overload with a warning", res.Counts, res.ClientOverload, res.Warnings)
	}
}

func TestUnansweredAfterGrace(t *testing.T) {
	for _, p := range []Protocol{HTTPBinary, GRPC} {
		f := newFake(t, func(ctx context.Context, r *oip.Request) (*oip.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		res := mustRun(t, Config{URL: serve(t, f, p), Models: []Model{{Name: "mlp"}}, Grace: 50 * time.Millisecond}, every(time.Millisecond, 20, 1))
		if res.Unanswered != 20 || res.Interrupted {
			t.Errorf("%s: got %+v unanswered %d, want 20", p, res.Counts, res.Unanswered)
		}
	}
}

func TestCancelReturnsWhatWasFound(t *testing.T) {
	f := newFake(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// After 15 arrivals the first ones are waited for, and then the run is stopped.
	schedule := &gated{Source: every(10*time.Millisecond, 1000, 1), at: 15, open: ctx.Done(), reached: func() {
		for f.seen.Load() < 10 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		cancel()
	}}
	res, err := Run(ctx, Config{URL: serve(t, f, HTTPBinary), Token: secret, Models: []Model{{Name: "mlp"}}}, schedule)
	if err != nil {
		t.Fatal(err)
	}
	conserved(t, res)
	if !res.Interrupted || res.Completed+res.Unanswered != 15 || res.Requests != 15 {
		t.Errorf("got interrupted %v, %+v", res.Interrupted, res.Counts)
	}
}

func TestAnswerToAnotherRequestIsAnError(t *testing.T) {
	f := newFake(t, nil)
	inner := oip.NewHTTPServer(f, oip.Options{})
	var n atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && n.Add(1)%2 == 0 {
			body := `{"id":"ffffffffffffffff","model_name":"mlp","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1]}]}`
			w.Write([]byte(body))
			return
		}
		inner.ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	res := mustRun(t, Config{URL: "http://" + l.Addr().String(), Models: []Model{{Name: "mlp"}}}, every(5*time.Millisecond, 20, 1))
	if res.DroppedByReason["error.wrong_id"] != 10 || res.Completed != 10 {
		t.Errorf("got %+v", res.Counts)
	}
}

// An application whose modules were all passed over answers without outputs. Any other answer
// without outputs is an error.
func TestAnswerWithoutOutputs(t *testing.T) {
	const id = requestID(7)
	text := string(id.append(nil))
	for _, c := range []struct {
		answer oip.Response
		want   string
	}{
		{oip.Response{ID: text, Params: map[string]oip.Param{"passed_over": "orient,read"}}, ""},
		{oip.Response{ID: text, Params: map[string]oip.Param{"items": int64(0)}}, "error.no_outputs"},
		{oip.Response{ID: text}, "error.no_outputs"},
	} {
		if got := checkAnswer(&c.answer, id); got != c.want {
			t.Errorf("%+v: %q, expected %q", c.answer, got, c.want)
		}
	}
}

func TestServerGoneIsCounted(t *testing.T) {
	f := newFake(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := oip.NewHTTPServer(f, oip.Options{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	gone := make(chan struct{})
	schedule := &gated{Source: every(time.Millisecond, 150, 1), at: 50, open: gone, reached: func() {
		go func() {
			for f.seen.Load() < 50 {
				time.Sleep(time.Millisecond)
			}
			s.Close()
			close(gone)
		}()
	}}
	res := mustRun(t, Config{URL: "http://" + l.Addr().String(), Models: []Model{{Name: "mlp"}}}, schedule)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The last answers may be cut off as well; a connection that was kept open fails
	// in a way of its own.
	if res.DroppedByReason["error.connect"] == 0 || res.Errors < 100 || res.Completed+res.Errors != 150 || res.Completed == 0 {
		t.Errorf("got %+v, errors %d", res.Counts, res.Errors)
	}
}

func TestFaultyConfigurationsAreRefused(t *testing.T) {
	f := newFake(t, nil)
	url := serve(t, f, HTTPBinary)
	ok := []Model{{Name: "mlp"}}
	for _, tc := range []struct {
		name string
		cfg  Config
		s    arrivals.Source
		want string
	}{
		{"no scheme", Config{URL: "localhost:8000", Models: ok}, nil, "expected http://HOST:PORT"},
		{"protocol", Config{URL: url, Protocol: "smtp", Models: ok}, nil, `protocol "smtp"`},
		{"grpc address", Config{URL: "grpc://h:1", Protocol: HTTPJSON, Models: ok}, nil, "does not go with"},
		{"no models", Config{URL: url}, nil, "no models"},
		{"unknown model", Config{URL: url, Models: []Model{{Name: "nope"}}}, nil, `model "nope" is not served here; models: mlp`},
		{"negative slo", Config{URL: url, Models: []Model{{Name: "mlp", SLO: -1}}}, nil, "must not be negative"},
		{"warm-up", Config{URL: url, Models: ok, Warmup: 2, Duration: 1}, nil, "leaves nothing"},
		{"huge shape", Config{URL: url, Models: []Model{{Name: "mlp", Batch: 1 << 40}}}, nil, "too large"},
		{"model index", Config{URL: url, Models: ok}, arrivals.Slice([]arrivals.Request{{Model: 1}}), "arrival 0: model 1, expected 0 to 0"},
		{"order", Config{URL: url, Models: ok}, arrivals.Slice([]arrivals.Request{{ArrivedAt: 2}, {ArrivedAt: 1}}), "arrival 1: time 1ns stands after 2ns"},
		{"nobody there", Config{URL: "http://127.0.0.1:1", Models: ok}, nil, "asking http://127.0.0.1:1 for the metadata"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.s == nil {
				tc.s = every(time.Millisecond, 1, 1)
			}
			tc.cfg.Token = secret
			_, err := Run(t.Context(), tc.cfg, tc.s)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestSameSeedSameInputs(t *testing.T) {
	f := newFake(t, nil)
	info := f.catalog.Models()[1]
	a, err := randomInputs(info, &Model{Name: "mix"}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := randomInputs(info, &Model{Name: "mix"}, 1, 0)
	c, _ := randomInputs(info, &Model{Name: "mix"}, 1, 1)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the same seed gave different inputs")
	}
	if fmt.Sprint(a) == fmt.Sprint(c) {
		t.Error("two variants are the same")
	}
}

func TestPercentilesFromSamplesAndHistogramAgree(t *testing.T) {
	r := newRecorder()
	for i := 1; i <= 10000; i++ {
		r.recordAnswer(time.Duration(i)*time.Microsecond, 0)
	}
	exact := r.latency()
	if exact.P50US.D() != 5000*time.Microsecond || exact.P99US.D() != 9900*time.Microsecond || exact.MaxUS.D() != 10*time.Millisecond {
		t.Errorf("exact: %+v", exact)
	}
	r.latencies = nil
	near := r.latency()
	for _, p := range [][2]time.Duration{{near.P50US.D(), exact.P50US.D()}, {near.P95US.D(), exact.P95US.D()}, {near.P99US.D(), exact.P99US.D()}} {
		if d := (p[0] - p[1]).Abs(); d > p[1]/1000+time.Microsecond {
			t.Errorf("histogram %v, exact %v", p[0], p[1])
		}
	}
}

func TestResultReadsAsAReport(t *testing.T) {
	f := newFake(t, nil)
	res := mustRun(t, Config{URL: serve(t, f, HTTPBinary), Models: []Model{{Name: "mlp", SLO: patient}}, Seed: 3}, every(time.Millisecond, 10, 1))
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"format":"inferplan.report/v1"`, `"source":"load"`, `"seed":3`, `"requests":10`, `"attainment":1`, `"generator_lag":{`, `"models":[{"model":"mlp","slo_us":60000000`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	if err := res.Validate(); err != nil {
		t.Error(err)
	}
}

// secret is the token of the servers of tests.
const secret = "a-secret-of-tests"
