package sim

import (
	"cmp"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/policy"
)

// Prompter is an optional interface of a Truth that has prompts for language models.
type Prompter interface {
	// Prompt returns the length of a task's prompt and the session to which it belongs.
	Prompt(task int32) (tokens int32, session int64)
}

// requestTokens is the truth of requests to language models, whose lengths come with the requests. It keeps the
// request of each slot.
type requestTokens struct{ list []arrivals.Request }

// Arrive keeps a request that arrives, with the lengths of its prompt and answer, which are the truth of the run.
// It implements Truth.
func (r *requestTokens) Arrive(req int32, request *arrivals.Request) {
	for int(req) >= len(r.list) {
		r.list = append(r.list, arrivals.Request{})
	}
	r.list[req] = *request
}

// Outcome returns nothing: tasks of language models have no branches and no levels. It implements Truth.
func (r *requestTokens) Outcome(_, _, _ int32) (policy.Outcome, int64) { return policy.Outcome{}, 0 }

// Tokens returns the tokens of a task's answer. The task has the slot of its request. It implements Truth.
func (r *requestTokens) Tokens(task int32) int32 { return r.list[task].OutputTokens }

// Prompt returns the tokens of a task's prompt and the session to which it belongs. It implements Prompter.
func (r *requestTokens) Prompt(task int32) (int32, int64) {
	return r.list[task].PromptTokens, r.list[task].Session
}

// TokenResult holds the figures of a run of language models beside its report.
type TokenResult struct {
	Swaps          int64 // loads of a model onto an instance that ran another one before
	Loads          int64
	Evictions      int64 // sequences that the policy evicted
	Preempted      int64 // sequences that instances preempted for lack of KV memory
	CachedPrompt   int64 // tokens of prompts that were found in a prefix cache
	ComputedPrompt int64 // tokens of prompts that were computed
	PeakKV         int64 `runs:"max"` // most tokens of KV memory in use on an instance
	// KVUseTime is the sum over the iterations of their time multiplied by the share of KV
	// memory in use. InstanceTime is the time of all instances.
	KVUseTime, InstanceTime time.Duration
	Classes                 []latencySamples // by served model
	Models                  []policy.Model   `runs:"first"`
}

// latencySamples holds the latencies of the answers of one model, or of one class of it: to the end, to the first
// token, per token, and of waiting.
type latencySamples struct {
	E2E, TTFT, TPOT, Waits []time.Duration
}

// tokenEnding is the ending of requests that have one task each on an instance.
type tokenEnding struct {
	directEnding
	host         *llmHost
	firstTokenAt []time.Duration // by task
	totals       TokenResult
}

// addSamples appends the latencies of another model or class.
func (c *latencySamples) addSamples(other *latencySamples) {
	c.E2E = append(c.E2E, other.E2E...)
	c.TTFT = append(c.TTFT, other.TTFT...)
	c.TPOT = append(c.TPOT, other.TPOT...)
	c.Waits = append(c.Waits, other.Waits...)
}

// newTokenEnding returns the ending rule for instances of language models, which judges answers by their tokens, and
// otherwise answers requests like directEnding. It returns nil, so that another rule is used, if the run has no such
// instances (they have the second host) or if requests may have several tasks (loop.flow, or a Control that says what
// follows a task). It also enters the rule into the host of the instances, which tells it of first tokens and finished
// answers.
func newTokenEnding(loop *loop) endingRule {
	hasInstances := len(loop.hosts) > instanceHost
	if !hasInstances || loop.flow != nil || loop.cfg.Control != nil {
		return nil
	}
	host, ok := loop.hosts[instanceHost].(*llmHost)
	if !ok {
		return nil
	}
	ending := &tokenEnding{directEnding: directEnding{loop}, host: host}
	ending.totals.Classes, ending.totals.Models = make([]latencySamples, len(loop.tables.Models)), loop.tables.Models
	host.tokenEnding = ending
	return ending
}

