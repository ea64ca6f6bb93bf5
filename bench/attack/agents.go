package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inferplan/bench/figures"
	"inferplan/bench/llm/made"
	"inferplan/bench/started"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// What is asked of a front end and of agents under attack.
const (
	agentMemory = 256 << 20 // of each process at most
	agentLines  = 1000      // of the log of each
	agentWithin = 2 * time.Minute
	textModel   = "a"
	textTokens  = 24

	fleetSequences = 4 // at once on an instance; eight times as many clients ask
)

// fleet is a front end, two agents with a server each, and three nodes of NATS.
type fleet struct {
	cluster   *natstest.Cluster
	address   string
	processes []*server // the front end, then agents
	ends      []func()
}

// agents holds `plan serve` and `plan agent` against those who reach NATS without the
// queue's key, and against a server of language models that does harm.
func (a *attack) agents(ctx context.Context) ([]figures.Figure, error) {
	var out []figures.Figure
	for _, c := range []struct {
		name string
		bad  bool
	}{{"a peer on NATS without the queue's key", false}, {"a server of models that does harm", true}} {
		list, err := underAttack(ctx, a, c.name, c.bad)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		out = append(out, list...)
	}
	return out, nil
}

func underAttack(ctx context.Context, a *attack, name string, bad bool) (_ []figures.Figure, err error) {
	f := &fleet{}
	defer f.stop()
	good, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: fleetSequences, Token: 20 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	f.ends = append(f.ends, good.Stop)
	urls := []string{good.URL(), good.URL()}
	evil := &harmful{rng: seeded.New(a.seed, "harmful server")}
	if bad {
		urls[1] = evil.start(f)
	}
	if err := f.start(ctx, a, urls); err != nil {
		return nil, errors.Join(err, f.said())
	}
	attackers, stop := context.WithCancel(ctx)
	var peers sync.WaitGroup
	sent := 0
	if !bad {
		peers.Go(func() { sent, err = flood(attackers, a, f.cluster.URL) })
	}
	n := a.count(1000)
	got := askAll(ctx, f.address, n)
	stop()
	peers.Wait()
	if err != nil {
		return nil, err
	}
	memory, lines := int64(0), 0
	for _, p := range f.processes {
		if !p.alive() || p.panics() > 0 {
			return nil, fmt.Errorf("a process has ended: %w", f.said())
		}
		memory, lines = max(memory, p.status("VmHWM")), max(lines, len(p.lines()))
	}
	a.printf("agents, %s: %d requests: %v; %d messages, %d harmful answers; peak memory %s, %d lines of log\n", name, n, got.kinds, sent, evil.count(), sizeOf(memory), lines)
	if got.lost > 0 || got.wrong > 0 {
		a.printf("%v\n", f.said())
	}
	note := fmt.Sprintf("of %d: %s", n, listed(got.kinds))
	return []figures.Figure{
		{Claim: "accepted requests for text that were lost, under " + name, Source: source, Asked: "0", Measured: float64(got.lost), Holds: figures.If(got.lost == 0), Note: note},
		{Claim: "answers that are not the model's and were not the harmful server's, under " + name, Source: source, Asked: "0", Measured: float64(got.wrong), Holds: figures.If(got.wrong == 0)},
		{Claim: "peak memory of a front end or an agent, under " + name, Source: source, Asked: fmt.Sprintf("at most %d", agentMemory>>20), Measured: round(float64(memory) / (1 << 20)), Unit: "MiB", Holds: figures.If(memory <= agentMemory),
			Note: fmt.Sprintf("%d messages, %d harmful answers", sent, evil.count())},
		{Claim: "lines of log of a process, under " + name, Source: source, Asked: fmt.Sprintf("at most %d", agentLines), Measured: float64(lines), Holds: figures.If(lines <= agentLines)},
	}, nil
}

