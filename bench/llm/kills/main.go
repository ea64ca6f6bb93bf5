package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
)

const source = "who accepts a request must not lose it"

// takenOver is the time within which requests of a server that fails go on elsewhere. silence is --queue-silence of all
// processes: on a busy machine short ones pass without a reason. serverSilence is --server-silence of the front end, where
// requests are in a file.
const (
	takenOver     = 2 * time.Second
	silence       = 5 * time.Second
	serverSilence = time.Second
)

// bench holds the options of a run.
type bench struct {
	requests, kills int
	seed            uint64
}

// kind is a kind of part of the rig that fails.
type kind struct {
	name, what string
	shared     bool // requests are in three nodes
	victims    func(*rig) []victim
	most       int           // kills, if fewer than those of front ends
	between    time.Duration // a kill and the next one
	processes  bool          // servers that write answers are processes of their own
	still      bool          // victims are not killed, they stand still longer than --server-silence
}

var kinds = []kind{
	{name: "file", what: "front end, requests in a file killed", victims: func(r *rig) []victim { return r.fronts }},
	{name: "front", what: "one of two front ends, requests in three nodes killed", shared: true, victims: func(r *rig) []victim { return r.fronts }},
	{name: "node", what: "one of three nodes killed", shared: true, most: 30, victims: func(r *rig) []victim { return r.nodes }, between: 2 * time.Second},
	{name: "agent", what: "one of two agents killed", shared: true, most: 30, victims: func(r *rig) []victim { return r.agents }},
	{name: "server", what: "one of two servers killed", most: 30, processes: true, victims: func(r *rig) []victim { return r.servers }, between: 400 * time.Millisecond},
	{name: "still", what: "one of two servers that stands still", most: 10, processes: true, still: true, victims: func(r *rig) []victim { return r.servers }, between: 400 * time.Millisecond},
}

func main() {
	serve()
	b := &bench{}
	i := &instrument.Instrument{Name: "llm-kills", Strict: true, Flags: func(f *flag.FlagSet) {
		f.IntVar(&b.requests, "requests", 10_000, "requests of each part")
		f.IntVar(&b.kills, "kills", 100, "kills of front ends; of nodes, agents and servers at most 30, 10 of servers that stand still")
		f.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "of the moments of the kills")
	}}
	for _, k := range kinds {
		i.Parts = append(i.Parts, instrument.Part{Name: k.name, Title: k.what, Measure: func(r *instrument.Run, _ *instrument.Table) error { return b.measure(r, &k) }})
	}
	instrument.Main(i)
}

// measure has parts of a kind fail while clients insist on their answers.
func (b *bench) measure(run *instrument.Run, k *kind) error {
	kills := b.kills
	if k.most > 0 {
		kills = min(kills, k.most)
	}
	dir, err := os.MkdirTemp("", "kills-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := newRig(run.Ctx, dir, k)
	defer r.stop()
	if err != nil {
		return errors.Join(err, r.logs())
	}
	began := time.Now()
	c := newClients(r.addresses, b.requests)
	go c.run(run.Ctx)
	kills, err = b.kill(run.Ctx, k, r, c, kills)
	if err == nil && kills == 0 {
		err = errors.New("the requests ended before anything failed: send more of them with -requests")
	}
	if err != nil {
		return errors.Join(err, r.logs())
	}
	select {
	case <-c.done:
	case <-time.After(2*time.Minute + 20*time.Millisecond*time.Duration(b.requests)):
		return errors.Join(fmt.Errorf("%d of %d requests have no answer", b.requests-int(c.answered.Load()), b.requests), r.logs())
	}
	if err := run.Ctx.Err(); err != nil {
		return err
	}
	took := time.Since(began)

	// Hold the answers against those of undisturbed runs, and find each by its id.
	t := c.tally(run.Ctx)
	for _, line := range t.wrong[:min(len(t.wrong), 5)] {
		fmt.Fprintln(run.Log, line)
	}
	note := fmt.Sprintf("%d times in %v; %d requests were sent more than once, %d clients went away and found their answer by its id; ", kills, took.Round(time.Second), t.again, t.later)
	if !k.processes {
		note += fmt.Sprintf("the servers began %d completions; ", r.completions())
	}
	run.Figure(figures.Figure{
		Claim: k.what + ": requests without one answer, or with another text", Source: source, Asked: "none", Measured: float64(len(t.wrong)), Unit: fmt.Sprint("of ", b.requests), Holds: figures.If(len(t.wrong) == 0),
		Note: note + fmt.Sprintf("silence %v, seed %d", silence, b.seed),
	})
	if k.processes {
		most := takenOver
		if k.still {
			most += serverSilence
		}
		run.Figure(figures.Figure{Claim: k.what + ": longest pause of a stream under way", Source: source, Asked: "at most " + most.String(),
			Measured: t.pause.Seconds(), Unit: "s", Holds: figures.If(t.pause <= most), Note: fmt.Sprintf("%d times, --server-silence %v", kills, serverSilence)})
	}
	return nil
}

// kill has victims fail, each at a random request, while there are requests. It returns how often.
func (b *bench) kill(ctx context.Context, k *kind, r *rig, c *clients, kills int) (done int, err error) {
	rng := rand.New(rand.NewPCG(b.seed, 0))
	at := make([]int, kills)
	for i := range at {
		at[i] = rng.IntN(b.requests * 9 / 10)
	}
	slices.Sort(at)
	victims := k.victims(r)
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
		down := time.Duration(rng.Int64N(int64(100*time.Millisecond + k.between/2)))
		if p, ok := v.(*process); ok && k.still {
			err = p.standStill(serverSilence + down)
		} else {
			v.kill()
			time.Sleep(down)
			err = v.start(ctx)
		}
		if err != nil {
			return done, err
		}
		time.Sleep(k.between) // two of three nodes must be there, or the other server
	}
	return done, ctx.Err()
}
