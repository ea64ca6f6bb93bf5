package oip

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

// newClassed is a fake whose model mlp has the classes gold (the default) and
// bulk, and which notes the last request that reached it.
func newClassed(t *testing.T) (*fake, **Request) {
	f := newFake(t)
	var infos []ModelInfo
	for _, m := range f.catalog.Models() {
		info := *m
		if info.Name == "mlp" {
			info.Classes = []string{"gold", "bulk"}
		}
		infos = append(infos, info)
	}
	var err error
	if f.catalog, err = NewCatalog(infos...); err != nil {
		t.Fatal(err)
	}
	got := new(*Request)
	inner := f.infer
	f.infer = func(ctx context.Context, r *Request) (*Response, error) { *got = r; return inner(ctx, r) }
	return f, got
}

// classes are ways to name a class, and what must come of them over both
// transports; want is the class that reaches the backend, or an error's text.
var classes = []struct {
	name          string
	param, header string // "-": none
	want          string
	refused       bool
}{
	{"none", "-", "-", "", false},
	{"a parameter", "bulk", "-", "bulk", false},
	{"a header", "-", "bulk", "bulk", false},
	{"both", "gold", "gold", "gold", false},
	{"an empty parameter", "", "-", "", false},
	{"an empty header", "", "bulk", "bulk", false},
	{"two that differ", "gold", "bulk", "must agree", true},
	{"an unknown one", "silver", "-", `class: model "mlp" has no class "silver"; its classes: gold, bulk`, true},
	{"an unknown header", "-", "silver", `has no class "silver"`, true},
}

func TestClassOverREST(t *testing.T) {
	f, got := newClassed(t)
	h := NewHTTPServer(f, Options{Door: behind(httplimit.Door{})})
	for _, c := range classes {
		*got = nil
		params := ""
		if c.param != "-" {
			params = `"parameters":{"class":"` + c.param + `"},`
		}
		r := httptest.NewRequest("POST", "http://127.0.0.1/v2/models/mlp/infer", strings.NewReader(`{`+params+`"inputs":[`+goodInput+`]}`))
		if c.header != "-" {
			r.Header.Set(HeaderClass, c.header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.refused && (w.Code != 400 || !strings.Contains(body.Error, c.want) || *got != nil):
			t.Errorf("%s: %d %s, reached the backend: %v", c.name, w.Code, body.Error, *got != nil)
		case !c.refused && (w.Code != 200 || (*got).Class != c.want):
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	for body, want := range map[string]string{
		`{"parameters":{"class":7},"inputs":[` + goodInput + `]}`: "parameters.class: got 7, expected the name of an SLO class",
	} {
		if w := do(h, "POST", "/v2/models/mlp/infer", body); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	two := httptest.NewRequest("POST", "http://127.0.0.1/v2/models/mlp/infer", strings.NewReader(`{"inputs":[`+goodInput+`]}`))
	two.Header[HeaderClass] = []string{"gold", "gold"}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, two); w.Code != 400 || !strings.Contains(w.Body.String(), "given 2 times") {
		t.Errorf("two headers: %d %s", w.Code, w.Body)
	}
	// A model without classes has none to name.
	if w := do(h, "POST", "/v2/models/cold/infer", `{"parameters":{"class":"gold"},"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`); w.Code != 400 ||
		!strings.Contains(w.Body.String(), `model \"cold\" has no SLO classes`) {
		t.Errorf("no classes: %d %s", w.Code, w.Body)
	}
	// Clients see the classes in the metadata of a model that has some.
	if w := do(h, "GET", "/v2/models/mlp", ""); !strings.Contains(w.Body.String(), `"classes":["gold","bulk"]`) {
		t.Errorf("metadata %s", w.Body)
	}
	if w := do(h, "GET", "/v2/models/cold", ""); strings.Contains(w.Body.String(), "classes") {
		t.Errorf("metadata %s", w.Body)
	}
}

func TestClassOverGRPC(t *testing.T) {
	f, got := newClassed(t)
	_, cc := startGRPC(t, f, Options{})
	client := oippb.NewGRPCInferenceServiceClient(cc)
	for _, c := range classes {
		*got = nil
		r := goodPB()
		if c.param != "-" {
			r.Parameters = map[string]*oippb.InferParameter{"class": pbParam(c.param)}
		}
		ctx := t.Context()
		if c.header != "-" {
			ctx = metadata.AppendToOutgoingContext(ctx, HeaderClass, c.header)
		}
		_, err := client.ModelInfer(ctx, r)
		switch {
		case c.refused && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) || *got != nil):
			t.Errorf("%s: %v, reached the backend: %v", c.name, err, *got != nil)
		case !c.refused && (err != nil || (*got).Class != c.want):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestStatisticsOfClassesAddUp(t *testing.T) {
	part := func(last, n uint64, sizes ...uint64) *ModelStatistics {
		s := &ModelStatistics{Name: "m", Version: "1", LastInference: last, InferenceCount: n, ExecutionCount: 1}
		s.Inference.Success.Add(n, time.Duration(n))
		s.Inference.Queue.Add(n, time.Duration(2*n))
		for _, size := range sizes {
			s.Batches = append(s.Batches, BatchStats{BatchSize: size, ComputeInfer: DurationStat{1, size}})
		}
		return s
	}
	a := part(5, 3, 1, 4)
	a.Merge(part(9, 4, 2, 4, 8))
	if a.LastInference != 9 || a.InferenceCount != 7 || a.ExecutionCount != 2 || a.Inference.Success != (DurationStat{7, 7}) || a.Inference.Queue != (DurationStat{7, 14}) {
		t.Errorf("%+v", a)
	}
	var sizes []uint64
	for _, b := range a.Batches {
		sizes = append(sizes, b.BatchSize)
	}
	if !slices.Equal(sizes, []uint64{1, 2, 4, 8}) || a.Batches[2].ComputeInfer != (DurationStat{2, 8}) {
		t.Errorf("batches %+v", a.Batches)
	}
}
