package llmserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/profiler"
)

// ErrServer: the server answers, and cannot be measured.
var ErrServer = errors.New("this server cannot be measured")

// Options describe what is measured.
type Options struct {
	Server         *llm.Server
	Model          string // the server's name of the model
	Name           string // the name in the profile; if empty, Model
	Device         string // kind of the devices it runs on
	TensorParallel int    // GPUs that hold the model together; if 0, one
	Budget         time.Duration
	Out            string // path of the profile, beside which the samples are kept; if empty, they are not kept
	Force          bool   // forget the samples there are
	KeepLoaded     bool   // do not unload the model, nor put it to sleep
	SwapWith       string // another model of the server, to measure swaps by request; if empty, none are measured

	OnEstimate func(Estimate) error // before the long work; an error stops
	Progress   func(Event)
}

// Estimate is the expected cost of the measurement.
type Estimate struct {
	Facts    llm.Facts
	Points   int           // points to measure
	Have     int           // points of them that were measured before
	Left     int           // points of the grid that the budget leaves out
	Expected time.Duration // the expected time with all samples
	Loads    bool          // the model is unloaded and loaded, or sleeps and wakes
}

// Event reports the progress of measuring.
type Event struct {
	Done float64 // 0 to 1
	What string
}

// Bounds of rounds. There are at least enough for a 95 % interval of a median, and more while the interval is
// wider than tightShare of the median. A point is measured only if the budget allows its first rounds.
const (
	leastRounds  = 6
	mostRounds   = 12
	worthRounds  = 3
	tight        = 0.05
	loadsShare   = 0.3 // of the budget at most
	mostFailures = 3   // of a point without a sample
)

// runner is one run.
type runner struct {
	o        Options
	subject  Subject
	facts    llm.Facts
	p        *prober
	cost     map[Point]time.Duration
	points   []Point // points in the order of their cost
	have     samples
	keep     *os.File
	until    time.Time
	failures map[Point]int
	apart    int // fewest sequences that did not run side by side
	notes    []string
}

// Result is the result of a run.
type Result struct {
	Profile *formats.Profile // one model on one device kind
	Samples int
	Loose   int // points whose interval is wide
}

// Run measures a model. If it is interrupted, or the server stops answering, it returns the results so far beside
// the error.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Name, o.TensorParallel = cmp.Or(o.Name, o.Model), cmp.Or(o.TensorParallel, 1)
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &runner{o: o, failures: map[Point]int{}, cost: map[Point]time.Duration{}, until: time.Now().Add(o.Budget), p: &prober{server: o.Server, model: o.Model, run: time.Now().UnixNano()}}

	// Measure a cold load first if the server can do one, and ask what the server holds.
	first, err := r.coldLoad(ctx)
	if err != nil {
		return nil, err
	}
	c, err := r.p.begin(ctx)
	if err != nil {
		return nil, err
	}
	if r.facts, err = o.Server.Facts(ctx, o.Model); err != nil {
		return nil, err
	}
	r.subject = Subject{o.Name, o.Device, o.TensorParallel, r.facts.Engine}

	// Read the samples of earlier runs.
	r.have = samples{}
	if o.Out != "" {
		if r.have, r.keep, err = openSamples(PointsFile(o.Out), r.subject, o.Force); err != nil {
			return nil, err
		}
		defer r.keep.Close()
	}
	if first > 0 {
		if err := r.put(Point{What: cold}, Sample{TookUS: document.Micros(first)}); err != nil {
			return nil, err
		}
	}

	// Choose the points, measure them and fit the profile.
	e := r.plan(c)
	if o.OnEstimate != nil {
		if err := o.OnEstimate(e); err != nil {
			return nil, err
		}
	}
	err = r.measure(ctx, e)
	result, fitErr := r.result()
	if result == nil && err == nil {
		err = fitErr
	}
	return result, err
}

func (o *Options) check() error {
	models := o.Server.Can.Models
	for _, m := range []string{o.Model, o.SwapWith} {
		if m != "" && !slices.Contains(models, m) {
			return fmt.Errorf("%w: the server has no model %q; it has %s", profiler.ErrInput, m, strings.Join(models, ", "))
		}
	}
	switch {
	case o.Model == "":
		return fmt.Errorf("%w: name the model; the server has %s", profiler.ErrInput, strings.Join(models, ", "))
	case o.SwapWith == o.Model:
		return fmt.Errorf("%w: a swap is with another model than %q", profiler.ErrInput, o.Model)
	case o.Device == "":
		return fmt.Errorf("%w: name the kind of the devices that the server runs on", profiler.ErrInput)
	}
	return nil
}

