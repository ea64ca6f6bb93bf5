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

// ErrServer is returned when the server answers, and cannot be measured.
var ErrServer = errors.New("this server cannot be measured")

// Options describe what is measured.
type Options struct {
	Server         *llm.Server
	Model          string // the server's name of the model
	Name           string // the name in the profile; if empty, Model
	Device         string // kind of the devices it runs on
	TensorParallel int    // GPUs that hold the model together; if 0, one
	Budget         time.Duration
	OutPath        string // path of the profile, beside which the samples are kept; if empty, they are not kept
	Force          bool   // forget the samples there are
	KeepLoaded     bool   // do not unload the model, nor put it to sleep
	SwapWith       string // another model of the server, to measure swaps by request; if empty, none are measured

	OnEstimate func(Estimate) error // before the long work; an error stops
	Progress   func(Event)
}

// Estimate is the expected cost of the measurement.
type Estimate struct {
	Facts        llm.Facts
	Points       int           // points to measure
	KnownPoints  int           // points of them that were measured before
	OpenPoints   int           // points of the grid that the budget leaves out
	ExpectedTime time.Duration // the expected time with all samples
	Loads        bool          // the model is unloaded and loaded, or sleeps and wakes
}

// Event reports the progress of measuring.
type Event struct {
	DoneShare float64 // 0 to 1
	Activity  string
}

// Bounds of rounds. There are at least enough for a 95 % interval of a median, and more while the interval is
// wider than tightShare of the median. A point is measured only if the budget allows its first rounds.
const (
	minRounds   = 6
	maxRounds   = 12
	worthRounds = 3    // first rounds that the budget must allow
	tightShare  = 0.05 // half width of an interval, as a share of the median
	loadsShare  = 0.3  // of the budget at most, for loading and unloading
	maxFailures = 3    // of a point, after which it is left out
)

