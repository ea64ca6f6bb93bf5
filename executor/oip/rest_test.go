package oip

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"inferplan/executor/httplimit"
)

const goodInput = `{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}`

func TestRESTEndpoints(t *testing.T) {
	f := newFake(t)
	h := NewHTTPServer(f, Options{Door: behind(httplimit.Door{}), Version: "1.2"})
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"live", "GET", "/v2/health/live", "", 200, ``},
		{"ready", "GET", "/v2/health/ready", "", 200, ``},
		{"server metadata", "GET", "/v2", "", 200, `{"name":"inferplan","version":"1.2","extensions":["binary_tensor_data","statistics","model_repository","schedule_policy","generate"]}`},
		{"trailing slash", "GET", "/v2/", "", 200, `{"name":"inferplan","version":"1.2","extensions":["binary_tensor_data","statistics","model_repository","schedule_policy","generate"]}`},
		{"model metadata", "GET", "/v2/models/mlp", "", 200, `{"name":"mlp","versions":["1","2"],"platform":"onnx","inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]},{"name":"label","datatype":"INT64","shape":[-1]}]}`},
		{"version metadata", "HEAD", "/v2/models/mlp/versions/1", "", 200, `{"name":"mlp","versions":["1","2"],"platform":"onnx","inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]},{"name":"label","datatype":"INT64","shape":[-1]}]}`},
		{"model ready", "GET", "/v2/models/mlp/ready", "", 200, ``},
		{"model not ready", "GET", "/v2/models/cold/ready", "", 503, `{"error":"model \"cold\" is not ready"}`},
		{"stats of one", "GET", "/v2/models/mlp/versions/1/stats", "", 200, `{"model_stats":[{"name":"mlp","version":"1","last_inference":7,"inference_count":8,"execution_count":1,"inference_stats":{"success":{"count":1,"ns":1500},"fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},"compute_input":{"count":0,"ns":0},"compute_infer":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0}},"batch_stats":[{"batch_size":8,"compute_input":{"count":0,"ns":0},"compute_infer":{"count":1,"ns":1200},"compute_output":{"count":0,"ns":0}}]}]}`},
		{"index", "POST", "/v2/repository/index", `{"ready":true}`, 200, `[{"name":"mlp","version":"1","state":"READY","reason":""},{"name":"mlp","version":"2","state":"READY","reason":""},{"name":"mix","version":"1","state":"READY","reason":""}]`},
		{"infer", "POST", "/v2/models/mlp/infer", `{"inputs":[` + goodInput + `]}`, 200, `{"model_name":"mlp","model_version":"2","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[10,1]},{"name":"label","datatype":"INT64","shape":[1],"data":[0]}]}`},
		{"id echo, version, outputs in the order asked", "POST", "/v2/models/mlp/versions/1/infer", `{"id":"a\"é","model_name":"mlp","inputs":[` + goodInput + `],"outputs":[{"name":"label"},{"name":"y"}]}`, 200, `{"id":"a\"é","model_name":"mlp","model_version":"1","outputs":[{"name":"label","datatype":"INT64","shape":[1],"data":[0]},{"name":"y","datatype":"FP32","shape":[1,2],"data":[10,1]}]}`},
		{"nested data", "POST", "/v2/models/mlp/infer", `{"inputs":[{"data":[[1,2,3,4],[5,6,7,8]],"datatype":"FP32","shape":[2,4],"name":"x"}],"outputs":[{"name":"y"}]}`, 200, `{"model_name":"mlp","model_version":"2","outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[10,1,26,5]}]}`},
		{"unknown parameters pass", "POST", "/v2/models/mlp/infer", `{"parameters":{"timeout":5000,"priority":2,"x":1.5,"s":"t","b":true},"inputs":[` + goodInput + `],"outputs":[{"name":"label"}]}`, 200, `{"model_name":"mlp","model_version":"2","outputs":[{"name":"label","datatype":"INT64","shape":[1],"data":[0]}]}`},

		{"path", "GET", "/v3", "", 404, `{"error":"no such path \"/v3\"; the protocol's paths start with /v2"}`},
		{"verb", "GET", "/v2/models/mlp/config", "", 404, `{"error":"no such path \"/v2/models/mlp/config\""}`},
		{"unknown model", "POST", "/v2/models/nope/infer", `{}`, 404, `{"error":"model \"nope\" is not served here; models: mlp, mix, cold"}`},
		{"unknown version", "POST", "/v2/models/mlp/versions/9/infer", `{}`, 404, `{"error":"model \"mlp\" has no version \"9\"; it has 1, 2"}`},
		{"stats of nobody", "GET", "/v2/models/nope/stats", ``, 404, `{"error":"model \"nope\" is not served here; models: mlp, mix, cold"}`},
		{"method", "GET", "/v2/models/mlp/infer", ``, 405, `{"error":"method GET; this path takes POST"}`},
		{"method of a get", "POST", "/v2/models/mlp", ``, 405, `{"error":"method POST; this path takes GET, HEAD"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := do(h, tc.method, tc.path, tc.body)
			if w.Code != tc.code || w.Body.String() != tc.want {
				t.Errorf("got %d %s\nwant %d %s", w.Code, w.Body, tc.code, tc.want)
			}
			if n := w.Header().Get("Content-Length"); n != "" && n != strconv.Itoa(w.Body.Len()) {
				t.Errorf("Content-Length %s for %d bytes", n, w.Body.Len())
			}
		})
	}
}

func TestRESTRefusesFaultyRequestsNamingTheField(t *testing.T) {
	f := newFake(t)
	h := NewHTTPServer(f, Options{Door: behind(httplimit.Door{}), MaxTensors: 2})
	in := func(s string) string { return `{"inputs":[` + s + `]}` }
	for _, tc := range []struct {
		name, model, body string
		code              int
		want              string
	}{
		{"empty", "mlp", ``, 400, `JSON, byte 0: found the end of the text`},
		{"truncated", "mlp", `{"inputs":[`, 400, `inputs`},
		{"text after", "mlp", in(goodInput) + "x", 400, `body: JSON, byte 74: found 'x' after the end`},
		{"no inputs", "mlp", `{}`, 400, `inputs: missing`},
		{"unknown field", "mlp", `{"inpts":[]}`, 400, `inpts: unknown field; known: id, parameters, inputs, outputs`},
		{"unknown tensor field", "mlp", in(`{"nme":"x"}`), 400, `inputs[0].nme: unknown field`},
		{"field twice", "mlp", in(`{"name":"x","name":"x"}`), 400, `inputs[0].name: given twice`},
		{"id is a number", "mlp", `{"id":1}`, 400, `id: JSON, byte 6: found '1' where a string is expected`},
		{"other model in the body", "mlp", `{"model_name":"mix"}`, 400, `model_name: the body says "mix", the address "mlp"`},
		{"timeout", "mlp", `{"parameters":{"timeout":-1},"inputs":[]}`, 400, `parameters.timeout: got -1, expected microseconds`},
		{"priority", "mlp", `{"parameters":{"priority":"high"},"inputs":[]}`, 400, `parameters.priority: got high, expected a non-negative integer`},
		{"parameter object", "mlp", `{"parameters":{"a":{}},"inputs":[]}`, 400, `parameters.a: JSON`},
		{"no name", "mlp", in(`{"shape":[1],"datatype":"FP32","data":[1]}`), 400, `inputs[0].name: missing`},
		{"no shape", "mlp", in(`{"name":"x","datatype":"FP32","data":[1]}`), 400, `inputs[0].shape: missing`},
		{"no datatype", "mlp", in(`{"name":"x","shape":[1],"data":[1]}`), 400, `inputs[0].datatype: missing`},
		{"no data", "mlp", in(`{"name":"x","shape":[1],"datatype":"FP32"}`), 400, `inputs[0].data: missing`},
		{"datatype name", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FLOAT","data":[1,2,3,4]}`), 400, `inputs[0].datatype: unknown datatype "FLOAT"`},
		{"wrong datatype", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}`), 400, `inputs[0] "x" datatype: got INT32, the model takes FP32`},
		{"wrong rank", "mlp", in(`{"name":"x","shape":[4],"datatype":"FP32","data":[1,2,3,4]}`), 400, `inputs[0] "x" shape: got [4], the model takes [1..8, 4]`},
		{"wrong dimension", "mlp", in(`{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}`), 400, `inputs[0] "x" shape: got [1 3], the model takes [1..8, 4]`},
		{"batch 0", "mlp", in(`{"name":"x","shape":[0,4],"datatype":"FP32","data":[]}`), 400, `got batch 0, the model takes 1 to 8`},
		{"batch 9", "mlp", in(`{"name":"x","shape":[9,4],"datatype":"FP32","data":[` + strings.Repeat("0,", 35) + `0]}`), 400, `got batch 9, the model takes 1 to 8`},
		{"negative dimension", "mlp", in(`{"name":"x","shape":[-1,4],"datatype":"FP32","data":[]}`), 400, `inputs[0].shape: dimension -1 is negative`},
		{"shape that overflows", "mlp", in(`{"name":"x","shape":[4611686018427387904,4],"datatype":"FP32","data":[1]}`), 400, `inputs[0].shape: [4611686018427387904 4] is not a shape that fits in memory`},
		{"large shape, little data", "mlp", in(`{"name":"x","shape":[1000000000,4],"datatype":"FP32","data":[1]}`), 400, `inputs[0].data: got 1 elements, shape [1000000000 4] has 4000000000`},
		{"count", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3]}`), 400, `inputs[0].data: got 3 elements, shape [1 4] has 4`},
		{"uneven nesting", "mlp", in(`{"name":"x","shape":[2,4],"datatype":"FP32","data":[[1,2,3,4],[5,6,7]]}`), 400, `inputs[0].data: an array of 3 elements where shape [2 4]`},
		{"NaN", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,NaN,3,4]}`), 400, `NaN and Infinity are not JSON; send the tensor as binary data`},
		{"FP32 overflow", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,1e39,3,4]}`), 400, `inputs[0].data: element 1: 1e39 is out of range for FP32`},
		{"string for a number", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,"2",3,4]}`), 400, `element 1: JSON`},
		{"UINT8 range", "mix", in(`{"name":"u8","shape":[1],"datatype":"UINT8","data":[256]}`), 400, `element 0: 256 is out of range for UINT8`},
		{"INT8 range", "mix", in(`{"name":"i8","shape":[1],"datatype":"INT8","data":[-129]}`), 400, `-129 is out of range for INT8`},
		{"not an integer", "mix", in(`{"name":"i32","shape":[1],"datatype":"INT32","data":[1.5]}`), 400, `1.5 is not an integer, as needed for INT32`},
		{"FP16 range", "mix", in(`{"name":"f16","shape":[1],"datatype":"FP16","data":[65520]}`), 400, `65520 is out of range for FP16`},
		{"BF16 in JSON", "mix", in(`{"name":"b16","shape":[1],"datatype":"BF16","data":[1]}`), 400, `BF16 travels as binary data only`},
		{"unknown input", "mlp", in(`{"name":"z","shape":[1],"datatype":"FP32","data":[1]}`), 400, `inputs[0] "z": model "mlp" has no such input; its inputs: x`},
		{"missing input", "mlp", `{"inputs":[]}`, 400, `inputs: input "x" is missing (FP32 [1..8, 4])`},
		{"input twice", "mlp", in(goodInput + `,` + goodInput), 400, `inputs[1] "x": given twice`},
		{"too many inputs", "mlp", in(goodInput + `,` + goodInput + `,` + goodInput), 413, `inputs: 3 tensors, at most 2 are taken`},
		{"unknown output", "mlp", `{"inputs":[` + goodInput + `],"outputs":[{"name":"q"}]}`, 400, `outputs[0] "q": model "mlp" has no such output; its outputs: y, label`},
		{"output twice", "mlp", `{"inputs":[` + goodInput + `],"outputs":[{"name":"y"},{"name":"y"}]}`, 400, `outputs[1] "y": asked for twice`},
		{"binary_data", "mlp", `{"outputs":[{"name":"y","parameters":{"binary_data":1}}]}`, 400, `outputs[0].parameters.binary_data: got 1, expected a boolean`},
		{"classification", "mlp", `{"outputs":[{"name":"y","parameters":{"classification":3}}]}`, 400, `the classification extension is not offered`},
		{"shared memory", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"r"}}`), 400, `the shared-memory extensions are not offered`},
		{"binary size without a tail", "mlp", in(`{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}`), 400, `inputs[0].parameters.binary_data_size: 16 bytes, but 0 are left`},
		{"broken UTF-8", "mlp", "{\"id\":\"\xff\"}", 400, `not UTF-8`},
		{"deep nesting", "mlp", in(`{"name":"x","data":` + strings.Repeat("[", 10000)), 400, `nested deeper than 16`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := do(h, "POST", "/v2/models/"+tc.model+"/infer", tc.body)
			var e struct{ Error string }
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
				t.Fatalf("%v in %q", err, w.Body)
			}
			if w.Code != tc.code || !strings.Contains(e.Error, tc.want) {
				t.Errorf("got %d %s\nwant %d %s", w.Code, e.Error, tc.code, tc.want)
			}
		})
	}
}

