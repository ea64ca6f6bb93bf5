package main

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"inferplan/engine/llm/fake"
)

// startLLM starts a server of language models and puts its address into a variable:
//
//	llm VARIABLE MODEL...
func startLLM(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: llm VARIABLE MODEL...")
	}
	s, err := fake.Start(fake.Options{Models: args[1:], Token: time.Millisecond})
	ts.Check(err)
	ts.Defer(s.Stop)
	ts.Setenv(args[0], s.URL())
}
