package vqueue

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/solver/stoch"
)

// Expectation is what a request that came now would meet.
type Expectation struct {
	Start, Answered time.Duration // expected; of its class's point where that is no answer
	Late            float64       // probability that it is past its deadline then
	Waiting         int           // requests that wait before it or after it
	// Reason says why it should not come in: with a QueueLimit that as many wait as may,
	// with Admission that it is more likely late than not. Again is after which time asking
	// again is worth it; 0: that is not known.
	Reason policy.Reason
	Again  time.Duration
}

// hopeless is the probability of being late from which on admission refuses.
const hopeless = 0.5

// Expect says what a request of a served model with so many prompt tokens, of a client
// and with this deadline would meet. It changes nothing that decisions depend on: a policy that is
// asked decides as one that is not.
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

// foresee estimates when a request would start where it would join.
func (p *placing) foresee(e *Expectation, now time.Duration, model, prompt, client int32, deadline time.Duration) {
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
	mega := p.own.Mega[model] > 0 && prompt >= p.own.Mega[model]
	r := request{model: model, prompt: prompt, deadline: deadline}
	q, place := p.cheapest(&r, mega)
	if q < 0 { // no instance that is up can serve it
		e.Late, e.Answered = 1, now+unservable*time.Second
		return
	}
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
	if byTurns, all := p.turns.before(model, client); byTurns < all {
		// The others of its class go before only when it is their turn.
		t = min(t, max(def.Start, seconds(now))+def.change(def.Model, g.Model)+float64(byTurns)*c.Work)
	}
	e.Start, e.Answered = inSeconds(t), inSeconds(t+c.Residence)
	sd := math.Sqrt(v + c.ResidenceVar + p.problem.common(t) + 1e-9)
	e.Late = stoch.Phi((t + c.Residence - seconds(deadline)) / sd)
}

// cheapest is where the objective grows least by a request.
func (p *placing) cheapest(r *request, mega bool) (q int32, place int) {
	p.probing(r, mega)
	q, place, _ = bestPlace(p.state, p.probe, p.problem.atLeast(p.probe))
	return q, place
}

// pace is how long the fleet takes for a request of a model.
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
