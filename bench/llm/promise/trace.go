package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"inferplan/bench/served"
	"inferplan/formats/document"
)

// row is a request of a trace.
type row struct {
	at             time.Duration
	model          string
	prompt, output int
}

// bursts are requests for both models at once, again and again, each burst once the one
// before is over for sure. A burst is there before a model that its first request asks
// for can be. What is served next then hangs on no short time.
func bursts(n int, gap time.Duration) (out []row) {
	patterns := []string{"abaababb", "baabbaba", "aabbabab"}
	for i := range n {
		for k, m := range patterns[i%len(patterns)] {
			out = append(out, row{time.Second/2 + time.Duration(i)*gap + time.Duration(k)*10*time.Millisecond, names[m-'a'], 10 + 3*k, 120 + 8*((i+k)%4)})
		}
	}
	return out
}

// random are requests at exponential gaps.
func random(n int, mean time.Duration, seed uint64) (out []row) {
	rng := rand.New(rand.NewPCG(seed, 1))
	at := time.Second / 2
	for range n {
		at += time.Duration(rng.ExpFloat64() * float64(mean))
		out = append(out, row{at, names[rng.IntN(2)], 10 + rng.IntN(30), 16 + rng.IntN(64)})
	}
	return out
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// write writes the plan and the trace, and returns the flags of both for a run.
func (b *bench) write(p *planned, rows []row) (flags []string, err error) {
	if _, err := document.WriteFile(b.path("plan.json"), p.Plan, document.Force(true)); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.WriteString("t_us,model,prompt_tokens,output_tokens\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "%d,%s,%d,%d\n", r.at.Microseconds(), r.model, r.prompt, r.output)
	}
	end := rows[len(rows)-1].at + time.Second
	return []string{"--trace", b.path("trace.csv"), "--duration", end.String()}, os.WriteFile(b.path("trace.csv"), text.Bytes(), 0o644)
}

// simulated simulates a plan with a trace.
func (b *bench) simulated(ctx context.Context, p *planned, rows []row) (*seen, error) {
	flags, err := b.write(p, rows)
	if err != nil {
		return nil, err
	}
	if err := program.Run(ctx, append([]string{"simulate", b.path("plan.json"), "--event-log", b.path("simulated.log")}, flags...)...); err != nil {
		return nil, err
	}
	return b.read("simulated.log", rows)
}

// served serves a plan, and sends the requests of a trace.
func (b *bench) served(ctx context.Context, p *planned, rows []row) (*seen, error) {
	flags, err := b.write(p, rows)
	if err != nil {
		return nil, err
	}
	err = b.serving(ctx, "plan.json", func(address string) error {
		return program.Run(ctx, append([]string{"load", address, "--plan", b.path("plan.json"), "--grace", "2m"}, flags...)...)
	})
	if err != nil {
		return nil, err
	}
	return b.read("served.log", rows)
}

// read reads the event log of a run in which all requests must have ended.
func (b *bench) read(name string, rows []row) (*seen, error) {
	s, err := readLog(b.path(name))
	if err == nil && len(s.order) != len(rows) {
		err = fmt.Errorf("%s: %d of %d requests ended", name, len(s.order), len(rows))
	}
	return s, err
}

// serving has a plan served while something is done.
func (b *bench) serving(ctx context.Context, plan string, do func(address string) error) error {
	_ = os.Remove(b.path("requests.db")) // of the run before
	s, err := program.Serve(ctx, b.path(plan), "--server", b.url, "--http", "127.0.0.1:0", "--metrics", "off", "--queue", b.path("requests.db"), "--event-log", b.path("served.log"))
	if err != nil {
		return err
	}
	address := "http://" + s.HTTP
	if err = served.Answers(ctx, address+"/health"); err == nil {
		err = do(address)
	}
	return errors.Join(err, s.Stop())
}
