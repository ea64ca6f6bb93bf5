package deploy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// sequenceCaps are the numbers of concurrent sequences that instances choose from.
var sequenceCaps = []int{8, 12, 16, 24, 32, 48, 64}

// searchWork limits a re-plan in a run of the search, in positions. A layout that holds has short queues,
// and more work hardly changes their order.
const searchWork = 3000

// capsWith returns the numbers of concurrent sequences that instances choose from, rising: with those of a plan that runs, if it has more
// than any of them, since its servers may go on.
func capsWith(running *formats.Plan) []int {
	caps := slices.Clone(sequenceCaps)
	if running == nil || formats.QueueOf(running) == nil {
		return caps
	}
	for _, in := range formats.QueueOf(running).Instances {
		for _, n := range in.Sequences {
			if n > sequenceCaps[len(sequenceCaps)-1] {
				caps = append(caps, n)
			}
		}
	}
	slices.Sort(caps)
	return slices.Compact(caps)
}

// resolver reads a problem from documents.
type resolver struct {
	problem *Problem
	input   *kind.Problem
	run     *kind.SolveRun
	llm     *formats.LLM
}

// Layouts are judged by minRuns runs. If a test with other random numbers refuted a plan, the next search
// keeps back a surplus and has more runs: with few, the best of many layouts is often just a lucky one.
const (
	minRuns     = 2
	surplusRuns = 20
)

// Resolve reads the problem from the documents, and returns a search for layouts for each combination of tensor
// parallelism (devices that run a model together) that the pools can have. Within a search every pool has one,
// because estimators belong to a model on a kind of servers.
func Resolve(in *kind.Problem, run *kind.SolveRun) ([]*Search, error) {
	r, err := readProblem(in, run)
	if err != nil {
		return nil, err
	}
	return r.newSearches()
}

// readProblem reads the problem from the documents, without the kinds of servers.
func readProblem(in *kind.Problem, run *kind.SolveRun) (*resolver, error) {
	if err := in.CheckPresent(); err != nil {
		return nil, err
	}
	p := &Problem{
		Caps: capsWith(in.RunningPlan), Runs: minRuns + int(math.Round(surplusRuns*in.ReservedMisses)), Seed: in.Seed, Arrivals: in.Workload.Arrivals,
		SearchWork: searchWork, Surplus: in.ReservedMisses, WarmModels: in.Values.WholeNumber("warm-models"), Effort: in.Values.WholeNumber("effort"),
	}
	r := &resolver{problem: p, input: in, run: run, llm: formats.LLMOf(in.Workload)}
	if r.llm == nil {
		return nil, in.FieldError("workload", "llm", "nothing", "language models with classes of requests", "")
	}

	// Read models, pools, classes and rates, in this order.
	if err := r.resolveModels(); err != nil {
		return nil, err
	}
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	for c := range r.llm.Classes {
		if err := r.resolveClass(c); err != nil {
			return nil, err
		}
	}
	if err := r.resolveItems(); err != nil {
		return nil, err
	}
	r.setPolicy()
	return r, nil
}

// resolveModels reads into the problem those models of the workload that some class asks for, with their measurements in the profile. A
// model that no class asks for is left out, and an assumption of the plan says so. A model that the profile does not have is an error.
func (r *resolver) resolveModels() error {
	requested := map[string]bool{}
	for c := range r.llm.Classes {
		models, shares := r.llm.ModelShares(c)
		for i, name := range models {
			requested[name] = requested[name] || shares[i] > 0
		}
	}
	knownModels := lists.Map(len(r.input.Profile.LLMs), func(i int) string { return r.input.Profile.LLMs[i].Model })

	// Find each model in the profile, and leave out those without a class.
	for i, name := range r.llm.Models {
		index := slices.Index(knownModels, name)
		if index < 0 {
			hint := "the profile has no language models (llms)"
			if len(knownModels) > 0 {
				hint = "the profile has " + formats.ClassNames(knownModels)
				if nearest := document.Nearest(name, knownModels); nearest != "" {
					hint = "did you mean " + nearest + "?"
				}
			}
			return r.input.FieldError("workload", fmt.Sprintf("llm.models[%d]", i), strconv.Quote(name), "a model of the llms of "+r.input.FileName("profile"), hint)
		}
		if !requested[name] {
			r.run.Assume("llm.models[%d]: no class asks for %s, which gets no instance", i, name)
			continue
		}
		r.problem.Models = append(r.problem.Models, Model{Name: name, Profile: &r.input.Profile.LLMs[index]})
	}
	return nil
}

