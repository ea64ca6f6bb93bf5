package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats/seeded"
)

// What was asked of every request, whatever it holds.
const (
	cpuPerByte   = 40 * time.Nanosecond
	cpuPerTry    = time.Millisecond
	slowest      = 2 * time.Second
	largestBody  = 2 << 20 // of REST mutants
	largestCall  = 900 << 10
	tries        = 12                    // of a mutant that seems dear
	patience     = 30 * time.Millisecond // until the end of what is sent is shown to the server
	serverMemory = 1 << 30
)

// wire is how a mutant reaches a server and what comes back: an answer in words, and
// whether that is a failure of the server's (5xx).
type wire struct {
	name string
	good []byte   // a request without fault
	hard [][]byte // what is known to be hard, before all mutants
	make func(m *mutator) []byte
	send func(address string, raw []byte) (answer string, failure bool)
}

// tally counts the fates of the requests of a corpus.
type tally struct {
	tries, failures, slow int
	answers               map[string]int
	failed                []string // some of the failures, in words
	longest               time.Duration
	bytes                 int64
	cpu                   time.Duration
	worst                 float64 // CPU time of a try over what it may take
	worstSize             int
	worstCPU              time.Duration
	steepest              float64 // ns per byte of a body of 64 KiB or more
}

// requests sends mutants of both protocols to a server without a token and to one
// with a token that the mutants do not know.
func (a *attack) requests(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	token, err := a.secret("token.txt")
	if err != nil {
		return nil, err
	}
	var out []figures.Figure
	for _, w := range []wire{restWire(), grpcWire()} {
		for _, guarded := range []bool{false, true} {
			args, where := []string{"--memory-limit", "1GiB"}, w.name
			if guarded {
				args, where = append(args, "--token-file", token), w.name+", no token"
			}
			s, err := a.startServer(ctx, plan, args...)
			if err != nil {
				return nil, err
			}
			t, err := a.shoot(ctx, s, w, a.count(10_000), where)
			peak := s.status("VmHWM")
			if code, serr := s.stop(); err == nil && (serr != nil || code != 0) {
				err = fmt.Errorf("%s: the server ended with code %d: %w", where, code, errors.Join(serr, errors.New("expected 0")))
			}
			if err != nil {
				return nil, err
			}
			out = append(out, t.figures(where, s.panics(), peak)...)
			a.print(t, where, peak)
		}
	}
	return out, nil
}

// shoot sends n mutants, one after the other so that the server's CPU time is that of
// one of them.
func (a *attack) shoot(ctx context.Context, s *server, w wire, n int, stream string) (*tally, error) {
	m := &mutator{Rand: seeded.New(a.seed, stream), words: requestWords}
	t := &tally{answers: map[string]int{}}
	address := s.http
	if w.name == "gRPC" {
		address = s.grpc
	}
	for i := range n {
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		if i < len(w.hard) {
			t.try(s, w, address, w.hard[i])
		} else {
			t.try(s, w, address, w.make(m))
		}
		if !s.alive() {
			return t, fmt.Errorf("%s: the server ended at mutant %d", stream, i)
		}
	}
	return t, nil
}

// try sends a mutant. One that seems to cost too much is sent again, each time behind a
// good request: what other work on the machine and the collector add differs, what the
// mutant costs does not. Where the least of the good requests costs more than a third of
// what a request may take, the machine is slow, and the mutant may take as much more.
func (t *tally) try(s *server, w wire, address string, raw []byte) {
	allowed := float64(cpuPerTry + time.Duration(len(raw))*cpuPerByte)
	var cost time.Duration
	good := time.Duration(math.MaxInt64)
	for again := range tries {
		if again > 0 {
			before := s.cpu()
			w.send(address, w.good)
			good = min(good, s.cpu()-before)
		}
		before, began := s.cpu(), time.Now()
		answer, failure := w.send(address, raw)
		took := time.Since(began)
		spent := s.cpu() - before
		if again == 0 {
			t.tries++
			t.answers[answer]++
			t.bytes += int64(len(raw))
			t.cpu += spent
			cost = spent
			if failure {
				if t.failures++; len(t.failed) < 5 {
					t.failed = append(t.failed, fmt.Sprintf("%s: %.300q", answer, raw))
				}
			}
		}
		cost = min(cost, spent)
		if again == 0 || took < t.longest {
			defer func(took time.Duration) { t.longest = max(t.longest, took) }(took)
		}
		if float64(spent) <= allowed/2 && took < slowest {
			break
		}
		if again == tries-1 && took >= slowest {
			t.slow++
		}
	}
	if good < math.MaxInt64 {
		allowed *= max(1, 3*float64(good)/float64(cpuPerTry))
	}
	if r := float64(cost) / allowed; r > t.worst {
		t.worst, t.worstSize, t.worstCPU = r, len(raw), cost
	}
	if len(raw) >= 64<<10 {
		t.steepest = max(t.steepest, float64(cost.Nanoseconds())/float64(len(raw)))
	}
}

