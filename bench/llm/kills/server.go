package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"inferplan/bench/served"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// serving is the variable of the environment by which a process is a server that writes
// answers, at the address that it holds.
const serving = "BENCH_LLM_KILLS_SERVES"

// options are those of the servers that write answers.
var options = fake.Options{Models: []string{model}, Slots: sequences, Token: time.Millisecond}

// serve is the whole of a process that was started as a server.
func serve() {
	address := os.Getenv(serving)
	if address == "" {
		return
	}
	own := options
	own.At = address
	if _, err := fake.Start(own); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// server is a server in a process of its own.
func (r *rig) server() (*process, string, error) {
	port, err := natstest.FreePort()
	if err != nil {
		return nil, "", err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	address := fmt.Sprint("127.0.0.1:", port)
	p := r.command([]string{serving + "=" + address}, program)
	p.ready = func(ctx context.Context) error { return served.Answers(ctx, "http://"+address+"/v1/models") }
	return p, "http://" + address, nil
}