// modelIndex returns the index of a model that a class asks for.
func (r *resolver) modelIndex(name string) int {
	return slices.IndexFunc(r.problem.Models, func(m Model) bool { return m.Name == name })
}

// resolvePools reads the pools of the cluster into the problem, each of another kind of device. For the objective cost each needs a
// price. Errors name the place in the cluster document.
func (r *resolver) resolvePools() error {
	objective := r.input.Values.Word("objective")
	for i := range r.input.Cluster.Pools {
		pool := r.input.Cluster.Pools[i]
		docPath := fmt.Sprintf("pools[%d]", i)
		if slices.ContainsFunc(r.problem.Pools, func(o formats.Pool) bool { return o.Device == pool.Device }) {
			return r.input.FieldError("cluster", docPath+".device", pool.Device+" a second time", "each device kind once", "add up the counts")
		}
		if price, _ := kind.DevicePrice(objective, &pool); !(price > 0) {
			return r.input.FieldError("cluster", docPath+".usd_per_hour", "nothing", "what a "+pool.Device+" costs, for --objective cost", "")
		}
		r.problem.Pools = append(r.problem.Pools, pool.WithDefaults())
	}
	return nil
}

// resolveClass reads class i of the workload's requests into the problem: the lengths of its prompts and answers, with a sample drawn
// from them, its SLO and, for a class that is judged by its time per token, the SLO on the wait until the answer begins. Values that are
// assumed are recorded for the plan.
func (r *resolver) resolveClass(i int) error {
	docPath, source := fmt.Sprintf("llm.classes[%d]", i), r.llm.Classes[i].WithDefaults()
	requiredShare, err := document.ParsePercentile(source.Percentile)
	if err != nil {
		return r.input.FieldError("workload", docPath+".percentile", strconv.Quote(source.Percentile), "a percentile such as p99", "")
	}
	if source.Arrivals != nil {
		return r.input.FieldError("workload", docPath+".arrivals", "arrivals of a class", "those of the workload (arrivals)", "plans have one process of arrivals for all classes")
	}
	requestClass := Class{Name: source.Class, Figure: source.Figure, Percentile: source.Percentile, RequiredShare: requiredShare, Priority: source.Priority, MaxTokens: source.MaxTokens, Sessions: source.Sessions, JudgeGroup: i}

	// Lengths, cut to what the models can hold.
	requestClass.Prompt, requestClass.Output = source.Prompt, source.Output
	if source.LengthsFile != "" {
		if requestClass.Prompt, requestClass.Output, err = readLengths(r.input.WorkloadDir, source.LengthsFile); err != nil {
			return err
		}
		r.run.Assume("lengths of %s: prompts and answers of %s, drawn independently of each other", className(source.Class), source.LengthsFile)
	}
	if requestClass.Prompt == nil || requestClass.Output == nil {
		return r.input.FieldError("workload", docPath+".prompt", "no lengths", "distributions of prompt and output, or a lengths_file", "a plan needs to know how long requests are")
	}
	if source.MaxTokens > 0 {
		requestClass.Output = capLengths(requestClass.Output, source.MaxTokens)
	}
	if err := r.fitContext(&requestClass, i, docPath); err != nil {
		return err
	}
	requestClass.Sample = drawLengths(max(r.problem.Seed, 1), source.Class, requestClass.Prompt, requestClass.Output)

	// SLO, which may be a multiple of the time on an idle server.
	target := source.SLO
	if slo := r.input.Values.SLO("slo"); !slo.IsZero() {
		target = slo
	}
	if requestClass.SLO = target.Duration; target.Factor > 0 {
		if requestClass.SLO, err = r.sloFromMultiple(&requestClass, i, target); err != nil {
			return err
		}
	}
	if requestClass.SLO <= 0 {
		return r.input.FieldError("workload", docPath+".slo", target.String(), "more than 0", "")
	}

	// A class that is judged by its time per token needs another SLO on the start of its answers.
	if requestClass.WaitingSLO = source.WaitingSLO.Duration; requestClass.WaitingSLO == 0 && requestClass.Figure == formats.FigureTPOT {
		requestClass.WaitingSLO = tpotWaiting
		r.run.Assume("waiting_slo of %s: %v, for an SLO on the time per token says nothing of when an answer begins", className(source.Class), requestClass.WaitingSLO)
	}
	r.problem.Classes = append(r.problem.Classes, requestClass)
	return nil
}