func (t *tally) figures(where string, panics int, peak int64) []figures.Figure {
	holds, note := figures.If(panics+t.failures+t.slow == 0), ""
	if n := t.answers[byLibrary]; n > 0 {
		note = fmt.Sprintf("to %d frames and headers that are no gRPC the library answers INTERNAL, as gRPC's status codes have it", n)
		if holds == figures.Yes {
			holds = figures.Partly
		}
	}
	if n := t.answers["501"] + t.answers["505"]; n > 0 {
		note = fmt.Sprintf("501 and 505 (%d) aside: HTTP's words for a transfer coding or version that there is not (RFC 9110)", n)
	}
	return []figures.Figure{
		{Claim: "mutants of requests over " + where + ": panics, 5xx and answers after 2 s", Source: source, Asked: "none", Measured: float64(panics + t.failures + t.slow),
			Unit: fmt.Sprintf("of %d", t.tries), Holds: holds, Note: note},
		{Claim: "CPU of the dearest mutant over " + where + ", of 40 ns a byte and 1 ms", Source: source, Asked: "at most 1", Measured: round(t.worst), Holds: figures.If(t.worst <= 1),
			Note: fmt.Sprintf("%d bytes, %v; with 64 KiB or more at most %.1f ns a byte", t.worstSize, t.worstCPU.Round(10*time.Microsecond), t.steepest)},
		{Claim: "peak memory of the server under mutants over " + where, Source: source, Asked: "at most 1 GiB", Measured: round(float64(peak) / (1 << 20)), Unit: "MiB", Holds: figures.If(peak <= serverMemory)},
	}
}

func (a *attack) print(t *tally, where string, peak int64) {
	a.printf("%-16s %6d mutants, %s; longest %v, CPU %v in all, dearest %.2f of what is allowed (%d bytes, %v), steepest %.1f ns/byte, peak %d MiB\n", where, t.tries, sizeOf(t.bytes),
		t.longest.Round(time.Millisecond), t.cpu.Round(time.Millisecond), t.worst, t.worstSize, t.worstCPU, t.steepest, peak>>20)
	for _, answer := range sortedKeys(t.answers) {
		a.printf("    %6d  %s\n", t.answers[answer], answer)
	}
	for _, f := range t.failed {
		a.printf("    FAILED %s\n", f)
	}
}

var requestWords = []string{
	`"inputs"`, `"outputs"`, `"name"`, `"shape"`, `"datatype"`, `"data"`, `"parameters"`, `"binary_data_size"`, `"binary_data"`, `"binary_data_output"`, `"timeout"`, `"priority"`, `"class"`, `"id"`,
	`"FP32"`, `"INT64"`, `"BYTES"`, `"BF16"`, `"FP16"`, `"BOOL"`, `"m"`, `"x"`, `[1,4]`, `[-1,4]`, `[4611686018427387904,4]`, `"classification":1`, `"shared_memory_region":"r"`,
}

// restRequest is a request of HTTP/1.1 in its parts.
type restRequest struct {
	method, path string
	headers      [][2]string
	body         []byte
}

func (r *restRequest) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", r.method, r.path)
	for _, h := range r.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	return b.Bytes()
}

// restSeeds are good requests of every form.
func restSeeds() (out []restRequest) {
	post := func(path, body string, headers ...[2]string) {
		out = append(out, restRequest{"POST", path, append([][2]string{{"Host", "127.0.0.1"}, {"Content-Type", "application/json"}}, headers...), []byte(body)})
	}
	infer := "/v2/models/m/infer"
	post(infer, `{"id":"a","inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2.5,-3e-2,4]}]}`)
	post(infer, `{"inputs":[{"name":"x","shape":[2,4],"datatype":"FP32","data":[[1,2,3,4],[5,6,7,8]]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"timeout":500000,"priority":1,"k":"v"}}`)
	head := `{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],"parameters":{"binary_data_output":true}}`
	post(infer, head+"\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40", [2]string{"Inference-Header-Content-Length", strconv.Itoa(len(head))})
	post("/v2/models/words/infer", `{"inputs":[{"name":"x","shape":[1,8],"datatype":"INT64","data":[1,2,3,4,5,6,7,8]}]}`)
	post("/v2/models/words/versions/1/infer", `{"inputs":[{"data":[1,2,3,4,5,6,7,9223372036854775807],"name":"x","shape":[1,8],"datatype":"INT64"}]}`)
	post("/v2/repository/index", `{"ready":true}`)
	for _, path := range []string{"/v2", "/v2/health/ready", "/v2/models/m", "/v2/models/m/stats", "/v2/models/stats", "/v2/models/m/versions/1/ready"} {
		out = append(out, restRequest{"GET", path, [][2]string{{"Host", "127.0.0.1"}}, nil})
	}
	return out
}