func TestEveryDatatypeInJSONAndBinary(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{})})
	for _, tc := range []struct{ name, dt, shape, data, out string }{
		{"bool", "BOOL", "[2]", `[true,false]`, ""}, {"u8", "UINT8", "[2]", `[0,255]`, ""}, {"u16", "UINT16", "[1]", `[65535]`, ""},
		{"u32", "UINT32", "[1]", `[4294967295]`, ""}, {"u64", "UINT64", "[1]", `[18446744073709551615]`, ""},
		{"i8", "INT8", "[2]", `[-128,127]`, ""}, {"i16", "INT16", "[1]", `[-32768]`, ""}, {"i32", "INT32", "[1]", `[-2147483648]`, ""},
		{"i64", "INT64", "[2]", `[-9223372036854775808,9223372036854775807]`, ""}, {"f16", "FP16", "[2]", `[0.5,-65504]`, ""},
		{"f32", "FP32", "[3]", `[0.1,-3.4028235e+38,1e-45]`, ""}, {"f64", "FP64", "[2]", `[0.1,1.7976931348623157e+308]`, ""},
		{"text", "BYTES", "[3]", `["","a\u00e9\n","\ud83d\ude00"]`, `["","aé\n","😀"]`}, {"f32", "FP32", "[0]", `[]`, ""}, {"one", "FP64", "[]", `[7]`, ""},
		{"grid", "INT32", "[2,1]", `[[1],[2]]`, `[1,2]`},
	} {
		if tc.out == "" {
			tc.out = tc.data
		}
		// In as JSON, out as binary.
		w := do(h, "POST", "/v2/models/mix/infer", fmt.Sprintf(`{"parameters":{"binary_data_output":true},"inputs":[{"name":%q,"datatype":%q,"shape":%s,"data":%s}]}`, tc.name, tc.dt, tc.shape, tc.data))
		n, err := strconv.Atoi(w.Header().Get(HeaderJSONLength))
		if w.Code != 200 || err != nil {
			t.Errorf("%s: %d %s", tc.dt, w.Code, w.Body)
			continue
		}
		var resp Response
		if err := DecodeResponse(w.Body.Bytes()[:n], w.Body.Bytes()[n:], &resp); err != nil {
			t.Fatal(err)
		}
		// The same bytes in as binary, out as JSON.
		head := fmt.Sprintf(`{"inputs":[{"name":%q,"datatype":%q,"shape":%s,"parameters":{"binary_data_size":%d}}]}`, tc.name, tc.dt, tc.shape, len(resp.Outputs[0].Data))
		w = do(h, "POST", "/v2/models/mix/infer", head+string(resp.Outputs[0].Data), HeaderJSONLength, strconv.Itoa(len(head)))
		if want := `"data":` + tc.out + `}]}`; w.Code != 200 || !strings.HasSuffix(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %s at its end", tc.dt, w.Code, w.Body, want)
		}
	}
}