// tpotWaiting is the waiting SLO of a class that only has an SLO on the time per token.
const tpotWaiting = 10 * time.Second

// className returns the name of a class in messages.
func className(name string) string {
	if name == "" {
		return "the class"
	}
	return name
}

// fitContext checks that the longest prompt and answer of a class together fit into the context and the KV memory (where a server stores
// the state of all tokens) of the models that the class asks for, and returns an error for the workload if they do not. A distribution
// without an end is cut, in the class, so that it fits. class is the index of the class in the workload, docPath its place there for
// messages.
func (r *resolver) fitContext(c *Class, class int, docPath string) error {
	models, shares := r.llm.ModelShares(class)
	for k, name := range models {
		if shares[k] == 0 {
			continue
		}

		// The limit is the context of the model or, if that is smaller, the KV memory of a server. 0 means that none is known.
		m := &r.problem.Models[r.modelIndex(name)]
		tokenLimit, limitName := m.Profile.ContextTokens, "the context"
		for n := range m.Profile.Instances {
			if kv := int(m.Profile.Instances[n].KVTokens); kv > 0 && (tokenLimit == 0 || kv < tokenLimit) {
				tokenLimit, limitName = kv, "the KV memory of "+m.Profile.Instances[n].Device
			}
		}
		if tokenLimit == 0 {
			continue
		}

		// Compare the longest request with it: prompt and answer together must be less than the limit. A distribution without an end has
		// a longest value of 0. If only one has no end, it is cut at what the other leaves; if neither has, both are cut at half.
		maxTogether := tokenLimit - 1
		maxPrompt, maxOutput := c.Prompt.MaxTokens(), c.Output.MaxTokens()
		bothEnd, noneEnds := maxPrompt > 0 && maxOutput > 0, maxPrompt == 0 && maxOutput == 0
		remaining := maxTogether - maxPrompt - maxOutput
		if bothEnd && remaining >= 0 {
			continue
		}
		cutAt := remaining
		if noneEnds {
			cutAt = maxTogether / 2
		}
		if bothEnd || cutAt < 1 {
			// Name the field to change: the answer's limit if some answer fits beside the longest prompt, else the prompt's.
			field, nearest := docPath+".prompt.max", ""
			switch {
			case bothEnd && maxPrompt < maxTogether:
				field, nearest = docPath+".max_tokens", fmt.Sprintf("max_tokens: %d fits", maxTogether-maxPrompt)
			case bothEnd:
				nearest = fmt.Sprintf("prompts of at most %d tokens fit", max(maxTogether-maxOutput, 1))
			}
			return r.input.FieldError("workload", field, fmt.Sprintf("prompts of up to %d tokens and answers of up to %d", maxPrompt, maxOutput),
				fmt.Sprintf("less than the %d tokens of %s of %s together", tokenLimit, limitName, name), nearest)
		}
		if maxPrompt == 0 {
			c.Prompt = capLengths(c.Prompt, cutAt)
			r.run.Assume("prompts of %s: cut at %d tokens, so that they fit %s of %s", className(c.Name), cutAt, limitName, name)
		}
		if maxOutput == 0 {
			c.Output = capLengths(c.Output, cutAt)
			r.run.Assume("answers of %s: cut at %d tokens, so that they fit %s of %s", className(c.Name), cutAt, limitName, name)
		}
	}
	return nil
}

// sloFromMultiple returns the SLO of a class whose target is a multiple such as 5x: of the time that a request of mean length takes on an
// idle server, the fastest of the first model that the class asks for. i is the index of the class in the workload.
func (r *resolver) sloFromMultiple(c *Class, i int, target document.SLO) (time.Duration, error) {
	models, shares := r.llm.ModelShares(i)
	firstModel := slices.IndexFunc(shares, func(share float64) bool { return share > 0 })
	m := &r.problem.Models[r.modelIndex(models[firstModel])]
	fastest := time.Duration(0)
	prompt, output, _ := lengthMoments(c.Sample)
	for k := range m.Profile.Instances {
		if idleTime := idleFigure(c.Figure, &m.Profile.Instances[k], int32(prompt), int32(output)); fastest == 0 || idleTime < fastest {
			fastest = idleTime
		}
	}
	slo := target.Resolve(fastest)
	r.run.Assume("slo of %s: %s of a mean request on an idle server, %s, is %s", className(c.Name), target, document.Duration(fastest), document.Duration(slo))
	return slo, nil
}

