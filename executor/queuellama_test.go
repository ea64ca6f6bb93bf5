package executor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/testkit/llm/llamatest"
)

// llamaDesk is an executor of queues on real llama-servers.
func llamaDesk(t *testing.T, plan *formats.Plan, slots int, change func(*Options)) (*desk, []*llamatest.Server) {
	t.Helper()
	if os.Getenv("INFERPLAN_LLM") == "" {
		t.Skip("make bench NAME=e2e-llm runs the tests with a real server")
	}
	d := &desk{t: t}
	o := Options{CoreOptions: CoreOptions{Log: shownLog(t)}}
	var servers []*llamatest.Server
	for i := range formats.QueueOf(plan).Instances {
		s := llamatest.Start(t, llamatest.Options{Slots: slots})
		servers = append(servers, s)
		o.Servers = append(o.Servers, text.InstanceServer{Instance: i, URL: s.URL})
	}
	if change != nil {
		change(&o)
	}
	d.again(plan, o)
	t.Cleanup(d.close)
	return d, servers
}

// undisturbed is what a server writes after a prompt, greedy, with nothing else to do.
func undisturbed(t *testing.T, url, model, prompt string, tokens int) string {
	t.Helper()
	c, err := llm.New(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := c.Complete(ctx, &llm.Request{Model: model, Prompt: prompt, MaxTokens: tokens, Fields: map[string]any{"temperature": 0}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Text
}

// On llama-server the sequence A B A A C A B C is served with three loads, the first
// included, and no request waits longer than its SLO. First come, first served, beside it.
func TestLlamaServesSwapsInTime(t *testing.T) {
	models := map[rune]string{'a': llamatest.TinyA, 'b': llamatest.TinyB, 'c': llamatest.Small}
	const slo = time.Minute
	run := func(policy string) (loads int, order string, longest time.Duration) {
		plan := queuePlan(1, 1, slo, models['a'], models['b'], models['c'])
		plan.Policy.Name = policy
		d, _ := llamaDesk(t, plan, 1, nil)
		var mu sync.Mutex
		var sheets []*sheet
		began := time.Now()
		for i, m := range "abaacabc" {
			s := d.send(models[m], fmt.Sprint("prompt ", i), 64)
			sheets = append(sheets, s)
			go func() {
				<-s.done
				mu.Lock()
				defer mu.Unlock()
				order += string(m)
				longest = max(longest, time.Since(began))
			}()
		}
		for i, s := range sheets {
			if r := s.wait(t); r.Err != nil {
				t.Fatalf("request %d: %v", i, r.Err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return int(*d.x.Report().Loads) + 1, order, longest // the model at the start is no load of the policy's
	}
	planned, order, took := run("vqueue")
	fifo, fifoOrder, fifoTook := run("fcfs")
	t.Logf("planned: %d loads, served %s, the last after %v; first come first served: %d loads, %s, %v", planned, order, took, fifo, fifoOrder, fifoTook)
	if planned != 3 || took > slo {
		t.Errorf("%d loads, expected 3 within %v", planned, slo)
	}
	if fifo != 7 || fifoOrder != "abaacabc" {
		t.Errorf("first come first served: %d loads in the order %s, expected 7", fifo, fifoOrder)
	}
}

// Greedy text after evictions equals that of a request that was never disturbed: 40 of
// 40, with flash attention off and one thread.
func TestLlamaTextSurvivesEvictions(t *testing.T) {
	const n, tokens = 40, 120
	d, servers := llamaDesk(t, queuePlan(1, 4, 10*time.Minute, llamatest.TinyA), 4, nil)
	var sheets []*sheet
	for i := range n {
		sheets = append(sheets, d.send(llamatest.TinyA, fmt.Sprint("once upon a time ", i), tokens))
	}
	c := d.x.core.Load()
	evicted := map[int32]int{}
	for open := true; open; time.Sleep(5 * time.Millisecond) {
		c.Loop.CallInRound(func() {
			for slot := range int32(64) {
				b := c.Batches.BatchIn(slot)
				if b == nil || evicted[b.Tasks[0]] >= 2 {
					continue
				}
				text := text.JobText(c.Ledger.RequestIn(b.Tasks[0]).Job)
				if _, so, _ := text.PartialOf(text.CurrentRun.Load()); so >= 20*(evicted[b.Tasks[0]]+1) {
					evicted[b.Tasks[0]]++
					c.Backends.BackendOf(b.Device()).EvictBatch(b, false)
				}
			}
			open = c.Ledger.Pending() > 0
		})
	}
	equal, again := 0, 0
	for i, s := range sheets {
		r := s.wait(t)
		text, _ := s.written()
		if want := undisturbed(t, servers[0].URL, llamatest.TinyA, fmt.Sprint("once upon a time ", i), tokens); r.Err == nil && text == want {
			equal++
		} else {
			t.Logf("request %d: %v\n%q\n%q", i, r.Err, text, want)
		}
		if s.stores > 0 {
			again++
		}
	}
	t.Logf("%d of %d equal, %d of them were evicted", equal, n, again)
	if equal != n || again < n/2 {
		t.Errorf("%d of %d are equal, %d were evicted", equal, n, again)
	}
}

// Kills of the server's child, of the server, and the end of our process: as many
// answers as requests, each whole.
func TestLlamaKillsLoseNoAnswer(t *testing.T) {
	const n, tokens = 24, 150
	var opt Options
	plan := queuePlan(2, 4, 10*time.Minute, llamatest.TinyA, llamatest.TinyB)
	d, servers := llamaDesk(t, plan, 4, func(o *Options) { opt = *o })
	model := func(i int) string { return []string{llamatest.TinyA, llamatest.TinyB}[i%2] }
	var sheets []*sheet
	for i := range n {
		sheets = append(sheets, d.send(model(i), fmt.Sprint("tell me ", i), tokens))
	}
	some := func(more int) { // until so many more have ended
		for {
			done := 0
			for _, s := range sheets {
				select {
				case <-s.done:
					done++
				default:
				}
			}
			if done >= more {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	some(2)
	servers[0].KillModels(t)
	some(6)
	servers[1].Kill()
	some(10)
	d.close()
	d.again(plan, opt)
	for i, s := range sheets {
		select {
		case <-s.done:
			continue
		default:
		}
		r := &completions.Request{ID: fmt.Sprint("again", i), Model: model(i), Body: fmt.Appendf(nil, `{"model":%q,"prompt":%q,"max_tokens":%d,"temperature":0}`, model(i), fmt.Sprint("tell me ", i), tokens), MaxTokens: tokens, Accepted: time.Now()}
		r.Partial, r.PartialTokens = s.written()
		d.q.Serve(r, s)
	}
	for _, s := range sheets {
		s.wait(t)
	}
	d.close() // or the next requests would be in each other's way
	out := 0
	for i, s := range sheets {
		r := s.wait(t)
		text, _ := s.written()
		if want := undisturbed(t, servers[0].URL, model(i), fmt.Sprint("tell me ", i), tokens); r.Err != nil || text != want {
			t.Errorf("request %d: %v\n%q\n%q", i, r.Err, text, want)
			continue
		}
		out++
	}
	t.Logf("%d requests in, %d answers out", n, out)
}

// A server that is stopped (SIGSTOP) is given up by the deadline rule.
func TestLlamaStandsStill(t *testing.T) {
	d, servers := llamaDesk(t, queuePlan(2, 4, 10*time.Minute, llamatest.TinyA), 4, func(o *Options) { o.SilenceTimeout = time.Second })
	const n, tokens = 12, 400
	var sheets []*sheet
	for i := range n {
		sheets = append(sheets, d.send(llamatest.TinyA, fmt.Sprint("wait ", i), tokens))
	}
	<-sheets[0].first
	servers[1].Signal(t, syscall.SIGSTOP)
	defer servers[1].Signal(t, syscall.SIGCONT)
	var wrong []string
	for i, s := range sheets {
		r := s.wait(t)
		text, _ := s.written()
		if want := undisturbed(t, servers[0].URL, llamatest.TinyA, fmt.Sprint("wait ", i), tokens); r.Err != nil || text != want {
			wrong = append(wrong, fmt.Sprintf("request %d: %v", i, r.Err))
		}
	}
	if len(wrong) > 0 {
		t.Error(strings.Join(slices.Clip(wrong), "\n"))
	}
}
