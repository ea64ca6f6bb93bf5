package ttft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"inferplan/formats/seeded"
)

// Stage is where a request enters.
type Stage int

// The stages. Retrieve stands for search as well: both begin at once.
const (
	Rewrite Stage = iota
	Retrieve
	Search
	Generate
)

// Names are the policies.
var Names = []string{"reactive", "probabilistic", "proactive", "predicted", "oracle"}

// Request holds the known figures of a request.
type Request struct {
	Deadline time.Duration
	Kind     int           // of prompt: requests of a kind have like lengths
	Output   int32         // tokens of its rewrite; for the oracle alone
	Prefill  time.Duration // of its generation, by the profile
}

// Policy decides (package comment).
type Policy struct {
	name    string
	at      float64 // quantile of lengths
	slo     time.Duration
	rng     *rand.Rand
	idle    time.Duration // of a token of a rewrite on an idle instance
	rewrite recent        // whole
	token   recent        // of a rewrite, its share of the wait included
	length  float64       // of rewrites so far, tokens
	ended   float64
	search  recent
	fetch   recent // retrieval
	queue   recent // before generation's own prompt
	kinds   []lengths
}

// New is a policy with a quantile of lengths, for so many kinds of requests. idle is
// what a token of a rewrite takes on an idle instance.
func New(name string, slo, idle time.Duration, kinds int, quantile float64, seed uint64) (*Policy, error) {
	if !slices.Contains(Names, name) || !(quantile > 0 && quantile < 1) || kinds < 1 {
		return nil, fmt.Errorf("policy %q with the quantile %v of %d kinds: expected one of %s, a share and at least one kind", name, quantile, kinds, strings.Join(Names, ", "))
	}
	return &Policy{name: name, at: quantile, slo: slo, idle: idle, rng: seeded.New(seed, "policy/"+name), kinds: make([]lengths, kinds)}, nil
}

// Rewritten takes in a rewrite that ended.
func (p *Policy) Rewritten(now, took time.Duration, kind int, tokens int32) {
	p.rewrite.add(now, took.Seconds())
	p.token.add(now, took.Seconds()/float64(max(1, tokens)))
	p.length, p.ended = p.length+float64(tokens), p.ended+1
	p.kinds[kind].add(tokens)
}

// Ended takes in how long a stage took. For generation that is the wait before a
// request's own prompt.
func (p *Policy) Ended(now time.Duration, s Stage, took time.Duration) {
	switch s {
	case Search:
		p.search.add(now, took.Seconds())
	case Retrieve:
		p.fetch.add(now, took.Seconds())
	case Generate:
		p.queue.add(now, took.Seconds())
	}
}

// Keep returns whether a request that enters a stage goes on.
func (p *Policy) Keep(now time.Duration, s Stage, r *Request) bool {
	if now > r.Deadline {
		return false
	}
	switch p.name {
	case "reactive":
		return true
	case "probabilistic":
		return s != Rewrite || p.rng.Float64() >= p.turned(now)
	}
	left := r.Prefill.Seconds() + p.queue.mean(now, 0)
	if s <= Retrieve {
		left += max(p.search.mean(now, 0), p.fetch.mean(now, 0))
	}
	if s == Rewrite {
		left += p.rewriting(now, r)
	}
	return now+time.Duration(left*float64(time.Second)) <= r.Deadline
}

// turned is the share that the entry turns away: none while a mean request takes
// half its time, all where it takes one and a half times as much.
func (p *Policy) turned(now time.Duration) float64 {
	mean := p.whole(now) + max(p.search.mean(now, 0), p.fetch.mean(now, 0)) + p.queue.mean(now, 0)
	return min(1, max(0, mean/p.slo.Seconds()-.5))
}

// whole is the mean of whole rewrites.
func (p *Policy) whole(now time.Duration) float64 {
	return p.rewrite.mean(now, p.length/max(1, p.ended)*p.idle.Seconds())
}

// rewriting returns the time that the rewrite of a request is assumed to take.
func (p *Policy) rewriting(now time.Duration, r *Request) float64 {
	tokens, known := int32(0), false
	switch p.name {
	case "predicted":
		tokens, known = p.kinds[r.Kind].quantile(p.at)
	case "oracle":
		tokens, known = r.Output, true
	}
	if !known {
		return p.whole(now)
	}
	return float64(tokens) * p.token.mean(now, p.idle.Seconds())
}
