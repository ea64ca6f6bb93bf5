package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"inferplan/bench/llm/made"
	"inferplan/bench/served"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
	"inferplan/testkit/natstest"
)

// program is the command plan, whose serving is measured.
var program = served.Program{Path: "bin/plan"}

const (
	instances = 2
	sequences = 16
	model     = "a"
)

// options are those of the servers that write answers.
var options = fake.Options{Models: []string{model}, Slots: sequences, Token: time.Millisecond}

// victim can be killed and started again.
type victim interface {
	kill()
	start(ctx context.Context) error
}

// node is one of a cluster of NATS.
type node struct {
	cluster *natstest.Cluster
	number  int
}

func (n *node) kill()                       { n.cluster.Kill(n.number) }
func (n *node) start(context.Context) error { return n.cluster.Again(n.number) }

// process is a process of a program.
type process struct {
	served.Program
	args   []string
	ready  string         // address that answers once the process is up; empty if nobody waits for it
	server *served.Server // the last that was started
}

func (p *process) start(ctx context.Context) (err error) {
	if p.server, err = p.Start(ctx, p.args...); err != nil || p.ready == "" {
		return err
	}
	return served.Answers(ctx, p.ready)
}

func (p *process) kill() {
	if p.server != nil {
		p.server.Kill()
	}
}

// standStill stops a process for a time.
func (p *process) standStill(d time.Duration) error {
	if err := p.server.Command.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return p.server.Command.Process.Signal(syscall.SIGCONT)
}

// rig is all that serves.
type rig struct {
	fronts, agents, nodes, servers []victim
	addresses                      []string // of the front ends
	fakes                          []*fake.Server
	processes                      []*process
	ends                           []func()
}

// newRig starts what fails of a kind needs: a front end with a file, or two front ends, two agents and three nodes. The rig is to be
// stopped after an error as well.
func newRig(ctx context.Context, dir string, k *kind) (*rig, error) {
	r := &rig{}
	plan := filepath.Join(dir, "plan.json")
	if _, err := document.WriteFile(plan, made.Plan(model, instances, sequences)); err != nil {
		return r, err
	}
	addresses, err := r.answer(ctx, k.processes)
	if err != nil {
		return r, err
	}
	var servers []string
	for i, a := range addresses {
		servers = append(servers, "--server", fmt.Sprintf("%d=%s", i, a))
	}
	if !k.shared {
		more := append(servers, "--queue", filepath.Join(dir, "requests.db"))
		if k.processes {
			more = append(more, "--server-silence", serverSilence.String())
		}
		return r, r.front(ctx, plan, more...)
	}

	// Requests in three nodes.
	cluster, err := natstest.Start(dir)
	if err != nil {
		return r, err
	}
	r.ends = append(r.ends, cluster.Stop)
	for i := range 3 {
		r.nodes = append(r.nodes, &node{cluster, i})
	}
	queue := []string{"--queue", cluster.URL, "--queue-silence", silence.String()}
	for range 2 {
		if err := r.front(ctx, plan, queue...); err != nil {
			return r, err
		}
	}
	for i := range instances {
		agent := r.process(program, append([]string{"agent", "--server", servers[2*i+1]}, queue...)...)
		r.agents = append(r.agents, agent)
		if err := agent.start(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// process returns one of a program that has not been started.
func (r *rig) process(of served.Program, args ...string) *process {
	p := &process{Program: of, args: args}
	r.processes, r.ends = append(r.processes, p), append(r.ends, p.kill)
	return p
}

// front starts a front end.
func (r *rig) front(ctx context.Context, plan string, more ...string) error {
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprint("127.0.0.1:", port)
	p := r.process(program, append([]string{"serve", plan, "--http", address, "--metrics", "off"}, more...)...)
	p.ready = "http://" + address + "/health"
	r.fronts, r.addresses = append(r.fronts, p), append(r.addresses, "http://"+address)
	return p.start(ctx)
}

// textsArgument makes this program a server that writes answers, at the address that follows.
const textsArgument = "texts"

// serve is the whole of a process that was started as a server.
func serve() {
	if len(os.Args) != 3 || os.Args[1] != textsArgument {
		return
	}
	server := options
	server.At = os.Args[2]
	if _, err := fake.Start(server); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// answer starts the servers that write answers: as processes, or else in this one.
func (r *rig) answer(ctx context.Context, processes bool) (addresses []string, err error) {
	for range instances {
		if !processes {
			f, err := fake.Start(options)
			if err != nil {
				return nil, err
			}
			r.fakes, addresses = append(r.fakes, f), append(addresses, f.URL())
			r.ends = append(r.ends, f.Stop)
			continue
		}
		port, err := natstest.FreePort()
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		address := fmt.Sprint("127.0.0.1:", port)
		p := r.process(served.Program{Path: self}, textsArgument, address)
		p.ready = "http://" + address + "/v1/models"
		r.servers, addresses = append(r.servers, p), append(addresses, "http://"+address)
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// logs are the last lines of all processes, for a run that failed.
func (r *rig) logs() error {
	var errs []error
	for _, p := range r.processes {
		if p.server != nil {
			errs = append(errs, fmt.Errorf("%s:\n%s", p.args[0], p.server.Tail()))
		}
	}
	return errors.Join(errs...)
}

func (r *rig) stop() {
	for i := len(r.ends) - 1; i >= 0; i-- {
		r.ends[i]()
	}
}

// completions says how many the servers began.
func (r *rig) completions() (n int) {
	for _, f := range r.fakes {
		n += f.Counts().Completions
	}
	return n
}
