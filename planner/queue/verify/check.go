package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// checker checks a plan of queues.
type checker struct {
	recompute.Checker
	plan *formats.QueuePlan
}

// newChecker returns a checker of a plan against the documents of today.
func newChecker(t *kind.Today) *checker {
	return &checker{Checker: *recompute.New(t), plan: formats.QueueOf(t.Plan)}
}

// Check returns the findings for a plan of queues. If there are none, the whole plan holds and nothing has
// changed.
func Check(t *kind.Today) []kind.Finding {
	c := newChecker(t)
	if c.plan == nil {
		c.Fail("kind", "queue", "nothing", "the section of a plan of kind queue", "the plan has no instances")
		return c.Findings
	}
	c.Pools(true)
	c.models()
	c.devices()
	c.asked()
	for i := range c.plan.Classes {
		c.reachable(i)
	}
	c.work()
	c.order()
	c.objective()
	return c.Findings
}

// checkModels compares the costs of the plan's instances with today's profile.
func (c *checker) models() {
	for i := range c.plan.Models {
		m := &c.plan.Models[i]
		for k := range m.Instances {
			was, at := &m.Instances[k], fmt.Sprintf("queue.models[%d].instances[%d]", i, k)
			_, now := c.Profile.LLMOn(m.Model, was.Device, was.TensorParallel)
			switch {
			case now == nil && c.uses(m.Model, was):
				c.Fail("measurement", at, "none", "one of the model there", "the profile has no %s on %d x %s any more", m.Model, was.TensorParallel, was.Device)
			case now == nil:
			case now.KVTokens < was.KVTokens:
				c.Fail("memory", at+".kv_tokens", fmt.Sprint(was.KVTokens), fmt.Sprint(now.KVTokens), "%s on %s has less KV memory than planned", m.Model, was.Device)
			case now.Iteration != was.Iteration:
				before, today := was.Iteration.PerToken(32, 1000), now.Iteration.PerToken(32, 1000)
				c.Warn("latency", at+".iteration", before.String(), recompute.Change(before, today), "an iteration of %s on %s takes another time today (32 sequences of 1000 tokens)", m.Model, was.Device)
			}
		}
	}
}

// usesInstance returns whether the plan runs a model on this sort of instance.
func (c *checker) uses(model string, on *formats.LLMInstance) bool {
	return slices.ContainsFunc(c.plan.Instances, func(in formats.QueueInstance) bool {
		return in.Device == on.Device && in.TensorParallel == on.TensorParallel && slices.Contains(in.Models, model)
	})
}

