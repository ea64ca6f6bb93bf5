package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/served"
	"inferplan/formats/document"
	"inferplan/testkit/natstest"
)

const source = "promise against reality: llama-server, one slot, two models"

// bench is a run of the instrument.
type bench struct {
	plan, llama string
	dir         string
	runs        int
	requests    int
	bursts      int
	turns       int // of interactive requests alone and beside a batch
	phase       time.Duration
	lines       int // of a batch
	budget      time.Duration
	url         string
	out         io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-llm-promise:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	b := &bench{out: out}
	f := flag.NewFlagSet("bench-llm-promise", flag.ContinueOnError)
	f.StringVar(&b.plan, "plan", "bin/plan", "the program")
	f.StringVar(&b.llama, "llama", "third_party/llama", "folder of llama-server and its models")
	f.IntVar(&b.runs, "runs", 5, "runs of the random trace; 0: none")
	f.IntVar(&b.requests, "requests", 150, "requests of the random trace")
	f.IntVar(&b.bursts, "bursts", 6, "bursts of eight requests")
	f.DurationVar(&b.budget, "budget", 15*time.Second, "for the profile of a model")
	f.IntVar(&b.turns, "turns", 4, "turns of interactive requests alone and beside a batch")
	f.DurationVar(&b.phase, "phase", 30*time.Second, "length of each")
	f.IntVar(&b.lines, "lines", 100, "lines of a batch")
	wanted := f.String("parts", "promise,beside", "what to do")
	file := f.String("figures", "", "file that the figures are put into")
	if err := f.Parse(args); err != nil {
		return err
	}
	if b.plan, err = filepath.Abs(b.plan); err != nil {
		return err
	}
	if b.llama, err = filepath.Abs(b.llama); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "promise-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var list []figures.Figure
	for name := range strings.SplitSeq(*wanted, ",") {
		do := map[string]func(context.Context) ([]figures.Figure, error){"promise": b.promise, "beside": b.beside}[name]
		if do == nil {
			return fmt.Errorf("-parts: found %q", name)
		}
		more, e := do(ctx)
		list, err = append(list, more...), errors.Join(err, e)
		if e == nil && *file != "" { // a part that was cut short would drop what it did not measure
			err = errors.Join(err, figures.Put(*file, figures.Command(f, "llm-promise", "parts", name), more...))
		}
	}
	fmt.Fprintf(out, "%s\n", figures.Table(list))
	for _, x := range list {
		if x.Holds != figures.Yes {
			err = errors.Join(err, fmt.Errorf("%s: %g %s, asked %s", x.Claim, x.Measured, x.Unit, x.Asked))
		}
	}
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// write writes the plan and the trace.
func (b *bench) write(p *planned, rows []row) error {
	if _, err := document.WriteFile(b.path("plan.json"), p.Plan, document.Force(true)); err != nil {
		return err
	}
	return writeTrace(b.path("trace.csv"), rows)
}

func (b *bench) simulated(ctx context.Context, p *planned, rows []row) (*seen, error) {
	if err := b.write(p, rows); err != nil {
		return nil, err
	}
	if err := b.command(ctx, "simulate", b.path("plan.json"), "--trace", b.path("trace.csv"), "--duration", (rows[len(rows)-1].at + time.Second).String(), "--event-log", b.path("simulated.log")); err != nil {
		return nil, err
	}
	return b.read("simulated.log", rows)
}

func (b *bench) read(name string, rows []row) (*seen, error) {
	s, err := readLog(b.path(name))
	if err == nil && len(s.order) != len(rows) {
		err = fmt.Errorf("%s: %d of %d requests ended", name, len(s.order), len(rows))
	}
	return s, err
}

func (b *bench) served(ctx context.Context, p *planned, rows []row) (*seen, error) {
	if err := b.write(p, rows); err != nil {
		return nil, err
	}
	err := b.serving(ctx, b.path("plan.json"), b.url, func(address string) error {
		return b.command(ctx, "load", address, "--plan", b.path("plan.json"), "--trace", b.path("trace.csv"), "--duration", (rows[len(rows)-1].at + time.Second).String(), "--grace", "2m")
	})
	if err != nil {
		return nil, err
	}
	return b.read("served.log", rows)
}

// serving has a plan served while something is done.
func (b *bench) serving(ctx context.Context, plan, server string, do func(address string) error) error {
	port, err := natstest.FreePort()
	if err != nil {
		return err
	}
	_ = os.Remove(b.path("requests.db")) // of the run before
	address := fmt.Sprint("127.0.0.1:", port)
	cmd := exec.CommandContext(ctx, b.plan, "serve", plan, "--server", server, "--http", address, "--metrics", "off", "--queue", b.path("requests.db"), "--event-log", b.path("served.log"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	if err = served.Answers(ctx, "http://"+address+"/health"); err == nil {
		err = do("http://" + address)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, said.Bytes())
	}
	return nil
}

// gap is a time in which a burst is over for sure.
func (p *planned) gap() time.Duration {
	return 2*(p.work(bursts(1, 0))+4*p.change()) + 2*time.Second
}

// promise holds the simulator against a server with one slot.
func (b *bench) promise(ctx context.Context) (list []figures.Figure, err error) {
	url, stop, err := served.Llama(ctx, b.llama, b.dir, 1, nil, names...)
	if err != nil {
		return nil, err
	}
	defer stop()
	b.url = url
	p, err := b.profiled(ctx, url, time.Minute)
	if err != nil {
		return nil, err
	}
	if list, err = b.orders(ctx, p); err != nil || b.runs == 0 {
		return list, err
	}
	more, err := b.attainment(ctx, p)
	return append(list, more...), err
}

// orders holds the order of completion and the swaps of the bursts against the simulator's.
// A first burst shows how fast the server is now.
func (b *bench) orders(ctx context.Context, p *planned) ([]figures.Figure, error) {
	rows := bursts(2, p.gap())
	first, err := b.served(ctx, p, rows)
	if err != nil {
		return nil, err
	}
	p.fed(first, rows)
	rows = bursts(b.bursts, p.gap())
	served, err := b.served(ctx, p, rows)
	if err != nil {
		return nil, err
	}
	simulated, err := b.simulated(ctx, p, rows)
	if err != nil {
		return nil, err
	}
	equal := 0
	for i := range rows {
		if simulated.order[i] == served.order[i] {
			equal++
		}
	}
	if equal < len(rows) {
		fmt.Fprintf(b.out, "served %v\nsimulated %v\n", served.order, simulated.order)
	}
	per100 := func(s *seen) float64 { return 100 * float64(s.swaps) / float64(len(rows)) }
	return []figures.Figure{
		{Claim: "order of completion as the simulator's, bursts for two models", Source: source, Asked: "all", Measured: float64(equal), Unit: fmt.Sprint("of ", len(rows)), Holds: figures.If(slices.Equal(simulated.order, served.order))},
		{Claim: "swaps per 100 requests less those of the simulator, bursts", Source: source, Asked: "0", Measured: per100(served) - per100(simulated), Holds: figures.If(simulated.swaps == served.swaps), Note: fmt.Sprintf("%.1f served", per100(served))},
	}, nil
}

// attainment holds the share in time of random arrivals against the simulator's, which
// has the times of the served run each time.
func (b *bench) attainment(ctx context.Context, p *planned) ([]figures.Figure, error) {
	rows := random(b.requests, 0, 1)
	mean := p.work(rows)/time.Duration(len(rows)) + p.change()/4
	rows = random(b.requests, mean*10/8, 1)
	for i := range p.queue().Classes {
		p.queue().Classes[i].SLOUS = document.Micros(5 * mean)
	}
	var off []float64
	note := ""
	for i := range b.runs {
		served, err := b.served(ctx, p, rows)
		if err != nil {
			return nil, err
		}
		p.fed(served, rows)
		simulated, err := b.simulated(ctx, p, rows)
		if err != nil {
			return nil, err
		}
		off = append(off, served.attained()-simulated.attained())
		note += fmt.Sprintf("%.1f served, %.1f simulated; ", served.attained(), simulated.attained())
		fmt.Fprintf(b.out, "run %d: in time %.1f %% served, %.1f %% simulated; %d and %d swaps\n", i, served.attained(), simulated.attained(), served.swaps, simulated.swaps)
	}
	sum, low, high := 0.0, math.Inf(1), math.Inf(-1)
	for _, x := range off {
		sum, low, high = sum+x, min(low, x), max(high, x)
	}
	mine := sum / float64(len(off))
	return []figures.Figure{{Claim: "share in time less the simulator's, random arrivals, mean of the runs", Source: source, Asked: "within 3", Measured: math.Round(100*mine) / 100, Interval: &[2]float64{low, high}, Unit: "points", Holds: figures.If(math.Abs(mine) <= 3), Note: note + "the simulator has the times of the run"}}, nil
}
