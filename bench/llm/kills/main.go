package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/executor/durable/jetstream/natstest"
)

const source = "who accepts a request must not lose it"

// bench is what a run was asked for.
type bench struct {
	plan     string // the program
	requests int
	kills    int
	seed     uint64
	silence  time.Duration
	out      io.Writer
}

// part is what is killed. victims are indexes into what the rig has of it.
type part struct {
	name, what string
	shared     bool
	victims    func(*rig) []*process
	most       int           // kills, where fewer are asked for than of front ends
	between    time.Duration // a kill and the next one
}

var parts = []part{
	{name: "file", what: "front end, requests in a file", victims: func(r *rig) []*process { return r.fronts }},
	{name: "front", what: "one of two front ends, requests in three nodes", shared: true, victims: func(r *rig) []*process { return r.fronts }},
	{name: "node", what: "one of three nodes", shared: true, most: 30, victims: func(r *rig) []*process { return r.nodes }, between: 2 * time.Second},
	{name: "agent", what: "one of two agents", shared: true, most: 30, victims: func(r *rig) []*process { return r.agents }},
}

func main() {
	natstest.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-llm-kills:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	b := &bench{out: out}
	f := flag.NewFlagSet("bench-llm-kills", flag.ContinueOnError)
	f.StringVar(&b.plan, "plan", "bin/plan", "the program")
	f.IntVar(&b.requests, "requests", 10_000, "requests of each part")
	f.IntVar(&b.kills, "kills", 100, "kills of front ends; of nodes and agents at most 30")
	f.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "of the moments of the kills")
	f.DurationVar(&b.silence, "silence", 5*time.Second, "--queue-silence of all processes: on a busy machine short ones pass without a reason")
	wanted := f.String("parts", "file,front,node,agent", "what is killed")
	file := f.String("figures", "", "file that the figures are put into")
	if err := f.Parse(args); err != nil {
		return err
	}
	var err error
	if b.plan, err = filepath.Abs(b.plan); err != nil {
		return err
	}
	var errs []error
	for name := range strings.SplitSeq(*wanted, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("-parts: found %q", name)
		}
		figure, err := b.measure(ctx, &parts[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Fprintf(out, "%s\n", figures.Table([]figures.Figure{figure}))
		if figure.Holds != figures.Yes {
			errs = append(errs, fmt.Errorf("%s: %g requests are not as they should be: %s", name, figure.Measured, figure.Note))
		}
		if *file != "" {
			errs = append(errs, figures.Put(*file, figure))
		}
	}
	return errors.Join(errs...)
}

// measure runs a part.
func (b *bench) measure(ctx context.Context, p *part) (figures.Figure, error) {
	kills := b.kills
	if p.most > 0 {
		kills = min(kills, p.most)
	}
	dir, err := os.MkdirTemp("", "kills-")
	if err != nil {
		return figures.Figure{}, err
	}
	defer os.RemoveAll(dir)
	r, err := newRig(ctx, b.plan, dir, b.silence, p.shared)
	if err != nil {
		return figures.Figure{}, err
	}
	defer r.stop()
	began := time.Now()
	c := newClients(r.addresses(), b.requests)
	go c.run(ctx)
	if err := b.kill(ctx, p, r, c, kills); err != nil {
		return figures.Figure{}, errors.Join(err, r.said())
	}
	select {
	case <-c.done:
	case <-time.After(2*time.Minute + 20*time.Millisecond*time.Duration(b.requests)):
		return figures.Figure{}, errors.Join(fmt.Errorf("%d of %d requests have no answer", b.requests-int(c.answered.Load()), b.requests), r.said())
	case <-ctx.Done():
		return figures.Figure{}, ctx.Err()
	}
	took := time.Since(began)
	t := c.tally(ctx)
	for _, line := range t.wrong[:min(len(t.wrong), 5)] {
		fmt.Fprintln(b.out, line)
	}
	return figures.Figure{
		Claim: fmt.Sprintf("%s killed: requests without one answer, or with another text", p.what), Source: source, Asked: "none", Measured: float64(len(t.wrong)), Unit: fmt.Sprint("of ", b.requests), Holds: figures.If(len(t.wrong) == 0),
		Note: fmt.Sprintf("%d kills in %v; %d requests were sent more than once, %d clients went away and found their answer by its id; the servers began %d completions; silence %v, seed %d",
			kills, took.Round(time.Second), t.again, t.later, r.completions(), b.silence, b.seed),
		Command: fmt.Sprintf("make bench-llm-kills KILLS='-parts %s -requests %d -kills %d'", p.name, b.requests, b.kills),
	}, nil
}

// kill kills victims, each at a random request.
func (b *bench) kill(ctx context.Context, p *part, r *rig, c *clients, kills int) error {
	rng := rand.New(rand.NewPCG(b.seed, 0))
	at := make([]int, kills)
	for i := range at {
		at[i] = rng.IntN(b.requests * 9 / 10)
	}
	slices.Sort(at)
	victims := p.victims(r)
	for _, n := range at {
		for c.sent.Load() < int64(n) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		v := victims[rng.IntN(len(victims))]
		v.kill()
		time.Sleep(time.Duration(rng.Int64N(int64(100*time.Millisecond + p.between/2))))
		if err := v.start(ctx); err != nil {
			return err
		}
		time.Sleep(p.between) // two of three nodes must be there
	}
	return ctx.Err()
}
