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

// requestTokens is the truth of requests to language models, whose lengths come with the
// requests.
type requestTokens struct{ list []arrivals.Request }

// Arrive keeps a request that arrives, with the lengths of its prompt and answer, which are the truth of the run.
// It implements Truth.
func (r *requestTokens) Arrive(req int32, a *arrivals.Request) {
	for int(req) >= len(r.list) {
		r.list = append(r.list, arrivals.Request{})
	}
	r.list[req] = *a
}

// Outcome implements Truth. Tasks of language models have none.
func (r *requestTokens) Outcome(_, _, _ int32) (policy.Outcome, int64) { return policy.Outcome{}, 0 }

// Tokens implements Truth.
func (r *requestTokens) Tokens(task int32) int32 { return r.list[task].OutputTokens }

// Prompt implements Prompter.
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
	PeakKV         int64 // most tokens of KV memory in use on an instance
	// KVUseTime is the sum over the iterations of their time multiplied by the share of KV
	// memory in use. InstanceTime is the time of all instances.
	KVUseTime, InstanceTime time.Duration
	classes                 []latencySamples
	models                  []policy.Model
}

// latencySamples holds the latencies of one model, or of one class of it.
type latencySamples struct {
	e2e, ttft, tpot, waits []time.Duration
}

// tokenEnding is the ending of requests that have one task each on an instance.
type tokenEnding struct {
	directEnding
	host         *llmHost
	firstTokenAt []time.Duration // by task
	totals       TokenResult
}

// addSamples appends the latencies of another class.
func (c *latencySamples) addSamples(o *latencySamples) {
	c.e2e, c.ttft, c.tpot, c.waits = append(c.e2e, o.e2e...), append(c.ttft, o.ttft...), append(c.tpot, o.tpot...), append(c.waits, o.waits...)
}

// newTokenEnding returns the ending rule for instances of language models, which judges answers by their tokens. It
// returns nil if the run has no such instances.
func newTokenEnding(l *loop) endingRule {
	if len(l.hosts) < 2 || l.flow != nil || l.cfg.Control != nil {
		return nil
	}
	h, ok := l.hosts[1].(*llmHost)
	if !ok {
		return nil
	}
	e := &tokenEnding{directEnding: directEnding{l}, host: h}
	e.totals.classes, e.totals.models = make([]latencySamples, len(l.tables.Models)), l.tables.Models
	h.tokenEnding = e
	return e
}

// firstToken notes the time of a task's first token.
func (e *tokenEnding) firstToken(task int32) {
	for int(task) >= len(e.firstTokenAt) {
		e.firstTokenAt = append(e.firstTokenAt, 0)
	}
	e.firstTokenAt[task] = e.loop.agenda.now
}

// judgeAnswer is called when an answer of a language model is finished, with its number of tokens. It judges it by
// the figure that its SLO is on (first token, time per token, whole answer, wait). The report compares ends with
// deadlines, so a late answer gets a deadline just before its end, and one in time its end.
func (e *tokenEnding) judgeAnswer(task, tokens int32) {
	q := &e.loop.ledger.requests[task]
	if q.state != requestOpen {
		return
	}
	m := &e.loop.tables.Models[q.model]
	answeredAt := e.loop.agenda.now + e.loop.cfg.Egress
	a := formats.Answer{
		E2E: answeredAt - q.arrivedAt, TTFT: e.firstTokenAt[task] + e.loop.cfg.Egress - q.arrivedAt,
		TPOT: formats.TimePerToken(e.firstTokenAt[task], e.loop.agenda.now, int(tokens)), WaitTime: e.host.sequenceOf(task).firstIterationAt - q.arrivedAt,
	}

	// Judge the answer, and make a late one miss its deadline.
	isLate := a.IsLate(m.SLOFigure, q.deadline-q.arrivedAt, m.WaitSLO)
	if q.deadline = answeredAt; isLate {
		q.deadline--
	}
	if e.loop.cfg.OnJudged != nil {
		e.loop.cfg.OnJudged(q.model, q.arrivedAt, answeredAt, isLate)
	}

	// Keep its latencies, if the request is counted.
	if !e.loop.ledger.acc.IsCounted(q.arrivedAt) {
		return
	}
	c := &e.totals.classes[q.model]
	c.e2e, c.ttft, c.waits = append(c.e2e, a.E2E), append(c.ttft, a.TTFT), append(c.waits, a.WaitTime)
	if tokens > 1 {
		c.tpot = append(c.tpot, a.TPOT)
	}
}

// addResult completes the figures of language models at the end of a run (loads, evictions, use of KV memory) and
// puts them into the result.
func (e *tokenEnding) addResult(r *Result) {
	res := &e.totals
	res.Loads, res.Swaps, res.Evictions = e.host.swapper.loads, e.host.swapper.swaps, e.host.evictions
	for d := range e.host.instances {
		c := e.host.instances[d].instance.Counts()
		res.Preempted += c.Preempted
		res.CachedPrompt += c.CachedPrompt
		res.ComputedPrompt += c.ComputedPrompt
		res.PeakKV = max(res.PeakKV, c.PeakKV)
		res.KVUseTime += c.KVUseTime
	}
	res.InstanceTime = e.loop.agenda.now * time.Duration(len(e.host.instances))
	r.setTokens(res)
}

