package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/pard/ttft"
	"inferplan/bench/qlm/instance"
	"inferplan/bench/traces"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/sim/kernel"
	"inferplan/sim/llm"
)

// Retrieval-augmented generation (PARD, section 7): a query is rewritten by a
// language model on one A100, then retrieved and searched for at once, and the
// answer is generated on another A100. What counts is its first token within 5 s.
//
// Both instances are sim/llm with the 7B model of bench/qlm (the paper has an 8B
// model). Made up, for lack of data: lengths, the search's log-normal times and
// what a batch of retrieval takes.
const (
	ttftSLO   = 5 * time.Second
	queries   = 10_000
	kinds     = 40 // of prompts
	searchMid = .6 // s
	searchVar = .8 // sigma of its logarithm
	fetchMost = 16 // queries of a batch of retrieval
	answer    = 120
)

func fetchTime(batch int) time.Duration {
	return 40*time.Millisecond + time.Duration(batch)*5*time.Millisecond
}

// query is a request.
type query struct {
	ttft.Request
	came, began time.Duration // the stage that it is in
	prompt      int32         // of the rewrite
	context     int32         // of the generation
	searching   time.Duration
	waits       int // branches still out
}

// event is an arrival or the end of work.
type event struct {
	stage ttft.Stage // whose work ends; arrival
	id    int32      // of the query, where the event is of one
}

const arrival ttft.Stage = -1

// rag is a run.
type rag struct {
	pol     *ttft.Policy
	list    []query
	events  kernel.Queue[event]
	now     time.Duration
	seq     int64
	rewrite *llm.Instance
	answers *llm.Instance
	waiting []int32 // for retrieval
	batch   []int32
	stages  [4][]float64 // seconds of the queries that were in each
	good    int64        // queries answered in time
	late    int64
	refused int64
}

// drawQueries draws the queries of a trace: rates by second as the trace has them, lengths by kind of prompt.
func drawQueries(t *trace, rate float64, seed uint64) []query {
	rng := seeded.New(seed, "rag")
	mids := make([]float64, kinds)
	for k := range mids {
		mids[k] = 60 * math.Exp(.8*rng.NormFloat64())
	}
	var list []query
	source := newPoisson(traces.ScaledToMean(t.counts, rate), seed)
	for r := (arrivals.Request{}); len(list) < queries && source.Next(&r); {
		list = append(list, drawQuery(r.ArrivedAt, rng, mids))
	}
	return list
}

func drawQuery(at time.Duration, rng *rand.Rand, mids []float64) query {
	q := query{came: at, prompt: int32(120 + rng.IntN(60)), context: int32(500 + rng.IntN(500))}
	q.Deadline, q.Kind = at+ttftSLO, rng.IntN(kinds)
	q.Output = int32(min(600, max(8, mids[q.Kind]*math.Exp(.35*rng.NormFloat64()))))
	q.searching = time.Duration(searchMid * math.Exp(searchVar*rng.NormFloat64()) * float64(time.Second))
	q.Prefill = instance.Mistral7B.Iteration.PrefillTime(q.context, 0)
	return q
}

// newRAG makes a run of a policy.
func newRAG(list []query, pol *ttft.Policy) *rag {
	o := llm.Options{TokenBudget: 2048}
	return &rag{pol: pol, list: list, rewrite: llm.NewInstance(o, instance.Mistral7B), answers: llm.NewInstance(o, instance.Mistral7B)}
}

func (r *rag) push(at time.Duration, stage ttft.Stage, id int32) {
	r.seq++
	r.events.Push(at, 0, r.seq, event{stage, id})
}

// note counts how long a query was in a stage up to now.
func (r *rag) note(stage ttft.Stage, id int32) {
	r.stages[stage] = append(r.stages[stage], (r.now - r.list[id].began).Seconds())
}

// run runs all queries to their ends.
func (r *rag) run() error {
	for i := range r.list {
		r.push(r.list[i].came, arrival, int32(i))
	}
	for r.events.Len() > 0 {
		now, _, e := r.events.Pop()
		r.now = now
		var err error
		switch e.stage {
		case arrival:
			err = r.enter(e.id)
		case ttft.Rewrite:
			err = r.rewritten()
		case ttft.Retrieve:
			for _, id := range r.batch {
				r.pol.Ended(r.now, ttft.Retrieve, r.now-r.list[id].began)
				r.note(ttft.Retrieve, id)
				err = r.merge(id, err)
			}
			r.batch = r.batch[:0]
			r.fetch()
		case ttft.Search:
			r.pol.Ended(r.now, ttft.Search, r.list[e.id].searching)
			r.note(ttft.Search, e.id)
			err = r.merge(e.id, nil)
		case ttft.Generate:
			r.generated()
		}
		if err != nil {
			return err
		}
	}
	if ended := r.good + r.late + r.refused; ended != int64(len(r.list)) {
		return fmt.Errorf("%d of %d queries have an end", ended, len(r.list))
	}
	return nil
}

// refuses ends a query that does not go on.
func (r *rag) refuses(id int32, s ttft.Stage) bool {
	q := &r.list[id]
	if r.pol.Keep(r.now, s, &q.Request) {
		q.began = r.now
		return false
	}
	r.refused++
	return true
}