func TestBinaryTensorBytes(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{})})
	head := `{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],"outputs":[{"name":"y","parameters":{"binary_data":true}},{"name":"label"}]}`
	body := head + string(raw(1, 2, 3, 4))
	w := do(h, "POST", "/v2/models/mlp/infer", body, HeaderJSONLength, strconv.Itoa(len(head)))
	text := `{"model_name":"mlp","model_version":"2","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},{"name":"label","datatype":"INT64","shape":[1],"data":[0]}]}`
	if w.Code != 200 || w.Body.String() != text+string(raw(10, 1)) || w.Header().Get(HeaderJSONLength) != strconv.Itoa(len(text)) || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
	}
	for _, tc := range []struct {
		name, body, length, want string
		code                     int
	}{
		{"length beyond the body", body, "9999", "Inference-Header-Content-Length: 9999 is beyond", 400},
		{"length is no number", body, "x", `Inference-Header-Content-Length: got \"x\"`, 400},
		{"negative length", body, "-1", `got \"-1\"`, 400},
		{"tail too long", body + "z", strconv.Itoa(len(head)), "body: 17 bytes of binary data behind the JSON, the inputs account for 16", 400},
		{"tail too short", body[:len(body)-1], strconv.Itoa(len(head)), "16 bytes, but 15 are left", 400},
		{"size against the shape", strings.Replace(body, ":16", ":12", 1)[:len(body)-4], strconv.Itoa(len(head)), `got 12 bytes, shape [1 4] of FP32 has 16`, 400},
		{"data and size", strings.Replace(head, `"parameters":{"binary_data_size":16}`, `"data":[1,2,3,4],"parameters":{"binary_data_size":0}`, 1), "", `given together with parameters.binary_data_size`, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var hdr []string
			if tc.length != "" {
				hdr = []string{HeaderJSONLength, tc.length}
			}
			if w := do(h, "POST", "/v2/models/mlp/infer", tc.body, hdr...); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %s", w.Code, w.Body, tc.want)
			}
		})
	}
	nan := `{"inputs":[{"name":"f32","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`
	if w := do(h, "POST", "/v2/models/mix/infer", nan+"\x00\x00\xc0\x7f", HeaderJSONLength, strconv.Itoa(len(nan))); w.Code != 400 || !strings.Contains(w.Body.String(), "ask for binary_data") {
		t.Errorf("NaN as JSON: %d %s", w.Code, w.Body)
	}
	cut := `{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`
	if w := do(h, "POST", "/v2/models/mix/infer", cut+"\xff\xff\xff\xffa", HeaderJSONLength, strconv.Itoa(len(cut))); w.Code != 400 || !strings.Contains(w.Body.String(), "runs past the end") {
		t.Errorf("BYTES cut short: %d %s", w.Code, w.Body)
	}
}

