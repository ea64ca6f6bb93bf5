package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"inferplan/bench/llm/made"
	"inferplan/bench/llm/started"
	"inferplan/engine/llm/fake"
	"inferplan/executor/durable/jetstream/natstest"
	"inferplan/formats"
)

// process is one that can be killed and started again.
type process struct {
	begin func() error
	end   func()
	ready func(ctx context.Context) error
}

func (p *process) kill() { p.end() }

func (p *process) start(ctx context.Context) error {
	if err := p.begin(); err != nil {
		return err
	}
	if p.ready != nil {
		return p.ready(ctx)
	}
	return nil
}

// rig is all that serves.
type rig struct {
	fronts, agents, nodes []*process
	ports                 []int
	fakes                 []*fake.Server
	ends                  []func()
	mu                    sync.Mutex
	logs                  []*bytes.Buffer
}

const (
	instances = 2
	sequences = 16
	model     = "a"
)

// newRig starts a front end with a file, or two front ends, two agents and three nodes.
func newRig(ctx context.Context, program, dir string, silence time.Duration, shared bool) (_ *rig, err error) {
	r := &rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.said())
			r.stop()
		}
	}()
	path := filepath.Join(dir, "plan.json")
	if _, err := formats.WriteFile(path, made.Plan(model, instances, sequences)); err != nil {
		return nil, err
	}
	var servers []string
	for i := range instances {
		f, err := fake.Start(fake.Options{Models: []string{model}, Slots: sequences, Token: time.Millisecond})
		if err != nil {
			return nil, err
		}
		r.fakes = append(r.fakes, f)
		r.ends = append(r.ends, f.Stop)
		servers = append(servers, "--server", fmt.Sprintf("%d=%s", i, f.URL()))
	}
	if !shared {
		return r, r.front(ctx, program, path, append(servers, "--queue", filepath.Join(dir, "requests.db"))...)
	}
	c, err := natstest.Start(dir)
	if err != nil {
		return nil, err
	}
	r.ends = append(r.ends, c.Stop)
	for i := range 3 {
		r.nodes = append(r.nodes, &process{begin: func() error { return c.Again(i) }, end: func() { c.Kill(i) }})
	}
	queue := []string{"--queue", c.URL, "--queue-silence", silence.String()}
	for range 2 {
		if err := r.front(ctx, program, path, queue...); err != nil {
			return nil, err
		}
	}
	for i := range instances {
		p := r.command(program, append([]string{"agent", "--server", servers[2*i+1]}, queue...)...)
		r.agents = append(r.agents, p)
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// front starts a front end.
func (r *rig) front(ctx context.Context, program, plan string, more ...string) error {
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprint("127.0.0.1:", port)
	p := r.command(program, append([]string{"serve", plan, "--http", address, "--metrics", "off"}, more...)...)
	p.ready = func(ctx context.Context) error { return started.Answers(ctx, "http://"+address+"/health") }
	r.fronts, r.ports = append(r.fronts, p), append(r.ports, port)
	return p.start(ctx)
}

// command is a process of the program.
func (r *rig) command(program string, args ...string) *process {
	var cmd *exec.Cmd
	log := &bytes.Buffer{}
	r.logs = append(r.logs, log)
	p := &process{}
	p.begin = func() error {
		cmd = exec.Command(program, args...)
		cmd.Stderr = &locked{r, log}
		return cmd.Start()
	}
	p.end = func() {
		if cmd != nil && cmd.Process != nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // it was killed
			cmd = nil
		}
	}
	r.ends = append(r.ends, func() { p.end() })
	return p
}

// locked is a log that may be read while a process writes it.
type locked struct {
	r *rig
	b *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return l.b.Write(p)
}

// said are the last lines of all processes, for a run that failed.
func (r *rig) said() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for i, b := range r.logs {
		text := b.Bytes()
		errs = append(errs, fmt.Errorf("process %d: …%s", i, text[max(0, len(text)-3000):]))
	}
	return errors.Join(errs...)
}

func (r *rig) stop() {
	for i := len(r.ends) - 1; i >= 0; i-- {
		r.ends[i]()
	}
}

func (r *rig) addresses() (out []string) {
	for _, p := range r.ports {
		out = append(out, fmt.Sprint("http://127.0.0.1:", p))
	}
	return out
}

// completions is how many the servers began.
func (r *rig) completions() (n int) {
	for _, f := range r.fakes {
		n += f.Counts().Completions
	}
	return n
}
