package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/testkit/llm/fake"
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

// shares holds clients that take as much as they get, with valid requests, against one
// that asks for half of its share.
func (a *attack) shares(r *instrument.Run) error {
	path, plan, err := a.smallPlan(r.Ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	rate := promised(plan) / 4 // half of the half that two clients have
	for _, n := range greedyConnections {
		err := a.whileServing(r.Ctx, path, func(s *server) error {
			// The client is known before the others come: one that comes new to a flood may lose
			// what it sends in its first SLO.
			if answer, _ := ask(http.DefaultClient, s.HTTP, "m", "first"); answer != "200" {
				return fmt.Errorf("a request alone is answered with %s", answer)
			}
			results, said, err := a.beside(r.Ctx, []string{"valid", "127.0.1.1", strconv.Itoa(n), s.HTTP}, a.besideLength(), rate, "http://"+s.HTTP)
			if err != nil {
				return err
			}
			share, requests := attained(results)
			state(r, fmt.Sprintf("attainment of a client at half its share beside %d greedy connections with valid requests", n), "at least 99", share, "%", share >= 99,
				"%d requests of %.0f/s, p99 %v; the others: %s", requests, rate, results[0].Latency.P99US.D().Round(time.Millisecond), said)
			return nil
		})
		if err != nil {
			return fmt.Errorf("beside %d connections: %w", n, err)
		}
	}
	if err := a.behindLong(r); err != nil {
		return fmt.Errorf("behind long requests: %w", err)
	}
	return nil
}

// behindLong asks with one key for short texts while many long ones of another key wait.
func (a *attack) behindLong(r *instrument.Run) error {
	dir, err := os.MkdirTemp(a.Folder, "shares-")
	if err != nil {
		return err
	}
	model, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: sequences, Token: tokenTime})
	if err != nil {
		return err
	}
	defer model.Stop()
	plan, err := queuePlan(dir, 1)
	if err != nil {
		return err
	}
	keys := filepath.Join(dir, "keys.txt")
	if err := os.WriteFile(keys, []byte(keyOf("long")+" name=long\n"+keyOf("short")+" name=short\n"), 0o600); err != nil {
		return err
	}
	s, err := a.Serve(r.Ctx, plan, "--server", model.URL(), "--keys", keys, "--queue", filepath.Join(dir, "requests.db"), "--http", "127.0.0.1:0", "--metrics", "off", "--drain", "1ms")
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := served.Answers(r.Ctx, "http://"+s.HTTP+"/health"); err != nil {
		return errors.Join(err, errors.New(s.Tail()))
	}
	shortest := func() (longest time.Duration, err error) {
		for range shortTries {
			took, err := askTimed(r.Ctx, s.HTTP, "short", shortTokens)
			if err != nil {
				return 0, err
			}
			longest = max(longest, took)
		}
		return longest, nil
	}
	alone, err := shortest()
	if err != nil {
		return err
	}
	var together errgroup.Group // as many long ones as run at once
	var took [sequences]time.Duration
	for i := range took {
		together.Go(func() (err error) {
			took[i], err = askTimed(r.Ctx, s.HTTP, "long", longTokens)
			return err
		})
	}
	if err := together.Wait(); err != nil {
		return err
	}
	long := time.Duration(0)
	for _, t := range took {
		long = max(long, t)
	}
	n := a.count(longRequests)
	waiting, leave := context.WithCancel(r.Ctx)
	defer leave()
	var wrote sync.WaitGroup
	wrote.Add(n)
	for range n {
		go func() {
			traced := httptrace.WithClientTrace(waiting, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Done() }})
			_, _ = askTimed(traced, s.HTTP, "long", longTokens) // it only waits
		}()
	}
	wrote.Wait()
	time.Sleep(time.Second) // so that all have been stored
	behind, err := shortest()
	if err != nil {
		return err
	}
	// What runs is not stopped: one of the long ones ends first.
	limit := 2*alone + long
	state(r, "another key's short text behind long ones: the longest time until its answer", fmt.Sprintf("at most %.3f", limit.Seconds()), behind.Seconds(), "s", behind <= limit,
		"%d long ones; alone %v at most, a long one takes %v where %d run at once", n, alone.Round(time.Millisecond), long.Round(time.Millisecond), sequences)
	return nil
}

// keyOf returns the key of a client.
func keyOf(name string) string { return "0123456789abcdef-" + name }

// askTimed asks for a text with the key of a client and returns how long that took.
func askTimed(ctx context.Context, address, client string, tokens int) (time.Duration, error) {
	began := time.Now()
	status, _, body, err := (&textRequest{prompt: "a", tokens: tokens, key: keyOf(client)}).send(ctx, address)
	if err == nil && status >= 300 {
		err = fmt.Errorf("%s: answered with %d: %.200s", client, status, body)
	}
	return time.Since(began), err
}
