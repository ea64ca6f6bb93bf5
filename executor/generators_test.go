package executor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/executor/oip"
	"inferplan/executor/steps"
	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/policytest"
)

// answerTokens are the tokens of every answer of the tests.
const answerTokens = 12

// ragPlan is a workflow of an embedder on one device and of a language model on others,
// which answers the client's question. Its SLO is slo.
func ragPlan(servers int, slo time.Duration) *formats.Plan {
	p := policytest.FlowPlan(slo, "dyorc-admit", policytest.FlowStage{Name: "embedder", Infer: steady(time.Millisecond, 4), Workers: 1},
		policytest.FlowStage{Name: "m", Infer: steady(20*time.Millisecond, 4), Workers: servers})
	p.Pools = []formats.Pool{{Device: "L4", Count: 1, Memory: 1 << 20, Sharing: formats.SharingTime}, {Device: "A100", Count: servers, Memory: 1 << 30, Sharing: formats.SharingTime}}
	f := formats.FlowOf(p)
	for i := range p.Deployment {
		s := &p.Deployment[i].Pipelines[0].Stages[0]
		s.Device, s.Placement = p.Pools[i].Device, []formats.Placement{{PerDevice: 1, Replicas: s.Replicas}}
		m := &f.Modules[i]
		m.ColdStartUS, m.NearUS, m.FarUS = us(time.Millisecond), us(time.Microsecond), us(time.Microsecond)
		kind := formats.FlowKind{Device: p.Pools[i].Device, LoadUS: m.ColdStartUS}
		if i == 1 {
			m.WorkingBytes, kind.WorkingBytes = 1<<20, 1<<20
			m.Generation = &formats.FlowGeneration{PromptMean: 40, OutputMean: answerTokens, KVBytesPerToken: 64, Instances: []formats.LLMInstance{
				{Device: "A100", TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 1e6, SequenceNS: 1e3}, KVTokens: 1 << 14, KVSource: "computed", BlockTokens: 16, Sequences: 4}}}
		}
		m.Kinds = []formats.FlowKind{kind}
		for d := range p.Pools[i].Count {
			m.Resident = append(m.Resident, d+i)
		}
	}
	embedder := &p.Deployment[0]
	embedder.Inputs = []formats.TensorInfo{{Name: "words", DType: "FP32", Shape: []int64{-1, 64}}}
	embedder.Outputs = []formats.TensorInfo{{Name: "vector", DType: "FP32", Shape: []int64{-1, 8}}}
	app := formats.FlowApplication{Served: f.Applications[0].Served, Segments: []formats.Segment{{Name: "answer", Modules: []formats.Module{
		{Name: "embed", Model: "embedder", Pre: "text-words", Predecessors: []string{}},
		{Name: "write", Model: "m", Pre: "passages", Predecessors: []string{"embed"}, Passages: &formats.Passages{File: "passages.jsonl", Nearest: 2},
			Prompt: &formats.Lengths{Distribution: "normal", Mean: 40, SD: 8, Max: 512}, Output: &formats.Lengths{Distribution: "fixed", Mean: answerTokens}},
	}}}}
	f.Applications = []formats.FlowApplication{app}
	return p
}

// library is an executor of an application with a language model, with its fake servers.
type library struct {
	t       *testing.T
	x       *Executor
	http    *httptest.Server
	servers []*fake.Server
}

func openLibrary(t *testing.T, servers int, opt fake.Options, change ...func(p *formats.Plan)) *library {
	t.Helper()
	plan := ragPlan(servers, patient)
	for _, f := range change {
		f(plan)
	}
	l := &library{t: t}
	o := replayOptions(true)
	o.Log, o.SilenceTimeout = shownLog(t), 2*time.Second
	for i := range servers {
		s, err := fake.Start(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		l.servers = append(l.servers, s)
		o.Servers = append(o.Servers, text.InstanceServer{Instance: i, URL: s.URL()})
	}
	l.x = open(t, plan, o)
	l.http = httptest.NewServer(oip.NewHTTPServer(l.x, oip.Options{}))
	t.Cleanup(l.http.Close)
	return l
}

// answerTo is what the model writes for a question without passages.
func answerTo(question string) string {
	return fake.Text("m", "Answer the question from these passages.\n\nQuestion: "+question+"\nAnswer:", answerTokens)
}

// ask asks a question over the generate extension and returns the status, the last answer or
// error, and the text of all events.
func (l *library) ask(ctx context.Context, verb, question string) (status int, last map[string]any, text string) {
	l.t.Helper()
	body, _ := json.Marshal(map[string]any{"id": "7", "text_input": question, "parameters": map[string]any{"priority": 1}})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.http.URL+"/v2/models/app/"+verb, bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, ""
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		if err := json.NewDecoder(resp.Body).Decode(&last); err != nil {
			l.t.Error(err)
		}
		text, _ = last["text_output"].(string)
		return resp.StatusCode, last, text
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = nil
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				l.t.Error(err)
			}
			piece, _ := last["text_output"].(string)
			text += piece
		}
	}
	return resp.StatusCode, last, text
}

