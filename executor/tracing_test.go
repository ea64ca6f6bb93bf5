package executor

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/oip"
	"inferplan/executor/oip/oippb"
	"inferplan/executor/text"
	"inferplan/executor/tracing"
	"inferplan/formats"
	"inferplan/testkit/llm/fake"
)

// The span of the client in these tests, and its trace.
const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
	clientName  = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// receiver takes spans as a collector does.
type receiver struct {
	t      *testing.T
	server *httptest.Server
	tracer *tracing.Tracer
	mu     sync.Mutex
	spans  []*trace.Span
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		message := &trace.TracesData{}
		if err == nil {
			err = proto.Unmarshal(body, message)
		}
		if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range message.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(r.server.Close)
	var err error
	if r.tracer, err = tracing.New(t.Context(), r.server.URL, "test", quiet()); err != nil {
		t.Fatal(err)
	}
	return r
}

// tree ends the tracer, and returns the spans below the client's as NAME(CHILDREN), in the order of their starts. It
// reports spans of other traces, and those that are not inside their parent's time.
func (r *receiver) tree() string {
	if err := r.tracer.Close(context.WithoutCancel(r.t.Context())); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	children := map[string][]*trace.Span{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) != clientTrace {
			r.t.Errorf("span %s is of the trace %x", s.Name, s.TraceId)
		}
		parent := hex.EncodeToString(s.ParentSpanId)
		children[parent] = append(children[parent], s)
	}
	var write func(parent string, from, to uint64) string
	write = func(parent string, from, to uint64) string {
		list := children[parent]
		delete(children, parent)
		slices.SortStableFunc(list, func(a, b *trace.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
		var names []string
		for _, s := range list {
			if s.StartTimeUnixNano < from || s.EndTimeUnixNano > to || s.StartTimeUnixNano > s.EndTimeUnixNano {
				r.t.Errorf("span %s lasts from %d to %d, its parent from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, from, to)
			}
			name := s.Name
			if below := write(hex.EncodeToString(s.SpanId), s.StartTimeUnixNano, s.EndTimeUnixNano); below != "" {
				name += "(" + below + ")"
			}
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	text := write(clientSpan, 0, 1<<63)
	if len(children) > 0 {
		r.t.Errorf("spans without a parent: %v", children)
	}
	return text
}

// inferHTTP sends an inference of a model with the client's span.
func inferHTTP(t *testing.T, address, model, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/v2/models/"+model, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", clientName)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, answer)
	}
}

// inputOf returns the body of an inference of one sample.
func inputOf(x *formats.Deployed) string {
	shape, data := []int64{1}, 1
	for _, n := range x.Inputs[0].Shape[1:] {
		shape, data = append(shape, n), data*int(n)
	}
	body, _ := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": x.Inputs[0].Name, "datatype": x.Inputs[0].DType, "shape": shape, "data": make([]float32, data)}}})
	return string(body)
}

// A request over HTTP has a door below the client's span, and in it its queue, its batch with the devices of its
// stages, and its answer; one of a cascade has a queue and a batch for each model.
func TestSpansOverHTTP(t *testing.T) {
	gears := gearPlan(1, 2*time.Millisecond, 4*time.Millisecond)
	for _, c := range []struct {
		name, model, expected string
		plan                  *formats.Plan
	}{
		{"one stage", "m", "door(queue batch(device) answer)", onePlan(2*time.Millisecond, 1, 1, patient)},
		{"two stages", "m", "door(queue batch(device device) answer)", twoStagePlan(2*time.Millisecond, 1, patient)},
		// The first sample of the records is forwarded, and answered by the second model.
		{"cascade", formats.CascadeName, "door(queue batch(device) queue batch(device) answer)", gears},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReceiver(t)
			o := replayOptions(true)
			o.CoreOptions.Tracer = r.tracer
			s, _ := serve(t, c.plan, o)
			inferHTTP(t, s.HTTP, c.model+"/infer", inputOf(&c.plan.Deployment[0]))
			s.stop()
			<-s.done
			if got := r.tree(); got != c.expected {
				t.Errorf("spans %s, expected %s", got, c.expected)
			}
		})
	}
}

