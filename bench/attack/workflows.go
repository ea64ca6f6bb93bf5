package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"inferplan/bench/instrument"
)

// What the part of calls asks for: clients at once, and what a message may take.
const (
	callClients = 8
	callMemory  = 128 // MiB of the server
	callTries   = 400
)

// hostilePrograms are messages that open a request: a head, a part that is repeated, and a tail.
var hostilePrograms = [][3]string{
	{`{"application":"talk","inputs":{"x":[1`, ",1", `]}}`},
	{`{"application":"talk","inputs":{"x":`, "[", `}}`},
	{`{"application":"talk","inputs":`, `{"a":`, `}}`},
	{`{`, `"application":"talk",`, `"inputs":{}}`},
	{`{"application":"talk","parameters":{"a":0`, `,"a":0`, `}}`},
	{`{"application":"`, "x", `"}`},
	{`{"application":"`, `\\u00e9`, `"}`},
	{``, " \n", `{"application":`},
	{`{"application":"talk","inputs":{"x":[1,2,3,4]`, `,"y":[]`, `}}`},
	{`{"application":"talk","inputs":{"x":[`, "2.2250738585072011e-308,", `1]}}`},
}

// goodProgram is a message that opens a request.
const goodProgram = `{"application":"talk","inputs":{"x":[1,2,3,4]}}`

// twoSegments is a workload of one application with two segments.
const twoSegments = `applications:
- name: talk
  slo: 2s
  segments:
  - name: first
    modules: [{name: a, model: m}]
    next: [{to: [second], probability: 0.5}, {to: [], probability: 0.5}]
  - name: second
    modules: [{name: b, model: n}]
`

// calls sends hostile messages to the form of workflows as code, beside a client that
// behaves.
func (a *attack) calls(r *instrument.Run) error {
	plan, err := a.solve(r.Ctx, "workflow", map[string]time.Duration{"m": 5 * time.Millisecond, "n": 5 * time.Millisecond}, twoSegments, 3)
	if err != nil {
		return err
	}
	s, err := a.serve(r.Ctx, plan, "--memory-limit", "512MiB")
	if err != nil {
		return err
	}
	defer s.Kill()
	if code, err := s.openProgram(goodProgram); err != nil || code != http.StatusCreated {
		return fmt.Errorf("a good message is answered with %d: %w", code, errors.Join(err, errors.New(s.Tail())))
	}
	var bodies []string // below and above what a message may have where no tensor is large
	for _, size := range []int{900_000, 7_000_000} {
		for _, p := range hostilePrograms {
			bodies = append(bodies, repeated(p, size))
		}
	}
	tries, wrong, bytes := a.count(callTries), 0, 0
	var mu sync.Mutex
	var clients sync.WaitGroup
	work := make(chan string)
	before := s.cpu()
	for range callClients {
		clients.Go(func() {
			for body := range work {
				code, err := s.openProgram(body)
				mu.Lock()
				if bytes += len(body); err == nil && (code < 400 || code >= 500) {
					wrong++
				}
				mu.Unlock()
			}
		})
	}
	var longest time.Duration
	refused := 0
	for i := range tries {
		work <- bodies[i%len(bodies)]
		began := time.Now()
		code, err := s.openProgram(goodProgram)
		if longest = max(longest, time.Since(began)); err != nil || code != http.StatusCreated {
			refused++
		}
	}
	close(work)
	clients.Wait()
	ns, peak := float64((s.cpu()-before).Nanoseconds())/float64(max(bytes, 1)), s.memory("VmHWM")
	if err := s.Stop(); err != nil {
		return err
	}
	none(r, "hostile messages of programs, eight at once: taken, 5xx, panics, or a good one refused beside them", wrong+refused+s.panics(), tries, "")
	atMost(r, "peak memory of the server under hostile messages of programs", callMemory, peak, "MiB", "of .9 and 7 MB, --memory-limit 512MiB; good ones beside took %v at most", longest.Round(time.Millisecond))
	atMost(r, "CPU of the server under hostile messages of programs", 40, ns, "ns a byte sent", "")
	return nil
}

// openProgram sends a message that opens a request of a program, and ends the request if it was opened. It returns the status of the answer.
func (s *server) openProgram(body string) (code int, err error) {
	url := "http://" + s.HTTP + "/v1/workflows"
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var opened struct{ Request string }
	if resp.StatusCode != http.StatusCreated || json.NewDecoder(resp.Body).Decode(&opened) != nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	req, err := http.NewRequest(http.MethodDelete, url+"/"+opened.Request, nil)
	if err != nil {
		return resp.StatusCode, err
	}
	ended, err := http.DefaultClient.Do(req)
	if err == nil {
		err = ended.Body.Close()
	}
	return resp.StatusCode, err
}
