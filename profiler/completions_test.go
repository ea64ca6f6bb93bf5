package profiler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"inferplan/formats/importer/samples"
)

// completions is a server of a language model of our own: it prefers the answer
// that stands behind the last '=' of a prompt, with the probability that stands
// behind '@', in the form that the API documents. Prompts with '!' get no token
// of any answer.
func completions(t testing.TB, asked *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked != nil {
			asked.Add(1)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var q struct {
			Model, Prompt string
			Logprobs      int
		}
		if err := json.Unmarshal(body, &q); err != nil || q.Logprobs < 1 {
			http.Error(w, `{"error":{"message":"bad request"}}`, http.StatusBadRequest)
			return
		}
		if q.Model != "tiny" && q.Model != "big" {
			http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
			return
		}
		text, p, _ := strings.Cut(q.Prompt[strings.LastIndex(q.Prompt, "=")+1:], "@")
		var v float64
		fmt.Sscan(p, &v)
		if q.Model == "big" {
			v = math.Sqrt(v)
		}
		other := map[string]string{"A": "B", "B": "A"}[text]
		top := map[string]float64{" " + text: math.Log(v * .9), "\u2581" + text: math.Log(v * .1), other: math.Log(1 - v)}
		if strings.Contains(q.Prompt, "!") {
			top = map[string]float64{"The": -.1}
		}
		json.NewEncoder(w).Encode(map[string]any{"object": "text_completion", "model": q.Model, "choices": []any{map[string]any{
			"text": " " + text, "index": 0, "finish_reason": "length",
			"logprobs": map[string]any{"tokens": []string{" " + text}, "token_logprobs": []float64{math.Log(v * .9)}, "top_logprobs": []any{top}, "text_offset": []int{0}},
		}}})
	}))
	t.Cleanup(s.Close)
	return s
}

// Certainty and correctness come from the probabilities of the answers' tokens,
// whatever the order in which the server answers.
func TestRecordCompletions(t *testing.T) {
	server := completions(t, nil)
	p := &samples.Prompts{}
	for i := range 40 {
		p.Labels, p.Texts = append(p.Labels, "A"), append(p.Texts, fmt.Sprintf("%d=%s@0.%d", i, []string{"A", "B"}[i%2], 60+i%4))
	}
	p.Labels, p.Texts = append(p.Labels, "B"), append(p.Texts, "!=A@0.5")
	o := CompletionOptions{Models: []Endpoint{{"small", server.URL + "/v1", "tiny"}, {"large", server.URL + "/v1", "big"}}, Prompts: p, Source: "q.csv", HeldOut: .25, Seed: 3}
	var last, calls int
	o.Progress = func(_ string, done, n int) { last, calls = done, calls+1 }
	rec, err := RecordCompletions(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Samples != 41 || rec.PlanningSamples != 31 || rec.Score != "top1-top2" || len(rec.Models) != 2 || last != 41 || calls != 82 {
		t.Errorf("%d samples, %d to plan on, score %q, %d models; progress to %d in %d calls", rec.Samples, rec.PlanningSamples, rec.Score, len(rec.Models), last, calls)
	}
	for row, s := range SampleOrder(o.Seed, 41) {
		for k, m := range rec.Models {
			v := .6 + float64(s%4)/100
			if k == 1 {
				v = math.Sqrt(v)
			}
			want, correct := 2*v-1, "10"[s%2]
			if s == 40 {
				want, correct = 0, '0'
			}
			if math.Abs(m.Certainty[row]-want) > 1e-9 || m.Correct[row] != correct {
				t.Fatalf("sample %d of %s: certainty %v, correct %c; expected %v, %c", s, m.Model, m.Certainty[row], m.Correct[row], want, correct)
			}
		}
	}
	o.Parallel, o.Progress = 1, nil
	again, err := RecordCompletions(context.Background(), o)
	if err != nil || !slices.Equal(again.Models[1].Certainty, rec.Models[1].Certainty) {
		t.Errorf("one request at a time gives other records: %v", err)
	}
}

func TestRecordCompletionsRefuses(t *testing.T) {
	var asked atomic.Int64
	server := completions(t, &asked)
	good := func() CompletionOptions {
		return CompletionOptions{Models: []Endpoint{{"small", server.URL, "tiny"}}, Prompts: &samples.Prompts{Labels: []string{"A", "B"}, Texts: []string{"=A@0.9", "=B@0.9"}}}
	}
	for want, spoil := range map[string]func(*CompletionOptions){
		"no model":             func(o *CompletionOptions) { o.Models = nil },
		"held out: 1":          func(o *CompletionOptions) { o.HeldOut = 1 },
		"unknown":              func(o *CompletionOptions) { o.Score = "x" },
		"at least two":         func(o *CompletionOptions) { o.Options = []string{"A"} },
		"differ":               func(o *CompletionOptions) { o.Options = []string{"A", "B", " A"} },
		`none of the answers`:  func(o *CompletionOptions) { o.Options = []string{"A", "C"} },
		"given twice":          func(o *CompletionOptions) { o.Models = append(o.Models, o.Models[0]) },
		"expected the address": func(o *CompletionOptions) { o.Models[0].Base = "localhost" },
	} {
		o := good()
		spoil(&o)
		before := asked.Load()
		if _, err := RecordCompletions(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if want != "given twice" && asked.Load() != before {
			t.Errorf("%s: the server was asked all the same", want)
		}
	}
	o := good()
	o.Models[0].Model = "other"
	if _, err := RecordCompletions(context.Background(), o); err == nil || !strings.Contains(err.Error(), "no such model") || !strings.Contains(err.Error(), "small") {
		t.Errorf("a model that the server does not have: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := RecordCompletions(ctx, good()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOptionProbabilitiesAddUpTokens(t *testing.T) {
	for name, c := range map[string]struct {
		tokens  map[string]float64
		options []string
		want    []float64
	}{
		"tokens of one answer add up": {map[string]float64{"A": .2, " A": .4, "B": .2, "C": .2}, []string{"A", "B"}, []float64{.75, .25}},
		"beginnings count once clear": {map[string]float64{" pos": .6, "neg": .2, "p": .1}, []string{"positive", "negative"}, []float64{.7 / .9, .2 / .9}},
		"shared beginnings do not":    {map[string]float64{"ne": .5, "neg": .25, "neu": .25}, []string{"negative", "neutral"}, []float64{.5, .5}},
		"the whole answer first":      {map[string]float64{"yes": 1}, []string{"yes, always", "yes, never", "yes"}, []float64{0, 0, 1}},
		"none":                        {map[string]float64{"The": .9, " ": .1}, []string{"A", "B"}, []float64{0, 0}},
	} {
		got := optionProbabilities(c.tokens, c.options)
		for i := range c.want {
			if math.Abs(got[i]-c.want[i]) > 1e-12 {
				t.Errorf("%s: %v, expected %v", name, got, c.want)
				break
			}
		}
	}
}
