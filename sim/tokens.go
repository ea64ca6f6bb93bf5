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

// Arrive implements Truth.
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
	Swaps     int64 // loads of a model onto an instance that ran another one before
	Loads     int64
	Evictions int64 // sequences that the policy evicted
	Preempted int64 // sequences that instances preempted for lack of KV memory
	Cached    int64 // tokens of prompts that were found in a prefix cache
	Prompt    int64 // tokens of prompts that were computed
	PeakKV    int64 // most tokens of KV memory in use on an instance
	// KVUseTime is the sum over the iterations of their time multiplied by the share of KV
	// memory in use. InstanceTime is the time of all instances.
	HeldKV, Whole time.Duration
	classes       []tokenClass
	kinds         []policy.Model
}

// latencySamples holds the latencies of one model, or of one class of it.
type tokenClass struct {
	e2e, ttft, tpot, waits []time.Duration
}

// tokenEnding is the ending of requests that have one task each on an instance.
type tokens struct {
	direct
	host *servers
	seen []time.Duration // by task
	res  TokenResult
}

// add appends the latencies of another class.
func (c *tokenClass) add(o *tokenClass) {
	c.e2e, c.ttft, c.tpot, c.waits = append(c.e2e, o.e2e...), append(c.ttft, o.ttft...), append(c.tpot, o.tpot...), append(c.waits, o.waits...)
}

// newTokenEnding returns nil if the run has no instances of language models.
func newTokens(l *loop) ending {
	if len(l.hosts) < 2 || l.flow != nil || l.cfg.Control != nil {
		return nil
	}
	h, ok := l.hosts[1].(*servers)
	if !ok {
		return nil
	}
	e := &tokens{direct: direct{l}, host: h}
	e.res.classes, e.res.kinds = make([]tokenClass, len(l.t.Models)), l.t.Models
	h.ends = e
	return e
}

// firstToken notes the time of a task's first token.
func (e *tokens) first(task int32) {
	for int(task) >= len(e.seen) {
		e.seen = append(e.seen, 0)
	}
	e.seen[task] = e.l.now
}

// judgeAnswer judges a finished answer by the figure that its SLO is on. Late answers get a
// deadline that they miss, so that the report counts them as late.
func (e *tokens) last(task, made int32) {
	q := &e.l.requests[task]
	if q.state != waiting {
		return
	}
	m := &e.l.t.Models[q.model]
	answered := e.l.now + e.l.cfg.Egress
	a := formats.Answer{
		E2E: answered - q.arrived, TTFT: e.seen[task] + e.l.cfg.Egress - q.arrived,
		TPOT: formats.TimePerToken(e.seen[task], e.l.now, int(made)), Waited: e.host.lifeOf(task).ran - q.arrived,
	}

	// Judge the answer, and make a late one miss its deadline.
	late := a.Late(m.Of, q.deadline-q.arrived, m.Waiting)
	if q.deadline = answered; late {
		q.deadline--
	}
	if e.l.cfg.Judged != nil {
		e.l.cfg.Judged(q.model, q.arrived, answered, late)
	}

	// Keep its latencies, if the request is counted.
	if !e.l.acc.Counted(q.arrived) {
		return
	}
	c := &e.res.classes[q.model]
	c.e2e, c.ttft, c.waits = append(c.e2e, a.E2E), append(c.ttft, a.TTFT), append(c.waits, a.Waited)
	if made > 1 {
		c.tpot = append(c.tpot, a.TPOT)
	}
}

// networkLoaded counts the load of a network. swap says that the instance ran another one before.
func (e *tokens) loaded(swap bool) {
	if e.res.Loads++; swap {
		e.res.Swaps++
	}
}

// addResult completes the figures and puts them into the result.
func (e *tokens) result(r *Result) {
	res := &e.res
	for d := range e.host.list {
		c := e.host.list[d].in.Counts()
		res.Preempted += c.Preempted
		res.Cached += c.Cached
		res.Prompt += c.Prompt
		res.PeakKV = max(res.PeakKV, c.PeakKV)
		res.HeldKV += c.HeldKV
	}
	res.Whole = e.l.now * time.Duration(len(e.host.list))
	r.setTokens(res)
}

