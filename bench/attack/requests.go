package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
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
	serverMemory = 1024                  // MiB
)

// hardSizes are the sizes of bodies that are known to be hard.
var hardSizes = []int{20_000, 800_000}

// wire is how a mutant reaches a server and what comes back: an answer in words, and
// whether that is a failure of the server's (5xx).
type wire struct {
	name string
	good []byte   // a request without fault
	hard [][]byte // what is known to be hard, before all mutants
	make func(m *mutator) []byte
	send func(address string, raw []byte) (answer string, failure bool)
}

// fates counts the fates of the requests of a corpus.
type fates struct {
	tries, failures, slow int
	answers               tally
	longest               time.Duration
	worst                 float64 // CPU time of a try over what it may take
	worstSize             int
	worstCPU              time.Duration
	steepest              float64 // ns per byte of a body of 64 KiB or more
}

// requests sends mutants of both protocols to a server without a token and to one
// with a token that the mutants do not know.
func (a *attack) requests(r *instrument.Run) error {
	plan, _, err := a.smallPlan(r.Ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	token := filepath.Join(a.Folder, "token.txt")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		return err
	}
	for _, w := range []wire{restWire(), grpcWire()} {
		for _, where := range []string{w.name, w.name + ", no token"} {
			flags := []string{"--memory-limit", "1GiB"}
			if where != w.name {
				flags = append(flags, "--token-file", token)
			}
			s, err := a.serve(r.Ctx, plan, flags...)
			if err != nil {
				return err
			}
			t, err := a.shoot(r, s, w, where)
			peak := s.memory("VmHWM")
			if err := errors.Join(err, s.Stop()); err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
			t.state(r, where, s.panics(), peak)
		}
	}
	return nil
}

// shoot sends mutants, one after the other so that the server's CPU time is that of
// one of them.
func (a *attack) shoot(r *instrument.Run, s *server, w wire, where string) (*fates, error) {
	m := &mutator{Rand: seeded.New(a.seed, where), words: requestWords}
	t := &fates{answers: tally{}}
	address := s.HTTP
	if w.name == "gRPC" {
		address = s.GRPC
	}
	for i := range a.count(10_000) {
		raw := []byte(nil)
		if i < len(w.hard) {
			raw = w.hard[i]
		} else {
			raw = w.make(m)
		}
		if answer := t.try(s, w, address, raw); answer != "" {
			fmt.Fprintf(r.Log, "    FAILED %s: %.300q\n", answer, raw)
		}
		if r.Ctx.Err() != nil || !s.Alive() {
			return t, fmt.Errorf("the server ended at mutant %d: %w", i, r.Ctx.Err())
		}
	}
	return t, nil
}

// try sends a mutant. It returns the answer if that is a failure. A mutant that seems to cost too much is sent again, each time behind a
// good request: what other work on the machine and the collector add differs, what the
// mutant costs does not. Where the least of the good requests costs more than a third of
// what a request may take, the machine is slow, and the mutant may take as much more.
func (t *fates) try(s *server, w wire, address string, raw []byte) (failed string) {
	allowed := float64(cpuPerTry + time.Duration(len(raw))*cpuPerByte)
	const unknown = time.Duration(math.MaxInt64)
	cost, good, quickest := unknown, unknown, unknown
	for again := range tries {
		if again > 0 {
			before := s.cpu()
			w.send(address, w.good)
			good = min(good, s.cpu()-before)
		}
		before, began := s.cpu(), time.Now()
		answer, failure := w.send(address, raw)
		took, spent := time.Since(began), s.cpu()-before
		if again == 0 {
			t.tries++
			t.answers[answer]++
			if failure {
				t.failures++
				failed = answer
			}
		}
		cost, quickest = min(cost, spent), min(quickest, took)
		if float64(spent) <= allowed/2 && took < slowest {
			break
		}
		if again == tries-1 && took >= slowest {
			t.slow++
		}
	}
	t.longest = max(t.longest, quickest)
	if good < unknown {
		allowed *= max(1, 3*float64(good)/float64(cpuPerTry))
	}
	if share := float64(cost) / allowed; share > t.worst {
		t.worst, t.worstSize, t.worstCPU = share, len(raw), cost
	}
	if len(raw) >= 64<<10 {
		t.steepest = max(t.steepest, float64(cost.Nanoseconds())/float64(len(raw)))
	}
	return failed
}

// state states the figures of a corpus.
func (t *fates) state(r *instrument.Run, where string, panics int, peak float64) {
	fmt.Fprintf(r.Log, "%s: %v; longest %v\n", where, t.answers, t.longest.Round(time.Millisecond))
	f := none(r, "mutants of requests over "+where+": panics, 5xx and answers after 2 s", panics+t.failures+t.slow, t.tries, "")
	if n := t.answers[byLibrary]; n > 0 {
		f.Note = fmt.Sprintf("to %d frames and headers that are no gRPC the library answers INTERNAL, as gRPC's status codes have it", n)
		if f.Holds == figures.Yes {
			f.Holds = figures.Partly
		}
	}
	if n := t.answers["501"] + t.answers["505"]; n > 0 {
		f.Note = fmt.Sprintf("501 and 505 (%d) aside: HTTP's words for a transfer coding or version that there is not (RFC 9110)", n)
	}
	atMost(r, "CPU of the dearest mutant over "+where+", of 40 ns a byte and 1 ms", 1, t.worst, "",
		"%d bytes, %v; with 64 KiB or more at most %.1f ns a byte", t.worstSize, t.worstCPU.Round(10*time.Microsecond), t.steepest)
	state(r, "peak memory of the server under mutants over "+where, "at most 1 GiB", peak, "MiB", peak <= serverMemory, "")
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
	w := wire{name: "REST", good: seeds[0].bytes(), send: sendREST}
	for _, size := range hardSizes {
		for _, r := range hostileBodies(size) {
			w.hard = append(w.hard, r.bytes())
		}
	}
	w.make = func(m *mutator) []byte {
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
	}
	return w
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