// firstToken notes that a task, which is one sequence of an instance, has its first token now.
func (e *tokenEnding) firstToken(task int32) {
	for int(task) >= len(e.firstTokenAt) {
		e.firstTokenAt = append(e.firstTokenAt, 0)
	}
	e.firstTokenAt[task] = e.loop.agenda.now
}

// judgeAnswer is called when the answer of a task to a language model is finished, with its number of tokens. It judges
// the answer by the figure that its SLO is on (time to the first token TTFT, time per token TPOT, whole answer E2E) and
// by its wait. The report compares ends with deadlines, so judgeAnswer overwrites the request's deadline: a late answer
// gets one just before its end, and one in time its end.
func (e *tokenEnding) judgeAnswer(task, tokens int32) {
	request := &e.loop.ledger.requests[task]
	if request.state != requestOpen {
		return
	}
	model := &e.loop.tables.Models[request.model]
	answeredAt := e.loop.agenda.now + e.loop.cfg.Egress
	answer := formats.Answer{
		E2E: answeredAt - request.arrivedAt, TTFT: e.firstTokenAt[task] + e.loop.cfg.Egress - request.arrivedAt,
		TPOT: formats.TimePerToken(e.firstTokenAt[task], e.loop.agenda.now, int(tokens)), WaitTime: e.host.sequenceOf(task).firstIterationAt - request.arrivedAt,
	}

	// Judge the answer, and make a late one miss its deadline.
	isLate := answer.IsLate(model.SLOFigure, request.deadline-request.arrivedAt, model.WaitSLO)
	request.deadline = answeredAt
	if isLate {
		request.deadline--
	}
	if e.loop.cfg.OnJudged != nil {
		e.loop.cfg.OnJudged(request.model, request.arrivedAt, answeredAt, isLate)
	}

	// Keep its latencies, if the request is counted.
	if !e.loop.ledger.reportCounts.IsCounted(request.arrivedAt) {
		return
	}
	samples := &e.totals.Classes[request.model]
	samples.E2E = append(samples.E2E, answer.E2E)
	samples.TTFT = append(samples.TTFT, answer.TTFT)
	samples.Waits = append(samples.Waits, answer.WaitTime)
	if tokens > 1 {
		samples.TPOT = append(samples.TPOT, answer.TPOT)
	}
}

// addResult completes the figures of language models at the end of a run (loads, evictions, use of KV memory) and
// puts them into the result.
func (e *tokenEnding) addResult(result *Result) {
	totals := &e.totals
	totals.Loads, totals.Swaps, totals.Evictions = e.host.swapper.loads, e.host.swapper.swaps, e.host.evictions
	for deviceIndex := range e.host.instances {
		counts := e.host.instances[deviceIndex].simulation.Counts()
		totals.Preempted += counts.Preempted
		totals.CachedPrompt += counts.CachedPrompt
		totals.ComputedPrompt += counts.ComputedPrompt
		totals.PeakKV = max(totals.PeakKV, counts.PeakKV)
		totals.KVUseTime += counts.KVUseTime
	}
	totals.InstanceTime = e.loop.agenda.now * time.Duration(len(e.host.instances))
	result.Tokens = totals
}

// reportTokens puts the figures of language models into the report: hits of the
// prefix cache as a share of prompt tokens, the share of KV memory in use, and one entry for each class.
func (r *Result) reportTokens() {
	tokens := r.Tokens
	if tokens == nil {
		return
	}
	r.Report.Swaps, r.Report.Evictions, r.Report.Loads = &tokens.Swaps, &tokens.Evictions, &tokens.Loads
	hitShare := float64(tokens.CachedPrompt) / float64(max(1, tokens.CachedPrompt+tokens.ComputedPrompt))
	kvShare := tokens.UsedKV()
	r.Report.PrefixHits, r.Report.KVInUse = &hitShare, &kvShare
	r.Report.DeviceTime = deviceTime(r.Report.Devices)

	// One entry for each class, a name that models with the same SLO share, in order of appearance.
	var names []string
	for i := range tokens.Models {
		if name := tokens.Models[i].Class; !slices.Contains(names, name) {
			names = append(names, name)
			r.Report.Classes = append(r.Report.Classes, tokens.classReport(name, r.Report.Models))
		}
	}
}