// poolTokens adds up the figures of language models over several runs and puts the sums into the pooled result.
// Latencies are joined, so that percentiles are over all runs. Without such figures it does nothing.
func poolTokens(pooled *Result, results []*Result) {
	if results[0].Tokens == nil {
		return
	}
	total := &TokenResult{models: results[0].Tokens.models, classes: make([]latencySamples, len(results[0].Tokens.classes))}
	for _, r := range results {
		t := r.Tokens
		total.Swaps, total.Loads, total.Evictions, total.Preempted = total.Swaps+t.Swaps, total.Loads+t.Loads, total.Evictions+t.Evictions, total.Preempted+t.Preempted
		total.CachedPrompt, total.ComputedPrompt, total.PeakKV = total.CachedPrompt+t.CachedPrompt, total.ComputedPrompt+t.ComputedPrompt, max(total.PeakKV, t.PeakKV)
		total.KVUseTime, total.InstanceTime = total.KVUseTime+t.KVUseTime, total.InstanceTime+t.InstanceTime
		for i := range t.classes {
			a, c := &total.classes[i], &t.classes[i]
			a.addSamples(c)
		}
	}
	pooled.setTokens(total)
}

// setTokens puts the figures of language models into the result and, if there is one, its report: hits of the
// prefix cache as a share of prompt tokens, the share of KV memory in use, and one entry for each class.
func (r *Result) setTokens(t *TokenResult) {
	r.Tokens = t
	if r.Report == nil {
		return
	}
	r.Report.Swaps, r.Report.Evictions, r.Report.Loads = &t.Swaps, &t.Evictions, &t.Loads
	hits := float64(t.CachedPrompt) / float64(max(1, t.CachedPrompt+t.ComputedPrompt))
	used := t.UsedKV()
	r.Report.PrefixHits, r.Report.KVInUse = &hits, &used
	r.Report.DeviceTime = deviceTime(r.Report.Devices)
	var names []string
	for i := range t.models {
		if name := t.models[i].Class; !slices.Contains(names, name) {
			names = append(names, name)
			r.Report.Classes = append(r.Report.Classes, t.classReport(name, r.Report.Models))
		}
	}
}

// UsedKV returns the share of KV memory in use, as the mean over instances and time.
func (t *TokenResult) UsedKV() float64 {
	return min(1, float64(t.KVUseTime)/float64(max(t.InstanceTime, 1)))
}

// classReport returns the report of an SLO class over all models that have it: attainment, 99th percentiles of the
// latencies, and the figure on which its SLO is.
func (t *TokenResult) classReport(name string, models []formats.ModelReport) formats.ClassReport {
	var samples latencySamples
	var outcomes report.Outcomes
	for i := range t.models {
		if t.models[i].Class == name {
			c, m := &t.classes[i], &models[i]
			samples.addSamples(c)
			outcomes.Add(report.Outcomes{Requests: m.Requests, Completed: m.Completed, Late: m.Late})
		}
	}
	percentile := func(list []time.Duration, share float64) document.Micros {
		slices.Sort(list)
		return document.Micros(report.Percentile(list, share))
	}
	summary := formats.ClassReport{Class: name, Requests: outcomes.Requests, Attainment: outcomes.Attainment(), E2EP99US: percentile(samples.e2e, 0.99), TTFTP99US: percentile(samples.ttft, 0.99), TPOTP99US: percentile(samples.tpot, 0.99)}

	// If all models of the class have the same SLO, report the figure that it is on.
	if m := t.commonSLO(name); m != nil && m.Percentile > 0 {
		figure := map[string][]time.Duration{"": samples.e2e, formats.FigureE2E: samples.e2e, formats.FigureTTFT: samples.ttft, formats.FigureTPOT: samples.tpot}[m.SLOFigure]
		summary.Figure, summary.SLOUS, summary.Percentile, summary.AtPercentileUS = cmp.Or(m.SLOFigure, formats.FigureE2E), document.Micros(m.SLO), document.PercentileName(m.Percentile), percentile(figure, m.Percentile)
		if m.WaitSLO > 0 {
			summary.WaitingSLOUS, summary.WaitingAtPercentileUS = document.Micros(m.WaitSLO), percentile(samples.waits, m.Percentile)
		}
	}
	return summary
}

// commonSLO returns a model of a class if all models of the class have the same SLO, else
// nil.
func (t *TokenResult) commonSLO(name string) *policy.Model {
	var first *policy.Model
	for i := range t.models {
		m := &t.models[i]
		if m.Class != name {
			continue
		}
		if first == nil {
			first = m
		}
		if m.SLO != first.SLO || m.SLOFigure != first.SLOFigure || m.Percentile != first.Percentile || m.WaitSLO != first.WaitSLO {
			return nil
		}
	}
	return first
}

// deviceTime returns in which shares of their time all devices together ran, loaded, did both, or nothing.
func deviceTime(devices []formats.DeviceReport) *formats.DeviceTime {
	var running, loading, both, idle float64
	for _, d := range devices {
		running += float64(d.RunningUS)
		loading += float64(d.LoadingUS)
		both += float64(d.BothUS)
		idle += float64(d.IdleUS)
	}
	total := max(running+loading+both+idle, 1)
	return &formats.DeviceTime{Running: running / total, Loading: loading / total, RunningAndLoading: both / total, Idle: idle / total}
}
