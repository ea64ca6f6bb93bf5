package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/rogpeppe/go-internal/testscript"

	"inferplan/formats"
	"inferplan/sim/llm"
	"inferplan/testkit/llm/simserver"
)

// languageServer serves the language model m, whose iterations take a millisecond and a
// little for every sequence and token, at $LLM. With an argument it refuses
// everything with that status, or answers without streaming (plain).
func languageServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: llmserver [STATUS|plain]")
	}
	if len(args) == 1 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if args[0] != "plain" {
				status := 0
				fmt.Sscan(args[0], &status)
				http.Error(w, `{"error":{"message":"not you"}}`, status)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"data":[{"id":"m"}],"choices":[{"text":"a"}]}`)
		}))
		ts.Defer(s.Close)
		ts.Setenv("LLM", s.URL)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	s := &simserver.Server{Model: llm.Model{KVTokens: 8192, MaxSequences: 4, Iteration: formats.Iteration{BaseNS: 1e6, SequenceNS: 20000, ContextNS: 100, PromptNS: 5000}}}
	ts.Defer(s.Serve(l))
	ts.Setenv("LLM", "http://"+l.Addr().String())
}
