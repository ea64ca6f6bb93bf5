package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/llm/gguf"
	"inferplan/testkit/llm/llamatest"
)

// The kinds of servers with adapters: those that load them, and those that were started
// with them.
var adapterKinds = map[string]struct {
	opt      fake.Options
	adapters []text.ModelAdapter
}{
	"loaded": {fake.Options{Models: []string{"base"}, Plain: true, Loads: true, Token: time.Millisecond / 4},
		[]text.ModelAdapter{{Model: "sql", Base: "base", Path: "/adapters/sql"}, {Model: "poem", Base: "base", Path: "/adapters/poem"}}},
	"started": {fake.Options{Models: []string{"base"}, Plain: true, Files: []string{"/a/poem.gguf", "/a/sql.gguf"}, Token: time.Millisecond / 4},
		[]text.ModelAdapter{{Model: "sql", Base: "base", Path: "/a/sql.gguf"}, {Model: "poem", Base: "base", Path: ""}}},
}

// Requests for a model and two adapters of it, in a mixed order, are answered by the one
// that they name, with no more of the model loaded than at the start.
func TestAdaptersAnswerUnderTheirNames(t *testing.T) {
	for kind, k := range adapterKinds {
		t.Run(kind, func(t *testing.T) {
			models := []string{"base", "sql", "poem"}
			d := openDesk(t, queuePlan(1, 4, time.Minute, models...), k.opt, func(o *Options) { o.Adapters = k.adapters })
			var sheets []*sheet
			for i := range 36 {
				sheets = append(sheets, d.send(models[i*i%7%3], fmt.Sprint("prompt ", i), 10+i%7))
				if i%9 == 8 { // else each model is served once
					sheets[i].wait(t)
				}
			}
			for i, s := range sheets {
				answeredWhole(t, s, models[i*i%7%3], fmt.Sprint("prompt ", i), 10+i%7)
			}
			r, n := d.x.Report(), d.servers[0].Counts()
			if *r.Loads < 3 || n.Completions != 36 || len(n.Loads) != 0 || n.Unloads != 0 {
				t.Errorf("%d changes, at the server %+v: expected at least 3, and no model loaded", *r.Loads, n)
			}
			oneAtOnce(t, n.Adapters)
			if loads := slices.DeleteFunc(n.Adapters, func(a string) bool { return strings.HasPrefix(a, "-") }); k.opt.Loads && (len(loads) < 2 || len(loads) > int(*r.Loads)) || !k.opt.Loads && len(loads) > 0 {
				t.Errorf("%d loads of adapters of %d changes", len(loads), *r.Loads)
			}
		})
	}
}

// oneAtOnce checks that a server had no two adapters at once.
func oneAtOnce(t *testing.T, changes []string) {
	t.Helper()
	there := 0
	for _, a := range changes {
		if there++; strings.HasPrefix(a, "-") {
			there -= 2
		}
		if there < 0 || there > 1 {
			t.Errorf("adapters %v: expected one at once", changes)
		}
	}
}

// What a server had loaded is gone when it is started anew: the adapter comes again, and
// answers go on with its text.
func TestAdaptersOfServerThatDies(t *testing.T) {
	for kind, k := range adapterKinds {
		t.Run(kind, func(t *testing.T) {
			opt := k.opt
			opt.Token = 2 * time.Millisecond
			d := openDesk(t, queuePlan(1, 4, time.Minute, "base", "sql"), opt, func(o *Options) { o.Adapters = k.adapters[:1] })
			long := d.send("sql", "long", 150)
			<-long.first
			d.servers[0].Stop()
			if err := d.servers[0].Again(); err != nil {
				t.Fatal(err)
			}
			other := d.send("base", "other", 20)
			answeredWhole(t, long, "sql", "long", 150)
			answeredWhole(t, other, "base", "other", 20)
			n := d.servers[0].Counts()
			if loads := strings.Count(strings.Join(n.Adapters, " "), "sql"); opt.Loads && loads < 2 {
				t.Errorf("adapters %v: expected two loads, one after the death", n.Adapters)
			}
		})
	}
}