// Over gRPC the client's span is metadata.
func TestSpansOverGRPC(t *testing.T) {
	r := newReceiver(t)
	o := replayOptions(true)
	o.CoreOptions.Tracer = r.tracer
	plan := onePlan(2*time.Millisecond, 1, 1, patient)
	s, _ := serve(t, plan, o)
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := &plan.Deployment[0].Inputs[0]
	shape, size := []int64{1}, int64(4)
	for _, n := range in.Shape[1:] {
		shape, size = append(shape, n), size*n
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", clientName, "tracestate", "a=b")
	_, err = oippb.NewGRPCInferenceServiceClient(conn).ModelInfer(ctx, &oippb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, size)},
		Inputs: []*oippb.ModelInferRequest_InferInputTensor{{Name: in.Name, Datatype: in.DType, Shape: shape}}})
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	<-s.done
	if got, expected := r.tree(), "door(queue batch(device) answer)"; got != expected {
		t.Errorf("spans %s, expected %s", got, expected)
	}
	if got := r.spans[0].TraceState; got != "a=b" {
		t.Errorf("tracestate %q", got)
	}
}

// seenBy returns a proxy in front of a server, and the span headers of completions that come there.
func seenBy(t *testing.T, server string) (proxy string, headers func() []string) {
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var list []string
	forward := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if bytes.Contains(body, []byte("traced")) {
			mu.Lock()
			list = append(list, req.Header.Get("Traceparent"))
			mu.Unlock()
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// A request for text has its queue, its run at an instance and its answer below the door, and its server is told the
// span of the run. Without a tracer the server is told the client's own span.
func TestSpansOfText(t *testing.T) {
	for _, traced := range []bool{true, false} {
		t.Run(fmt.Sprintf("traced=%v", traced), func(t *testing.T) {
			r := newReceiver(t)
			f, err := fake.Start(fake.Options{Models: []string{"a"}, Plain: true})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Stop()
			server, headers := seenBy(t, f.URL())
			path := filepath.Join(t.TempDir(), "plan.json")
			writePlan(t, path, completePlan(queuePlan(1, 4, time.Minute, "a")))
			store := filepath.Join(t.TempDir(), "requests.db")
			o := ServeOptions{Plan: path, HTTP: ":0", GRPC: AddressOff, Metrics: AddressOff, DrainTimeout: time.Second}
			o.Log, o.Servers = quiet(), []text.InstanceServer{{URL: server}}
			if traced {
				o.CoreOptions.Tracer = r.tracer
			}
			o.Queue.Open = func() (durable.Store, error) { return bolt.Open(store, bolt.Options{Log: o.Log}) }
			ctx, stop := context.WithCancel(t.Context())
			ready, ended := make(chan Addresses, 1), make(chan error, 1)
			o.OnReady = func(a Addresses) { ready <- a }
			go func() {
				_, err := Serve(ctx, o)
				ended <- err
			}()
			var a Addresses
			select {
			case a = <-ready:
			case err := <-ended:
				t.Fatal(err)
			}

			req, _ := http.NewRequest(http.MethodPost, "http://"+a.HTTP+"/v1/completions", strings.NewReader(`{"model": "a", "prompt": "traced", "max_tokens": 3}`))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("traceparent", clientName)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}

			expected, span := "", clientSpan
			if traced {
				expected = "door(queue batch(device) answer)"
			}
			if got := r.tree(); got != expected {
				t.Errorf("spans %s, expected %s", got, expected)
			}
			for _, s := range r.spans {
				if s.Name == "device" {
					span = hex.EncodeToString(s.SpanId)
				}
			}
			if got := headers(); len(got) != 1 || got[0] != "00-"+clientTrace+"-"+span+"-01" {
				t.Errorf("the server was told %v, expected the span %s", got, span)
			}
		})
	}
}

// An application's modules each have a queue and a batch, and its language model is told the door.
func TestSpansOfApplications(t *testing.T) {
	r := newReceiver(t)
	f, err := fake.Start(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	server, headers := seenBy(t, f.URL())
	o := replayOptions(true)
	o.CoreOptions.Tracer, o.Servers = r.tracer, []text.InstanceServer{{URL: server}}
	x := open(t, ragPlan(1, patient), o)
	s := httptest.NewServer(oip.NewHTTPServer(x, oip.Options{Tracer: r.tracer}))
	defer s.Close()
	inferHTTP(t, strings.TrimPrefix(s.URL, "http://"), "app/generate", `{"text_input": "What is traced?"}`)
	got := r.tree()
	// The policy is told of both modules at the arrival, so that both wait from then on.
	if expected := "door(queue queue batch(device) batch(device) answer)"; got != expected {
		t.Errorf("spans %s, expected %s", got, expected)
	}
	door := ""
	for _, s := range r.spans {
		if s.Name == "door" {
			door = hex.EncodeToString(s.SpanId)
		}
	}
	if got := headers(); len(got) == 0 || got[0] != "00-"+clientTrace+"-"+door+"-01" {
		t.Errorf("the server was told %v, expected the span %s", got, door)
	}
}
