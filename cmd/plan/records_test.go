package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// labelled writes N samples of WIDTH random values with labels 0 to 9.
func labelled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: labelled FILE WIDTH N")
	}
	width, err := strconv.Atoi(args[1])
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	rng := rand.New(rand.NewPCG(8, 8))
	var b strings.Builder
	b.WriteString("label")
	for i := range width {
		fmt.Fprintf(&b, ",v%d", i)
	}
	for i := range n {
		fmt.Fprintf(&b, "\n%d", i%10)
		for range width {
			fmt.Fprintf(&b, ",%.3f", rng.Float64())
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()+"\n"), 0o644))
}

// completions starts a server of two language models, tiny and big, of the form
// that OpenAI's completions API has, and sets $COMPLETIONS. The answer that a
// prompt ends with is the likelier one, big being surer. With the argument mute
// it gives no logprobs.
func completions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: completions [mute]")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Model, Prompt string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/completions" || r.Header.Get("Authorization") != "Bearer of-the-test" {
			http.Error(w, `{"error":{"message":"not like that"}}`, http.StatusBadRequest)
			return
		}
		sure := map[string]float64{"tiny": .7, "big": .95}[q.Model]
		if sure == 0 {
			http.Error(w, `{"error":{"message":"the model does not exist"}}`, http.StatusNotFound)
			return
		}
		token := q.Prompt[len(q.Prompt)-1:]
		other := map[string]string{"A": "B", "B": "A"}[token]
		var probabilities any
		if len(args) == 0 {
			probabilities = map[string]any{"tokens": []string{" " + token}, "token_logprobs": []float64{math.Log(sure)}, "text_offset": []int{len(q.Prompt)},
				"top_logprobs": []any{map[string]float64{" " + token: math.Log(sure), other: math.Log(1 - sure)}}}
		}
		// A client that is gone needs no answer.
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "cmpl-1", "object": "text_completion", "created": 1, "model": q.Model,
			"choices": []any{map[string]any{"text": " " + token, "index": 0, "finish_reason": "length", "logprobs": probabilities}},
			"usage":   map[string]int{"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}})
	}))
	ts.Defer(s.Close)
	ts.Setenv("COMPLETIONS", s.URL+"/v1")
}
