package sim

import (
	"fmt"
	"time"

	"inferplan/formats"
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
	PeakKV        int64         `runs:"max"`    // most tokens of KV memory in use on a device, in the whole run
	KV            int64         `runs:"latest"` // tokens of KV memory of a device, the most of all kinds
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

// newGenerationStats returns the collector of the figures of language models in a run of workflows: one entry for
// each service, without a name if it is no language model, and one for each step of an application that asks one.
func newGenerationStats(loop *loop, workflows *flows.WorkflowTables) *generationStats {
	stats := &generationStats{loop: loop, workflows: workflows, countedSpan: loop.cfg.countedSpan()}
	for service := range loop.tables.Services {
		model := GeneratedModel{}
		if languageModel := workflows.LanguageModelOf(int32(service)); languageModel != nil {
			model.Name = loop.tables.Services[service].Name
			// KV is the largest KV memory, in tokens, that the model has on any kind of device.
			for kind := range languageModel.Engines {
				model.KV = max(model.KV, languageModel.Engines[kind].KVTokens)
			}
		}
		stats.totals.Models = append(stats.totals.Models, model)
	}

	// Add an entry for each step that asks a language model.
	for _, step := range workflows.GenerationSteps {
		app := &workflows.Apps[step.App]
		segment := &app.Segments[step.Segment]
		stats.totals.Segments = append(stats.totals.Segments, GeneratedSegment{Application: loop.tables.Models[step.App].Name, Segment: segment.Name, Module: app.Names[segment.Steps[step.Step].Name]})
	}
	return stats
}

// sequenceReady is called when a sequence (one answer of a language model) joins an engine. It notes when the sequence
// could have begun: when its task was revealed and all of its inputs had ended (an input of -1 is none). The time to the
// first token counts from then.
func (stats *generationStats) sequenceReady(task int32) {
	for int(task) >= len(stats.sequences) {
		stats.sequences = append(stats.sequences, sequenceTimes{})
	}
	record := &stats.loop.flow.records[task]
	readyAt := record.revealedAt
	for _, input := range stats.loop.ledger.tasks.List[task].Inputs {
		if input >= 0 {
			readyAt = max(readyAt, stats.loop.flow.records[input].endedAt)
		}
	}
	stats.sequences[task] = sequenceTimes{readyAt: readyAt}
}

// firstToken notes that a task, which is one sequence of a language model, has its first token now.
func (stats *generationStats) firstToken(task int32) {
	stats.sequences[task].firstTokenAt = stats.loop.agenda.now
}

// addIteration counts an iteration of the language model of an engine that begins now: its duration, and that once more
// for each sequence in the batch, so that SequenceTime / IterationTime is the mean number of sequences. It also notes
// the peak of the KV memory in use; more than there is ends the run with an error.
func (stats *generationStats) addIteration(engine *llmEngine, duration time.Duration) {
	model := &stats.totals.Models[engine.service]
	model.PeakKV = max(model.PeakKV, engine.simulation.UsedKV())
	if model.PeakKV > model.KV {
		stats.loop.failRun(fmt.Errorf("%s uses %d tokens of KV memory, of which there are %d", model.Name, model.PeakKV, model.KV))
	}
	if stats.countedSpan.contains(stats.loop.agenda.now) {
		sequences, waiting := engine.simulation.SequenceCounts()
		model.IterationTime += duration
		model.SequenceTime += duration * time.Duration(sequences-waiting)
	}
}

// sequenceEnded counts the sequence of a task (one answer of a language model) that ends now, with its tokens, if that
// is in the counted time (after the warm-up). If a step of an application asked for it (record.ask is the step's index
// in totals.Segments plus 1, or 0), its time to the first token (TTFT) and per further token (TPOT) count for the step.
func (stats *generationStats) sequenceEnded(task int32) {
	if !stats.countedSpan.contains(stats.loop.agenda.now) {
		return
	}

	// The length of the answer comes with the task, or is the usual one.
	record, times := &stats.loop.flow.records[task], &stats.sequences[task]
	model := &stats.totals.Models[stats.loop.ledger.tasks.List[task].Service]
	answerTokens := max(1, int64(record.output))
	if languageModel := stats.workflows.LanguageModelOf(stats.loop.ledger.tasks.List[task].Service); record.output == 0 {
		answerTokens = flows.ScaleByWork(int64(languageModel.Output+.5), record.work)
	}
	model.Sequences++
	model.AnswerTokens += answerTokens
	if record.ask > 0 {
		step := &stats.totals.Segments[record.ask-1]
		step.Model = model.Name
		step.TTFT = append(step.TTFT, times.firstTokenAt-times.readyAt)
		if answerTokens > 1 {
			step.TPOT = append(step.TPOT, (stats.loop.agenda.now-times.firstTokenAt)/time.Duration(answerTokens-1))
		}
	}
}

// engineStopped is called when the language model of a device has no sequence left, or the device is lost. It adds the
// counts and the run time since the model started there. countsAtStart has the engine's counts of that time, because the
// engine counts on over all models.
func (stats *generationStats) engineStopped(engine *llmEngine, device int32) {
	model, counts := &stats.totals.Models[engine.service], engine.simulation.Counts()
	model.Preempted += counts.Preempted - engine.countsAtStart.Preempted
	model.MadeTokens += counts.Output - engine.countsAtStart.Output
	if workStats := stats.loop.flow.work; workStats != nil {
		workStats.totals.Services[engine.service].RunTime += stats.countedSpan.overlap(timeSpan{engine.startedAt, stats.loop.agenda.now})
		workStats.addRunTime(device, engine.startedAt, stats.loop.agenda.now)
	}
}

// addResult puts the figures of language models into the result, at the end of the run.
func (stats *generationStats) addResult(r *Result) {
	stats.totals.CountedTime = stats.countedSpan.overlap(timeSpan{0, stats.loop.agenda.now})
	r.Generation = &stats.totals
}

// reportGenerated puts the figures of language models into the report of workflows: one entry per model, and one per
// step with the times to the first token (TTFT) and per token (TPOT).
func (r *Result) reportGenerated() {
	generation := r.Generation
	if generation == nil || r.Report.Workflow == nil {
		return
	}

	// One entry per model, then one per step.
	workflow := r.Report.Workflow
	workflow.Generations, workflow.Segments = nil, nil
	for i := range generation.Models {
		if model := &generation.Models[i]; model.Name != "" {
			entry := formats.GenerationReport{Model: model.Name, Sequences: model.Sequences, Preempted: model.Preempted, PeakKVTokens: model.PeakKV, KVTokens: model.KV, MeanRunning: model.MeanSequences()}
			if generation.CountedTime > 0 {
				entry.TokensPerSecond = float64(model.AnswerTokens) / generation.CountedTime.Seconds()
			}
			workflow.Generations = append(workflow.Generations, entry)
		}
	}
	for i := range generation.Segments {
		segment := &generation.Segments[i]
		workflow.Segments = append(workflow.Segments, formats.SegmentReport{Application: segment.Application, Segment: segment.Segment, Module: segment.Module, Model: segment.Model, Sequences: int64(len(segment.TTFT)),
			TTFTP50US: percentileOf(segment.TTFT, .5), TTFTP99US: percentileOf(segment.TTFT, .99), TPOTP50US: percentileOf(segment.TPOT, .5), TPOTP99US: percentileOf(segment.TPOT, .99)})
	}
}

// MeanSequences returns the number of sequences in an iteration, averaged over the iterations' time.
func (m *GeneratedModel) MeanSequences() float64 {
	return float64(m.SequenceTime) / float64(max(1, m.IterationTime))
}
