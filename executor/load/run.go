package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// Run sends the requests of a schedule at their times and returns their outcomes. It returns an error if the
// configuration or the schedule is faulty, or the server does not know a model. Whatever happens to single requests
// is in the Result. If ctx ends, the run stops, and the Result so far is marked as interrupted.
func Run(ctx context.Context, cfg Config, schedule arrivals.Source) (*Result, error) {
	base, err := cfg.normalise()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	var t target
	switch cfg.Protocol {
	case GRPC:
		if t, err = newGRPCTarget(base, &cfg); err != nil {
			return nil, err
		}
	case Completions:
		if t, err = newTextTarget(&cfg); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	default:
		t = newHTTPTarget(base, &cfg)
	}
	defer t.close()
	return runLoad(ctx, &cfg, t, schedule)
}

// prepareAll returns the encoded requests (payloads) of each model, in the order of cfg.Models; the generator sends them
// in turn. It asks the server for the models' inputs. For requests for text it returns nil, and only checks that the
// server has the models.
func prepareAll(ctx context.Context, cfg *Config, t target) ([][]payload, error) {
	if text, ok := t.(*textTarget); ok {
		return nil, text.check(ctx, cfg.Models)
	}
	out := make([][]payload, len(cfg.Models))
	for i := range cfg.Models {
		m := &cfg.Models[i]
		info, err := t.describe(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("asking %s for the metadata of model %q: %w", cfg.URL, m.Name, err)
		}

		// The inputs are read from samples, or random.
		var inputs []Inputs
		if m.Samples != nil {
			if inputs, err = m.Samples.inputs(info, m); err != nil {
				return nil, err
			}
			seeded.New(cfg.Seed, "load/samples").Shuffle(len(inputs), func(i, k int) { inputs[i], inputs[k] = inputs[k], inputs[i] })
		}
		for v := 0; m.Samples == nil && v < cfg.Variants; v++ {
			in, err := randomInputs(info, m, cfg.Seed, v)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, in)
		}

		// Encode them.
		for _, in := range inputs {
			p, err := t.prepare(m, in)
			if err != nil {
				return nil, fmt.Errorf("model %q: %w", m.Name, err)
			}
			out[i] = append(out[i], p)
		}
	}
	return out, nil
}

// generator is a run in progress.
type generator struct {
	cfg            *Config
	target         target
	completions    *textTarget // the target if it takes texts, else nil
	payloads       [][]payload // by model
	recorders      []*recorder // by model
	nextPayload    []int       // by model: number of the payload that is sent next
	lag            *hdrhistogram.Histogram
	warmupRecorder *recorder // outcomes of the warm-up
	start          time.Time
	outcomeMu      sync.Mutex // held while OnOutcome is called
	inFlight       atomic.Int64
	peak           int64 // most requests that were open at once
	wg             sync.WaitGroup
}

// runLoad sends the requests of a schedule to a target, a server, at their times, waits for the answers, and returns the
// result. If ctx ends, the run ends early, and the result says so.
func runLoad(ctx context.Context, cfg *Config, t target, schedule arrivals.Source) (*Result, error) {
	payloads, err := prepareAll(ctx, cfg, t)
	if err != nil {
		return nil, err
	}
	// The requests outlive the schedule but not the run.
	requestCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &generator{
		cfg: cfg, target: t, payloads: payloads,
		nextPayload:    make([]int, len(cfg.Models)),
		lag:            hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
		warmupRecorder: newRecorder(),
	}
	g.completions, _ = t.(*textTarget)
	for range cfg.Models {
		g.recorders = append(g.recorders, newRecorder())
	}
	end, err := g.generate(ctx, requestCtx, schedule)
	if err != nil {
		cancel()
		g.wg.Wait()
		return nil, err
	}
	g.waitForAnswers(cancel)
	return g.result(ctx, end), nil
}