// UsedKV returns which share of the KV memory was in use, as the mean over all instances and the time of the run.
func (t *TokenResult) UsedKV() float64 {
	return min(1, float64(t.KVUseTime)/float64(max(t.InstanceTime, 1)))
}

// classReport returns the report of an SLO class over all models that have it: attainment, 99th percentiles of the
// latencies, and the figure on which its SLO is.
func (t *TokenResult) classReport(name string, models []formats.ModelReport) formats.ClassReport {
	var samples latencySamples
	var outcomes report.Outcomes
	for i := range t.Models {
		if t.Models[i].Class == name {
			class, model := &t.Classes[i], &models[i]
			samples.addSamples(class)
			outcomes.Add(report.Outcomes{Requests: model.Requests, Completed: model.Completed, Late: model.Late})
		}
	}
	summary := formats.ClassReport{Class: name, Requests: outcomes.Requests, Attainment: outcomes.Attainment(), E2EP99US: percentileOf(samples.E2E, 0.99), TTFTP99US: percentileOf(samples.TTFT, 0.99), TPOTP99US: percentileOf(samples.TPOT, 0.99)}

	// If all models of the class have the same SLO, report the figure that it is on.
	if model := t.commonSLO(name); model != nil && model.Percentile > 0 {
		figure := cmp.Or(model.SLOFigure, formats.FigureE2E) // an SLO without a figure is on the whole answer
		latencies := map[string][]time.Duration{formats.FigureE2E: samples.E2E, formats.FigureTTFT: samples.TTFT, formats.FigureTPOT: samples.TPOT}[figure]
		summary.Figure, summary.SLOUS = figure, document.Micros(model.SLO)
		summary.Percentile, summary.AtPercentileUS = document.PercentileName(model.Percentile), percentileOf(latencies, model.Percentile)
		if model.WaitSLO > 0 {
			summary.WaitingSLOUS, summary.WaitingAtPercentileUS = document.Micros(model.WaitSLO), percentileOf(samples.Waits, model.Percentile)
		}
	}
	return summary
}

// commonSLO returns a model of a class if all models of the class have the same SLO, else nil. The SLO has a time, the
// figure that it is on, a percentile, and a limit for the wait.
func (t *TokenResult) commonSLO(name string) *policy.Model {
	var first *policy.Model
	for i := range t.Models {
		model := &t.Models[i]
		if model.Class != name {
			continue
		}
		if first == nil {
			first = model
		}
		if model.SLO != first.SLO || model.SLOFigure != first.SLOFigure || model.Percentile != first.Percentile || model.WaitSLO != first.WaitSLO {
			return nil
		}
	}
	return first
}

// deviceTime returns in which shares of their time all devices together ran, loaded, did both, or nothing.
func deviceTime(devices []formats.DeviceReport) *formats.DeviceTime {
	var running, loading, both, idle float64
	for _, device := range devices {
		running += float64(device.RunningUS)
		loading += float64(device.LoadingUS)
		both += float64(device.BothUS)
		idle += float64(device.IdleUS)
	}
	total := max(running+loading+both+idle, 1)
	return &formats.DeviceTime{Running: running / total, Loading: loading / total, RunningAndLoading: both / total, Idle: idle / total}
}

// percentileOf sorts a list of times and returns the time that a share of them do not exceed.
func percentileOf(list []time.Duration, share float64) document.Micros {
	slices.Sort(list)
	return document.Micros(report.Percentile(list, share))
}
