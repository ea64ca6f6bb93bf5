package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"inferplan/bench/llm/made"
	"inferplan/bench/served"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// process is one that can be killed and started again.
type process struct {
	begin  func() error
	end    func()
	signal func(name string) error // STOP, CONT
	ready  func(ctx context.Context) error
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
	fronts, agents, nodes, servers []*process
	ports                          []int
	fakes                          []*fake.Server
	ends                           []func()
	mu                             sync.Mutex
	logs                           []*bytes.Buffer
}

const (
	instances = 2
	sequences = 16
	model     = "a"
)

// newRig starts what a part needs: a front end with a file, or two front ends, two agents
// and three nodes.
func (b *bench) newRig(ctx context.Context, dir string, p *part) (_ *rig, err error) {
	r := &rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.said())
			r.stop()
		}
	}()
	path := filepath.Join(dir, "plan.json")
	if _, err := document.WriteFile(path, made.Plan(model, instances, sequences)); err != nil {
		return nil, err
	}
	addresses, err := r.answer(ctx, p.processes)
	if err != nil {
		return nil, err
	}
	var servers []string
	for i, a := range addresses {
		servers = append(servers, "--server", fmt.Sprintf("%d=%s", i, a))
	}
	if !p.shared {
		more := append(servers, "--queue", filepath.Join(dir, "requests.db"))
		if p.processes {
			more = append(more, "--server-silence", b.serverSilence.String())
		}
		return r, r.front(ctx, b.plan, path, more...)
	}
	c, err := natstest.Start(dir)
	if err != nil {
		return nil, err
	}
	r.ends = append(r.ends, c.Stop)
	for i := range 3 {
		r.nodes = append(r.nodes, &process{begin: func() error { return c.Again(i) }, end: func() { c.Kill(i) }})
	}
	queue := []string{"--queue", c.URL, "--queue-silence", b.silence.String()}
	for range 2 {
		if err := r.front(ctx, b.plan, path, queue...); err != nil {
			return nil, err
		}
	}
	for i := range instances {
		p := r.command(nil, b.plan, append([]string{"agent", "--server", servers[2*i+1]}, queue...)...)
		r.agents = append(r.agents, p)
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// answer starts the servers that write answers: as processes, or else in this one.
func (r *rig) answer(ctx context.Context, processes bool) (addresses []string, err error) {
	for range instances {
		if processes {
			p, address, err := r.server()
			if err != nil {
				return nil, err
			}
			r.servers, addresses = append(r.servers, p), append(addresses, address)
			if err := p.start(ctx); err != nil {
				return nil, err
			}
			continue
		}
		f, err := fake.Start(options)
		if err != nil {
			return nil, err
		}
		r.fakes, addresses = append(r.fakes, f), append(addresses, f.URL())
		r.ends = append(r.ends, f.Stop)
	}
	return addresses, nil
}

// front starts a front end.
func (r *rig) front(ctx context.Context, program, plan string, more ...string) error {
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprint("127.0.0.1:", port)
	p := r.command(nil, program, append([]string{"serve", plan, "--http", address, "--metrics", "off"}, more...)...)
	p.ready = func(ctx context.Context) error { return served.Answers(ctx, "http://"+address+"/health") }
	r.fronts, r.ports = append(r.fronts, p), append(r.ports, port)
	return p.start(ctx)
}

// command is a process of a program, with what its environment has more than this one's.
func (r *rig) command(environment []string, program string, args ...string) *process {
	var cmd *exec.Cmd
	log := &bytes.Buffer{}
	r.logs = append(r.logs, log)
	p := &process{}
	p.begin = func() error {
		cmd = exec.Command(program, args...)
		cmd.Env = append(os.Environ(), environment...)
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
	p.signal = func(name string) error {
		return exec.Command("kill", "-"+name, strconv.Itoa(cmd.Process.Pid)).Run()
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
