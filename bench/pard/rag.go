package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/bench/pard/ttft"
	"inferplan/bench/qlm/instance"
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
	end         fate
}

type fate int8

const (
	undecided fate = iota
	inTime
	tooLate
	refused
)

type moment struct {
	what ttft.Stage // whose work ends; an arrival where id is at least 0 and what is -1
	id   int32
}

// rag is a run.
type rag struct {
	pol     *ttft.Policy
	list    []query
	at      kernel.Queue[moment]
	now     time.Duration
	seq     int64
	rewrite *llm.Instance
	answers *llm.Instance
	waiting []int32 // for retrieval
	batch   []int32
	stages  [][4]float64 // seconds that a query was in each
}

// drawQueries draws the queries of a trace: rates by second as the trace has them,
// lengths by kind of prompt.
func drawQueries(t *trace, mean float64, seed uint64) []query {
	sum := 0.0
	for _, x := range t.rates {
		sum += x
	}
	rates := make([]float64, len(t.rates))
	for i, x := range t.rates {
		rates[i] = x * mean * float64(len(t.rates)) / sum
	}
	rng := seeded.New(seed, "rag")
	mids := make([]float64, kinds)
	for k := range mids {
		mids[k] = 60 * math.Exp(.8*rng.NormFloat64())
	}
	var out []query
	src := newPoisson(rates, seed)
	for r := (arrivals.Request{}); len(out) < queries && src.Next(&r); {
		out = append(out, drawQuery(r.ArrivedAt, rng, mids))
	}
	return out
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
	return &rag{pol: pol, list: list, rewrite: llm.NewInstance(o, instance.Mistral7B), answers: llm.NewInstance(o, instance.Mistral7B), stages: make([][4]float64, len(list))}
}

func (r *rag) push(at time.Duration, what ttft.Stage, id int32) {
	r.seq++
	r.at.Push(at, 0, r.seq, moment{what, id})
}

// run runs all queries to their ends.
func (r *rag) run() error {
	for i := range r.list {
		r.push(r.list[i].came, -1, int32(i))
	}
	for r.at.Len() > 0 {
		at, _, m := r.at.Pop()
		r.now = at
		var err error
		switch m.what {
		case -1:
			err = r.enter(m.id)
		case ttft.Rewrite:
			err = r.rewritten()
		case ttft.Retrieve:
			for _, id := range r.batch {
				r.pol.Ended(r.now, ttft.Retrieve, r.now-r.list[id].began)
				r.stages[id][ttft.Retrieve] = (r.now - r.list[id].began).Seconds()
				err = r.merge(id, err)
			}
			r.batch = r.batch[:0]
			r.fetch()
		case ttft.Search:
			q := &r.list[m.id]
			r.pol.Ended(r.now, ttft.Search, q.searching)
			r.stages[m.id][ttft.Search] = q.searching.Seconds()
			err = r.merge(m.id, nil)
		case ttft.Generate:
			r.generated()
		}
		if err != nil {
			return err
		}
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
	q.end = refused
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
		r.stages[id][ttft.Rewrite] = (r.now - q.began).Seconds()
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
		q := &r.list[id]
		r.stages[id][ttft.Generate] = (r.now - q.began).Seconds()
		if q.end = inTime; r.now > q.Deadline {
			q.end = tooLate
		}
	}
	r.iterate(r.answers, ttft.Generate)
}
