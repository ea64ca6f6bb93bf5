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

// Check compares a plan of language-model servers with today's documents (profile, cluster and workload as they are now) and returns the
// findings: each statement of the plan that does not hold any more. If there are none, the plan still holds and nothing has changed.
func Check(t *kind.CheckInput) []kind.Finding {
	c := &checker{Checker: *recompute.NewChecker(t), plan: formats.QueueOf(t.Plan)}
	if c.plan == nil {
		c.AddError("kind", "queue", "nothing", "the section of a plan of kind queue", "the plan has no instances")
		return c.Findings
	}
	c.CheckPools(true)
	c.checkModels()
	c.checkDevices()
	c.checkClasses()
	for i := range c.plan.Classes {
		c.checkIdleSLO(i)
	}
	c.checkWork()
	c.checkOrder()
	c.checkObjective()
	return c.Findings
}

// checkModels compares what each model costs on the plan's instances with today's profile: less KV memory (where a server stores the
// state of its tokens) or no measurement is an error, another time of an iteration a warning.
func (c *checker) checkModels() {
	for i := range c.plan.Models {
		m := &c.plan.Models[i]
		for k := range m.Instances {
			planned, docPath := &m.Instances[k], fmt.Sprintf("queue.models[%d].instances[%d]", i, k)
			_, current := c.Profile.LLMOn(m.Model, planned.Device, planned.TensorParallel)
			switch {
			case current == nil && c.usesInstance(m.Model, planned):
				c.AddError("measurement", docPath, "none", "one of the model there", "the profile has no %s on %d x %s any more", m.Model, planned.TensorParallel, planned.Device)
			case current == nil:
			case current.KVTokens < planned.KVTokens:
				c.AddError("memory", docPath+".kv_tokens", fmt.Sprint(planned.KVTokens), fmt.Sprint(current.KVTokens), "%s on %s has less KV memory than planned", m.Model, planned.Device)
			case current.Iteration != planned.Iteration:
				previousTime, today := planned.Iteration.TokenTime(32, 1000), current.Iteration.TokenTime(32, 1000)
				c.AddWarning("latency", docPath+".iteration", previousTime.String(), recompute.ChangeText(previousTime, today), "an iteration of %s on %s takes another time today (32 sequences of 1000 tokens)", m.Model, planned.Device)
			}
		}
	}
}

// usesInstance returns whether the plan runs a model on this sort of instance.
func (c *checker) usesInstance(model string, instance *formats.LLMInstance) bool {
	return slices.ContainsFunc(c.plan.Instances, func(in formats.QueueInstance) bool {
		return in.Device == instance.Device && in.TensorParallel == instance.TensorParallel && slices.Contains(in.Models, model)
	})
}

// checkDevices records an error for each instance of an LLM server whose devices today's cluster does not have.
func (c *checker) checkDevices() {
	for i := range c.plan.Instances {
		in, docPath := &c.plan.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		pool := c.Pool(in.Device)
		switch lastDevice := in.FirstDevice + in.TensorParallel - 1; {
		case pool == nil:
			c.AddError("pool", docPath+".device", in.Device, "a pool of the cluster", "the cluster has no %s any more, and the plan runs an instance there", in.Device)
		case lastDevice >= pool.Count:
			c.AddError("devices", docPath+".first", fmt.Sprintf("devices up to %d", lastDevice), fmt.Sprintf("one of %d", pool.Count), "an instance is placed on a device that is not there")
		}
	}
}

// checkClasses compares the plan's classes of requests with those of today's workload: each must be served, at the rate and under the SLO
// asked for. A class whose SLO has another time gets a warning; one that the plan lacks, judges by another figure, or serves at a lower
// rate, an error.
func (c *checker) checkClasses() {
	llm := formats.LLMOf(c.Workload)
	if llm == nil {
		return
	}
	for i := range llm.Classes {
		w := llm.Classes[i].WithDefaults()
		models, shares := llm.ModelShares(i)
		for k, m := range models {
			if shares[k] == 0 {
				continue
			}

			// Find the class in the plan.
			index := slices.IndexFunc(c.plan.Classes, func(q formats.QueueClass) bool { return q.Model == m && q.Class == w.Class })
			if index < 0 {
				c.AddError("class", "queue.classes", "no "+strconv.Quote(formats.ModelClass{Model: m, Class: w.Class}.String()), "every model and class of the workload", "the workload asks for it, the plan does not serve it")
				continue
			}

			// Compare SLO, figure and rate.
			q, path := &c.plan.Classes[index], fmt.Sprintf("queue.classes[%d]", index)
			if slo := document.Micros(w.SLO.Duration); slo > 0 && slo != q.SLOUS && c.Plan.Options.SLO("slo").IsZero() {
				c.AddWarning("slo", path+".slo_us", q.SLOUS.D().String(), slo.D().String(), "the SLO of %s has changed", q.Key())
			}
			if q.Figure != w.Figure || q.Percentile != w.Percentile {
				c.AddError("slo", path+".of", q.Figure+" at "+q.Percentile, w.Figure+" at "+w.Percentile, "%s is judged by another figure", q.Key())
			}
			if rps := w.RPS * shares[k]; c.Plan.Objective.Name != "throughput" && q.RPS < rps*(1-recompute.Rounding) {
				c.AddError("min_rps", path+".rps", fmt.Sprint(q.RPS), fmt.Sprint(rps), "the plan carries less of %s than the workload asks for", q.Key())
			}
		}
	}
}

