package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	flows "inferplan/policy/flow"
)

// GenerationResult is the outcome of the language models of workflows in a run, in the
// counted time.
type GenerationResult struct {
	Models  []GeneratedModel   // by service; a service that is no language model has no name
	Asks    []GeneratedSegment // by the workflow steps that use one
	Counted time.Duration
}

// GeneratedModel is the outcome of a language model on all devices.
type GeneratedModel struct {
	Name      string
	Sequences int64         // sequences that ended
	Tokens    int64         // tokens of the answers that ended
	Ran       time.Duration // sum over its iterations
	Area      time.Duration // sum over its iterations of their time multiplied by the sequences in them
	Made      int64         // tokens that were generated, in the whole run
	Preempted int64         // sequences that left for lack of KV memory, in the whole run
	PeakKV    int64         // most tokens of KV memory in use on a device, in the whole run
	KV        int64         // tokens of KV memory of a device, the most of all kinds
}

// GeneratedSegment is the outcome of a workflow step that uses a language model.
type GeneratedSegment struct {
	Application, Segment, Module, Model string
	TTFT, TPOT                          []time.Duration
}

// generationStats collects the GenerationResult of a run.
type generated struct {
	l        *loop
	own      *flows.Workflows
	sums     GenerationResult
	from, to time.Duration
	lives    []generatedLife // by task
}

// sequenceTimes holds when the inputs of a sequence were complete, and when it had its first token.
type generatedLife struct{ ready, first time.Duration }

// newGenerationStats prepares the figures of all services and steps.
func newGenerated(l *loop, own *flows.Workflows) *generated {
	c := &generated{l: l, own: own, from: l.cfg.Warmup, to: 1 << 62}
	if l.cfg.Duration > 0 {
		c.to = l.cfg.Duration
	}
	for s := range l.t.Services {
		m := GeneratedModel{}
		if g := own.GenerationOf(int32(s)); g != nil {
			m.Name = l.t.Services[s].Name
			for k := range g.On {
				m.KV = max(m.KV, g.On[k].KV)
			}
		}
		c.sums.Models = append(c.sums.Models, m)
	}
	for _, a := range own.Asks {
		app := &own.Apps[a.App]
		seg := &app.Segments[a.Segment]
		c.sums.Asks = append(c.sums.Asks, GeneratedSegment{Application: l.t.Models[a.App].Name, Segment: seg.Name, Module: app.Names[seg.Steps[a.Step].Name]})
	}
	return c
}

// isCounted reports whether an instant lies in the counted time.
func (c *generated) counts(at time.Duration) bool { return at >= c.from && at < c.to }

// sequenceReady notes when a sequence could have begun: all of its inputs had ended, and the
// task was revealed.
func (c *generated) admitted(task int32) {
	for int(task) >= len(c.lives) {
		c.lives = append(c.lives, generatedLife{})
	}
	fa := &c.l.flow.facts[task]
	ready := fa.known
	for _, in := range c.l.tasks.List[task].Inputs {
		if in >= 0 {
			ready = max(ready, c.l.flow.facts[in].ended)
		}
	}
	c.lives[task] = generatedLife{ready: ready}
}

// firstToken notes the first token of a sequence.
func (c *generated) first(task int32) { c.lives[task].first = c.l.now }

// addIteration counts an iteration that begins now.
func (c *generated) iteration(e *engine, took time.Duration) {
	m := &c.sums.Models[e.service]
	if m.PeakKV = max(m.PeakKV, e.in.UsedKV()); m.PeakKV > m.KV {
		c.l.fail(fmt.Errorf("%s uses %d tokens of KV memory, of which there are %d", m.Name, m.PeakKV, m.KV))
	}
	if c.counts(c.l.now) {
		all, waiting := e.in.Holds()
		m.Ran, m.Area = m.Ran+took, m.Area+took*time.Duration(all-waiting)
	}
}