// checkDevices checks that today's cluster has the devices of all instances.
func (c *checker) devices() {
	for i := range c.plan.Instances {
		in, at := &c.plan.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		pool := c.Pool(in.Device)
		switch last := in.First + in.TensorParallel - 1; {
		case pool == nil:
			c.Fail("pool", at+".device", in.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs an instance there", in.Device)
		case last >= pool.Count:
			c.Fail("devices", at+".first", fmt.Sprintf("devices up to %d", last), fmt.Sprintf("one of %d", pool.Count), "an instance is placed on a device that is not there")
		}
	}
}

// checkClasses compares the classes of the plan with today's workload.
func (c *checker) asked() {
	llm := formats.LLMOf(c.Workload)
	if llm == nil {
		return
	}
	for i := range llm.Classes {
		w := llm.Classes[i].WithDefaults()
		models, shares := llm.Asks(i)
		for k, m := range models {
			if shares[k] == 0 {
				continue
			}

			// Find the class in the plan.
			at := slices.IndexFunc(c.plan.Classes, func(q formats.QueueClass) bool { return q.Model == m && q.Class == w.Class })
			if at < 0 {
				c.Fail("class", "queue.classes", "no "+strconv.Quote(formats.ModelClass{Model: m, Class: w.Class}.String()), "every model and class of the workload", "the workload asks for it, the plan does not serve it")
				continue
			}

			// Compare SLO, figure and rate.
			q, path := &c.plan.Classes[at], fmt.Sprintf("queue.classes[%d]", at)
			if slo := document.Micros(w.SLO.Duration); slo > 0 && slo != q.SLOUS && c.Plan.Options.SLO("slo").IsZero() {
				c.Warn("slo", path+".slo_us", q.SLOUS.D().String(), slo.D().String(), "the SLO of %s has changed", q.Key())
			}
			if q.Of != w.Of || q.Percentile != w.Percentile {
				c.Fail("slo", path+".of", q.Of+" at "+q.Percentile, w.Of+" at "+w.Percentile, "%s is judged by another figure", q.Key())
			}
			if rps := w.RPS * shares[k]; c.Plan.Objective.Name != "throughput" && q.RPS < rps*(1-recompute.Rounding) {
				c.Fail("min_rps", path+".rps", fmt.Sprint(q.RPS), fmt.Sprint(rps), "the plan carries less of %s than the workload asks for", q.Key())
			}
		}
	}
}

// checkIdleSLO checks that a mean request of class i keeps its SLO on an idle instance of today.
func (c *checker) reachable(i int) {
	q := &c.plan.Classes[i]
	least := math.Inf(1)
	for k := range c.plan.Instances {
		in := &c.plan.Instances[k]
		if _, on := c.Profile.LLMOn(q.Model, in.Device, in.TensorParallel); on != nil && c.serves(in, q) {
			least = min(least, idle(q, on, in.TokenBudget))
		}
	}
	at := fmt.Sprintf("queue.classes[%d].slo_us", i)
	switch slo := q.SLOUS.D().Seconds(); {
	case math.IsInf(least, 1):
		c.Fail("instances", at, "no instance", "one that may run "+q.Model, "nothing serves %s", q.Key())
	case least > slo:
		c.Fail("slo", at, fmt.Sprintf("%.4g s", slo), fmt.Sprintf("at least %.4g s", least), "a mean request of %s takes longer than its SLO on an idle instance", q.Key())
		c.Findings[len(c.Findings)-1].Excess = least/slo - 1
	}
}

// servesClass returns whether an instance accepts requests of a class.
func (c *checker) serves(in *formats.QueueInstance, q *formats.QueueClass) bool {
	away := slices.ContainsFunc(in.Caps, func(k formats.ClassCap) bool { return k.Class == q.Class && k.Sequences == 0 })
	return slices.Contains(in.Models, q.Model) && !away
}

// checkOrder checks the order of the first groups: each starts no earlier than the one before it, on an
// instance that serves it.
func (c *checker) order() {
	for i := range c.plan.Instances {
		before := document.Micros(0)
		for _, g := range c.plan.Instances[i].Groups {
			x, at := &c.plan.Groups[g], fmt.Sprintf("queue.groups[%d]", g)
			if x.StartUS < before {
				c.Fail("order", at+".start_us", x.StartUS.String(), fmt.Sprintf("at least %s", before), "a group starts before the one that stands before it")
			}
			before = x.StartUS
			on := slices.IndexFunc(c.plan.Classes, func(q formats.QueueClass) bool { return q.Model == x.Model && q.Class == x.Class })
			if on >= 0 && !c.serves(&c.plan.Instances[i], &c.plan.Classes[on]) {
				c.Fail("order", at, fmt.Sprintf("instance %d", i), "an instance that serves "+c.plan.Classes[on].Key().String(), "a group stands in a queue that may not serve it")
			}
		}
	}
}

// checkObjective checks the value of the objective against the plan's instances, rates and attainments.
func (c *checker) objective() {
	o, price, rps, atmost := &c.Plan.Objective, 0.0, 0.0, 0.0
	for i := range c.plan.Instances {
		in := &c.plan.Instances[i]
		each := 1.0
		if k := slices.IndexFunc(c.Plan.Pools, func(p formats.Pool) bool { return p.Device == in.Device }); o.Name == "cost" && k >= 0 {
			each = c.Plan.Pools[k].USDPerHour
		}
		price += each * float64(in.TensorParallel)
	}
	for i := range c.plan.Classes {
		rps += c.plan.Classes[i].RPS
		atmost += c.plan.Classes[i].RPS * c.plan.Classes[i].Attainment
	}
	want := map[string]float64{"gpus": price, "cost": price, "throughput": rps}

	// Price and rate must equal the plan's. A goodput may not exceed what the attainments give.
	if v, ok := want[o.Name]; ok && math.Abs(o.Value-v) > recompute.Rounding*v {
		c.Fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(v), "the instances and rates of the plan do not give this objective")
	}
	if o.Name == "goodput" && o.Value > atmost*(1+recompute.Rounding) {
		c.Fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("at most %v", atmost), "the attainment of the classes does not give this objective")
	}
}
