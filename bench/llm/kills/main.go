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
	"inferplan/testkit/natstest"
)

const source = "who accepts a request must not lose it"

// takenOver is the time within which requests of a server that fails go on elsewhere.
const takenOver = 2 * time.Second

// bench holds the options of a run.
type bench struct {
	plan     string // the program
	requests int
	kills    int
	seed     uint64
	silence  time.Duration
	out      io.Writer

	serverSilence time.Duration
}

// part is a part of the rig that is killed. victims are indexes into the rig's parts of that sort.
type part struct {
	name, what string
	shared     bool
	victims    func(*rig) []*process
	most       int           // kills, where fewer are asked for than of front ends
	between    time.Duration // a kill and the next one
	processes  bool          // servers that write answers are processes of their own
	still      bool          // victims are not killed, they stand still longer than --server-silence
}

var parts = []part{
	{name: "file", what: "front end, requests in a file", victims: func(r *rig) []*process { return r.fronts }},
	{name: "front", what: "one of two front ends, requests in three nodes", shared: true, victims: func(r *rig) []*process { return r.fronts }},
	{name: "node", what: "one of three nodes", shared: true, most: 30, victims: func(r *rig) []*process { return r.nodes }, between: 2 * time.Second},
	{name: "agent", what: "one of two agents", shared: true, most: 30, victims: func(r *rig) []*process { return r.agents }},
	{name: "server", what: "one of two servers", most: 30, processes: true, victims: func(r *rig) []*process { return r.servers }, between: 400 * time.Millisecond},
	{name: "still", what: "one of two servers that stands still", most: 10, processes: true, still: true, victims: func(r *rig) []*process { return r.servers }, between: 400 * time.Millisecond},
}

func main() {
	natstest.Main()
	serve()
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
	f.IntVar(&b.kills, "kills", 100, "kills of front ends; of nodes, agents and servers at most 30, 10 of servers that stand still")
	f.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "of the moments of the kills")
	f.DurationVar(&b.silence, "silence", 5*time.Second, "--queue-silence of all processes: on a busy machine short ones pass without a reason")
	f.DurationVar(&b.serverSilence, "server-silence", time.Second, "--server-silence of the front end, where requests are in a file")
	wanted := f.String("parts", "file,front,node,agent,server,still", "what is killed")
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
		list, err := b.measure(ctx, &parts[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Fprintf(out, "%s\n", figures.Table(list))
		for _, figure := range list {
			if figure.Holds != figures.Yes {
				errs = append(errs, fmt.Errorf("%s: %g %s, asked %s: %s", figure.Claim, figure.Measured, figure.Unit, figure.Asked, figure.Note))
			}
		}
		if *file != "" {
			errs = append(errs, figures.Put(*file, figures.Command(f, "llm-kills", "parts", name), list...))
		}
	}
	return errors.Join(errs...)
}

// measure runs a part.
func (b *bench) measure(ctx context.Context, p *part) ([]figures.Figure, error) {
	kills := b.kills
	if p.most > 0 {
		kills = min(kills, p.most)
	}
	dir, err := os.MkdirTemp("", "kills-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := b.newRig(ctx, dir, p)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	began := time.Now()
	c := newClients(r.addresses(), b.requests)
	go c.run(ctx)
	kills, err = b.kill(ctx, p, r, c, kills)
	if err == nil && kills == 0 {
		err = errors.New("the requests ended before anything failed: send more of them with -requests")
	}
	if err != nil {
		return nil, errors.Join(err, r.said())
	}
	select {
	case <-c.done:
	case <-time.After(2*time.Minute + 20*time.Millisecond*time.Duration(b.requests)):
		return nil, errors.Join(fmt.Errorf("%d of %d requests have no answer", b.requests-int(c.answered.Load()), b.requests), r.said())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	took := time.Since(began)
	t := c.tally(ctx)
	for _, line := range t.wrong[:min(len(t.wrong), 5)] {
		fmt.Fprintln(b.out, line)
	}
	note := fmt.Sprintf("%d times in %v; %d requests were sent more than once, %d clients went away and found their answer by its id; ", kills, took.Round(time.Second), t.again, t.later)
	if !p.processes {
		note += fmt.Sprintf("the servers began %d completions; ", r.completions())
	}
	verb := " killed"
	if p.still {
		verb = ""
	}
	list := []figures.Figure{{
		Claim: p.what + verb + ": requests without one answer, or with another text", Source: source, Asked: "none", Measured: float64(len(t.wrong)), Unit: fmt.Sprint("of ", b.requests), Holds: figures.If(len(t.wrong) == 0),
		Note: note + fmt.Sprintf("silence %v, seed %d", b.silence, b.seed),
	}}
	if p.processes {
		most := takenOver
		if p.still {
			most += b.serverSilence
		}
		pause := time.Duration(c.pause.Load())
		list = append(list, figures.Figure{Claim: p.what + verb + ": longest pause of a stream under way", Source: source, Asked: "at most " + most.String(),
			Measured: pause.Seconds(), Unit: "s", Holds: figures.If(pause <= most), Note: fmt.Sprintf("%d times, --server-silence %v", kills, b.serverSilence)})
	}
	return list, nil
}

// kill kills victims, each at a random request, while there are requests. It returns how
// often.
func (b *bench) kill(ctx context.Context, p *part, r *rig, c *clients, kills int) (done int, err error) {
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
		if c.answered.Load() == int64(b.requests) {
			break
		}
		done++
		v := victims[rng.IntN(len(victims))]
		if err := b.fail(ctx, p, v, time.Duration(rng.Int64N(int64(100*time.Millisecond+p.between/2)))); err != nil {
			return done, err
		}
		time.Sleep(p.between) // two of three nodes must be there, or the other server
	}
	return done, ctx.Err()
}

// fail has a victim fail for a time.
func (b *bench) fail(ctx context.Context, p *part, v *process, d time.Duration) error {
	if p.still {
		if err := v.signal("STOP"); err != nil {
			return err
		}
		time.Sleep(b.serverSilence + d)
		return v.signal("CONT")
	}
	v.kill()
	time.Sleep(d)
	return v.start(ctx)
}
