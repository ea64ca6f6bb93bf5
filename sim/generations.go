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
	Models      []GeneratedModel   // by service; a service that is no language model has no name
	Segments    []GeneratedSegment // by the workflow steps that use one
	CountedTime time.Duration
}

// GeneratedModel is the outcome of a language model on all devices.
type GeneratedModel struct {
	Name          string
	Sequences     int64         // sequences that ended
	AnswerTokens  int64         // tokens of the answers that ended
	IterationTime time.Duration // sum over its iterations
	SequenceTime  time.Duration // sum over its iterations of their time multiplied by the sequences in them
	MadeTokens    int64         // tokens that were generated, in the whole run
	Preempted     int64         // sequences that left for lack of KV memory, in the whole run
	PeakKV        int64         // most tokens of KV memory in use on a device, in the whole run
	KV            int64         // tokens of KV memory of a device, the most of all kinds
}

// GeneratedSegment is the outcome of a workflow step that uses a language model.
type GeneratedSegment struct {
	Application, Segment, Module, Model string
	TTFT, TPOT                          []time.Duration
}

// generationStats collects the GenerationResult of a run.
type generationStats struct {
	loop        *loop
	workflows   *flows.WorkflowTables
	totals      GenerationResult
	countedSpan timeSpan
	sequences   []sequenceTimes // by task
}

// sequenceTimes holds when the inputs of a sequence were complete, and when it had its first token.
type sequenceTimes struct{ readyAt, firstTokenAt time.Duration }

// newGenerationStats prepares the figures of language models: one entry for each service, without a name if it is
// no language model, and one for each step of an application that asks one.
func newGenerationStats(l *loop, workflows *flows.WorkflowTables) *generationStats {
	c := &generationStats{loop: l, workflows: workflows, countedSpan: l.cfg.countedSpan()}
	for s := range l.tables.Services {
		m := GeneratedModel{}
		if g := workflows.LanguageModelOf(int32(s)); g != nil {
			m.Name = l.tables.Services[s].Name
			for k := range g.Engines {
				m.KV = max(m.KV, g.Engines[k].KVTokens)
			}
		}
		c.totals.Models = append(c.totals.Models, m)
	}
	for _, a := range workflows.GenerationSteps {
		app := &workflows.Apps[a.App]
		seg := &app.Segments[a.Segment]
		c.totals.Segments = append(c.totals.Segments, GeneratedSegment{Application: l.tables.Models[a.App].Name, Segment: seg.Name, Module: app.Names[seg.Steps[a.Step].Name]})
	}
	return c
}

// sequenceReady notes when a sequence (one answer of a language model) could have begun: when its task was revealed
// and all of its inputs had ended. The time to the first token counts from then.
func (c *generationStats) sequenceReady(task int32) {
	for int(task) >= len(c.sequences) {
		c.sequences = append(c.sequences, sequenceTimes{})
	}
	record := &c.loop.flow.records[task]
	readyAt := record.revealedAt
	for _, in := range c.loop.ledger.tasks.List[task].Inputs {
		if in >= 0 {
			readyAt = max(readyAt, c.loop.flow.records[in].endedAt)
		}
	}
	c.sequences[task] = sequenceTimes{readyAt: readyAt}
}

// firstToken notes the first token of a sequence.
func (c *generationStats) firstToken(task int32) { c.sequences[task].firstTokenAt = c.loop.agenda.now }

// addIteration counts an iteration of a language model that begins now: its time, and that time once for each
// running sequence. More KV memory than there is ends the run with an error.
func (c *generationStats) addIteration(e *llmEngine, duration time.Duration) {
	m := &c.totals.Models[e.service]
	if m.PeakKV = max(m.PeakKV, e.instance.UsedKV()); m.PeakKV > m.KV {
		c.loop.failRun(fmt.Errorf("%s uses %d tokens of KV memory, of which there are %d", m.Name, m.PeakKV, m.KV))
	}
	if c.countedSpan.contains(c.loop.agenda.now) {
		sequences, waiting := e.instance.SequenceCounts()
		m.IterationTime, m.SequenceTime = m.IterationTime+duration, m.SequenceTime+duration*time.Duration(sequences-waiting)
	}
}

// sequenceEnded counts a sequence (one answer of a language model) that ends now, with its tokens. If a step of an
// application asked for it, its time to the first token (TTFT) and per further token (TPOT) count for the step.
func (c *generationStats) sequenceEnded(task int32) {
	if !c.countedSpan.contains(c.loop.agenda.now) {
		return
	}

	// The length of the answer comes with the task, or is the usual one.
	record, times := &c.loop.flow.records[task], &c.sequences[task]
	m := &c.totals.Models[c.loop.ledger.tasks.List[task].Service]
	answerTokens := max(1, int64(record.output))
	if g := c.workflows.LanguageModelOf(c.loop.ledger.tasks.List[task].Service); record.output == 0 {
		answerTokens = flows.ScaleByWork(int64(g.Output+.5), record.work)
	}
	m.Sequences, m.AnswerTokens = m.Sequences+1, m.AnswerTokens+answerTokens
	if record.ask > 0 {
		a := &c.totals.Segments[record.ask-1]
		a.Model, a.TTFT = m.Name, append(a.TTFT, times.firstTokenAt-times.readyAt)
		if answerTokens > 1 {
			a.TPOT = append(a.TPOT, (c.loop.agenda.now-times.firstTokenAt)/time.Duration(answerTokens-1))
		}
	}
}