func TestBackendErrorsOverHTTP(t *testing.T) {
	f := newFake(t)
	h := NewHTTPServer(f, Options{Door: behind(httplimit.Door{})})
	for _, tc := range []struct {
		err    error
		code   int
		reason string
	}{
		{httplimit.Dropped("expired", "cannot meet the deadline"), 429, "expired"},
		{fmt.Errorf("wrapped: %w", httplimit.Unavailable("draining", "going away")), 503, "draining"},
		{context.DeadlineExceeded, 504, "deadline_exceeded"},
		{context.Canceled, 499, "cancelled"}, {errors.New("disk"), 500, "internal"}, {nil, 500, "internal"},
	} {
		f.infer = func(context.Context, *Request) (*Response, error) { return nil, tc.err }
		w := do(h, "POST", "/v2/models/mlp/infer", `{"inputs":[`+goodInput+`]}`)
		if w.Code != tc.code || w.Header().Get(HeaderReason) != tc.reason || !strings.HasPrefix(w.Body.String(), `{"error":"`) {
			t.Errorf("%v: got %d %q %s", tc.err, w.Code, w.Header().Get(HeaderReason), w.Body)
		}
	}
	f.infer = func(context.Context, *Request) (*Response, error) { panic("boom") }
	if w := do(h, "POST", "/v2/models/mlp/infer", `{"inputs":[`+goodInput+`]}`); w.Code != 500 || strings.Contains(w.Body.String(), "boom") {
		t.Errorf("panic: %d %s", w.Code, w.Body)
	}
	f.infer = func(context.Context, *Request) (*Response, error) {
		return &Response{Outputs: []Tensor{{"y", FP32, []int64{5}, []byte{1}}}, Release: func() { f.released.Add(1) }}, nil
	}
	if w := do(h, "POST", "/v2/models/mlp/infer", `{"inputs":[`+goodInput+`]}`); w.Code != 500 || !strings.Contains(w.Body.String(), `faulty output \"y\"`) || f.released.Load() != 1 {
		t.Errorf("faulty output: %d %s, released %d", w.Code, w.Body, f.released.Load())
	}
}