// start starts all that serves.
func (f *fleet) start(ctx context.Context, a *attack, urls []string) error {
	dir, err := os.MkdirTemp(a.dir, "agents-")
	if err != nil {
		return err
	}
	if f.cluster, err = natstest.Start(dir); err != nil {
		return err
	}
	f.ends = append(f.ends, f.cluster.Stop)
	plan, key := filepath.Join(dir, "plan.json"), filepath.Join(dir, "key")
	if _, err := document.WriteFile(plan, made.Plan(textModel, len(urls), fleetSequences)); err != nil {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it cannot fail
	if err := os.WriteFile(key, []byte(hex.EncodeToString(secret)), 0o600); err != nil {
		return err
	}
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	f.address = fmt.Sprint("http://127.0.0.1:", port)
	queue := []string{"--queue", f.cluster.URL, "--queue-key", key}
	args := [][]string{{"serve", plan, "--http", fmt.Sprint("127.0.0.1:", port), "--metrics", "off"}}
	for i, url := range urls {
		args = append(args, []string{"agent", "--server", fmt.Sprintf("%d=%s", i, url)})
	}
	for _, list := range args {
		s := &server{cmd: exec.CommandContext(ctx, a.plan, append(list, queue...)...), ended: make(chan struct{}), news: make(chan struct{})}
		said, err := s.cmd.StderrPipe()
		if err != nil {
			return err
		}
		if err := s.cmd.Start(); err != nil {
			return err
		}
		go s.listen(said)
		f.processes, f.ends = append(f.processes, s), append(f.ends, s.kill)
	}
	return started.Answers(ctx, f.address+"/health")
}

func (f *fleet) stop() {
	for i := len(f.ends) - 1; i >= 0; i-- {
		f.ends[i]()
	}
}

// said are the last lines of all processes.
func (f *fleet) said() error {
	var errs []error
	for i, p := range f.processes {
		list := p.lines()
		errs = append(errs, fmt.Errorf("process %d:\n%s", i, strings.Join(list[max(0, len(list)-10):], "\n")))
	}
	return errors.Join(errs...)
}

// flood sends NATS with what no process of ours sends: small and large messages to the
// names that front ends and agents answer under, to news of requests, and to inboxes.
func flood(ctx context.Context, a *attack, url string) (sent int, err error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	rng := seeded.New(a.seed, "peer")
	orders := []string{`{"term":18446744073709551615,"what":"look"}`, `{"term":18446744073709551615,"what":"run","number":7,"id":"x","ticket":"$JS.ACK.x"}`, `{"term":9,"runs":[{"number":1,"tokens":-5}]}`, "[", "null"}
	for ctx.Err() == nil {
		name := []string{"talk.agent-0", "talk.agent-1", "talk.planner", "news.cmpl-x", "talk.agent-9"}[rng.IntN(5)]
		data := []byte(orders[rng.IntN(len(orders))])
		if rng.IntN(2) == 0 {
			data = make([]byte, rng.IntN(1<<uint(rng.IntN(20))+1))
			for i := 0; i < len(data); i += 97 {
				data[i] = byte(rng.Uint32())
			}
		}
		if err := conn.PublishRequest("inferplan."+name, "_INBOX.nobody", data); err != nil {
			return sent, err
		}
		if sent++; sent%4 == 0 { // some thousand a second: it shares the machine
			time.Sleep(time.Millisecond)
		}
	}
	return sent, nil
}

// textEndings are the endings of requests, by kind.
type textEndings struct {
	mu          sync.Mutex
	kinds       map[string]int
	lost, wrong int
}

// askAll sends requests and waits for the end of each that was accepted.
func askAll(ctx context.Context, address string, n int) *textEndings {
	got := &textEndings{kinds: map[string]int{}}
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 * fleetSequences {
		wg.Go(func() {
			for i := range next {
				got.add(askOne(ctx, address, i))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return got
}

func (g *textEndings) add(kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds[kind]++
	switch kind {
	case "lost":
		g.lost++
	case "wrong":
		g.wrong++
	}
}

// askOne asks until the request is accepted and has ended, and returns how it ended.
func askOne(ctx context.Context, address string, i int) string {
	ctx, cancel := context.WithTimeout(ctx, agentWithin)
	defer cancel()
	prompt := fmt.Sprint("request ", i)
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"store":true}`, textModel, prompt, textTokens)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/completions", bytes.NewReader([]byte(body)))
		if err != nil {
			return "lost"
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprint("attack-", i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "lost"
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return "lost"
		case resp.StatusCode == http.StatusTooManyRequests:
			time.Sleep(50 * time.Millisecond)
			continue
		case resp.StatusCode != http.StatusOK:
			return fmt.Sprint("ended with ", resp.StatusCode)
		}
		var x struct {
			Choices []struct{ Text string }
		}
		switch {
		case json.Unmarshal(data, &x) != nil || len(x.Choices) != 1:
			return "wrong"
		case x.Choices[0].Text == fake.Text(textModel, prompt, textTokens):
			return "right"
		case strings.Contains(x.Choices[0].Text, mark):
			return "the harmful server's"
		}
		return "wrong"
	}
}