// engineStopped is called when a language model has no sequence left on a device, or the device is lost. It adds
// the counts and the run time since the model started there.
func (c *generationStats) engineStopped(e *llmEngine, device int32) {
	m, n := &c.totals.Models[e.service], e.instance.Counts()
	m.Preempted, m.MadeTokens = m.Preempted+n.Preempted-e.countsAtStart.Preempted, m.MadeTokens+n.Output-e.countsAtStart.Output
	if w := c.loop.flow.work; w != nil {
		w.totals.Services[e.service].RunTime += c.countedSpan.overlap(timeSpan{e.startedAt, c.loop.agenda.now})
		w.addRunTime(device, e.startedAt, c.loop.agenda.now)
	}
}

// addResult puts the figures into the result.
func (c *generationStats) addResult(r *Result) {
	c.totals.CountedTime = c.countedSpan.overlap(timeSpan{0, c.loop.agenda.now})
	r.setGenerated(&c.totals)
}

// setGenerated puts the figures of language models into the result and, if it has one of workflows, its report: one
// entry per model, and one per step with the times to the first token (TTFT) and per token (TPOT).
func (r *Result) setGenerated(g *GenerationResult) {
	r.Generation = g
	if r.Report == nil || r.Report.Workflow == nil {
		return
	}

	// One entry per model, then one per step.
	w := r.Report.Workflow
	w.Generations, w.Segments = nil, nil
	for i := range g.Models {
		if m := &g.Models[i]; m.Name != "" {
			out := formats.GenerationReport{Model: m.Name, Sequences: m.Sequences, Preempted: m.Preempted, PeakKVTokens: m.PeakKV, KVTokens: m.KV, MeanRunning: m.MeanSequences()}
			if g.CountedTime > 0 {
				out.TokensPerSecond = float64(m.AnswerTokens) / g.CountedTime.Seconds()
			}
			w.Generations = append(w.Generations, out)
		}
	}
	for i := range g.Segments {
		a := &g.Segments[i]
		percentile := func(list []time.Duration, share float64) document.Micros {
			slices.Sort(list)
			return document.Micros(report.Percentile(list, share))
		}
		w.Segments = append(w.Segments, formats.SegmentReport{Application: a.Application, Segment: a.Segment, Module: a.Module, Model: a.Model, Sequences: int64(len(a.TTFT)),
			TTFTP50US: percentile(a.TTFT, .5), TTFTP99US: percentile(a.TTFT, .99), TPOTP50US: percentile(a.TPOT, .5), TPOTP99US: percentile(a.TPOT, .99)})
	}
}

// MeanSequences returns the number of sequences in an iteration, averaged over the iterations' time.
func (m *GeneratedModel) MeanSequences() float64 {
	return float64(m.SequenceTime) / float64(max(1, m.IterationTime))
}

// poolGenerated adds up the figures of language models over several runs and puts the sums into the pooled result.
// Latencies are joined, so that percentiles are over all runs. Without such figures it does nothing.
func poolGenerated(pooled *Result, results []*Result) {
	if results[0].Generation == nil {
		return
	}
	total := &GenerationResult{Models: make([]GeneratedModel, len(results[0].Generation.Models)), Segments: make([]GeneratedSegment, len(results[0].Generation.Segments))}
	for _, r := range results {
		total.CountedTime += r.Generation.CountedTime

		// Sum the figures of the models, and join the latencies of the steps.
		for i := range r.Generation.Models {
			a, m := &total.Models[i], &r.Generation.Models[i]
			a.Name, a.KV, a.PeakKV = m.Name, m.KV, max(a.PeakKV, m.PeakKV)
			a.Sequences, a.AnswerTokens, a.Preempted = a.Sequences+m.Sequences, a.AnswerTokens+m.AnswerTokens, a.Preempted+m.Preempted
			a.MadeTokens += m.MadeTokens
			a.IterationTime, a.SequenceTime = a.IterationTime+m.IterationTime, a.SequenceTime+m.SequenceTime
		}
		for i := range r.Generation.Segments {
			a, s := &total.Segments[i], &r.Generation.Segments[i]
			ttft, tpot := append(a.TTFT, s.TTFT...), append(a.TPOT, s.TPOT...)
			if *a = *s; s.Model == "" {
				a.Model = total.Segments[i].Model
			}
			a.TTFT, a.TPOT = ttft, tpot
		}
	}
	pooled.setGenerated(total)
}
