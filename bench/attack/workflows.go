package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"inferplan/bench/figures"
)

// What the part of calls asks for: clients at once, and what a message may take.
const (
	callClients = 8
	callMemory  = 128 << 20 // of the server
	callTries   = 400
)

// hostilePrograms are messages that open a request, of about n bytes each.
func hostilePrograms(n int) map[string]string {
	many := func(head, part, tail string) string { return head + strings.Repeat(part, max(n/len(part), 1)) + tail }
	return map[string]string{
		"a long list":        many(`{"application":"talk","inputs":{"x":[1`, ",1", `]}}`),
		"lists in lists":     many(`{"application":"talk","inputs":{"x":`, "[", `}}`),
		"objects in objects": many(`{"application":"talk","inputs":`, `{"a":`, `}}`),
		"repeated fields":    many(`{`, `"application":"talk",`, `"inputs":{}}`),
		"parameters":         many(`{"application":"talk","parameters":{"a":0`, `,"a":0`, `}}`),
		"a long name":        many(`{"application":"`, "x", `"}`),
		"escapes":            many(`{"application":"`, `\\u00e9`, `"}`),
		"blanks":             many(``, " \n", `{"application":`),
		"many inputs":        many(`{"application":"talk","inputs":{"x":[1,2,3,4]`, `,"y":[]`, `}}`),
		"numbers":            many(`{"application":"talk","inputs":{"x":[`, "2.2250738585072011e-308,", `1]}}`),
	}
}

// programming is the part of calls.
type programming struct{ *attack }

// run sends hostile messages to the form of workflows as code, beside a client that
// behaves.
func (a programming) run(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.workflowPlan(ctx)
	if err != nil {
		return nil, err
	}
	s, err := a.startServer(ctx, plan, "--memory-limit", "512MiB")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	open := func(body string) (int, error) {
		resp, err := http.Post("http://"+s.http+"/v1/workflows", "application/json", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		var opened struct{ Request string }
		if resp.StatusCode == http.StatusCreated && json.NewDecoder(resp.Body).Decode(&opened) == nil {
			return resp.StatusCode, s.endProgram(opened.Request)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	const good = `{"application":"talk","inputs":{"x":[1,2,3,4]}}`
	if code, err := open(good); err != nil || code != http.StatusCreated {
		return nil, fmt.Errorf("a good message is answered with %d: %w", code, errors.Join(err, errors.New(strings.Join(s.lines(), "\n"))))
	}
	var bodies []string // below and above what a message may have where no tensor is large
	for _, size := range []int{900_000, 7_000_000} {
		list := hostilePrograms(size)
		for _, name := range sortedKeys(list) {
			bodies = append(bodies, list[name])
		}
	}
	codes, answers := map[int]int{}, map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	tries, bad := a.count(callTries), 0
	work := make(chan string)
	before, bytes := s.cpu(), int64(0)
	for range callClients {
		wg.Go(func() {
			for body := range work {
				code, err := open(body)
				mu.Lock()
				if codes[code]++; err == nil && (code < 400 || code >= 500) {
					bad++
				}
				bytes += int64(len(body))
				mu.Unlock()
			}
		})
	}
	var longest time.Duration
	for i := range tries {
		work <- bodies[i%len(bodies)]
		began := time.Now()
		code, err := open(good)
		if longest = max(longest, time.Since(began)); err != nil || code != http.StatusCreated {
			bad++
		}
		answers[code]++
	}
	close(work)
	wg.Wait()
	cpu, peak := s.cpu()-before, s.status("VmHWM")
	ns := float64(cpu.Nanoseconds()) / float64(max(bytes, 1))
	a.printf("calls: %d hostile messages, %s: %v; CPU %v, %.1f ns a byte; peak memory %s; beside them good ones %v, %v at most\n", tries, sizeOf(bytes), codes, cpu, ns, sizeOf(peak), answers, longest)
	if code, err := s.stop(); err != nil || code != 0 {
		return nil, fmt.Errorf("the server ended with code %d: %w", code, err)
	}
	return []figures.Figure{
		{Claim: "hostile messages of programs, eight at once: taken, 5xx, panics, or a good one refused beside them", Source: source, Asked: "none", Measured: float64(bad + s.panics()), Unit: fmt.Sprintf("of %d", tries), Holds: figures.If(bad+s.panics() == 0)},
		{Claim: "peak memory of the server under hostile messages of programs", Source: source, Asked: fmt.Sprintf("at most %d", callMemory>>20), Measured: round(float64(peak) / (1 << 20)), Unit: "MiB", Holds: figures.If(peak <= callMemory), Note: fmt.Sprintf("of .9 and 7 MB, --memory-limit 512MiB; good ones beside took %v at most", longest.Round(time.Millisecond))},
		{Claim: "CPU of the server under hostile messages of programs", Source: source, Asked: "at most 40", Measured: round(ns), Unit: "ns a byte sent", Holds: figures.If(ns <= 40)},
	}, nil
}

// endProgram ends a request of a program.
func (s *server) endProgram(request string) error {
	req, err := http.NewRequest(http.MethodDelete, "http://"+s.http+"/v1/workflows/"+request, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// workflowPlan is a plan of one application with two segments.
func (t *target) workflowPlan(ctx context.Context) (string, error) {
	dir := filepath.Join(t.dir, "workflow")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for file, text := range map[string]string{
		"profile.json": profileOf(map[string]time.Duration{"m": 5 * time.Millisecond, "n": 5 * time.Millisecond}),
		"workload.yaml": `format: inferplan.workload/v1
applications:
- name: talk
  slo: 2s
  segments:
  - name: first
    modules: [{name: a, model: m}]
    next: [{to: [second], probability: 0.5}, {to: [], probability: 0.5}]
  - name: second
    modules: [{name: b, model: n}]
`,
		"cluster.yaml": "format: inferplan.cluster/v1\npools:\n- {device: L4, count: 3}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	if e := t.call(ctx, dir, "solve", "-o", "plan.json"); e.code != 0 {
		return "", fmt.Errorf("planning workflows: %s", e.said)
	}
	return filepath.Join(dir, "plan.json"), nil
}
