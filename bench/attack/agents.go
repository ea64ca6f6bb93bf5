package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats/seeded"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// What is asked of a front end and of agents under attack.
const (
	agentMemory = 256  // MiB of each process at most
	agentLines  = 1000 // of the log of each
	agentWithin = 2 * time.Minute
	textTokens  = 24
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
func (a *attack) agents(r *instrument.Run) error {
	for name, harmfulServer := range map[string]bool{"a peer on NATS without the queue's key": false, "a server of models that does harm": true} {
		if err := a.attackFleet(r, name, harmfulServer); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// attackFleet asks a fleet for texts while a server of it does harm, or else a peer on NATS.
func (a *attack) attackFleet(r *instrument.Run, name string, harmfulServer bool) (err error) {
	f := &fleet{}
	defer f.stop()
	good, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: sequences, Token: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	f.ends = append(f.ends, good.Stop)
	urls := []string{good.URL(), good.URL()}
	evil := &harmful{rng: seeded.New(a.seed, "harmful server")}
	if harmfulServer {
		url, stop := evil.start()
		urls[1], f.ends = url, append(f.ends, stop)
	}
	if err := f.start(r.Ctx, a, urls); err != nil {
		return errors.Join(err, f.said())
	}
	attacking, stop := context.WithCancel(r.Ctx)
	defer stop()
	var peers sync.WaitGroup
	sent := 0
	if !harmfulServer {
		peers.Go(func() { sent, err = flood(attacking, a.seed, f.cluster.URL) })
	}
	n := a.count(1000)
	got := askAll(r.Ctx, f.address, n)
	stop()
	peers.Wait()
	if err != nil {
		return err
	}
	memory, lines := 0., 0
	for _, p := range f.processes {
		if !p.Alive() || p.panics() > 0 {
			return fmt.Errorf("a process has ended: %w", f.said())
		}
		memory, lines = max(memory, p.memory("VmHWM")), max(lines, len(p.Lines()))
	}
	if got["lost"] > 0 || got["wrong"] > 0 {
		fmt.Fprintf(r.Log, "%v\n", f.said())
	}
	state(r, "accepted requests for text that were lost, under "+name, "0", float64(got["lost"]), "", got["lost"] == 0, "of %d: %v", n, got)
	state(r, "answers that are not the model's and were not the harmful server's, under "+name, "0", float64(got["wrong"]), "", got["wrong"] == 0, "")
	atMost(r, "peak memory of a front end or an agent, under "+name, agentMemory, memory, "MiB", "%d messages, %d harmful answers", sent, evil.count())
	atMost(r, "lines of log of a process, under "+name, agentLines, float64(lines), "", "")
	return nil
}

// start starts all that serves.
func (f *fleet) start(ctx context.Context, a *attack, urls []string) error {
	dir, err := os.MkdirTemp(a.Folder, "agents-")
	if err != nil {
		return err
	}
	if f.cluster, err = natstest.Start(dir); err != nil {
		return err
	}
	f.ends = append(f.ends, f.cluster.Stop)
	plan, err := queuePlan(dir, len(urls))
	if err != nil {
		return err
	}
	key, secret := filepath.Join(dir, "key"), make([]byte, 32)
	_, _ = rand.Read(secret) // it cannot fail
	if err := os.WriteFile(key, []byte(hex.EncodeToString(secret)), 0o600); err != nil {
		return err
	}
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	f.address = fmt.Sprint("127.0.0.1:", port)
	commands := [][]string{{"serve", plan, "--http", f.address, "--metrics", "off"}}
	for i, url := range urls {
		commands = append(commands, []string{"agent", "--server", fmt.Sprintf("%d=%s", i, url)})
	}
	for _, args := range commands {
		s, err := a.Start(ctx, append(args, "--queue", f.cluster.URL, "--queue-key", key)...)
		if err != nil {
			return err
		}
		f.processes, f.ends = append(f.processes, &server{s}), append(f.ends, s.Kill)
	}
	return served.Answers(ctx, "http://"+f.address+"/health")
}

func (f *fleet) stop() {
	for _, end := range slices.Backward(f.ends) {
		end()
	}
}

// said returns the last lines of all processes.
func (f *fleet) said() error {
	var errs []error
	for i, p := range f.processes {
		errs = append(errs, fmt.Errorf("process %d:\n%s", i, p.Tail()))
	}
	return errors.Join(errs...)
}

// orders are messages that no process of ours sends.
var orders = []string{`{"term":18446744073709551615,"what":"look"}`, `{"term":18446744073709551615,"what":"run","number":7,"id":"x","ticket":"$JS.ACK.x"}`, `{"term":9,"runs":[{"number":1,"tokens":-5}]}`, "[", "null"}

// flood sends NATS small and large messages to the
// names that front ends and agents answer under, to news of requests, and to inboxes.
func flood(ctx context.Context, seed uint64, url string) (sent int, err error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	rng := seeded.New(seed, "peer")
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

// askAll sends requests that are kept, waits for the end of each that was accepted, and counts how they ended: right, lost, wrong, with
// text of the harmful server, or with a status.
func askAll(ctx context.Context, address string, n int) tally {
	got := tally{}
	var mu sync.Mutex
	next := make(chan int)
	var clients sync.WaitGroup
	for range 8 * sequences {
		clients.Go(func() {
			for i := range next {
				how := askOne(ctx, address, i)
				mu.Lock()
				got[how]++
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	clients.Wait()
	return got
}

// askOne asks until the request is accepted and has ended, and returns how it ended.
func askOne(ctx context.Context, address string, i int) string {
	ctx, cancel := context.WithTimeout(ctx, agentWithin)
	defer cancel()
	q := &textRequest{prompt: fmt.Sprint("request ", i), tokens: textTokens, store: true, id: fmt.Sprint("attack-", i)}
	for {
		status, _, body, err := q.send(ctx, address)
		switch {
		case err != nil:
			return "lost"
		case status == http.StatusTooManyRequests:
			time.Sleep(50 * time.Millisecond)
			continue
		case status != http.StatusOK:
			return fmt.Sprint("ended with ", status)
		}
		var x struct {
			Choices []struct{ Text string }
		}
		switch {
		case json.Unmarshal(body, &x) != nil || len(x.Choices) != 1:
			return "wrong"
		case x.Choices[0].Text == fake.Text(textModel, q.prompt, textTokens):
			return "right"
		case strings.Contains(x.Choices[0].Text, mark):
			return "the harmful server's"
		}
		return "wrong"
	}
}
