package main

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// startLLM starts a server of language models and puts its address into a variable. With
// adapted it has one model, and loads adapters of it from /adapters:
//
//	llm VARIABLE MODEL...
//	llm VARIABLE adapted MODEL
func startLLM(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: llm VARIABLE [adapted] MODEL...")
	}
	opt := fake.Options{Models: args[1:], Token: time.Millisecond}
	if args[1] == "adapted" {
		opt.Models, opt.Plain, opt.Loads = args[2:], true, true
	}
	s, err := fake.Start(opt)
	ts.Check(err)
	ts.Defer(s.Stop)
	ts.Setenv(args[0], s.URL())
}

// startNATS starts NATS with JetStream and puts its address into a variable:
//
//	nats VARIABLE
func startNATS(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: nats VARIABLE")
	}
	url, stop, err := natstest.Alone(ts.MkAbs("nats"))
	ts.Check(err)
	ts.Defer(stop)
	ts.Setenv(args[0], url)
}