// resolveItems makes the problem's items: each class of requests for each model that it asks for, with its part of the class's rate. With
// the objective throughput the rates are only weights, and each item's weight is its part of their sum; else a class without a rate is an
// error.
func (r *resolver) resolveItems() error {
	ratesAreWeights := r.input.Values.Word("objective") == "throughput"
	anyRate := slices.ContainsFunc(r.llm.Classes, func(c formats.LLMClass) bool { return c.RPS > 0 })
	total := 0.0
	for c := range r.llm.Classes {
		// A class needs a rate. For throughput, classes without any rates count alike.
		rps := r.llm.Classes[c].RPS
		switch {
		case rps > 0:
		case ratesAreWeights && !anyRate:
			rps = 1
		default:
			return r.input.FieldError("workload", fmt.Sprintf("llm.classes[%d].rps", c), "no rate", "requests per second of the class", "--objective throughput takes the rates as weights, equal ones where there is none")
		}

		// Divide the rate between the models of the class.
		models, shares := r.llm.ModelShares(c)
		for k, name := range models {
			if shares[k] > 0 {
				r.problem.Items = append(r.problem.Items, Item{Model: r.modelIndex(name), Class: c, RPS: rps * shares[k], Weight: 1})
				total += rps * shares[k]
			}
		}
	}
	// Items of a model stand together.
	slices.SortStableFunc(r.problem.Items, func(a, b Item) int { return a.Model - b.Model })

	// For throughput the weights of all items sum to 1.
	if ratesAreWeights {
		if !anyRate {
			r.run.Assume("rates: all classes alike")
		}
		for i := range r.problem.Items {
			r.problem.Items[i].Weight = r.problem.Items[i].RPS / total
		}
	}
	return nil
}

// setPolicy sets the policy that runs the plan (virtual queues), with parameters from the options: the size of groups of requests and the
// order in a group (group_scale, by_deadline), whether a new group goes to the end of a queue (append), and whether queues are ordered anew
// only if a violation of an SLO is expected (on_violation). With follow, estimates of times follow what the instances do. With one_open,
// each model has one group that new requests join for all instances. A plan with several models has it, as these may take turns on an
// instance.
func (r *resolver) setPolicy() {
	options := r.input.Values
	params := map[string]float64{"group_scale": options.Number("group-scale"), "follow": 1}
	flag := func(name string, set bool) {
		if set {
			params[name] = 1
		}
	}
	flag("by_deadline", options.Word("group-by") == "deadline")
	flag("append", options.Word("join") == "fcfs")
	flag("on_violation", options.Word("replan") == "violation")
	flag("one_open", len(r.problem.Models) > 1)
	r.problem.Policy = formats.PolicySpec{Name: "vqueue", Params: params}
}

// newSearches returns a search for each combination of tensor parallelism over the pools: how many devices of each pool form one server.
// Combinations with which the problem cannot be solved are left out, with a warning if the time of requests could not be estimated. If
// all are left out, it returns a search for layouts with all sizes side by side, such as for models each of which was measured on another
// one. If there is none either, it returns the last error.
func (r *resolver) newSearches() ([]*Search, error) {
	// Build the combinations, pool by pool, from the sizes for which the profile has instances.
	choices := [][]int{nil}
	var allKinds []Kind
	for i := range r.problem.Pools {
		sizes := slices.Sorted(slices.Values(r.sizesOn(i)))
		for _, tp := range slices.Backward(sizes) { // the largest servers have the first devices of a node
			allKinds = append(allKinds, r.kindOf(i, tp))
		}
		if len(sizes) == 0 {
			sizes = []int{0}
		}
		var longer [][]int
		for _, prefix := range choices {
			longer = append(longer, lists.Map(len(sizes), func(i int) []int { return append(slices.Clone(prefix), sizes[i]) })...)
		}
		choices = longer
	}
	var searches []*Search
	var lastErr error

	// Make a search of each combination. An error of a document or an infeasible problem gets no warning here.
	for _, tps := range choices {
		p, err := r.newSearch(r.kindsOf(tps))
		if err != nil {
			lastErr = err
			if _, infeasible := errors.AsType[*kind.InfeasibleError](err); !infeasible && len(document.Findings(err)) == 0 {
				r.run.Warn("servers of %v devices of %s are not planned with: %v", tps, kind.DeviceNames(r.problem.Pools), err)
			}
			continue
		}
		searches = append(searches, p)
	}
	if len(searches) == 0 && len(choices) > 1 {
		if p, err := r.newSearch(allKinds); err == nil {
			r.run.Assume("servers on different numbers of devices of a kind are planned side by side: on one number of them some model does not run, or keeps no SLO")
			return []*Search{p}, nil
		}
	}
	if len(searches) == 0 {
		return nil, lastErr
	}
	return searches, nil
}