// An application asks a language model by its servers: its client is answered with the whole
// text, or with its pieces as they come, and tensors hold it as well.
func TestApplicationAsksLanguageModel(t *testing.T) {
	l := openLibrary(t, 2, fake.Options{Token: time.Millisecond})
	status, last, text := l.ask(t.Context(), "generate", "What is a pool?")
	if status != http.StatusOK || text != answerTo("What is a pool?") || last["model_name"] != "app" || last["id"] != "7" {
		t.Errorf("%d %v, expected %q", status, last, answerTo("What is a pool?"))
	}
	status, last, text = l.ask(t.Context(), "generate_stream", "What is a gear?")
	if status != http.StatusOK || text != answerTo("What is a gear?") || last["text_output"] == text {
		t.Errorf("%d %v: %q, expected pieces of %q", status, last, text, answerTo("What is a gear?"))
	}
	question := make([]byte, steps.TextBytes)
	copy(question, "What is an SLO?")
	resp, err := l.x.Infer(t.Context(), &oip.Request{Model: "app", Batch: 1, Received: time.Now(), Inputs: []oip.Tensor{{Name: "text", Datatype: oip.Uint8, Shape: []int64{1, steps.TextBytes}, Data: question}}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Release()
	if got := string(steps.TrimPadding(resp.Outputs[0].Data)); got != answerTo("What is an SLO?") {
		t.Errorf("%q, expected %q", got, answerTo("What is an SLO?"))
	}
	if n := l.servers[0].Counts().Completions + l.servers[1].Counts().Completions; n < 3 {
		t.Errorf("%d completions", n)
	}
}

// A module reads what another one wrote as a text, whatever their lengths are, also of the same
// language model with other steps.
func TestLanguageModelReadsText(t *testing.T) {
	l := openLibrary(t, 1, fake.Options{}, func(p *formats.Plan) {
		lengths := func(tokens float64) *formats.Lengths { return &formats.Lengths{Distribution: "fixed", Mean: tokens} }
		list := &formats.FlowOf(p).Applications[0].Segments[0].Modules
		*list = append(*list, formats.Module{Name: "title", Model: "m", Predecessors: []string{"write"}, Prompt: lengths(16), Output: lengths(5)})
	})
	if status, last, text := l.ask(t.Context(), "generate_stream", "why?"); status != http.StatusOK || text != fake.Text("m", answerTo("why?"), 5) {
		t.Errorf("%d %v: %q", status, last, text)
	}
}

// Requests that are more than a server has slots for wait there, and sequences of several
// requests run at once.
func TestLanguageModelAnswersManyAtOnce(t *testing.T) {
	l := openLibrary(t, 1, fake.Options{Token: time.Millisecond, Fault: func(n int, _ string) fake.Fault { return fake.Fault{Full: n%5 == 3} }})
	var all sync.WaitGroup
	for i := range 24 {
		question := "question " + string(rune('a'+i))
		all.Go(func() {
			if status, last, text := l.ask(t.Context(), "generate", question); status != http.StatusOK || text != answerTo(question) {
				t.Errorf("%s: %d %v", question, status, last)
			}
		})
	}
	all.Wait()
	if r := l.x.Report(); r.Completed != 24 || r.Dropped != 0 {
		t.Errorf("report %+v", r.Counts)
	}
}

// A server that is lost has its requests answered by the others, and works again when it is
// back; a stream goes on where it was.
func TestServerOfLanguageModelIsLost(t *testing.T) {
	l := openLibrary(t, 2, fake.Options{Token: 10 * time.Millisecond})
	var all sync.WaitGroup
	ask := func(verb, question string) {
		all.Go(func() {
			if status, last, text := l.ask(t.Context(), verb, question); status != http.StatusOK || text != answerTo(question) {
				t.Errorf("%s: %d %v: %q, expected %q", question, status, last, text, answerTo(question))
			}
		})
	}
	for i := range 8 {
		ask([]string{"generate", "generate_stream"}[i%2], "before "+string(rune('a'+i)))
	}
	time.Sleep(60 * time.Millisecond)
	l.servers[0].Stop()
	for i := range 8 {
		ask("generate", "without "+string(rune('a'+i)))
	}
	time.Sleep(60 * time.Millisecond)
	l.servers[1].Stop() // nobody is left
	if err := l.servers[0].Again(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if err := l.servers[1].Again(); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if l.x.core.Load().Backends.BackendOf(2).IsUp(2) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the second server did not come back")
}

// A prompt that the server refuses fails its request alone, as bad input; so does an answer that
// the server breaks off again and again. Others go on meanwhile.
func TestLanguageModelRefuses(t *testing.T) {
	l := openLibrary(t, 1, fake.Options{Fault: func(_ int, prompt string) fake.Fault {
		switch {
		case strings.Contains(prompt, "refused"):
			return fake.Fault{Refuse: true}
		case strings.Contains(prompt, "broken"):
			return fake.Fault{DieAt: -1}
		case strings.Contains(prompt, "torn"): // it goes on where it was
			return fake.Fault{DieAt: 3}
		}
		return fake.Fault{}
	}})
	var all sync.WaitGroup
	all.Go(func() {
		if status, last, text := l.ask(t.Context(), "generate_stream", "beside"); status != http.StatusOK || text != answerTo("beside") {
			t.Errorf("%d %v", status, last)
		}
	})
	for question, want := range map[string]int{"refused": http.StatusBadRequest, "broken": http.StatusInternalServerError} {
		if status, last, _ := l.ask(t.Context(), "generate", question); status != want {
			t.Errorf("%s: %d %v, expected %d", question, status, last, want)
		}
	}
	all.Wait()
	if status, last, text := l.ask(t.Context(), "generate_stream", "torn"); status != http.StatusOK || text != answerTo("torn") {
		t.Errorf("%d %v: %q, expected %q", status, last, text, answerTo("torn"))
	}
	if status, last, text := l.ask(t.Context(), "generate", "good"); status != http.StatusOK || text != answerTo("good") {
		t.Errorf("%d %v", status, last)
	}
}

// What a client that goes away asked for ends at the server.
func TestClientOfLanguageModelLeaves(t *testing.T) {
	l := openLibrary(t, 1, fake.Options{Slots: 1, Token: 50 * time.Millisecond, Fault: func(_ int, prompt string) fake.Fault {
		return fake.Fault{Endless: strings.Contains(prompt, "endless"), HangAt: 0}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	l.ask(ctx, "generate_stream", "endless")
	if status, last, text := l.ask(t.Context(), "generate", "next"); status != http.StatusOK || text != answerTo("next") {
		t.Errorf("%d %v", status, last)
	}
}

// Bad bodies are refused with what was expected.
func TestGenerateRefusesBadBodies(t *testing.T) {
	l := openLibrary(t, 1, fake.Options{})
	for body, want := range map[string]string{
		`{}`:                    "text_input",
		`{"text_input": 3}`:     "text_input",
		`{"text": "a"}`:         "id, text_input, parameters",
		`{"text_input": "a"} x`: "body",
		`{"text_input": "` + strings.Repeat("a", steps.TextBytes+1) + `"}`: "expected at most 2048",
		`{"text_input": "a", "parameters": {"timeout": [1]}}`:              "timeout",
		`{"text_input": "a", "parameters": {"binary_data_output": true}}`:  "the answer is a text",
		`{"text_input": "a\u0000b"}`:                                       "zero byte",
	} {
		resp, err := http.Post(l.http.URL+"/v2/models/app/generate", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var answer bytes.Buffer
		_, _ = answer.ReadFrom(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(answer.String(), want) {
			t.Errorf("%.60s: %d %s, expected %s", body, resp.StatusCode, &answer, want)
		}
	}
}

// A start that fails because of the servers of language models leaves nothing behind of the workers that have started before them, whether
// these are processes or run inside this one.
func TestFailedStartLeavesNothing(t *testing.T) {
	for _, inside := range []bool{true, false} {
		before := goleak.IgnoreCurrent()
		o := replayOptions(inside)
		o.Log, o.SilenceTimeout = shownLog(t), 2*time.Second
		o.Servers = []text.InstanceServer{{Instance: 7, URL: "http://127.0.0.1:1"}}
		if x, err := New(t.Context(), ragPlan(2, patient), o); err == nil {
			x.Close()
			t.Error("a plan is served without its servers")
		}
		if err := goleak.Find(before); err != nil {
			t.Errorf("workers inside %v: %v", inside, err)
		}
	}
}