// enter has a query rewritten.
func (r *rag) enter(id int32) error {
	if r.refuses(id, ttft.Rewrite) {
		return nil
	}
	q := &r.list[id]
	if err := r.rewrite.Add(llm.Sequence{ID: id, Prompt: q.prompt, Output: q.Output}); err != nil {
		return fmt.Errorf("rewriting: %w", err)
	}
	r.iterate(r.rewrite, ttft.Rewrite)
	return nil
}

// iterate begins an iteration of an idle instance.
func (r *rag) iterate(in *llm.Instance, s ttft.Stage) {
	if in.Busy() {
		return
	}
	took, began, ok := in.Begin()
	if !ok {
		return
	}
	if s == ttft.Generate {
		for _, id := range began {
			r.pol.Ended(r.now, ttft.Generate, r.now-r.list[id].began)
		}
	}
	r.push(r.now+took, s, -1)
}

// rewritten ends an iteration of rewrites.
func (r *rag) rewritten() error {
	for _, id := range r.rewrite.End().Finished {
		q := &r.list[id]
		r.pol.Rewritten(r.now, r.now-q.began, q.Kind, q.Output)
		r.note(ttft.Rewrite, id)
		if r.refuses(id, ttft.Retrieve) {
			continue
		}
		q.waits = 2
		r.waiting = append(r.waiting, id)
		r.push(r.now+q.searching, ttft.Search, id)
	}
	r.fetch()
	r.iterate(r.rewrite, ttft.Rewrite)
	return nil
}

// fetch begins a batch of retrieval.
func (r *rag) fetch() {
	if len(r.batch) > 0 || len(r.waiting) == 0 {
		return
	}
	n := min(fetchMost, len(r.waiting))
	r.batch = append(r.batch, r.waiting[:n]...)
	r.waiting = r.waiting[n:]
	r.push(r.now+fetchTime(n), ttft.Retrieve, -1)
}

// merge has the answer generated when both branches are back.
func (r *rag) merge(id int32, err error) error {
	q := &r.list[id]
	if q.waits--; q.waits > 0 || err != nil || r.refuses(id, ttft.Generate) {
		return err
	}
	if err := r.answers.Add(llm.Sequence{ID: id, Prompt: q.context, Output: answer}); err != nil {
		return fmt.Errorf("generating: %w", err)
	}
	r.iterate(r.answers, ttft.Generate)
	return nil
}

// generated ends an iteration of generation.
func (r *rag) generated() {
	for _, id := range r.answers.End().First {
		r.note(ttft.Generate, id)
		if r.now > r.list[id].Deadline {
			r.late++
		} else {
			r.good++
		}
	}
	r.iterate(r.answers, ttft.Generate)
}

// lengthQuantile is the quantile of lengths that "predicted" takes.
const lengthQuantile = .5

// ragOutcome runs queries at a mean rate under a policy.
func ragOutcome(t *trace, rate float64, name string, seed uint64) (outcome, error) {
	pol, err := ttft.New(name, ttftSLO, instance.Mistral7B.Iteration.TokenTime(1, 200), kinds, lengthQuantile, seed)
	if err != nil {
		return outcome{}, err
	}
	r := newRAG(drawQueries(t, rate, seed), pol)
	if err := r.run(); err != nil {
		return outcome{}, err
	}
	out := outcome{Requests: int64(len(r.list)), Good: r.good, Late: r.late, Bound: int64(len(r.list))}
	for _, times := range r.stages {
		slices.Sort(times)
		quantile := func(q float64) float64 { return times[min(len(times)-1, int(q*float64(len(times))))] }
		out.Stages = append(out.Stages, []float64{quantile(.5), quantile(.9), quantile(.99)})
	}
	return out, nil
}

// measureRAG compares policies at three mean rates on the trace azure.
func (b *bench) measureRAG(r *instrument.Run, t *instrument.Table) error {
	var list []scenario
	for _, rate := range []float64{3, 4, 5} {
		list = append(list, scenario{fmt.Sprintf("rag/azure-%g", rate), func(_ context.Context, policy string, seed uint64) (outcome, error) {
			return ragOutcome(b.traces[2], rate, policy, seed)
		}})
	}
	d, err := b.measureDrops(r, t, "rag", list, ttft.Names...)
	if err != nil {
		return err
	}
	dropped := map[string]float64{} // percent, over the rates
	for _, name := range d.names {
		for _, policy := range ttft.Names {
			dropped[policy] += percentDropped(d.runs(name, policy))
		}
		s := d.runs(name, "reactive")[0].Stages
		t.Note("%s, reactive: seconds in a stage, p50, p90 and p99: rewrite %.2f, retrieve %.2f, search %.2f, generate up to the first token %.2f", name, s[0], s[1], s[2], s[3])
	}
	state := func(claim, asked string, x float64, holds figures.Holds) {
		r.Figure(figures.Figure{Claim: "RAG: " + claim, Source: "PARD §7", Asked: asked, Measured: x, Unit: "ratio", Holds: holds})
	}
	saved, overOracle := 1-dropped["proactive"]/dropped["reactive"], dropped["oracle"]/dropped["proactive"]
	state("drops that proactive takes off reactive", "at least 0.22", saved, orPartly(saved >= .22))
	r.AtLeast("RAG: part of proactive to oracle that the prediction of lengths closes", "PARD §7", .5, "ratio", (dropped["proactive"]-dropped["predicted"])/(dropped["proactive"]-dropped["oracle"]))
	state("drops under oracle over proactive", "0.65", overOracle, orPartly(overOracle <= .65))
	return nil
}
