package vqueue

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/solver/stoch"
)

// Expectation is the service that a request would get if it arrived now.
type Expectation struct {
	Start, Answered time.Duration // expected times of its start and of its class's milestone (usually the answer)
	Late            float64       // probability that it misses its deadline
	Waiting         int           // number of requests that wait
	// Reason says why the request should be refused: with a QueueLimit because the queue is full, with DropLate
	// because the request is more likely late than not. RetryAfter is the time after which it is worthwhile to ask
	// again; 0 if unknown.
	Reason policy.Reason
	Again  time.Duration
}

// maxLateProbability is the probability of being late above which DropLate refuses a request.
const hopeless = 0.5

// Expect returns the expectation of a request of a served model and client, with this many prompt tokens and this
// deadline. It has no effect on later decisions.
func (p *Policy) Expect(now time.Duration, model, prompt, client int32, deadline time.Duration) Expectation {
	e := Expectation{Start: now, Answered: now, Waiting: p.waiting()}
	if p.opt.Rule == Planned {
		p.place.foresee(&e, now, model, prompt, client, deadline)
	}
	switch {
	case p.opt.QueueLimit > 0 && e.Waiting >= p.opt.QueueLimit:
		e.Reason, e.Again = policy.ReasonQueueFull, p.place.pace(model)
	case p.opt.Admission && e.Late > hopeless:
		e.Reason, e.Again = policy.ReasonDeadline, e.Answered-max(deadline, now)
	}
	return e
}

// estimateStart estimates when a request would start at the place where it would join, and sets the times and the
// probability of the expectation.
func (p *placing) foresee(e *Expectation, now time.Duration, model, prompt, client int32, deadline time.Duration) {
	// The probe group is used for the estimate, and restored afterwards.
	group, costs := p.problem.Groups[p.probe], make([]Cost, p.problem.Kinds)
	for k := range costs {
		costs[k] = *p.problem.Cost(p.probe, int32(k))
	}
	work := p.state.work
	defer func() {
		p.problem.Groups[p.probe], p.state.work = group, work
		for k := range costs {
			*p.problem.Cost(p.probe, int32(k)) = costs[k]
		}
	}()

	// Find the queue and place.
	mega := p.own.Mega[model] > 0 && prompt >= p.own.Mega[model]
	r := request{model: model, prompt: prompt, deadline: deadline}
	q, place := p.cheapest(&r, mega)
	if q < 0 { // no instance that is up can serve it
		e.Late, e.Answered = 1, now+unservable*time.Second
		return
	}

	// Compute its start: the end of the group before it, and a change of network.
	def, slots := &p.problem.Queues[q], p.state.queues[q].slots
	t, v, loaded := max(def.Start, seconds(now)), 0.0, def.Model
	if place > 0 {
		before := &slots[place-1]
		t, loaded = max(before.end, seconds(now)), before.model
		v = before.variance + p.problem.Cost(before.group, def.Kind).Variance
	}
	c, g := p.problem.Cost(p.probe, def.Kind), &p.problem.Groups[p.probe]
	if in := &p.instances[q]; place == 0 && in.loaded == g.Model && len(in.running) == 0 {
		t = seconds(now)
	}
	t += def.change(loaded, g.Model)

	// If clients take turns, the others of its class do not all go before.
	if byTurns, all := p.turns.before(model, client); byTurns < all {
		// The others of its class go before only when it is their turn.
		t = min(t, max(def.Start, seconds(now))+def.change(def.Model, g.Model)+float64(byTurns)*c.Work)
	}

	// Compute the time of its milestone, and the probability to reach it late.
	e.Start, e.Answered = inSeconds(t), inSeconds(t+c.Residence)
	sd := math.Sqrt(v + c.ResidenceVar + p.problem.common(t) + 1e-9)
	e.Late = stoch.Phi((t + c.Residence - seconds(deadline)) / sd)
}

// cheapestPlace returns the queue and place at which a request adds least to the objective.
func (p *placing) cheapest(r *request, mega bool) (q int32, place int) {
	p.probing(r, mega)
	q, place, _ = bestPlace(p.state, p.probe, p.problem.atLeast(p.probe))
	return q, place
}

// timePerRequest returns how long all instances together take for a request of a model; 0 if none serves it.
func (p *placing) pace(model int32) time.Duration {
	rate := 0.0
	for i := range p.instances {
		in := &p.instances[i]
		if est := p.estimator(in, model, false); in.up() && est.Batch > 0 {
			each, _ := est.Work(1)
			rate += 1 / each
		}
	}
	if rate == 0 {
		return 0
	}
	return inSeconds(1 / rate)
}