// poolTokens adds up the figures of runs.
func poolTokens(out *Result, runs []*Result) {
	if runs[0].Tokens == nil {
		return
	}
	all := &TokenResult{kinds: runs[0].Tokens.kinds, classes: make([]tokenClass, len(runs[0].Tokens.classes))}
	for _, r := range runs {
		t := r.Tokens
		all.Swaps, all.Loads, all.Evictions, all.Preempted = all.Swaps+t.Swaps, all.Loads+t.Loads, all.Evictions+t.Evictions, all.Preempted+t.Preempted
		all.Cached, all.Prompt, all.PeakKV = all.Cached+t.Cached, all.Prompt+t.Prompt, max(all.PeakKV, t.PeakKV)
		all.HeldKV, all.Whole = all.HeldKV+t.HeldKV, all.Whole+t.Whole
		for i := range t.classes {
			a, c := &all.classes[i], &t.classes[i]
			a.add(c)
		}
	}
	out.setTokens(all)
}

// setTokens puts the figures into the result, and into its report if there is one.
func (r *Result) setTokens(t *TokenResult) {
	r.Tokens = t
	if r.Report == nil {
		return
	}
	r.Report.Swaps, r.Report.Evictions, r.Report.Loads = &t.Swaps, &t.Evictions, &t.Loads
	hits := float64(t.Cached) / float64(max(1, t.Cached+t.Prompt))
	used := t.UsedKV()
	r.Report.PrefixHits, r.Report.KVInUse = &hits, &used
	r.Report.DeviceTime = deviceTime(r.Report.Devices)
	var names []string
	for i := range t.kinds {
		if name := t.kinds[i].Class; !slices.Contains(names, name) {
			names = append(names, name)
			r.Report.Classes = append(r.Report.Classes, t.class(name, r.Report.Models))
		}
	}
}

// UsedKV returns the share of KV memory in use, as the mean over instances and time.
func (t *TokenResult) UsedKV() float64 {
	return min(1, float64(t.HeldKV)/float64(max(t.Whole, 1)))
}

// classReport returns the report of a class over all models that have it.
func (t *TokenResult) class(name string, models []formats.ModelReport) formats.ClassReport {
	var all tokenClass
	var o report.Outcomes
	for i := range t.kinds {
		if t.kinds[i].Class == name {
			c, m := &t.classes[i], &models[i]
			all.add(c)
			o.Add(report.Outcomes{Requests: m.Requests, Completed: m.Completed, Late: m.Late})
		}
	}
	at := func(list []time.Duration, share float64) document.Micros {
		slices.Sort(list)
		return document.Micros(report.Percentile(list, share))
	}
	out := formats.ClassReport{Class: name, Requests: o.Requests, Attainment: o.Attained(), E2EP99US: at(all.e2e, 0.99), TTFTP99US: at(all.ttft, 0.99), TPOTP99US: at(all.tpot, 0.99)}

	// If all models of the class have the same SLO, report the figure that it is on.
	if m := t.asked(name); m != nil && m.Percentile > 0 {
		figure := map[string][]time.Duration{"": all.e2e, formats.OfE2E: all.e2e, formats.OfTTFT: all.ttft, formats.OfTPOT: all.tpot}[m.Of]
		out.Of, out.SLOUS, out.Percentile, out.AtPercentileUS = cmp.Or(m.Of, formats.OfE2E), document.Micros(m.SLO), document.PercentileName(m.Percentile), at(figure, m.Percentile)
		if m.Waiting > 0 {
			out.WaitingSLOUS, out.WaitingAtPercentileUS = document.Micros(m.Waiting), at(all.waits, m.Percentile)
		}
	}
	return out
}

// commonSLO returns a model of a class if all models of the class have the same SLO, else
// nil.
func (t *TokenResult) asked(name string) *policy.Model {
	var first *policy.Model
	for i := range t.kinds {
		m := &t.kinds[i]
		if m.Class != name {
			continue
		}
		if first == nil {
			first = m
		}
		if m.SLO != first.SLO || m.Of != first.Of || m.Percentile != first.Percentile || m.Waiting != first.Waiting {
			return nil
		}
	}
	return first
}

// deviceTime returns the shares of the time of all devices.
func deviceTime(devices []formats.DeviceReport) *formats.DeviceTime {
	var running, loading, both, idle float64
	for _, d := range devices {
		running += float64(d.RunningUS)
		loading += float64(d.LoadingUS)
		both += float64(d.BothUS)
		idle += float64(d.IdleUS)
	}
	all := max(running+loading+both+idle, 1)
	return &formats.DeviceTime{Running: running / all, Loading: loading / all, Both: both / all, Idle: idle / all}
}