// plan chooses the points that the budget has room for, the cheapest first.
func (r *runner) plan(c costs) Estimate {
	e := Estimate{Facts: r.facts, Loads: !r.o.KeepLoaded && r.o.Server.Can.Switch != llm.Fixed}
	points := grid(limitsOf(r.facts))
	for _, p := range points {
		r.cost[p] = c.of(p)
	}
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(r.cost[a], r.cost[b]) })
	room := time.Until(r.until)
	if e.Loads {
		room -= time.Duration(loadsShare * float64(r.o.Budget))
	}
	for _, p := range points {
		open := max(0, worthRounds-len(r.have[p]))
		if need := time.Duration(open) * r.cost[p]; need > room {
			e.Left++
			continue
		} else {
			room -= need
		}
		if len(r.have[p]) >= leastRounds {
			e.Have++
		}
		e.Points++
		e.Expected += time.Duration(max(0, leastRounds-len(r.have[p]))) * r.cost[p]
		r.points = append(r.points, p)
	}
	return e
}

// measure takes samples until all points are tight, or the time is over.
func (r *runner) measure(ctx context.Context, e Estimate) error {
	within, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	if e.Loads || r.o.SwapWith != "" {
		if err := r.loads(within); err != nil && !r.over(ctx, within) {
			return err
		}
	}
	total := max(1, leastRounds*len(r.points))
	for round := range mostRounds {
		idle := true
		for _, p := range r.points {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if len(r.have[p]) > round || r.failures[p] >= mostFailures || round >= leastRounds && r.tight(p) || time.Now().Add(r.cost[p]).After(r.until) || r.apart > 0 && p.Sequences >= r.apart {
				continue
			}
			idle = false
			r.tell(Event{Done: min(1, float64(r.count())/float64(total)), What: p.What})
			if err := r.one(within, p); err != nil && !r.over(ctx, within) {
				return err
			}
		}
		if idle && round >= leastRounds {
			break
		}
	}
	return context.Cause(ctx)
}

// isOver reports whether the budget, and nothing else, ended a measurement.
func (r *runner) over(ctx, within context.Context) bool {
	return ctx.Err() == nil && within.Err() != nil
}

// one takes a sample. A failure that is the point's own is counted, and noted in the
// end.
func (r *runner) one(ctx context.Context, p Point) error {
	began := time.Now()
	s, err := r.p.sample(ctx, p)
	r.cost[p] = time.Since(began)
	if err == nil {
		return r.put(p, s)
	}
	var refusal *llm.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errSample):
	case errors.As(err, &refusal) && refusal.Kind == llm.ErrFull:
		select { // busy with others
		case <-time.After(max(refusal.RetryAfter, 200*time.Millisecond)):
		case <-ctx.Done():
		}
	case errors.Is(err, llm.ErrRefused):
		r.failures[p] = mostFailures
	default:
		return fmt.Errorf("measuring %s: %w", p, err)
	}
	r.failures[p]++
	if r.failures[p] >= mostFailures && len(r.have[p]) == 0 {
		if errors.Is(err, errApart) && p.What == decode && r.facts.Sequences == 0 {
			r.apart = p.Sequences
			return nil
		}
		r.note(p.String(), "left out: %v", err)
	}
	return nil
}

func (p Point) String() string {
	switch p.What {
	case prefill:
		return fmt.Sprintf("a prompt of %d tokens", p.Prompt)
	case decode:
		return fmt.Sprintf("decoding of %d sequences at %d tokens", p.Sequences, p.Context)
	case beside:
		return fmt.Sprintf("a prompt of %d tokens beside %d sequences", p.Prompt, p.Sequences)
	}
	return p.What
}

// put keeps a sample.
func (r *runner) put(p Point, s Sample) error {
	r.have[p] = append(r.have[p], s)
	if r.keep == nil {
		return nil
	}
	data, err := json.Marshal(line{r.subject, p, s})
	if err == nil {
		_, err = r.keep.Write(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping samples: %w", err)
	}
	return nil
}

// isTight reports whether the median of a point is known well enough.
func (r *runner) tight(p Point) bool { return r.interval(p) <= tight }

// count returns the number of samples of the points to measure.
func (r *runner) count() int {
	n := 0
	for _, p := range r.points {
		n += min(leastRounds, len(r.have[p]))
	}
	return n
}

func (r *runner) tell(e Event) {
	if r.o.Progress != nil {
		r.o.Progress(e)
	}
}

// note is for the profile. A later run's note about the same thing replaces it.
func (r *runner) note(about, format string, args ...any) {
	text := fmt.Sprintf("%s on %d x %s, %s: ", r.o.Name, r.o.TensorParallel, r.o.Device, about) + fmt.Sprintf(format, args...)
	r.notes = append(r.notes, text)
}
