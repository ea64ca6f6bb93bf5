package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats/document"
)

// program is the command plan, whose serving is measured.
var program = served.Program{Path: "bin/plan"}

// llama is the folder of llama-server and its models.
const llama = "third_party/llama"

// requests is the length of the random trace.
const requests = 150

// bench is a run of the instrument.
type bench struct {
	dir    string // of plans, traces and logs
	url    string // of the server
	runs   int    // of the random trace
	bursts int    // of eight requests
	turns  int    // of interactive requests alone and beside a batch
	phase  time.Duration
}

func main() {
	b := &bench{}
	instrument.Main(&instrument.Instrument{
		Name: "llm-promise", Strict: true,
		Parts: []instrument.Part{
			{Name: "promise", Title: "A plan for one slot and two models, simulated and served", Measure: b.promise},
			{Name: "beside", Title: "Interactive requests alone and beside a batch, on one server", Measure: b.serveBesideBatch},
		},
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.runs, "runs", 5, "runs of the random trace")
			f.IntVar(&b.bursts, "bursts", 6, "bursts of eight requests")
			f.IntVar(&b.turns, "turns", 4, "turns of interactive requests alone and beside a batch")
			f.DurationVar(&b.phase, "phase", 30*time.Second, "length of each")
		},
		Begin: func(*instrument.Run) (err error) {
			if b.runs < 1 || b.bursts < 1 || b.turns < 1 {
				return instrument.Usagef("-runs, -bursts and -turns: expected at least 1 each")
			}
			b.dir, err = os.MkdirTemp("", "promise-")
			return err
		},
		End: func(*instrument.Run) error { return os.RemoveAll(b.dir) },
	})
}

// promise holds the simulator against a server with one slot.
func (b *bench) promise(r *instrument.Run, t *instrument.Table) error {
	url, stop, err := served.Llama(r.Ctx, llama, b.dir, 1, nil, names...)
	if err != nil {
		return err
	}
	defer stop()
	b.url = url
	p, err := b.profiled(r.Ctx)
	if err != nil {
		return err
	}
	if err := b.orders(r, p); err != nil {
		return err
	}
	return b.attainment(r, t, p)
}

const source = "promise against reality: llama-server, one slot, two models"

// orders holds the order of completion and the swaps of the bursts against the simulator's.
// A first burst shows how fast the server is now.
func (b *bench) orders(r *instrument.Run, p *planned) error {
	rows := bursts(2, p.gap())
	first, err := b.served(r.Ctx, p, rows)
	if err != nil {
		return err
	}
	p.adopt(first, rows)
	rows = bursts(b.bursts, p.gap())
	served, err := b.served(r.Ctx, p, rows)
	if err != nil {
		return err
	}
	simulated, err := b.simulated(r.Ctx, p, rows)
	if err != nil {
		return err
	}
	equal := 0
	for i := range rows {
		if simulated.order[i] == served.order[i] {
			equal++
		}
	}
	if equal < len(rows) {
		fmt.Fprintf(r.Log, "served %v\nsimulated %v\n", served.order, simulated.order)
	}
	per100 := func(s *seen) float64 { return 100 * float64(s.swaps) / float64(len(rows)) }
	r.Figure(figures.Figure{Claim: "order of completion as the simulator's, bursts for two models", Source: source, Asked: "all", Measured: float64(equal), Unit: fmt.Sprint("of ", len(rows)), Holds: figures.If(slices.Equal(simulated.order, served.order))})
	r.Exactly("swaps per 100 requests less those of the simulator, bursts", source, 0, "", per100(served)-per100(simulated)).Note = fmt.Sprintf("%.1f served", per100(served))
	return nil
}

// attainment holds the share in time of random arrivals against the simulator's, which
// has the times of the served run each time.
func (b *bench) attainment(r *instrument.Run, t *instrument.Table, p *planned) error {
	// Requests come at a load of .8, and must be answered within five times the mean.
	rows := random(requests, 0, 1)
	mean := p.work(rows)/time.Duration(len(rows)) + p.change()/4
	rows = random(requests, mean*10/8, 1)
	for i := range p.queue().Classes {
		p.queue().Classes[i].SLOUS = document.Micros(5 * mean)
	}
	t.Columns = []string{"run", "in time %, served", "simulated", "swaps, served", "simulated"}
	var off []float64
	var pairs []string
	for i := range b.runs {
		served, err := b.served(r.Ctx, p, rows)
		if err != nil {
			return err
		}
		p.adopt(served, rows)
		simulated, err := b.simulated(r.Ctx, p, rows)
		if err != nil {
			return err
		}
		off = append(off, served.attained()-simulated.attained())
		pairs = append(pairs, fmt.Sprintf("%.1f served, %.1f simulated", served.attained(), simulated.attained()))
		t.Add(i, fmt.Sprintf("%.1f", served.attained()), fmt.Sprintf("%.1f", simulated.attained()), served.swaps, simulated.swaps)
	}
	share, _ := instrument.Mean(off)
	r.Figure(figures.Figure{Claim: "share in time less the simulator's, random arrivals, mean of the runs", Source: source, Asked: "within 3", Measured: math.Round(100*share) / 100,
		Interval: &[2]float64{slices.Min(off), slices.Max(off)}, Unit: "points", Holds: figures.If(math.Abs(share) <= 3), Note: strings.Join(pairs, "; ") + "; the simulator has the times of the run"})
	return nil
}
