package tracing

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	proto "go.opentelemetry.io/proto/otlp/trace/v1"
	wire "google.golang.org/protobuf/proto"
)

const (
	ids   = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	named = "00-" + ids + "-01"
)

// collector answers with a status, and keeps what it was sent last.
type collector struct {
	url    string
	mu     sync.Mutex
	header http.Header
	path   string
	spans  []*proto.Span
}

func newCollector(t *testing.T, status int) *collector {
	c := &collector{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var data proto.TracesData
		if err := wire.Unmarshal(body, &data); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.header, c.path = r.Header, r.URL.Path
		for _, resource := range data.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// Without a tracer nothing is allocated for a request without a parent, and one with a parent carries it on.
func TestNoTracer(t *testing.T) {
	var tracer *Tracer
	if n := testing.AllocsPerRun(100, func() {
		r := tracer.BeginRequest("http", "m", ParentIn(nil, nil), time.Time{})
		r.Answered(time.Time{}, Progress{})
		r.Fail("x")
		r.End(nil)
		if r.IsRecording() || r.Parent() != (Parent{}) {
			t.Error("a request without a parent has one")
		}
	}); n != 0 {
		t.Errorf("%g allocations, expected none", n)
	}
	r := tracer.BeginRequest("http", "m", ParentIn([]string{named}, []string{"a=1", "b=2"}), time.Time{})
	if got := r.Parent(); r.IsRecording() || got.Traceparent != named || got.Tracestate != "a=1,b=2" {
		t.Errorf("parent %+v", got)
	}
	if parent, end := tracer.BeginAnswer(r.Parent(), "m", "0", time.Time{}); parent != r.Parent() {
		t.Errorf("parent %+v", parent)
	} else {
		end(io.EOF)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A parent that is only carried on is read when somebody asks for it.
func TestCarryParent(t *testing.T) {
	traceparent, tracestate := []string{named}, []string{"a=1", "b=2"}
	if n := testing.AllocsPerRun(100, func() { CarryParent(traceparent, tracestate).End(nil) }); n > 2 {
		t.Errorf("%g allocations, expected 2", n)
	}
	if r := CarryParent(traceparent, tracestate); r.IsRecording() || r.Parent() != (Parent{named, "a=1,b=2"}) {
		t.Errorf("parent %+v", r.Parent())
	}
	if CarryParent(nil, tracestate) != nil || CarryParent([]string{"?"}, nil).Parent() != (Parent{}) {
		t.Error("a request without a parent has one")
	}
}

// Headers that the recommendation calls invalid name no parent.
func TestParentIn(t *testing.T) {
	for _, values := range [][]string{nil, {""}, {named, named}, {"00-" + ids}, {"ff-" + ids + "-01"}, {"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01"}, {strings.ToUpper(named)}, {strings.Repeat("x", 1<<16)}} {
		if got := ParentIn(values, []string{"a=b"}); got != (Parent{}) {
			t.Errorf("%.80q: %+v", values, got)
		}
	}
	// A wrong state is left out, and the parent counts.
	if got := ParentIn([]string{named}, []string{"=="}); got != (Parent{Traceparent: named}) {
		t.Errorf("%+v", got)
	}
}

// What the parent leaves out of its trace has no spans here, and others are told so.
func TestParentNotSampled(t *testing.T) {
	c := newCollector(t, http.StatusOK)
	tracer, err := New(t.Context(), c.url, "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := tracer.BeginRequest("http", "m", ParentIn([]string{"00-" + ids + "-00"}, nil), time.Now())
	if got := r.Parent().Traceparent; r.IsRecording() || !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") || !strings.HasSuffix(got, "-00") {
		t.Errorf("parent %s", got)
	}
	r.End(nil)
	if err := tracer.Close(t.Context()); err != nil || len(c.spans) > 0 {
		t.Errorf("%v, spans %v", err, c.spans)
	}
}

// The collector gets the headers of the environment, at the path that the address has, and a failure is logged. A
// request that was never answered has its door alone, with the error.
func TestCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b,tenant=t")
	for status, expected := range map[int]string{http.StatusOK: "", http.StatusServiceUnavailable: "503 Service Unavailable"} {
		c := newCollector(t, status)
		var log bytes.Buffer
		tracer, err := New(t.Context(), c.url+"/in", "1", slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		r := tracer.BeginRequest("http", "m", Parent{}, time.Now())
		r.End(io.EOF)
		err = tracer.Close(t.Context())
		if got := log.String(); (expected == "") != (got == "" && err == nil) || !strings.Contains(got, expected) {
			t.Errorf("%d: %v, log %s", status, err, got)
		}
		if c.path != "/in" || c.header.Get("Api-Key") != "a b" || c.header.Get("Tenant") != "t" {
			t.Errorf("path %s, headers %v", c.path, c.header)
		}
		if len(c.spans) != 1 || c.spans[0].Name != "door" || c.spans[0].Status.Message != "EOF" || len(c.spans[0].ParentSpanId) != 0 {
			t.Errorf("spans %v", c.spans)
		}
	}
}

// Wrong addresses and variables are refused.
func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "localhost:4318", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h:x"} {
		if _, err := New(t.Context(), address, "1", slog.Default()); err == nil || !strings.Contains(err.Error(), "expected the address of a collector") {
			t.Errorf("%s: %v", address, err)
		}
	}
	// The value of a variable may be a secret.
	for _, value := range []string{"secret", "authorization=Bearer secret", "=secret", "a=%secret"} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
		if _, err := New(t.Context(), "http://h", "1", slog.Default()); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS") || strings.Contains(err.Error(), "ecret") {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// Headers, which may have a key, are for the collector that was named: no redirect is followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
	other := newCollector(t, http.StatusOK)
	s := httptest.NewServer(http.RedirectHandler(other.url, http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	var log bytes.Buffer
	tracer, err := New(t.Context(), s.URL, "1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tracer.BeginRequest("http", "m", Parent{}, time.Now()).End(nil)
	err = tracer.Close(t.Context())
	if got := log.String(); other.header != nil || !strings.Contains(got, "307 Temporary Redirect") {
		t.Errorf("%v, log %s, sent on: %v", err, got, other.header)
	}
}