func restWire() wire {
	seeds := restSeeds()
	var hard [][]byte
	for _, size := range []int{20_000, 800_000} {
		for _, r := range hostileBodies(size) {
			hard = append(hard, r.bytes())
		}
	}
	return wire{name: "REST", good: seeds[0].bytes(), hard: hard, send: sendREST, make: func(m *mutator) []byte {
		r := seeds[m.IntN(len(seeds))]
		r.headers = slices.Clone(r.headers)
		kind := m.IntN(20)
		switch {
		case kind == 0:
			r.path = string(m.mutate([]byte(r.path), 4<<10))
		case kind == 1:
			r.method = []string{"GET", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "post", "", "\x00"}[m.IntN(10)]
		case kind < 5:
			r.headers = append(r.headers, restHeader(m.Rand))
			if at := m.IntN(len(r.headers)); m.IntN(2) == 0 {
				r.headers[at][1] = string(m.mutate([]byte(r.headers[at][1]), 80<<10))
			}
		default:
			r.body = m.mutate(r.body, largestBody)
		}
		if m.IntN(40) > 0 {
			r.headers = append(r.headers, [2]string{"Content-Length", strconv.Itoa(len(r.body))})
		}
		raw := r.bytes()
		if kind == 5 {
			raw = m.mutate(raw, largestBody)
		}
		return raw
	}}
}

// restHeader is a header that servers have got wrong before.
func restHeader(r *rand.Rand) [2]string {
	list := [][2]string{
		{"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "identity"}, {"Content-Length", "0"}, {"Content-Length", "-1"}, {"Content-Length", "67108864"}, {"Content-Length", "99999999999999999999"},
		{"Inference-Header-Content-Length", "0"}, {"Inference-Header-Content-Length", "1"}, {"Inference-Header-Content-Length", "-1"}, {"Inference-Header-Content-Length", "9223372036854775807"},
		{"Content-Encoding", "gzip"}, {"Content-Type", "text/plain"}, {"Origin", "http://evil.example"}, {"Host", "evil.example"}, {"Expect", "100-continue"}, {"Connection", "Upgrade"}, {"Upgrade", "h2c"},
		{"Inferplan-Class", "gold"}, {"Authorization", "Bearer x"}, {"Range", "bytes=0-"}, {"X", string(bytes.Repeat([]byte("a"), 70<<10))},
	}
	return list[r.IntN(len(list))]
}

// sendREST sends raw bytes and reads one answer. The end of what is sent is shown
// only where no answer comes, for a server may take it for a client that has gone.
func sendREST(address string, raw []byte) (string, bool) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "no connection", true
	}
	defer c.Close()
	go func() { _, _ = c.Write(raw) }() // ends with the connection
	r := bufio.NewReader(c)
	if !awaits(c, r) {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * slowest))
	method, _, _ := strings.Cut(string(raw[:min(len(raw), 16)]), " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	for err == nil && resp.StatusCode == http.StatusContinue {
		_ = c.(*net.TCPConn).CloseWrite() // all that there is was sent
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return "nothing", true
	case err != nil:
		return "closed", false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	resp.Body.Close()
	answer := strconv.Itoa(resp.StatusCode)
	if reason := resp.Header.Get("Inferplan-Reason"); reason != "" {
		answer += " " + reason
	}
	// What a request asks for that HTTP has and the server has not: RFC 9110, 15.6.2
	// and 15.6.6. The library says so before any of our code runs.
	asked := resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusHTTPVersionNotSupported
	return answer, resp.StatusCode >= 500 && !asked
}

// awaits waits a moment for an answer to begin.
func awaits(c net.Conn, r *bufio.Reader) bool {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := r.Peek(1)
	var ne net.Error
	return err == nil || !errors.As(err, &ne) || !ne.Timeout()
}