// generate sends the requests of the schedule at their times, whether or not earlier ones are answered, until the
// schedule, cfg.Duration or ctx ends. It returns the length of the run. Each request runs on a goroutine with the
// context `requests`, and is not waited for here.
func (g *generator) generate(ctx, requests context.Context, schedule arrivals.Source) (end time.Duration, err error) {
	p, err := newPacer(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := p.close(); err == nil && cerr != nil {
			err = fmt.Errorf("closing the timer: %w", cerr)
		}
	}()

	// Sleep until each request is due, in the order of the schedule, and start it.
	g.start = time.Now()
	var a arrivals.Request
	lastArrival := time.Duration(0)
	for n := requestID(0); schedule.Next(&a); n++ {
		switch {
		case g.cfg.Duration > 0 && a.ArrivedAt >= g.cfg.Duration:
			return g.cfg.Duration, nil
		case a.Model < 0 || int(a.Model) >= len(g.cfg.Models):
			return 0, fmt.Errorf("arrival %d: model %d, expected 0 to %d", n, a.Model, len(g.cfg.Models)-1)
		case a.ArrivedAt < lastArrival:
			return 0, fmt.Errorf("arrival %d: time %v stands after %v", n, a.ArrivedAt, lastArrival)
		}
		ok, err := p.sleep(a.ArrivedAt - time.Since(g.start))
		if err != nil {
			return 0, err
		}
		if !ok || ctx.Err() != nil {
			return lastArrival, nil
		}
		lastArrival = a.ArrivedAt
		g.startRequest(requests, &a, n)
	}
	if err := arrivals.Err(schedule); err != nil {
		return 0, fmt.Errorf("reading the schedule: %w", err)
	}
	return max(lastArrival, g.cfg.Duration), nil
}

// startRequest starts a request of the schedule that is due now, on a goroutine of its own. If cfg.MaxInFlight are in
// flight, it is not sent and counts as dropped by overload. Latency and SLO count from the time at which it was due, so
// that a late generator does not make the server look faster.
func (g *generator) startRequest(ctx context.Context, a *arrivals.Request, id requestID) {
	model := int(a.Model)
	rec := g.recorders[model]

	// Count it. Requests of the warm-up are counted separately.
	if a.ArrivedAt < g.cfg.Warmup {
		rec = g.warmupRecorder
	}
	rec.recordScheduled()
	open := g.inFlight.Load()
	if open >= int64(g.cfg.MaxInFlight) {
		rec.recordDropped(reasonOverload)
		g.reportOutcome(rec, a, 0, false, reasonOverload)
		return
	}
	g.peak = max(g.peak, open+1)
	g.inFlight.Add(1)

	// Choose its payload, the next of its model's, and record the lag: how late it is sent.
	slo := a.SLO
	if slo == 0 {
		slo = g.cfg.Models[model].SLO
	}
	var p payload
	if g.completions != nil {
		g.completions.drawLengths(a)
	} else {
		p = g.payloads[model][g.nextPayload[model]%len(g.payloads[model])]
		g.nextPayload[model]++
	}
	due := g.start.Add(a.ArrivedAt)
	lag := time.Since(due)
	if rec != g.warmupRecorder {
		// The lag is bounded by the range of the histogram, an hour.
		_ = g.lag.RecordValue(min(max(lag.Microseconds(), 1), int64(time.Hour/time.Microsecond)))
	}

	// Send it, with the rest of its SLO as timeout, and record the outcome.
	arrival := *a
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer g.inFlight.Add(-1)
		if g.completions != nil {
			g.sendCompletion(ctx, rec, &arrival, id, due, slo)
			return
		}
		budget := time.Duration(0)
		if slo > 0 && !g.cfg.NoTimeout {
			budget = max(slo-time.Since(due), time.Microsecond)
		}
		if reason := g.target.send(ctx, p, id, budget); reason != "" {
			rec.recordDropped(reason)
			g.reportOutcome(rec, &arrival, 0, false, reason)
			return
		}
		latency := time.Since(due)
		rec.recordAnswer(latency, slo)
		g.reportOutcome(rec, &arrival, latency, slo > 0 && latency > slo, "")
	}()
}

// sendCompletion sends a request for text and records its outcome. Whether it is late depends on what its SLO
// bounds: the whole time, the time to the first token, or per token.
func (g *generator) sendCompletion(ctx context.Context, rec *recorder, a *arrivals.Request, id requestID, due time.Time, slo time.Duration) {
	m := &g.cfg.Models[a.Model]
	times, reason := g.completions.complete(ctx, m, a, id, due)
	if reason != "" {
		rec.recordDropped(reason)
		g.reportOutcome(rec, a, 0, false, reason)
		return
	}
	latency := time.Since(due)
	answer := formats.Answer{E2E: latency, TTFT: times.ttft, TPOT: times.tpot}
	late := answer.IsLate(m.SLOOf, slo, 0)
	rec.recordCompletion(latency, times, late)
	g.reportOutcome(rec, a, latency, late, "")
}