// A server that cannot do what it is told of adapters is refused at start, and so is what
// cannot be meant. One that does not answer is waited for.
func TestUnsupportedAdaptersAreRefused(t *testing.T) {
	plain := fake.Options{Models: []string{"base"}, Plain: true}
	static, files := plain, plain
	static.Loads, static.Static, files.Files = true, true, []string{"/a/poem.gguf"}
	sql := text.ModelAdapter{Model: "sql", Base: "base", Path: "/adapters/sql"}
	for name, x := range map[string]struct {
		opt      fake.Options
		adapters []text.ModelAdapter
		want     string
		lacks    bool
	}{
		"none":    {plain, []text.ModelAdapter{sql}, "--lora", true},
		"static":  {static, []text.ModelAdapter{sql}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING", true},
		"no path": {static, []text.ModelAdapter{{Model: "sql", Base: "base", Path: ""}}, "say where its files are", true},
		"another": {files, []text.ModelAdapter{sql}, "found [/a/poem.gguf], expected /adapters/sql", true},
		"no base": {fake.Options{Models: []string{"base"}, Plain: true, Loads: true}, []text.ModelAdapter{{Model: "sql", Base: "bas", Path: "/adapters/sql"}}, "found the models [base], expected its base bas", true},
		"twice":   {files, []text.ModelAdapter{sql, sql}, "found it twice", false},
		"of one":  {files, []text.ModelAdapter{sql, {Model: "base", Base: "x", Path: ""}}, "its base base is an adapter", false},
		"unknown": {files, []text.ModelAdapter{{Model: "other", Base: "base", Path: ""}}, "no model of this name", false},
	} {
		s, err := fake.Start(x.opt)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop()
		o := Options{CoreOptions: CoreOptions{Log: shownLog(t)}, InstanceOptions: InstanceOptions{SilenceTimeout: 2 * time.Second, Adapters: x.adapters, Servers: []text.InstanceServer{{URL: s.URL()}}}}
		made, err := New(context.Background(), queuePlan(1, 4, time.Minute, "base", "sql"), o)
		if err == nil {
			made.Close()
		}
		if !errors.Is(err, turn.ErrPlan) || errors.Is(err, llm.ErrNoAdapter) != x.lacks || !strings.Contains(err.Error(), x.want) || x.lacks && !strings.Contains(err.Error(), s.URL()) {
			t.Errorf("%s: %v, expected %q", name, err, x.want)
		}
		s.Stop()
		if made, err = New(context.Background(), queuePlan(1, 4, time.Minute, "base", "sql"), o); x.lacks != (err == nil) {
			t.Errorf("%s, without an answer of the server: %v", name, err)
		}
		if err == nil {
			made.Close()
		}
	}
	own := []text.InstanceServer{{Model: "base", URL: "http://127.0.0.1:1"}, {Model: "sql", URL: "http://127.0.0.1:1"}}
	if _, err := text.NewLocalServers(own, []text.ModelAdapter{sql}, 0); err == nil || !strings.Contains(err.Error(), "server of its own for sql") {
		t.Errorf("a server of its own: %v", err)
	}
}

// Two models with adapters on servers of their own: one adapter is followed by that of
// the other model, whose server is woken for it.
func TestAdaptersOfTwoModels(t *testing.T) {
	var servers []text.InstanceServer
	var fakes []*fake.Server
	for _, m := range []string{"a", "b"} {
		s, err := fake.Start(fake.Options{Models: []string{m}, Plain: true, Files: []string{m + "1.gguf"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		fakes, servers = append(fakes, s), append(servers, text.InstanceServer{Model: m, URL: s.URL()})
	}
	d := &desk{t: t, servers: fakes}
	models := []string{"a1", "b1", "b"}
	d.again(queuePlan(1, 4, time.Minute, models...), Options{CoreOptions: CoreOptions{Log: shownLog(t)}, InstanceOptions: InstanceOptions{Servers: servers, Adapters: []text.ModelAdapter{{Model: "a1", Base: "a", Path: ""}, {Model: "b1", Base: "b", Path: ""}}}})
	t.Cleanup(d.close)
	for i := range 9 {
		answeredWhole(t, d.send(models[i%3], fmt.Sprint(i), 9), models[i%3], fmt.Sprint(i), 9)
	}
}

// A real llama-server writes other text for a model and for its adapter, each the same as
// on its own, as completions and as chats.
func TestLlamaAdapterWritesOtherText(t *testing.T) {
	if os.Getenv("INFERPLAN_LLM") == "" {
		t.Skip("make bench NAME=e2e-llm runs the tests with a real server")
	}
	tiny := gguf.Tiny(llamatest.TinyA, 1)
	var files []string
	for i, name := range []string{"one.gguf", "two.gguf"} {
		path := filepath.Join(t.TempDir(), name)
		f, err := os.Create(path)
		if err == nil {
			err = errors.Join((&gguf.Adapter{Of: &tiny, Rank: 4, Seed: uint64(5 + i)}).Write(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	s := llamatest.Start(t, llamatest.Options{Alone: llamatest.TinyA, Args: []string{"--lora", strings.Join(files, ",")}})
	c, err := llm.Probe(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := c.Abilities.Models[0]
	models := []string{base, "one", "two"}
	d := &desk{t: t}
	d.again(queuePlan(1, 4, time.Minute, models...), Options{CoreOptions: CoreOptions{Log: shownLog(t)}, InstanceOptions: InstanceOptions{Servers: []text.InstanceServer{{URL: s.URL}}, Adapters: []text.ModelAdapter{{Model: "one", Base: base, Path: ""}, {Model: "two", Base: base, Path: files[1]}}}})
	t.Cleanup(d.close)
	texts, want := map[string]string{}, map[string]string{}
	for i, m := range models { // as the server writes them without a front end
		weights := []map[string]any{{"id": 0, "scale": float64(0)}, {"id": 1, "scale": float64(0)}}
		if i > 0 {
			weights[i-1]["scale"] = 1.0
		}
		if _, err := c.Call(t.Context(), http.MethodPost, "/lora-adapters", weights); err != nil {
			t.Fatal(err)
		}
		// Its cache does not see that weights for all requests changed.
		a, err := c.Complete(t.Context(), &llm.Request{Model: base, Prompt: "once upon", MaxTokens: 40, Fields: map[string]any{"temperature": 0, "cache_prompt": false}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want[m] = a.Text
	}
	for i := range 12 {
		m := models[i*i%7%3]
		r := d.send(m, "once upon", 40)
		end := r.wait(t)
		if texts[m], _ = r.written(); end.Err != nil || texts[m] != want[m] {
			t.Errorf("%s: %q, %v, expected %q", m, texts[m], end.Err, want[m])
		}
	}
	if texts[base] == texts["one"] || texts["one"] == texts["two"] || texts["two"] == texts[base] {
		t.Errorf("the models write %q", texts)
	}
	chats := map[string]bool{}
	for _, m := range models {
		r := newSheet()
		d.q.Serve(&completions.Request{ID: "chat " + m, Model: m, Chat: true, MaxTokens: 40, Accepted: time.Now(), Body: []byte(`{"messages":[{"role":"user","content":"once"}],"max_tokens":40,"temperature":0}`)}, r)
		if end := r.wait(t); end.Err != nil {
			t.Error(end.Err)
		}
		text, _ := r.written()
		chats[text] = true
	}
	if len(chats) != 3 {
		t.Errorf("chats of 3 models: %v", chats)
	}
}
