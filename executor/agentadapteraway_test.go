package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/testkit/llm/fake"
)

// Agents have requests for a model and two adapters of it answered. One that ends leaves
// an adapter behind: the one after it puts that right.
func TestAdaptersOfSeveralMachines(t *testing.T) {
	models := []string{"base", "sql", "poem"}
	opt := adapterKinds["loaded"].opt
	opt.Token = 2 * time.Millisecond
	f := openFleet(t, queuePlan(2, 4, time.Minute, models...), opt)
	f.adapters = adapterKinds["loaded"].adapters
	url, _ := f.front()
	stops := []func(){f.agent(0), f.agent(1)}
	var wg sync.WaitGroup
	for i := range 45 {
		wg.Go(func() {
			model, prompt, tokens := models[i%3], fmt.Sprint("prompt ", i), 30+i
			if text, want := f.ask(t.Context(), url, model, prompt, tokens), fake.Text(model, prompt, tokens); text != want {
				t.Errorf("request %d for %s: %q, expected %q", i, model, text, want)
			}
		})
	}
	ends := -1 // the agent of a server that has an adapter; the other one may get the base alone
	for end := time.Now().Add(answeredWithin); ends < 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no server had an adapter")
		}
		ends = slices.IndexFunc(f.fakes, func(s *fake.Server) bool { return len(s.Counts().Adapters) > 0 })
	}
	stops[ends]()
	f.agent(ends)
	wg.Wait()
	for i, s := range f.fakes {
		n := s.Counts()
		oneAtOnce(t, n.Adapters)
		if len(n.Loads) > 0 || n.Unloads > 0 {
			t.Errorf("server %d: models loaded %v, %d unloads: expected none", i, n.Loads, n.Unloads)
		}
	}
}

// An agent begins with adapters that its servers have or can load, at those that have the
// base. Servers that do not answer are waited for.
func TestAgentSuitsAdapters(t *testing.T) {
	f := openFleet(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{})
	loads := fake.Options{Models: []string{"a"}, Plain: true, Loads: true}
	plain, other := fake.Options{Models: []string{"a"}, Plain: true}, fake.Options{Models: []string{"b"}, Plain: true}
	a1 := text.ModelAdapter{Model: "a1", Base: "a", Path: "/adapters/a1"}
	for name, x := range map[string]struct {
		servers  []fake.Options
		silent   bool
		adapters []text.ModelAdapter
		want     string // of the refusal; empty: it begins
		lacks    bool
	}{
		"base at one place":  {[]fake.Options{loads, other}, false, []text.ModelAdapter{a1}, "", false},
		"lacking":            {[]fake.Options{plain}, false, []text.ModelAdapter{a1}, "instance 0: the server has no such adapter: a1 at ", true},
		"lacking at another": {[]fake.Options{loads, plain}, false, []text.ModelAdapter{a1}, "instance 1: the server has no such adapter: a1 at ", true},
		"no base":            {[]fake.Options{loads, other}, false, []text.ModelAdapter{a1, {Model: "c1", Base: "c", Path: ""}}, "adapter c1: found no server that has its base c", false},
		"contradiction":      {[]fake.Options{loads}, false, []text.ModelAdapter{a1, a1}, "adapter a1: found it twice", false},
		"no answer":          {[]fake.Options{plain}, true, []text.ModelAdapter{a1, {Model: "c1", Base: "c", Path: ""}}, "", false},
	} {
		store, err := f.share()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		o := text.AgentOptions{Store: store, Adapters: x.adapters, Log: f.log, OnReady: cancel}
		for i, opt := range x.servers {
			s, err := fake.Start(opt)
			if err != nil {
				t.Fatal(err)
			}
			if t.Cleanup(s.Stop); x.silent {
				s.Stop()
			}
			o.Servers = append(o.Servers, text.InstanceServer{Instance: i, URL: s.URL()})
		}
		err = text.ServeAgent(ctx, o)
		switch begun := ctx.Err() != nil; {
		case x.want == "" && (err != nil || !begun):
			t.Errorf("%s: %v, expected that it begins", name, err)
		case x.want != "" && (begun || !errors.Is(err, turn.ErrPlan) || errors.Is(err, llm.ErrNoAdapter) != x.lacks || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %v (it began: %v), expected %q", name, err, begun, x.want)
		}
		cancel()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A server that answers later than its agent begins, and lacks the adapter: who plans says
// so once, and the others have the requests. Started anew with what it needs, it works.
func TestAgentWhoseServerLacksAdapter(t *testing.T) {
	to := locked{&sync.Mutex{}, &bytes.Buffer{}}
	logged := func(what string) int {
		to.mu.Lock()
		defer to.mu.Unlock()
		return strings.Count(to.b.String(), what)
	}
	opt := fake.Options{Models: []string{"base"}, Plain: true, Loads: true, Token: time.Millisecond}
	f := openFleet(t, queuePlan(2, 4, time.Minute, "base", "sql"), opt)
	f.log, f.adapters = slog.New(slog.NewTextHandler(to, nil)), []text.ModelAdapter{{Model: "sql", Base: "base", Path: "/adapters/sql"}}
	f.fakes[0].Stop()
	url, _ := f.front()
	f.agent(0)
	f.agent(1)
	start := func(loads bool) *fake.Server {
		again := opt
		again.At, again.Loads = strings.TrimPrefix(f.fakes[0].URL(), "http://"), loads
		s, err := fake.Start(again)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return s
	}
	ask := func(from, to int) {
		var wg sync.WaitGroup
		for i := from; i < to; i++ {
			wg.Go(func() {
				model, prompt := []string{"base", "sql"}[i%2], fmt.Sprint("prompt ", i)
				if text, want := f.ask(t.Context(), url, model, prompt, 30), fake.Text(model, prompt, 30); text != want {
					t.Errorf("request %d for %s: %q, expected %q", i, model, text, want)
				}
			})
		}
		wg.Wait()
	}
	lacking := start(false)
	for end := time.Now().Add(answeredWithin); logged("an instance cannot work") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody says that the server lacks the adapter")
		}
	}
	ask(0, 10)
	if n := lacking.Counts(); n.Completions > 0 || logged("an instance cannot work") != 1 || logged("it takes no adapters: start llama-server with --lora FILE") != 1 {
		t.Errorf("%d requests at the server that lacks it; said %d times", n.Completions, logged("an instance cannot work"))
	}
	lacking.Stop()
	fit := start(true)
	for i := 10; fit.Counts().Completions == 0; i += 10 {
		if i > 1000 {
			t.Fatal("the server that was started anew has no requests")
		}
		ask(i, i+10)
	}
}