// sizesOn returns the numbers of devices of a pool on which a server of some model was measured, each once.
func (r *resolver) sizesOn(pool int) (sizes []int) {
	for m := range r.problem.Models {
		for k := range r.problem.Models[m].Profile.Instances {
			in := &r.problem.Models[m].Profile.Instances[k]
			if in.Device == r.problem.Pools[pool].Device && in.TensorParallel <= r.problem.Pools[pool].Count && !slices.Contains(sizes, in.TensorParallel) {
				sizes = append(sizes, in.TensorParallel)
			}
		}
	}
	return sizes
}

// kindsOf returns the kinds of servers with one size of tensor parallelism for each pool: tps has, by pool, how many of its devices form
// one server. A pool with size 0 runs nothing.
func (r *resolver) kindsOf(tps []int) (kinds []Kind) {
	for i, tp := range tps {
		if tp > 0 {
			kinds = append(kinds, r.kindOf(i, tp))
		}
	}
	return kinds
}

// newSearch returns the search for layouts of some kinds of servers. If some model runs on no such server, or an SLO cannot be kept on an
// idle one, it returns an error.
func (r *resolver) newSearch(kinds []Kind) (*Search, error) {
	problem, err := r.problemOn(kinds)
	if err != nil {
		return nil, err
	}

	// Refuse SLOs that even an idle server misses, and limit the number of instances.
	if err := checkIdleSLOs(problem); err != nil {
		return nil, err
	}
	s := NewSearch(problem)
	if err := r.limitInstances(s); err != nil {
		return nil, err
	}
	s.Estimators.choosePreemption()
	return s, nil
}

// kindOf returns the kind of servers on tp devices of a pool each.
func (r *resolver) kindOf(pool, tp int) Kind {
	price, _ := kind.DevicePrice(r.input.Values.Word("objective"), &r.problem.Pools[pool])
	return Kind{Pool: pool, Device: r.problem.Pools[pool].Device, TP: tp, MaxInstances: r.problem.Pools[pool].Count / tp, Price: float64(tp) * price}
}

// problemOn returns the problem with some kinds of servers, and with the measured costs of the models on them. If some
// model runs on none of them, it returns an error.
func (r *resolver) problemOn(kinds []Kind) (*Problem, error) {
	problem := *r.problem
	problem.Models, problem.Kinds = slices.Clone(r.problem.Models), kinds

	// Find the instances of each model. It must run on some kind.
	for m := range problem.Models {
		model := &problem.Models[m]
		model.ByKind = make([]*formats.LLMInstance, len(problem.Kinds))
		anyKind := false
		for k := range problem.Kinds {
			_, in := r.input.Profile.LLMOn(model.Name, problem.Kinds[k].Device, problem.Kinds[k].TP)
			if in == nil {
				continue
			}
			if in.KVTokens == 0 {
				return nil, r.input.FieldError("profile", "llms", fmt.Sprintf("%s on %d x %s without kv_tokens", model.Name, problem.Kinds[k].TP, problem.Kinds[k].Device), "its KV capacity", "read it from the server: plan profile --llm")
			}
			model.ByKind[k], anyKind = in, true
		}
		if !anyKind {
			return nil, r.input.FieldError("workload", fmt.Sprintf("llm.models[%d]", slices.Index(r.llm.Models, model.Name)), strconv.Quote(model.Name), "a model that was measured on a device of the cluster",
				"the cluster has "+kind.DeviceNames(r.problem.Pools)+": measure the model there, or add its devices to the cluster")
		}
	}
	return &problem, nil
}
