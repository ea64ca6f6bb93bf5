package formats

import (
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// PlanQueue is the kind of plans that order the queues of language models.
const PlanQueue = "queue"

// QueuePlan says which instances there are, and in which order each serves request groups (QLM, section 5). The
// deployment lists the models or classes that requests can ask for, without pipelines.
type QueuePlan struct {
	Classes   []QueueClass    `json:"classes"`             // the classes in the order of the deployment
	Models    []LLMProfile    `json:"models"`              // costs of the instances, copied from the profile
	Hosts     []QueueHost     `json:"hosts,omitempty"`     // host memory for waiting models and KV; if absent, not limited
	Instances []QueueInstance `json:"instances"`           // the virtual queues are theirs
	Estimates []QueueEstimate `json:"estimates,omitempty"` // if absent, policies that estimate cannot run the plan
	Groups    []RequestGroup  `json:"groups,omitempty"`    // groups of the queue that was planned for; absent in plans for future arrivals
	// Runs are the simulations that the attainments of the classes are of.
	Runs *QueueRuns `json:"runs,omitempty"`
	// Operations say how requests leave and models change, by model and device.
	Operations []QueueOperation `json:"operations,omitempty"`
}

// QueueRuns are simulations of a plan at its own rates, with the seeds that follow from
// one.
type QueueRuns struct {
	Runs       int             `json:"runs"`
	DurationUS document.Micros `json:"duration_us"` // the time of arrivals in each trial
	Seed       uint64          `json:"seed"`
}

// QueueOperation says how the operations of QLM (section 5) are done for a model on a device, and how long they
// take for a request of mean length. A time of 0 is not known.
type QueueOperation struct {
	Model       string          `json:"model"`
	Device      string          `json:"device"`
	Resume      string          `json:"resume" check:"recompute|swap"`                 // the way in which an evicted request resumes: swap or recompute
	SwapUS      document.Micros `json:"swap_us,omitempty"`                             // its KV to the host's memory and back
	RecomputeUS document.Micros `json:"recompute_us,omitempty"`                        // its KV computed again
	WarmUS      document.Micros `json:"warm_us,omitempty"`                             // the model from the host's memory
	ColdUS      document.Micros `json:"cold_us,omitempty"`                             // the model from storage
	Lacks       []string        `json:"lacks,omitempty" check:"state_swap|warm_start"` // operations that an unmodified server cannot do: state_swap, warm_start
}

// QueueClass is the promise for a model, or for one class of its requests. SLOUS bounds the figure that Figure
// names.
type QueueClass struct {
	Served
	Figure       string          `json:"of" check:"e2e|ttft|tpot"` // e2e, ttft or tpot
	WaitingUS    document.Micros `json:"waiting_slo_us,omitempty"`
	Priority     int             `json:"priority,omitempty"` // lower goes first; strict
	MaxTokens    int             `json:"max_tokens,omitempty"`
	PromptMean   float64         `json:"prompt_mean,omitempty"`
	OutputMean   float64         `json:"output_mean,omitempty"`
	OutputSD     float64         `json:"output_sd,omitempty"`
	Attainment   float64         `json:"attainment,omitempty" check:"share"` // expected share in time
	CompletionUS document.Micros `json:"completion_us,omitempty"`            // expected at the percentile
	Waiting90US  document.Micros `json:"waiting_p90_us,omitempty"`           // expected
	// The distributions for simulation, if no trace gives the lengths.
	Prompt   *Lengths  `json:"prompt,omitempty"`
	Output   *Lengths  `json:"output,omitempty"`
	Sessions *Sessions `json:"sessions,omitempty"`
}

// QueueHost is the host memory of the nodes with devices of a kind.
type QueueHost struct {
	Device      string `json:"device"`
	MemoryBytes int64  `json:"memory_bytes"` // per node
}

// QueueInstance is a server on devices of one kind.
type QueueInstance struct {
	Device         string     `json:"device"`
	FirstDevice    int        `json:"first"`                       // the index of its first device in the pool
	TensorParallel int        `json:"tensor_parallel"`             // devices
	Model          string     `json:"model"`                       // the model that it begins with
	Models         []string   `json:"models"`                      // the models that it may run, one at a time
	Sequences      []int      `json:"sequences" check:"sequences"` // the sequences that run at once, by model of Models
	TokenBudget    int        `json:"token_budget" check:"tokens"` // the most tokens of one iteration
	Caps           []ClassCap `json:"caps,omitempty"`              // fewer sequences for some classes
	Groups         []int      `json:"groups,omitempty"`
	Scheduling     string     `json:"scheduling,omitempty" check:"fcfs|priority"`  // the order of the server's own queue: fcfs (default) or priority
	Preemption     string     `json:"preemption,omitempty" check:"recompute|swap"` // the remedy when KV memory runs out: recompute (default) or swap
	NoPrefixCache  bool       `json:"no_prefix_cache,omitempty"`                   // free blocks are no cache of prefixes
}

// What servers may do.
const (
	SchedulePriority   = "priority"
	ScheduleFCFS       = "fcfs"
	PreemptByRecompute = "recompute"
	PreemptBySwap      = "swap"
)

// ClassCap bounds the sequences of a class on an instance; 0 keeps it away.
type ClassCap struct {
	Class     string `json:"class"`
	Sequences int    `json:"sequences" check:"fewSequences"`
}

// RequestGroup is requests of one model and class that are worked through
// together. Times are from the start of the plan.
type RequestGroup struct {
	Model        string          `json:"model"`
	Class        string          `json:"class,omitempty"`
	Mega         bool            `json:"mega,omitempty"` // its prompts are much longer than others
	Requests     int             `json:"requests" check:"count"`
	PromptMean   float64         `json:"prompt_mean"`
	OutputMean   float64         `json:"output_mean"`
	OutputSD     float64         `json:"output_sd"`
	DeadlineUS   document.Micros `json:"deadline_us"` // the deadline of the most urgent request
	StartUS      document.Micros `json:"start_us"`    // expected, after the swap and the groups before
	CompletionUS document.Micros `json:"completion_us"`
	Quantiles    []QueueQuantile `json:"quantiles,omitempty"` // quantiles of the completion time
}

// QueueQuantile is a time that is not passed with a probability.
type QueueQuantile struct {
	Share float64         `json:"share" check:"share"`
	AtUS  document.Micros `json:"at_us"`
}

// deviceParts returns the instances: each is on as many devices as its tensor parallelism says.
func (q *QueuePlan) deviceParts(*Plan) []DevicePart {
	var out []DevicePart
	for i := range q.Instances {
		n := &q.Instances[i]
		label := n.Model
		for _, other := range n.Models {
			if other != n.Model {
				label += " or " + other
			}
		}
		if n.TensorParallel > 1 {
			label += fmt.Sprintf(", over %d devices", n.TensorParallel)
		}
		out = append(out, DevicePart{Device: n.Device, First: n.FirstDevice, Count: max(n.TensorParallel, 1), Label: label, Share: 1})
	}
	return out
}

var queueKind = planKind{name: PlanQueue, section: (*QueuePlan)(nil), options: queueOptions, schema: schemaFile("plan.queue")}

var queueOptions = []document.Option{
	{Name: "algorithm", Type: document.ChoiceOption, Default: "search", Choices: []string{"search", "greedy", "milp", "saa"},
		Help: "search (greedy insertion and large neighbourhoods), greedy alone, milp (QLM's equations 6 to 13) or saa (sample average)"},
	{Name: "objective", Type: document.ChoiceOption, Default: "goodput", Choices: []string{"goodput", "gpus", "cost", "throughput"},
		Help: "goodput: most requests in time on these devices; gpus or cost: fewest or cheapest devices that keep the SLOs; throughput: highest rate that keeps them"},
	{Name: "group-scale", Key: "group_scale", Type: document.NumberOption, Default: 1.0, Min: 0.25, Max: 64,
		Help: "size of a request group as a multiple of the instance's batch (delta in QLM, 4 there)"},
	{Name: "group-by", Key: "group_by", Type: document.ChoiceOption, Default: "deadline", Choices: []string{"deadline", "arrival"},
		Help: "order of the members of a group: deadline, or arrival (QLM)"},
	{Name: "join", Key: "join", Type: document.ChoiceOption, Default: "marginal", Choices: []string{"marginal", "fcfs"},
		Help: "queue that a new group joins: marginal (where it adds the least cost) or fcfs (behind the group before it, as in QLM)"},
	{Name: "replan", Key: "replan", Type: document.ChoiceOption, Default: "second", Choices: []string{"second", "violation"},
		Help: "when queues are ordered again: every second, or when an SLO violation is predicted (QLM)"},
	sloOption,
	{Name: "warm-models", Key: "warm_models", Type: document.WholeOption, Default: 3, Max: 64,
		Help: "models kept in host memory beside those that run, as far as there is room"},
	gapOption,
	{Name: "effort", Key: "effort", Type: document.WholeOption, Default: 1, Min: 1, Max: 16,
		Help: "work limit of the search; each step doubles it"},
	maxMovedOption,
	timeLimitOption,
}

// QueueOf is the section of a plan of queues; nil for other plans.
func QueueOf(p *Plan) *QueuePlan { return planSection[*QueuePlan](p) }

// StatedRuns returns the simulation runs that the figures of a plan come from, or nil if it states none.
func StatedRuns(p *Plan) *QueueRuns {
	if q := QueueOf(p); q != nil {
		return q.Runs
	}
	return nil
}

// ServedModels returns what requests can ask for in a plan of LLM servers: each model with a class, and its
// promise.
func (q *QueuePlan) ServedModels() []Served {
	return document.Map(q.Classes, func(c *QueueClass) Served { return c.Served })
}

// PromiseFor returns what the plan promises for a deployed model or class: the entry with the same key.
func (q *QueuePlan) PromiseFor(d *Deployed) Served {
	if c := document.First(q.Classes, func(c *QueueClass) bool { return c.Key() == d.Key() }); c != nil {
		return c.Served
	}
	return Served{}
}

// AttainmentGroups returns for each class the indexes of its models in Classes: a class is judged over all
// requests of its models together.
func (q *QueuePlan) AttainmentGroups() (classes [][]int) {
	index := map[string]int{}
	for i := range q.Classes {
		name := q.Classes[i].Class
		if _, ok := index[name]; !ok {
			index[name] = len(classes)
			classes = append(classes, nil)
		}
		classes[index[name]] = append(classes[index[name]], i)
	}
	return classes
}

// check reports to p what is wrong with a plan's queue section, when a plan is validated: classes in the deployment's
// order, the profiles of its models, and instances (servers of language models on some devices), each with the
// request groups (requests of one model and class) in its queue. Each group stands in exactly one queue.
func (q *QueuePlan) check(p *planChecker) {
	if p.FailIf(len(q.Classes) == 0 || len(q.Classes) != len(p.plan.Deployment), "queue.classes", fmt.Sprintf("%d classes", len(q.Classes)), "at least one, and the %d of the deployment in order", len(p.plan.Deployment)) {
		return
	}
	checkLLMs(p.Checker, q.Models, nil, "queue.models")
	for i := range q.Classes {
		q.checkClass(p, i)
	}
	for i := range q.Hosts {
		if h := &q.Hosts[i]; h.Device == "" || h.MemoryBytes < 1 {
			p.Fail(fmt.Sprintf("queue.hosts[%d]", i), fmt.Sprintf("%d bytes beside %s", h.MemoryBytes, document.Quote(h.Device)), "a positive size beside a device", "")
		}
	}
	q.checkStatedRuns(p)
	q.checkEstimates(p)
	p.FailIf(len(q.Instances) == 0, "queue.instances", "an empty list", "at least one instance")
	instancesByGroup := make([]int, len(q.Groups))
	for i := range q.Instances {
		q.checkInstance(p, i, instancesByGroup)
	}
	for i := range q.Groups {
		q.checkGroup(p, i, instancesByGroup[i])
	}
}

// Most runs that a plan states, and most requests of all: searches judge a layout by far fewer.
const (
	maxStatedRuns     = 1000
	maxStatedRequests = 10_000_000
)

// checkStatedRuns reports to p wrong stated runs: the number, duration and seed of the simulated runs that the plan's
// figures come from. They may not be too long, because `plan simulate` repeats them.
func (q *QueuePlan) checkStatedRuns(p *planChecker) {
	r := q.Runs
	if r == nil {
		return
	}
	if p.FailIf(r.Runs < 1 || r.Runs > maxStatedRuns, "queue.runs.runs", r.Runs, "1 to %d", maxStatedRuns) {
		return
	}
	if p.FailIf(r.DurationUS <= 0, "queue.runs.duration_us", r.DurationUS.String(), "more than 0") {
		return
	}
	rps := 0.0
	for i := range q.Classes {
		rps += q.Classes[i].RPS
	}
	if n := rps * r.DurationUS.D().Seconds() * float64(r.Runs); !(n <= maxStatedRequests) {
		p.Fail("queue.runs", fmt.Sprintf("%d runs of %v at %s requests a second, which are %.3g requests", r.Runs, r.DurationUS.D(), document.FormatFloat(rps), n),
			fmt.Sprintf("at most %d requests", maxStatedRequests), "the figures of a plan come from shorter runs: plan again")
	}
}

// checkClass reports to p what is wrong with the i-th class of requests: it is the i-th of the deployment, and its
// longest prompt and answer fit into the context of its model together.
func (q *QueuePlan) checkClass(p *planChecker, i int) {
	k, d, fieldPath := &q.Classes[i], &p.plan.Deployment[i], fmt.Sprintf("queue.classes[%d]", i)
	if p.FailIf(k.Key() != d.Key(), fieldPath+".model", document.Quote(k.Key().String()), "the model at the same place of the deployment, "+document.Quote(d.Key().String())) {
		return
	}
	p.FailIf(len(d.Pipelines) > 0, fmt.Sprintf("deployment[%d].pipelines", i), fmt.Sprintf("%d pipelines", len(d.Pipelines)), "none: instances are in queue.instances")
	p.checkServed(&k.Served, fieldPath)
	p.FailIf(k.MaxTokens < 0 || k.PromptMean < 0 || k.OutputMean < 0 || k.OutputSD < 0, fieldPath, "a negative count of tokens", "0 or more")
	k.Prompt.check(p.Checker, fieldPath+".prompt")
	k.Output.check(p.Checker, fieldPath+".output")
	m := slices.IndexFunc(q.Models, func(m LLMProfile) bool { return m.Model == k.Model })
	if p.FailIf(m < 0, fieldPath+".model", "the model "+document.Quote(k.Model), "one of queue.models") {
		return
	}
	room := q.Models[m].ContextTokens
	if in, out := k.Prompt.MaxTokens(), k.Output.MaxTokens(); room > 0 && in+out > room {
		p.Fail(fieldPath+".output", fmt.Sprintf("prompts of up to %d tokens and answers of up to %d", in, out), fmt.Sprintf("at most the %d tokens of the context of %s together", room, k.Model), "")
	}
}

// checkInstance reports to p what is wrong with the i-th instance, adds it to the load of its devices, and counts in
// instancesByGroup how often each request group is in a queue. The load of a device is the number of instances on it.
// pools has the index of a device kind's pool.
func (q *QueuePlan) checkInstance(p *planChecker, i int, instancesByGroup []int) {
	// Check the devices, and reserve them.
	in, fieldPath := &q.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
	pool, ok := p.pools[in.Device]
	switch {
	case !ok:
		p.Fail(fieldPath+".device", "the device "+document.Quote(in.Device), "a device of the plan's pools", p.didYouMean(in.Device))
		return
	case in.TensorParallel < 1 || in.FirstDevice < 0 || in.FirstDevice > p.plan.Pools[pool].Count-in.TensorParallel:
		p.Fail(fieldPath+".first", fmt.Sprintf("devices %d to %d", in.FirstDevice, in.FirstDevice+in.TensorParallel-1), fmt.Sprintf("devices 0 to %d, which the pool has", p.plan.Pools[pool].Count-1), "")
	case p.loadSteps[pool] != nil:
		p.addLoad(pool, in.FirstDevice, in.FirstDevice+in.TensorParallel, 1)
		p.devicesByPool[pool] += float64(in.TensorParallel)
	}

	// Check the models, and the request groups that are routed here.
	p.FailIf(!slices.Contains(in.Models, in.Model), fieldPath+".model", "the model "+document.Quote(in.Model), "one of the instance's models")
	p.FailIf(len(in.Sequences) != len(in.Models), fieldPath+".sequences", fmt.Sprintf("%d figures", len(in.Sequences)), "%d, one per model", len(in.Models))
	q.checkInstanceModels(p, in, fieldPath)
	for k, g := range in.Groups {
		if p.FailIf(g < 0 || g >= len(q.Groups), fmt.Sprintf("%s.groups[%d]", fieldPath, k), g, "0 to %d, an index into queue.groups", len(q.Groups)-1) {
			continue
		}
		instancesByGroup[g]++
		if !slices.Contains(in.Models, q.Groups[g].Model) {
			p.Failf("a group of the model "+document.Quote(q.Groups[g].Model), "one of the instance's models", "", "%s.groups[%d]", fieldPath, k)
		}
	}
}

// checkInstanceModels reports to p models of an instance whose costs are not in the plan, and wrong caps, which
// limit how many sequences of a class run at once.
func (q *QueuePlan) checkInstanceModels(p *planChecker, in *QueueInstance, fieldPath string) {
	indexByName := map[string]int{}
	for k, m := range in.Models {
		p.Name(indexByName, k, m, "%s.models[%d]", fieldPath, k)
		modelProfiles := Profile{LLMs: q.Models}
		if _, cost := modelProfiles.LLMOn(m, in.Device, in.TensorParallel); cost == nil {
			p.Failf("the model "+document.Quote(m), fmt.Sprintf("one of queue.models with an instance on %d x %s", in.TensorParallel, in.Device), "", "%s.models[%d]", fieldPath, k)
		}
	}
	caps := map[string]int{}
	for k := range in.Caps {
		c := &in.Caps[k]
		document.CheckUnique(p.Checker, caps, k, c.Class, fmt.Sprintf("%s.caps[%d].class", fieldPath, k), document.Quote(c.Class), "each class once")
		p.FailIf(!slices.ContainsFunc(q.Classes, func(o QueueClass) bool { return o.Class == c.Class }), fmt.Sprintf("%s.caps[%d].class", fieldPath, k), "the class "+document.Quote(c.Class), "a class of the plan")
	}
}

// checkGroup reports to p what is wrong with the i-th request group: requests of one model and class that wait in
// a queue together. queues counts the instances whose queue has the group; 1 is right.
func (q *QueuePlan) checkGroup(p *planChecker, i, queues int) {
	g, fieldPath := &q.Groups[i], fmt.Sprintf("queue.groups[%d]", i)
	p.FailIf(!slices.ContainsFunc(q.Classes, func(k QueueClass) bool { return k.Model == g.Model && k.Class == g.Class }), fieldPath+".model", document.Quote(ModelClass{g.Model, g.Class}.String()), "a model and class of the plan")
	p.FailIf(queues != 1, fieldPath, fmt.Sprintf("a group in %d queues", queues), "one queue for each group")
	p.FailIf(g.PromptMean < 0 || g.OutputMean < 0 || g.OutputSD < 0, fieldPath, "a negative count of tokens", "0 or more")
	p.FailIf(g.CompletionUS < g.StartUS, fieldPath+".completion_us", g.CompletionUS, "at least start_us, "+g.StartUS.String())
	for k := range g.Quantiles {
		z := &g.Quantiles[k]
		p.FailIf(k > 0 && (z.Share <= g.Quantiles[k-1].Share || z.AtUS < g.Quantiles[k-1].AtUS), fmt.Sprintf("%s.quantiles[%d]", fieldPath, k), document.FormatFloat(z.Share)+" at "+z.AtUS.String()+" us", "rising shares at times that do not fall")
	}
}