// runner is one run.
type runner struct {
	options      Options
	subject      Subject
	facts        llm.Facts
	prober       *prober
	cost         map[Point]time.Duration // expected time of a sample
	points       []Point                 // points in the order of their cost
	knownSamples samplesByPoint
	sampleFile   *os.File
	deadline     time.Time
	failures     map[Point]int // failed samples
	tooMany      int           // fewest sequences that did not run side by side, 0 if all did
	notes        []string
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
	r := &runner{options: o, failures: map[Point]int{}, cost: map[Point]time.Duration{}, deadline: time.Now().Add(o.Budget), prober: &prober{server: o.Server, model: o.Model, runNumber: time.Now().UnixNano()}}

	// Measure a cold load first if the server can do one, and ask what the server holds.
	coldTime, err := r.coldLoad(ctx)
	if err != nil {
		return nil, err
	}
	c, err := r.prober.begin(ctx)
	if err != nil {
		return nil, err
	}
	if r.facts, err = o.Server.Facts(ctx, o.Model); err != nil {
		return nil, err
	}
	r.subject = Subject{o.Name, o.Device, o.TensorParallel, r.facts.Engine}

	// Read the samples of earlier runs.
	r.knownSamples = samplesByPoint{}
	if o.OutPath != "" {
		if r.knownSamples, r.sampleFile, err = openSamples(PointsFile(o.OutPath), r.subject, o.Force); err != nil {
			return nil, err
		}
		defer r.sampleFile.Close()
	}
	if coldTime > 0 {
		if err := r.addSample(Point{Kind: cold}, Sample{TookUS: document.Micros(coldTime)}); err != nil {
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
	result, fitErr := r.makeResult()
	if result == nil && err == nil {
		err = fitErr
	}
	return result, err
}

// check returns an error if the options miss something, or name a model that the server does not have.
func (o *Options) check() error {
	models := o.Server.Abilities.Models
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

// plan chooses the points of the grid that the budget has time for, the cheapest first, and stores them in r.points.
// A point is a kind of sample (a prompt alone, decoding, a prompt beside it) with numbers of sequences and tokens. c
// are rough costs of the server, from which it sets the expected time of one sample of each point (r.cost). It
// returns the expected cost of all, for the user to agree to.
func (r *runner) plan(c pointCosts) Estimate {
	e := Estimate{Facts: r.facts, Loads: !r.options.KeepLoaded && r.options.Server.Abilities.Switch != llm.FixedModels}
	points := grid(limitsOf(r.facts))
	for _, p := range points {
		r.cost[p] = c.costOf(p)
	}

	// Take the cheapest points first, while the time is enough for the first rounds (worthRounds samples) of each.
	// Loading and unloading the model may take a part of the budget (loadsShare). Samples of earlier runs count. A
	// point with minRounds samples is known already.
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(r.cost[a], r.cost[b]) })
	remainingTime := time.Until(r.deadline)
	if e.Loads {
		remainingTime -= time.Duration(loadsShare * float64(r.options.Budget))
	}
	for _, p := range points {
		open := max(0, worthRounds-len(r.knownSamples[p]))
		if need := time.Duration(open) * r.cost[p]; need > remainingTime {
			e.OpenPoints++
			continue
		} else {
			remainingTime -= need
		}
		if len(r.knownSamples[p]) >= minRounds {
			e.KnownPoints++
		}
		e.Points++
		e.ExpectedTime += time.Duration(max(0, minRounds-len(r.knownSamples[p]))) * r.cost[p]
		r.points = append(r.points, p)
	}
	return e
}

// measure first measures load times, if the options ask for them. Then it takes samples of the points, one of each
// in a round, until all are known well enough (tight), or the time is over.
func (r *runner) measure(ctx context.Context, e Estimate) error {
	budgetCtx, cancel := context.WithDeadline(ctx, r.deadline)
	defer cancel()
	if e.Loads || r.options.SwapWith != "" {
		if err := r.loads(budgetCtx); err != nil && !r.isOver(ctx, budgetCtx) {
			return err
		}
	}
	total := max(1, minRounds*len(r.points))
	for round := range maxRounds {
		isIdle := true
		for _, p := range r.points {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Skip a point that has this round's sample, that failed too often, that is tight, that would exceed
			// the budget, or that has as many sequences as the server was seen not to run at once (tooMany).
			if len(r.knownSamples[p]) > round || r.failures[p] >= maxFailures || round >= minRounds && r.isTight(p) || time.Now().Add(r.cost[p]).After(r.deadline) || r.tooMany > 0 && p.Sequences >= r.tooMany {
				continue
			}
			isIdle = false
			r.report(Event{DoneShare: min(1, float64(r.count())/float64(total)), Activity: p.Kind})
			if err := r.sampleOnce(budgetCtx, p); err != nil && !r.isOver(ctx, budgetCtx) {
				return err
			}
		}
		if isIdle && round >= minRounds {
			break
		}
	}
	return context.Cause(ctx)
}

// isOver reports whether the budget, and nothing else, ended a measurement.
func (r *runner) isOver(ctx, budgetCtx context.Context) bool {
	return ctx.Err() == nil && budgetCtx.Err() != nil
}

// sampleOnce takes a sample of a point, and keeps it. A failure that is the point's own is counted, and does not end
// the run. A point that fails too often is left out with a note. It sets the point's cost to the time that this
// sample took.
func (r *runner) sampleOnce(ctx context.Context, p Point) error {
	began := time.Now()
	s, err := r.prober.sample(ctx, p)
	r.cost[p] = time.Since(began)
	if err == nil {
		return r.addSample(p, s)
	}

	// Say what a failure means: the end of the budget, a sample to repeat, a busy server, or a point that it refuses.
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
		r.failures[p] = maxFailures
	default:
		return fmt.Errorf("measuring %s: %w", p, err)
	}

	// After too many failures, give the point up. If its sequences never ran at once, the server's limit is lower.
	r.failures[p]++
	if r.failures[p] >= maxFailures && len(r.knownSamples[p]) == 0 {
		if errors.Is(err, errNotConcurrent) && p.Kind == decode && r.facts.Sequences == 0 {
			r.tooMany = p.Sequences
			return nil
		}
		r.note(p.String(), "left out: %v", err)
	}
	return nil
}

// String describes a point for users.
func (p Point) String() string {
	switch p.Kind {
	case prefill:
		return fmt.Sprintf("a prompt of %d tokens", p.Prompt)
	case decode:
		return fmt.Sprintf("decoding of %d sequences at %d tokens", p.Sequences, p.Context)
	case besideKind:
		return fmt.Sprintf("a prompt of %d tokens beside %d sequences", p.Prompt, p.Sequences)
	}
	return p.Kind
}

// addSample keeps a sample, in memory and in the file of samples.
func (r *runner) addSample(p Point, s Sample) error {
	r.knownSamples[p] = append(r.knownSamples[p], s)
	if r.sampleFile == nil {
		return nil
	}
	data, err := json.Marshal(sampleLine{r.subject, p, s})
	if err == nil {
		_, err = r.sampleFile.Write(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping samples: %w", err)
	}
	return nil
}

// isTight reports whether the median of a point is known well enough.
func (r *runner) isTight(p Point) bool { return r.interval(p) <= tightShare }

// count returns how many of the samples that are needed at least have been taken, for the progress.
func (r *runner) count() int {
	n := 0
	for _, p := range r.points {
		n += min(minRounds, len(r.knownSamples[p]))
	}
	return n
}

// report passes an event to the caller of Run.
func (r *runner) report(e Event) {
	if r.options.Progress != nil {
		r.options.Progress(e)
	}
}

// note adds a note about a subject to the profile. A later run's note about the same subject replaces it.
func (r *runner) note(subject, format string, args ...any) {
	text := fmt.Sprintf("%s on %d x %s, %s: ", r.options.Name, r.options.TensorParallel, r.options.Device, subject) + fmt.Sprintf(format, args...)
	r.notes = append(r.notes, text)
}