// reportOutcome calls the option OnOutcome, if set, for a request that is not of the warm-up. Calls do not
// overlap.
func (g *generator) reportOutcome(rec *recorder, a *arrivals.Request, latency time.Duration, late bool, reason string) {
	if g.cfg.OnOutcome == nil || rec == g.warmupRecorder {
		return
	}
	g.outcomeMu.Lock()
	defer g.outcomeMu.Unlock()
	g.cfg.OnOutcome(Outcome{Due: a.ArrivedAt, Model: int(a.Model), Latency: latency, Late: late, Reason: reason})
}

// waitForAnswers waits for the requests in flight, at most for the configured grace; then it cancels them.
func (g *generator) waitForAnswers(cancel context.CancelFunc) {
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(g.cfg.Grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		cancel()
		<-done
	}
}

// result returns the outcomes of each model, and of all, of a run that lasted until end (from its start). Requests of
// the warm-up are not in them. It is called when all requests are answered or cancelled.
func (g *generator) result(ctx context.Context, end time.Duration) *Result {
	countedTime := max(end-g.cfg.Warmup, 0)
	seconds := countedTime.Seconds()
	res := &Result{
		Protocol:     g.cfg.Protocol,
		Started:      g.start,
		PeakInFlight: int(g.peak),
		Interrupted:  ctx.Err() != nil,
		GeneratorLag: Lag{P50US: lagAt(g.lag, 50), P99US: lagAt(g.lag, 99), MaxUS: document.Micros(time.Duration(g.lag.Max()) * time.Microsecond)},
	}
	res.Format, res.Source = formats.FormatReport, "load"
	res.Seed, res.Runs = g.cfg.Seed, 1
	res.DurationUS, res.WarmupUS = document.Micros(countedTime), document.Micros(g.cfg.Warmup)

	// The models, and the sum of them.
	total := newRecorder()
	for i, rec := range g.recorders {
		m := formats.ModelReport{Model: g.cfg.Models[i].Name, Class: g.cfg.Models[i].Class, SLOUS: document.Micros(g.cfg.Models[i].SLO), Counts: rec.counts(seconds), Latency: rec.latency()}
		if seconds > 0 {
			m.OfferedRPS = float64(rec.requests) / seconds
		}
		res.Models = append(res.Models, m)
		total.merge(rec)
	}
	if g.completions != nil {
		res.Classes = g.classReports()
	}
	res.Counts, res.Latency = total.counts(seconds), total.latency()

	// Add up the drops that are the client's or the network's, and not the server's.
	for reason, n := range total.reasons {
		switch {
		case reason == reasonOverload:
			res.ClientOverload += n
		case reason == reasonUnanswered:
			res.Unanswered += n
		case len(reason) > len(errorPrefix) && reason[:len(errorPrefix)] == errorPrefix:
			res.Errors += n
		}
	}
	res.Warnings = g.warnings(res)
	return res
}

// lagAt returns a percentile of the lag.
func lagAt(h *hdrhistogram.Histogram, q float64) document.Micros {
	return document.Micros(time.Duration(h.ValueAtPercentile(q)) * time.Microsecond)
}

// warnings returns what makes a result doubtful: a generator that sent late, or requests that were not sent.
func (g *generator) warnings(res *Result) (out []string) {
	if g.completions != nil {
		out = g.completions.warnings()
	}
	if lag := time.Duration(res.GeneratorLag.P99US); lag > lagWarning {
		out = append(out, fmt.Sprintf("the generator sent late (p99 %v): this machine is short of CPU, latencies include its lag", lag))
	}
	if res.ClientOverload > 0 {
		out = append(out, fmt.Sprintf("%d requests were not sent because %d were in flight; raise the limit if the server is to see them", res.ClientOverload, g.cfg.MaxInFlight))
	}
	return out
}
