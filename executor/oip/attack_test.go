package oip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"inferplan/cputime"
	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
	"inferplan/executor/oip/oippb"
)

// growth is how many times longer work takes on input of four times the size.
// Linear work gives four, quadratic sixteen. The small size gets the best of five
// tries in CPU time of the process, the large one as many as it needs, at most five;
// what other tests leave behind only adds.
func growth(t *testing.T, n int, work func(n int)) {
	t.Helper()
	best := func(n int, enough time.Duration) time.Duration {
		b := time.Duration(math.MaxInt64)
		for try := 0; try < 5 && b > enough; try++ {
			before := cputime.Used()
			work(n)
			b = min(b, cputime.Used()-before)
		}
		return max(b, time.Millisecond)
	}
	small := best(n, 0)
	large := best(4*n, 10*small)
	if r := float64(large) / float64(small); r > 10 {
		t.Errorf("4 times the input takes %.1f times as long (%v, %v)", r, small, large)
	}
}

// repeatedContents is a ModelInferRequest whose input has its contents in n pieces.
func repeatedContents(n int) []byte {
	floats := protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), raw(0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	input := appendText(appendText(nil, tensorName, "x"), tensorDatatype, "FP32")
	dims := protowire.AppendVarint(protowire.AppendVarint(nil, uint64(n)), 10)
	input = protowire.AppendBytes(protowire.AppendTag(input, tensorShape, protowire.BytesType), dims)
	for range n {
		input = protowire.AppendBytes(protowire.AppendTag(input, tensorContents, protowire.BytesType), floats)
	}
	return protowire.AppendBytes(protowire.AppendTag(appendText(nil, fieldModelName, "mlp"), requestInputs, protowire.BytesType), input)
}

func TestDecodingIsLinear(t *testing.T) {
	c := testCatalog(t)
	m := c.lookup("mlp")
	for _, tc := range []struct {
		name string
		n    int
		make func(n int) []byte
		wire bool
	}{
		{"contents in pieces", 20_000, repeatedContents, true},
		{"empty tensors", 100_000, func(n int) []byte { return bytes.Repeat([]byte{requestInputs<<3 | 2, 0}, n) }, true},
		{"wire parameters", 20_000, func(n int) (b []byte) {
			for i := range n {
				b = appendParam(b, strconv.Itoa(i), int64(1))
			}
			return b
		}, true},
		{"parameters", 20_000, func(n int) []byte {
			b := []byte(`{"parameters":{"a":0`)
			for i := range n {
				b = fmt.Appendf(b, `,"%d":1`, i)
			}
			return append(b, `},"inputs":[]}`...)
		}, false},
		{"outputs with parameters", 400, func(n int) []byte {
			b := []byte(`{"inputs":[],"outputs":[{"name":"y"}`)
			for range n {
				b = append(b, `,{"name":"y","parameters":{"a":0`...)
				for i := range 200 {
					b = fmt.Appendf(b, `,"%d":1`, i)
				}
				b = append(b, `}}`...)
			}
			return append(b, `]}`...)
		}, false},
		{"more data than the shape has", 200_000, func(n int) []byte {
			return []byte(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1` + strings.Repeat(",1", n) + `]}]}`)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bodies := map[int][]byte{tc.n: tc.make(tc.n), 4 * tc.n: tc.make(4 * tc.n)}
			growth(t, tc.n, func(n int) {
				if tc.wire {
					unmarshalRequest(t.Context(), bodies[n], &Request{}, c.lookup)
				} else {
					decodeRequest(t.Context(), bodies[n], nil, m, &Request{})
				}
			})
		})
	}
	r := &Request{}
	if err := unmarshalRequest(t.Context(), repeatedContents(500), r, c.lookup); err != nil || len(r.Inputs[0].Data) != 500*40 {
		t.Errorf("contents in pieces: %v, %d bytes", err, len(r.Inputs[0].Data))
	}
}

func TestParametersAreCounted(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{})})
	body := func(n int, last string) string {
		b := `{"parameters":{"a":0`
		for i := range n - 1 {
			b += fmt.Sprintf(`,"p%d":1`, i)
		}
		return b + last + `},"inputs":[` + goodInput + `]}`
	}
	for _, tc := range []struct {
		body string
		code int
		want string
	}{
		{body(maxParams, ""), 200, ""},
		{body(maxParams+1, ""), 413, "more than 256 parameters"},
		{body(20, `,"p3":1`), 400, "parameters.p3: given twice"},
		{body(20, `,"p17":1`), 400, "parameters.p17: given twice"},
	} {
		if w := do(h, "POST", "/v2/models/mlp/infer", tc.body); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tc.code, tc.want)
		}
	}
}

// TestDecodingStopsWhenTheClientIsGone counts how far a decoder reads.
func TestDecodingStopsWhenTheClientIsGone(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	m := testCatalog(t).lookup("mlp")
	text := []byte(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1` + strings.Repeat(",1", 4<<20) + `]}]}`)
	d := decoder{Cursor: jsonscan.Cursor{B: text, Progress: jsonscan.Progress{Ctx: gone}}, model: m, newShape: (&Request{}).shape}
	err := d.Object(func([]byte) *Error { _, err := d.tensors("inputs", nil); return err })
	if err == nil || err.Code != httplimit.CodeCancelled || d.I > 4*jsonscan.CheckInterval {
		t.Errorf("JSON: %v after %d bytes", err, d.I)
	}
	for _, b := range [][]byte{bytes.Repeat([]byte{15<<3 | 2, 0}, 2*jsonscan.CheckInterval), repeatedContents(4 * jsonscan.CheckInterval / 44)} {
		if err := unmarshalRequest(gone, b, &Request{}, func(string) *ModelInfo { return m }); err == nil || err.Code != httplimit.CodeCancelled {
			t.Errorf("protobuf: %v", err)
		}
	}
}