// sequenceEnded counts a sequence that ends now, with its TTFT and TPOT if a step asked for it.
func (c *generated) ended(task int32) {
	if !c.counts(c.l.now) {
		return
	}

	// The length of the answer comes with the task, or is the usual one.
	fa, life := &c.l.flow.facts[task], &c.lives[task]
	m := &c.sums.Models[c.l.tasks.List[task].Service]
	made := max(1, int64(fa.output))
	if g := c.own.GenerationOf(c.l.tasks.List[task].Service); fa.output == 0 {
		made = flows.Part(int64(g.Output+.5), fa.work)
	}
	m.Sequences, m.Tokens = m.Sequences+1, m.Tokens+made
	if fa.ask > 0 {
		a := &c.sums.Asks[fa.ask-1]
		a.Model, a.TTFT = m.Name, append(a.TTFT, life.first-life.ready)
		if made > 1 {
			a.TPOT = append(a.TPOT, (c.l.now-life.first)/time.Duration(made-1))
		}
	}
}

// engineStopped counts the time in which a language model ran on a device up to now.
func (c *generated) ran(e *engine, device int32) {
	m, n := &c.sums.Models[e.service], e.in.Counts()
	m.Preempted, m.Made = m.Preempted+n.Preempted-e.before.Preempted, m.Made+n.Output-e.before.Output
	if w := c.l.flow.work; w != nil {
		w.sums.Services[e.service].Running += max(0, min(c.l.now, c.to)-max(e.since, c.from))
		w.ran(device, e.since, c.l.now)
	}
}

// addResult puts the figures into the result.
func (c *generated) result(r *Result) {
	c.sums.Counted = max(0, min(c.to, c.l.now)-c.from)
	r.setGenerated(&c.sums)
}

// setGenerated puts the figures of language models into the result and its report.
func (r *Result) setGenerated(g *GenerationResult) {
	r.Generated = g
	if r.Report == nil || r.Report.Workflow == nil {
		return
	}

	// One entry per model, then one per step.
	w := r.Report.Workflow
	w.Generations, w.Segments = nil, nil
	for i := range g.Models {
		if m := &g.Models[i]; m.Name != "" {
			out := formats.GenerationReport{Model: m.Name, Sequences: m.Sequences, Preempted: m.Preempted, PeakKVTokens: m.PeakKV, KVTokens: m.KV, Running: m.Running()}
			if g.Counted > 0 {
				out.TokensPerSecond = float64(m.Tokens) / g.Counted.Seconds()
			}
			w.Generations = append(w.Generations, out)
		}
	}
	for i := range g.Asks {
		a := &g.Asks[i]
		at := func(list []time.Duration, share float64) document.Micros {
			slices.Sort(list)
			return document.Micros(report.Percentile(list, share))
		}
		w.Segments = append(w.Segments, formats.SegmentReport{Application: a.Application, Segment: a.Segment, Module: a.Module, Model: a.Model, Sequences: int64(len(a.TTFT)),
			TTFTP50US: at(a.TTFT, .5), TTFTP99US: at(a.TTFT, .99), TPOTP50US: at(a.TPOT, .5), TPOTP99US: at(a.TPOT, .99)})
	}
}

// MeanSequences returns the number of sequences in an iteration, averaged over the iterations' time.
func (m *GeneratedModel) Running() float64 { return float64(m.Area) / float64(max(1, m.Ran)) }

// poolGenerated adds up the figures of runs.
func poolGenerated(out *Result, runs []*Result) {
	if runs[0].Generated == nil {
		return
	}
	all := &GenerationResult{Models: make([]GeneratedModel, len(runs[0].Generated.Models)), Asks: make([]GeneratedSegment, len(runs[0].Generated.Asks))}
	for _, r := range runs {
		all.Counted += r.Generated.Counted

		// Sum the figures of the models, and join the latencies of the steps.
		for i := range r.Generated.Models {
			a, m := &all.Models[i], &r.Generated.Models[i]
			a.Name, a.KV, a.PeakKV = m.Name, m.KV, max(a.PeakKV, m.PeakKV)
			a.Sequences, a.Tokens, a.Preempted = a.Sequences+m.Sequences, a.Tokens+m.Tokens, a.Preempted+m.Preempted
			a.Made += m.Made
			a.Ran, a.Area = a.Ran+m.Ran, a.Area+m.Area
		}
		for i := range r.Generated.Asks {
			a, s := &all.Asks[i], &r.Generated.Asks[i]
			ttft, tpot := append(a.TTFT, s.TTFT...), append(a.TPOT, s.TPOT...)
			if *a = *s; s.Model == "" {
				a.Model = all.Asks[i].Model
			}
			a.TTFT, a.TPOT = ttft, tpot
		}
	}
	out.setGenerated(all)
}