// checkIdleSLO records an error if a mean request of the plan's class i misses its SLO even on an idle instance, by today's times, on the
// instance that is fastest: then no rate is low enough. If no instance serves the class, that is an error too.
func (c *checker) checkIdleSLO(i int) {
	q := &c.plan.Classes[i]
	fastest := math.Inf(1)
	for k := range c.plan.Instances {
		in := &c.plan.Instances[k]
		if _, instance := c.Profile.LLMOn(q.Model, in.Device, in.TensorParallel); instance != nil && c.servesClass(in, q) {
			fastest = min(fastest, idleFigure(q, instance, in.TokenBudget))
		}
	}
	docPath := fmt.Sprintf("queue.classes[%d].slo_us", i)
	switch slo := q.SLOUS.D().Seconds(); {
	case math.IsInf(fastest, 1):
		c.AddError("instances", docPath, "no instance", "one that may run "+q.Model, "nothing serves %s", q.Key())
	case fastest > slo:
		c.AddError("slo", docPath, fmt.Sprintf("%.4g s", slo), fmt.Sprintf("at least %.4g s", fastest), "a mean request of %s takes longer than its SLO on an idle instance", q.Key())

		// The excess says by which part the SLO is missed.
		c.Findings[len(c.Findings)-1].Excess = fastest/slo - 1
	}
}

// servesClass returns whether an instance accepts requests of a class: it has the class's model, and no limit of 0 on the class's
// sequences, by which a plan keeps a class away.
func (c *checker) servesClass(in *formats.QueueInstance, q *formats.QueueClass) bool {
	excluded := slices.ContainsFunc(in.Caps, func(k formats.ClassCap) bool { return k.Class == q.Class && k.Sequences == 0 })
	return slices.Contains(in.Models, q.Model) && !excluded
}

// checkOrder checks the order of the plan's first request groups (requests scheduled as one): in the queue of each instance, none starts
// before the one that stands before it, and each is on an instance that serves its class.
func (c *checker) checkOrder() {
	for i := range c.plan.Instances {
		previousStart := document.Micros(0)
		for _, g := range c.plan.Instances[i].Groups {
			group, docPath := &c.plan.Groups[g], fmt.Sprintf("queue.groups[%d]", g)
			if group.StartUS < previousStart {
				c.AddError("order", docPath+".start_us", group.StartUS.String(), fmt.Sprintf("at least %s", previousStart), "a group starts before the one that stands before it")
			}
			previousStart = group.StartUS
			class := slices.IndexFunc(c.plan.Classes, func(q formats.QueueClass) bool { return q.Model == group.Model && q.Class == group.Class })
			if class >= 0 && !c.servesClass(&c.plan.Instances[i], &c.plan.Classes[class]) {
				c.AddError("order", docPath, fmt.Sprintf("instance %d", i), "an instance that serves "+c.plan.Classes[class].Key().String(), "a group stands in a queue that may not serve it")
			}
		}
	}
}

// checkObjective recomputes the plan's objective from its instances, rates and attainments. A price or rate must
// be the same; a goodput may not be more than the attainments of the classes give.
func (c *checker) checkObjective() {
	o, price, rps, maxGoodput := &c.Plan.Objective, 0.0, 0.0, 0.0
	for i := range c.plan.Instances {
		in := &c.plan.Instances[i]
		unitPrice := 1.0
		if k := slices.IndexFunc(c.Plan.Pools, func(p formats.Pool) bool { return p.Device == in.Device }); o.Name == "cost" && k >= 0 {
			unitPrice = c.Plan.Pools[k].USDPerHour
		}
		price += unitPrice * float64(in.TensorParallel)
	}
	for i := range c.plan.Classes {
		rps += c.plan.Classes[i].RPS
		maxGoodput += c.plan.Classes[i].RPS * c.plan.Classes[i].Attainment
	}
	expected := map[string]float64{"gpus": price, "cost": price, "throughput": rps}

	// Price and rate must equal the plan's. A goodput may not exceed what the attainments give.
	if v, ok := expected[o.Name]; ok && math.Abs(o.Value-v) > recompute.Rounding*v {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(v), "the instances and rates of the plan do not give this objective")
	}
	if o.Name == "goodput" && o.Value > maxGoodput*(1+recompute.Rounding) {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("at most %v", maxGoodput), "the attainment of the classes does not give this objective")
	}
}