// rawGRPC speaks HTTP/2 by hand, to send what no library would.
type rawGRPC struct {
	net.Conn
	f   *http2.Framer
	hp  bytes.Buffer
	enc *hpack.Encoder
}

func dialGRPC(t *testing.T, address string) *rawGRPC {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := &rawGRPC{Conn: c, f: http2.NewFramer(c, c)}
	r.enc = hpack.NewEncoder(&r.hp)
	io.WriteString(c, http2.ClientPreface)
	r.f.WriteSettings()
	return r
}

// call opens a stream and announces a message of size bytes.
func (r *rawGRPC) call(id uint32, method string, size int) error {
	r.hp.Reset()
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "127.0.0.1"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		r.enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if err := r.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: bytes.Clone(r.hp.Bytes()), EndHeaders: true}); err != nil {
		return err
	}
	return r.f.WriteData(id, false, []byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
}

// fill sends as many bytes as fit in the first window of a stream.
func (r *rawGRPC) fill(id uint32, n int) error {
	piece := make([]byte, 16<<10)
	for n > 0 {
		k := min(n, len(piece))
		if err := r.f.WriteData(id, false, piece[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// cut says whether the server closes the connection within a time.
func (r *rawGRPC) cut(d time.Duration) bool {
	r.SetReadDeadline(time.Now().Add(d))
	_, err := io.Copy(io.Discard, r.Conn)
	var ne net.Error
	return !(errors.As(err, &ne) && ne.Timeout())
}

// listenGRPC serves on loopback until the test ends.
func listenGRPC(t *testing.T, b Backend, opt Options) (*GRPCServer, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if opt.Door == nil {
		opt.Door = behind(httplimit.Door{})
	}
	s := NewGRPCServer(b, opt)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

const inferMethod = oippb.GRPCInferenceService_ModelInfer_FullMethodName

// TestNoMessageIsReadBeforeTheToken looks whether the decoder asks for models.
func TestNoMessageIsReadBeforeTheToken(t *testing.T) {
	f := &asked{fake: newFake(t)}
	_, cc := startGRPC(t, f, Options{Door: behind(httplimit.Door{Keys: ring("s3cret-s3cret-s3cret")})})
	for range 10 {
		if _, err := oippb.NewGRPCInferenceServiceClient(cc).ModelInfer(t.Context(), goodPB()); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	if n := f.models.Load(); n > 0 {
		t.Errorf("%d messages without a token were decoded", n)
	}
	// A message that never ends is refused when its header has come.
	_, address := listenGRPC(t, f, Options{Door: behind(httplimit.Door{Keys: ring("s3cret-s3cret-s3cret")})})
	c := dialGRPC(t, address)
	c.call(1, inferMethod, 60<<20)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		fr, err := c.f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := fr.(*http2.HeadersFrame); ok && h.StreamEnded() {
			break
		}
	}
}

// asked counts how often the catalog was asked for.
type asked struct {
	*fake
	models atomic.Int64
}

func (a *asked) Models() *Catalog { a.models.Add(1); return a.fake.Models() }

// settles waits until a condition holds.
func settles(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestPromisedBytesBookNothing(t *testing.T) {
	b := httplimit.NewBudget(1<<20, quiet)
	_, url := startHTTP(t, newFake(t), Options{Door: behind(httplimit.Door{Budget: b})})
	address := strings.TrimPrefix(url, "http://")
	for range 64 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 67108864\r\n\r\n")
	}
	settles(t, "the heads have not come", func() bool { return b.UsedBytes() >= 64*4<<10 })
	if used := b.UsedBytes(); used != 64*4<<10 {
		t.Errorf("64 heads book %d bytes", used)
	}
	inferOK(t, url)
	if code := get(t, url+"/v2/health/ready"); code != 200 {
		t.Errorf("ready: %d", code)
	}
}

func inferOK(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url+"/v2/models/mlp/infer", "application/json", strings.NewReader(`{"inputs":[`+goodInput+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Errorf("a well-behaved client gets %d %s", resp.StatusCode, body)
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestGreedyClientsMakeRoom fills the memory over both transports with bodies
// that never end: it stays bounded, and others are served.
func TestGreedyClientsMakeRoom(t *testing.T) {
	const limit = 8 << 20
	b := httplimit.NewBudget(limit, quiet)
	b.Patience = 50 * time.Millisecond
	opt := Options{Door: behind(httplimit.Door{Budget: b})}
	f := newFake(t)
	_, url := startHTTP(t, f, opt)
	_, address := listenGRPC(t, f, opt)
	stop := make(chan struct{})
	var high atomic.Int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
				high.Store(max(high.Load(), b.UsedBytes()))
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for i := range 16 {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 67108864\r\n\r\n")
		go c.Write(make([]byte, 1<<20))
		g := dialGRPC(t, address)
		for k := range 8 {
			if g.call(uint32(2*k+1), inferMethod, 60<<20) != nil || g.fill(uint32(2*k+1), 500<<10) != nil {
				break // cut off, as it should be
			}
		}
		if i%4 == 3 {
			inferOK(t, url)
			if _, err := grpcOnce(t, address); err != nil {
				t.Errorf("gRPC: %v", err)
			}
		}
	}
	close(stop)
	<-watched
	if high.Load() > limit {
		t.Errorf("%d bytes were held, at most %d may be", high.Load(), limit)
	}
	if high.Load() < limit/4 {
		t.Errorf("only %d bytes were held: the test does not fill the memory", high.Load())
	}
}

// grpcOnce does one call on a connection of its own.
func grpcOnce(t *testing.T, address string) (*oippb.ModelInferResponse, error) {
	t.Helper()
	cc := dialClient(t, address)
	defer cc.Close()
	return oippb.NewGRPCInferenceServiceClient(cc).ModelInfer(t.Context(), goodPB())
}

func dialClient(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

func TestMessagesThatNeverEndAreCutOff(t *testing.T) {
	b := httplimit.NewBudget(1<<30, quiet)
	_, address := listenGRPC(t, newFake(t), Options{Door: behind(httplimit.Door{Budget: b, ReadTimeout: 300 * time.Millisecond})})
	half := dialGRPC(t, address)
	half.call(1, inferMethod, 60<<20)
	half.fill(1, 30_000)
	none := dialGRPC(t, address) // a call without a message
	none.call(1, inferMethod, 0)
	if !half.cut(10 * time.Second) {
		t.Error("half a message: the connection stays")
	}
	settles(t, "memory is not given back", func() bool { return b.UsedBytes() <= 2*streamCost })
	none.Close()
	// A connection on which calls go on is not cut off, nor one without calls.
	cc := dialClient(t, address)
	defer cc.Close()
	for range 20 {
		if _, err := oippb.NewGRPCInferenceServiceClient(cc).ModelInfer(t.Context(), goodPB()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if settles(t, "calls that ended are still booked", func() bool { return b.UsedBytes() == 0 }); b.UsedBytes() != 0 {
		t.Errorf("%d bytes are booked", b.UsedBytes())
	}
}

// TestWatchedConnFollowsFrames holds what the connection counts against frames
// in pieces of every size, padded or not, and ends of calls from either side.
func TestWatchedConnFollowsFrames(t *testing.T) {
	var in, out bytes.Buffer
	cf, sf := http2.NewFramer(&in, nil), http2.NewFramer(&out, nil)
	in.WriteString(http2.ClientPreface)
	cf.WriteSettings()
	for id := uint32(1); id <= 9; id += 2 {
		cf.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82}, EndHeaders: true})
	}
	message := append([]byte{0, 0, 0, 3, 232}, make([]byte, 1000)...)
	cf.WriteData(1, false, message[:400])                    // 1: half a message
	cf.WriteDataPadded(3, false, message, make([]byte, 200)) // 3: whole, not ended
	cf.WriteDataPadded(5, true, message, make([]byte, 7))    // 5: ended by the client
	cf.WriteRSTStream(7, http2.ErrCodeCancel)                // 7: reset by the client
	cf.WriteData(9, false, message)                          // 9: ended by the server
	cf.WriteData(11, false, message)                         // 11: never opened
	cf.WritePing(false, [8]byte{})                           //
	sf.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
	for step := 1; step < in.Len(); step = step*2 + 1 {
		c := &watchedConn{streams: map[uint32]incomingCall{}, inFrames: frameReader{skip: prefaceBytes}}
		for p := in.Bytes(); len(p) > 0; p = p[min(step, len(p)):] {
			c.followFrames(&c.inFrames, p[:min(step, len(p))], true)
		}
		for p := out.Bytes(); len(p) > 0; p = p[min(step, len(p)):] {
			c.followFrames(&c.outFrames, p[:min(step, len(p))], false)
		}
		one, three := c.streams[1], c.streams[3]
		if len(c.streams) != 2 || one.remaining != 605 || one.complete || three.remaining != 0 || !three.complete {
			t.Fatalf("step %d: %+v", step, c.streams)
		}
		if want := int64(2*streamCost + 2*frameCost + 400 + 1005 + 201); c.totalBytes != want {
			t.Errorf("step %d: %d bytes, want %d", step, c.totalBytes, want)
		}
	}
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	infer := func(h http.Handler, host, origin, kind string) int {
		r := httptest.NewRequest("POST", "/v2/models/mlp/infer", strings.NewReader(`{"inputs":[`+goodInput+`]}`))
		r.Host = host
		for k, v := range map[string]string{"Origin": origin, "Content-Type": kind} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, tc := range []struct {
		door               httplimit.Door
		host, origin, kind string
		code               int
	}{
		{httplimit.Door{}, "127.0.0.1:8000", "", "", 200},
		{httplimit.Door{}, "localhost:8000", "", "application/json; charset=utf-8", 200},
		{httplimit.Door{}, "[::1]:8000", "", "application/octet-stream", 200},
		{httplimit.Door{}, "10.0.0.7:8000", "http://10.0.0.7:8000", "", 200},
		{httplimit.Door{}, "evil.example", "", "", 403},
		{httplimit.Door{}, "evil.example:8000", "http://evil.example:8000", "", 403},
		{httplimit.Door{}, "127.0.0.1.evil.example", "", "", 403},
		{httplimit.Door{}, "127.0.0.1:8000", "http://evil.example", "", 403},
		{httplimit.Door{}, "127.0.0.1:8000", "null", "", 403},
		{httplimit.Door{}, "127.0.0.1:8000", "", "text/plain", 415},
		{httplimit.Door{}, "127.0.0.1:8000", "", "application/x-www-form-urlencoded", 415},
		{httplimit.Door{Hosts: []string{"models.example"}}, "models.example:8000", "http://models.example:8000", "", 200},
		{httplimit.Door{Hosts: []string{"models.example"}}, "evil.example", "", "", 403},
		{httplimit.Door{Hosts: []string{"*"}}, "evil.example", "", "", 200},
		{httplimit.Door{Keys: ring("t-t-t-t-t-t-t-t-t")}, "any.example", "", "", 401},
	} {
		if code := infer(NewHTTPServer(newFake(t), Options{Door: behind(tc.door)}), tc.host, tc.origin, tc.kind); code != tc.code {
			t.Errorf("Host %q, Origin %q, Content-Type %q, names %v: got %d, want %d", tc.host, tc.origin, tc.kind, tc.door.Hosts, code, tc.code)
		}
	}
}

func TestClientsDataIsNoInternalError(t *testing.T) {
	h := NewHTTPServer(newFake(t), Options{Door: behind(httplimit.Door{})})
	nan := string(raw(1, float32(math.NaN()), 3, 4))
	head := `{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]}`
	w := do(h, "POST", "/v2/models/mlp/infer", head+nan, HeaderJSONLength, strconv.Itoa(len(head)))
	if w.Code != 400 || w.Header().Get(HeaderReason) != "not_json" || !strings.Contains(w.Body.String(), "ask for binary_data") {
		t.Errorf("NaN: %d %s", w.Code, w.Body)
	}
	long := strings.Repeat("x", 1<<16)
	if w := do(h, "POST", "/v2/models/mlp/infer", `{"parameters":{"timeout":"`+long+`"},"inputs":[]}`); w.Code != 400 || w.Body.Len() > 1000 {
		t.Errorf("a long parameter: %d with %d bytes of answer", w.Code, w.Body.Len())
	}
	for _, shape := range [][]int64{{-1, math.MaxInt64}, {1 << 20, 1 << 20}, {math.MaxInt64, 2}} {
		if _, err := NewCatalog(ModelInfo{Name: "m", Versions: []string{"1"}, Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: shape}}}); err == nil {
			t.Errorf("shape %v is taken", shape)
		}
	}
}

// FuzzWatchedConn holds the sum that a connection books against its calls.
func FuzzWatchedConn(f *testing.F) {
	var in bytes.Buffer
	fr := http2.NewFramer(&in, nil)
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	fr.WriteDataPadded(1, false, []byte{0, 0, 0, 0, 2, 1, 2, 0, 0}, make([]byte, 3))
	fr.WriteDataPadded(1, true, nil, make([]byte, 9))
	f.Add(in.Bytes(), []byte{0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0}, 5)
	f.Add([]byte{0, 0, 1, 0, 8, 0, 0, 0, 1, 255}, []byte{}, 1)
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 7, 0, 8, 0, 0, 0, 3, 1, 0, 0, 0, 0, 1, 9}, []byte{}, 3)
	f.Fuzz(func(t *testing.T, in, out []byte, step int) {
		step = max(step, 1)
		c := &watchedConn{streams: map[uint32]incomingCall{}}
		for len(in) > 0 || len(out) > 0 {
			n, m := min(step, len(in)), min(step, len(out))
			c.followFrames(&c.inFrames, in[:n], true)
			c.followFrames(&c.outFrames, out[:m], false)
			in, out = in[n:], out[m:]
		}
		sum := int64(0)
		for _, s := range c.streams {
			if s.remaining < 0 || s.headBytes > 4 {
				t.Errorf("%+v", s)
			}
			sum += streamCost + s.bytes
		}
		if sum != c.totalBytes {
			t.Errorf("books %d bytes, the calls take %d", c.totalBytes, sum)
		}
	})
}
