package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/llm/made"
	"inferplan/bench/started"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// What the part of shares asks for: greedy connections with valid requests, requests of a
// key that wait before another's, and what these ask for.
var greedyConnections = []int{60, 300}

const (
	longRequests = 2000
	longTokens   = 400
	shortTokens  = 3
	tokenTime    = 2 * time.Millisecond
	shortTries   = 10
)

// sharing is the part of shares.
type sharing struct{ *attack }

// run holds clients that take as much as they get, with valid requests, against one
// that asks for half of its share.
func (a sharing) run(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	rate, err := promised(plan)
	if err != nil {
		return nil, err
	}
	var out []figures.Figure
	for _, n := range greedyConnections {
		err := a.served(ctx, plan, func(s *server) error {
			f, err := a.besideValid(ctx, s, n, rate/4) // half of the half that two clients have
			out = append(out, f)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("beside %d connections: %w", n, err)
		}
	}
	f, err := a.behindLong(ctx)
	if err != nil {
		return nil, fmt.Errorf("behind long requests: %w", err)
	}
	return append(out, f), nil
}

// besideValid is a client at a rate beside greedy connections.
func (a sharing) besideValid(ctx context.Context, s *server, n int, rate float64) (f figures.Figure, err error) {
	length := time.Duration(float64(30*time.Second) * max(min(a.scale*2, 1), .1))
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, "valid", s.http, "127.0.1.1", strconv.Itoa(n), (length + length/5).String())
	cmd.Stderr = os.Stderr
	told, err := cmd.StdoutPipe()
	if err != nil {
		return f, err
	}
	// The client is known before the others come: one that comes new to a flood may lose
	// what it sends in its first SLO.
	if answer, _ := ask(http.DefaultClient, s.http, "m", "first"); answer != "200" {
		return f, fmt.Errorf("a request alone is answered with %s", answer)
	}
	if err := cmd.Start(); err != nil {
		return f, err
	}
	time.Sleep(length / 10)
	r, err := a.behave(ctx, "http://"+s.http, rate, length)
	text, _ := io.ReadAll(told)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return f, err
	}
	share := float64(r.Completed-r.Late) / float64(max(r.Requests, 1))
	note := fmt.Sprintf("%d requests of %.0f/s, p99 %v; the others: %s", r.Requests, rate, r.Latency.P99US.D().Round(time.Millisecond), text)
	a.printf("shares, %d connections: %.4f in time, %v; %s\n", n, share, r.DroppedByReason, note)
	return figures.Figure{Claim: fmt.Sprintf("attainment of a client at half its share beside %d greedy connections with valid requests", n), Source: source, Asked: "at least 99",
		Measured: round(100 * share), Unit: "%", Holds: figures.If(share >= .99), Note: note}, nil
}

// beValid is the process of greedy clients with valid requests: HTTP, address, connections
// and time.
func beValid(args []string) error {
	if len(args) != 4 {
		return errors.New("valid: expected HTTP, address, connections, time")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	length, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(args[1])}}
	transport := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: n}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	end := time.Now().Add(length)
	var answered, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for time.Now().Before(end) {
				if answer, _ := ask(client, args[0], "m", fmt.Sprint("valid-", i)); answer == "200" {
					answered.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d answered, %d refused", answered.Load(), refused.Load())
	return nil
}

// behindLong asks with one key for short texts while many long ones of another key wait.
func (a sharing) behindLong(ctx context.Context) (f figures.Figure, err error) {
	dir, err := os.MkdirTemp(a.dir, "shares-")
	if err != nil {
		return f, err
	}
	model, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: fleetSequences, Token: tokenTime})
	if err != nil {
		return f, err
	}
	defer model.Stop()
	plan, keys := filepath.Join(dir, "plan.json"), filepath.Join(dir, "keys.txt")
	if _, err := document.WriteFile(plan, made.Plan(textModel, 1, fleetSequences)); err != nil {
		return f, err
	}
	if err := os.WriteFile(keys, []byte("0123456789abcdef-long name=long\n0123456789abcdef-short name=short\n"), 0o600); err != nil {
		return f, err
	}
	port, err := natstest.FreePort()
	if err != nil {
		return f, err
	}
	s := &server{cmd: exec.CommandContext(ctx, a.plan, "serve", plan, "--server", model.URL(), "--keys", keys, "--queue", filepath.Join(dir, "requests.db"), "--http", fmt.Sprint("127.0.0.1:", port), "--metrics", "off", "--drain", "1ms"),
		ended: make(chan struct{}), news: make(chan struct{})}
	said, err := s.cmd.StderrPipe()
	if err != nil {
		return f, err
	}
	if err := s.cmd.Start(); err != nil {
		return f, err
	}
	go s.listen(said)
	defer s.kill()
	address := fmt.Sprint("http://127.0.0.1:", port)
	if err := started.Answers(ctx, address+"/health"); err != nil {
		return f, errors.Join(err, errors.New(strings.Join(s.lines(), "\n")))
	}
	var alone, behind time.Duration
	for range shortTries {
		took, err := askText(ctx, address, "short", shortTokens)
		if err != nil {
			return f, err
		}
		alone = max(alone, took)
	}
	var long time.Duration // as many of them as run at once
	var running sync.WaitGroup
	var mu sync.Mutex
	for range fleetSequences {
		running.Go(func() {
			took, aerr := askText(ctx, address, "long", longTokens)
			mu.Lock()
			defer mu.Unlock()
			long, err = max(long, took), errors.Join(err, aerr)
		})
	}
	running.Wait()
	if err != nil {
		return f, err
	}
	n := a.count(longRequests)
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	var wrote sync.WaitGroup
	wrote.Add(n)
	for range n {
		go func() {
			_, _ = askText(httptrace.WithClientTrace(waiting, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Done() }}), address, "long", longTokens)
		}()
	}
	wrote.Wait()
	time.Sleep(time.Second) // so that all have been stored
	for range shortTries {
		took, err := askText(ctx, address, "short", shortTokens)
		if err != nil {
			return f, err
		}
		behind = max(behind, took)
	}
	// What runs is not stopped: one of the long ones ends first.
	limit := 2*alone + long
	note := fmt.Sprintf("%d long ones; alone %v at most, a long one takes %v where %d run at once", n, alone.Round(time.Millisecond), long.Round(time.Millisecond), fleetSequences)
	a.printf("shares, behind long requests: %v at most; %s\n", behind, note)
	return figures.Figure{Claim: "another key's short text behind long ones: the longest time until its answer", Source: source, Asked: fmt.Sprintf("at most %.3f", limit.Seconds()), Measured: round(behind.Seconds()), Unit: "s",
		Holds: figures.If(behind <= limit), Note: note}, nil
}

// askText asks for a text with a key.
func askText(ctx context.Context, address, key string, tokens int) (time.Duration, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"a","max_tokens":%d}`, textModel, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer 0123456789abcdef-"+key)
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: answered with %d: %.200s", key, resp.StatusCode, data)
	}
	if err == nil && !json.Valid(data) {
		err = fmt.Errorf("%s: answered with %.200q", key, data)
	}
	return time.Since(began), err
}