func TestRequestReachesTheBackendWhole(t *testing.T) {
	f := newFake(t)
	var got *Request
	inner := f.infer
	f.infer = func(ctx context.Context, r *Request) (*Response, error) { got = r; return inner(ctx, r) }
	h := NewHTTPServer(f, Options{Door: behind(httplimit.Door{})})
	do(h, "POST", "/v2/models/mlp/infer", `{"parameters":{"timeout":250000,"priority":3,"k":"v"},"inputs":[`+goodInput+`],"outputs":[{"name":"y"}]}`)
	if got.Timeout != 250*time.Millisecond || got.Priority != 3 || got.Params["k"] != "v" || got.Batch != 1 || got.Info.Name != "mlp" || len(got.Outputs) == 0 {
		t.Errorf("got %+v", got)
	}
}

// A body that is announced as too large is refused before a byte of it is read.
func TestTwoGigabytesAreRefusedAtOnce(t *testing.T) {
	_, url := startHTTP(t, newFake(t), Options{MaxBodyBytes: 1 << 20})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2147483648\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(time.Minute)) // the body never comes
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 413")) || !bytes.Contains(answer, []byte("2147483648 bytes, at most 1048576 are taken")) {
		t.Errorf("got %q %v", answer, err)
	}
}

func TestChunkedBodyIsCutAtTheLimit(t *testing.T) {
	_, url := startHTTP(t, newFake(t), Options{MaxBodyBytes: 64 << 10})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := []byte("4000\r\n" + strings.Repeat(" ", 16<<10) + "\r\n")
	for range 5 { // one more than the limit; the end of the body never comes
		if _, err := conn.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	if err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 413")) {
		t.Errorf("got %q %v", answer[:n], err)
	}
	small, err := http.Post(url+"/v2/models/mlp/infer", "application/json", io.MultiReader(strings.NewReader(`{"inputs":[`), strings.NewReader(goodInput+`]}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Body.Close()
	if small.StatusCode != 200 {
		t.Errorf("a small chunked body: %s", small.Status)
	}
}

func TestMemoryOfBodiesInFlightIsBounded(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{Budget: httplimit.NewBudget(10, quiet)})})
	w := do(h, "POST", "/v2/models/mlp/infer", `{"inputs":[`+goodInput+`]}`)
	if w.Code != 503 || w.Header().Get(HeaderReason) != "memory" || h.core.opt.Door.Budget.UsedBytes() != 0 {
		t.Errorf("got %d %s, %d bytes held", w.Code, w.Body, h.core.opt.Door.Budget.UsedBytes())
	}
	if w := do(h, "POST", "/v2/models/mlp/infer", `{}`, "Content-Encoding", "gzip"); w.Code != 415 {
		t.Errorf("gzip: %d %s", w.Code, w.Body)
	}
}

func TestBearerTokenIsRequired(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{Keys: ring("s3cret-s3cret-s3cret")})})
	for _, tc := range []struct {
		path, auth string
		code       int
	}{
		{"/v2", "", 401}, {"/v2", "Bearer wrong", 401}, {"/v2", "Basic s3cret-s3cret-s3cret", 401}, {"/v2", "Bearer s3cret-s3cret-s3cret", 200}, {"/v2", "bearer s3cret-s3cret-s3cret", 200},
		{"/v2/health/live", "", 200}, {"/v2/health/ready", "", 200}, {"/v2/models/stats", "", 401},
	} {
		if w := do(h, "GET", tc.path, "", "Authorization", tc.auth); w.Code != tc.code {
			t.Errorf("%s with %q: got %d, want %d", tc.path, tc.auth, w.Code, tc.code)
		}
	}
}

func TestDrainFinishesWhatWasAccepted(t *testing.T) {
	f := newFake(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := f.infer
	f.infer = func(ctx context.Context, r *Request) (*Response, error) {
		close(entered)
		<-leave
		return inner(ctx, r)
	}
	s, url := startHTTP(t, f, Options{})
	first := make(chan int, 1)
	post := func() int {
		resp, err := http.Post(url+"/v2/models/mlp/infer", "application/json", strings.NewReader(`{"inputs":[`+goodInput+`]}`))
		if err != nil {
			return -1
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	go func() { first <- post() }()
	<-entered
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	for !s.core.gate.IsClosed() {
		time.Sleep(time.Millisecond)
	}
	if code := post(); code != 503 {
		t.Errorf("while draining: %d, want 503", code)
	}
	if w := do(s, "GET", "/v2/health/ready", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "shutting down") {
		t.Errorf("ready while draining: %d %s", w.Code, w.Body)
	}
	close(leave)
	if code := <-first; code != 200 {
		t.Errorf("the accepted one got %d", code)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	f := newFake(t)
	entered := make(chan struct{})
	f.infer = func(ctx context.Context, r *Request) (*Response, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s, url := startHTTP(t, f, Options{})
	go http.Post(url+"/v2/models/mlp/infer", "application/json", strings.NewReader(`{"inputs":[`+goodInput+`]}`))
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Drain(ctx); err == nil || !strings.Contains(err.Error(), "1 requests still running") {
		t.Errorf("got %v", err)
	}
}

func TestCatalogRefusesFaultyModels(t *testing.T) {
	x := []TensorInfo{{Name: "x", Datatype: FP32, Shape: []int64{-1}}}
	for want, models := range map[string][]ModelInfo{
		"has no name":            {{Versions: []string{"1"}}},
		"stands twice":           {{Name: "a", Versions: []string{"1"}}, {Name: "a", Versions: []string{"1"}}},
		"has no version":         {{Name: "a"}},
		"input 0 has no name":    {{Name: "a", Versions: []string{"1"}, Inputs: []TensorInfo{{Datatype: FP32}}}},
		`input "x" stands twice`: {{Name: "a", Versions: []string{"1"}, Inputs: append(x[:1:1], x[0])}},
		"has no datatype":        {{Name: "a", Versions: []string{"1"}, Outputs: []TensorInfo{{Name: "y"}}}},
		"-1 stands for any":      {{Name: "a", Versions: []string{"1"}, Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: []int64{-2}}}}},
		"no batch dimension":     {{Name: "a", Versions: []string{"1"}, MaxBatch: 2, Inputs: []TensorInfo{{Name: "x", Datatype: FP32}}}},
	} {
		if _, err := NewCatalog(models...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestBytesElementLayout(t *testing.T) {
	r := &Request{}
	if err := DecodeRequest([]byte(`{"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["ab",""]}]}`), nil, nil, r); err != nil {
		t.Fatal(err)
	}
	want := binary.LittleEndian.AppendUint32(append(binary.LittleEndian.AppendUint32(nil, 2), "ab"...), 0)
	if !bytes.Equal(r.Inputs[0].Data, want) {
		t.Errorf("got %v, want %v", r.Inputs[0].Data, want)
	}
}
