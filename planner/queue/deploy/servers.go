package deploy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// ResolveServers reads the problem from the documents, with the kinds of servers that a layout has which runs. Of the instances it returns what the problem asks for: models that no class asks for are left out, with a
// warning, and so are instances without any. It returns an error if a model of the workload does not run, or runs where the cluster has no
// devices or the profile no measurement.
func ResolveServers(in *kind.Problem, run *kind.SolveRun, servers []formats.QueueInstance) (*Search, []formats.QueueInstance, error) {
	r, err := readProblem(in, run)
	if err != nil {
		return nil, nil, err
	}

	instances, kinds, err := r.readServers(servers, func(_ int, err error) error { return err })
	if err != nil {
		return nil, nil, err
	}
	for m := range r.problem.Models {
		name := r.problem.Models[m].Name
		if !slices.ContainsFunc(instances, func(s formats.QueueInstance) bool { return slices.Contains(s.Models, name) }) {
			return nil, nil, in.FieldError("workload", fmt.Sprintf("llm.models[%d]", slices.Index(r.llm.Models, name)), strconv.Quote(name)+", which does not run", "models that run",
				"leave it out of the workload to plan what runs; the name is the one that requests give the server (--served-model-name)")
		}
	}
	s, err := r.searchOn(kinds)
	return s, instances, err
}

// readServers returns what the problem asks for of some servers, with their kinds: models that no class asks for are left out, and so are
// servers without any. A server that is on devices or runs a model without a measurement is left out if refuse, which gets its index and
// the reason, returns no error.
func (r *resolver) readServers(servers []formats.QueueInstance, refuse func(i int, err error) error) (instances Fleet, kinds []Kind, err error) {
	for i := range servers {
		server := r.requestedPart(&servers[i])
		if len(server.Models) == 0 {
			continue
		}
		if err := r.checkMeasured(&server); err != nil {
			if err := refuse(i, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		instances, kinds = append(instances, server), r.withKindOf(kinds, &server)
	}
	return instances, kinds, nil
}

// searchOn returns a search on some kinds of servers, whatever the SLOs. If some model runs on none of them, it returns an error.
func (r *resolver) searchOn(kinds []Kind) (*Search, error) {
	problem, err := r.problemOn(kinds)
	if err != nil {
		return nil, err
	}
	s := NewSearch(problem)
	s.Estimators.choosePreemption()
	return s, nil
}

// requestedPart returns an instance with those of its models that the problem has. Others are warned of.
func (r *resolver) requestedPart(server *formats.QueueInstance) formats.QueueInstance {
	part := *server
	part.Models, part.Sequences, part.Groups = nil, nil, nil
	for k, name := range server.Models {
		if r.modelIndex(name) < 0 {
			r.run.Warn("%s runs on %d x %s, and the workload does not ask for it: it is left out", name, server.TensorParallel, server.Device)
			continue
		}
		part.Models, part.Sequences = append(part.Models, name), append(part.Sequences, server.Sequences[k])
	}
	if !slices.Contains(part.Models, part.Model) && len(part.Models) > 0 {
		part.Model = part.Models[0]
	}
	return part
}

// checkMeasured returns an error if an instance is on devices that the cluster does not have, or runs a model that was not measured there.
func (r *resolver) checkMeasured(server *formats.QueueInstance) error {
	pool := slices.IndexFunc(r.problem.Pools, func(p formats.Pool) bool { return p.Device == server.Device })
	if pool < 0 {
		return r.input.FieldError("cluster", "pools", document.List(server.Models)+" on "+server.Device+", which is not in the cluster", "the devices on which models run", "")
	}
	if last := server.FirstDevice + server.TensorParallel; last > r.problem.Pools[pool].Count {
		return r.input.FieldError("cluster", fmt.Sprintf("pools[%d].count", pool), strconv.Itoa(r.problem.Pools[pool].Count), fmt.Sprintf("at least %d, on which models run", last), "")
	}
	for _, name := range server.Models {
		if _, costs := r.input.Profile.LLMOn(name, server.Device, server.TensorParallel); costs == nil {
			return r.input.FieldError("profile", "llms", fmt.Sprintf("no measurement of %s on %d x %s", name, server.TensorParallel, server.Device), "one, as it runs there", "measure it: plan profile --llm")
		}
	}
	return nil
}

// withKindOf returns kinds of servers with that of an instance, which is added if it is new.
func (r *resolver) withKindOf(kinds []Kind, server *formats.QueueInstance) []Kind {
	if slices.ContainsFunc(kinds, func(k Kind) bool { return k.Device == server.Device && k.TP == server.TensorParallel }) {
		return kinds
	}
	pool := slices.IndexFunc(r.problem.Pools, func(p formats.Pool) bool { return p.Device == server.Device })
	return append(kinds, r.kindOf(pool, server.TensorParallel))
}

// LimitKV lowers the KV capacity of a model on the servers that an instance is of to that many tokens, if the profile has more.
func (p *Search) LimitKV(model string, in *formats.QueueInstance, tokens int64) {
	k := p.Problem.kindOf(in)
	m := document.First(p.Problem.Models, func(m *Model) bool { return m.Name == model })
	if costs := m.ByKind[k]; tokens < costs.KVTokens {
		lowered := *costs
		lowered.KVTokens = tokens
		m.ByKind[k] = &lowered
	}
}

// KVTokens returns the KV capacity of a model on the servers that an instance is of.
func (p *Search) KVTokens(model string, in *formats.QueueInstance) int64 {
	m := document.First(p.Problem.Models, func(m *Model) bool { return m.Name == model })
	return m.ByKind[p.Problem.kindOf(in)].KVTokens
}

// RequestTokens returns how many tokens the shortest of the requests for a model has in its prompt, and the longest with its answer.
func (p *Problem) RequestTokens(model string) (shortest, longest int64) {
	shortest = math.MaxInt32
	for i := range p.Items {
		if p.Models[p.Items[i].Model].Name != model {
			continue
		}
		c := &p.Classes[p.Items[i].Class]
		longest = max(longest, int64(c.Prompt.MaxTokens())+int64(c.Output.MaxTokens()))
		for _, r := range c.Sample {
			shortest, longest = min(shortest, int64(r.Prompt)), max(longest, int64(r.Prompt)+int64(r.Output))
		}
	}
	return shortest, longest
}

// ServersSection returns the queue section of the plan of instances as they stand, for all items.
func (p *PlanWriter) ServersSection(instances []formats.QueueInstance) (*formats.QueuePlan, error) {
	q := &formats.QueuePlan{Instances: slices.Clone(instances)}
	return q, p.completeSection(q, p.problem.AllItems())
}

// JudgeServers simulates instances as they stand in all runs, to their end, just as plan simulate runs their plan. searchWork limits how
// many positions the policy tries when it orders groups anew; with 0, the limit is that of a run of the plan.
func (p *Trials) JudgeServers(ctx context.Context, instances []formats.QueueInstance, runs int, searchWork int64) (Score, error) {
	key := fmt.Sprint("servers ", runs, " ", searchWork)
	for i := range instances {
		key += " " + ServerKey(&instances[i])
	}
	items := p.problem.AllItems()
	return p.simulatePlan(ctx, key, items, runs, searchWork, func() (*formats.Plan, error) {
		q, err := p.plans.ServersSection(instances)
		return p.plans.planOf(q, items), err
	})
}

// ServerKey returns a text that two instances share only if they serve alike, wherever they are.
func ServerKey(in *formats.QueueInstance) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d x %q %q %q %d %d %s %s %t", in.TensorParallel, in.Device, in.Model, in.Models, in.Sequences, in.TokenBudget, in.Scheduling, in.Preemption, in.NoPrefixCache)
	for _, c := range in.Caps {
		fmt.Fprintf(&b, " %q<=%d", c.Class, c.Sequences)
	}
	return b.String()
}

// ServersResult holds the outcome of runs of instances.
type ServersResult struct {
	Score   Score
	Goodput float64 // requests in time per second
	// BacklogGrows says that the requests in the system grow during the runs. KeepsSLOs says that they do not, and that the required share
	// of each judge group is in time. Misses is by how much that fails, as missPenalty has it.
	BacklogGrows, KeepsSLOs bool
	Misses                  float64
}

// JudgeAt simulates instances as they stand at a multiple of the rates, with any number of late requests. searchWork limits how many
// positions the policy tries when it orders groups anew; with 0, the limit is that of a run of the plan.
func (p *Search) JudgeAt(ctx context.Context, instances []formats.QueueInstance, factor float64, runs int, searchWork int64) (*ServersResult, error) {
	if p.byFactor == nil {
		p.byFactor = map[float64]*Search{}
	}
	scaled := p.byFactor[factor]
	if scaled == nil {
		scaled = p.withRates(factor, true)
		p.byFactor[factor] = scaled
	}
	score, err := scaled.Trials.JudgeServers(ctx, instances, runs, searchWork)
	if err != nil {
		return nil, err
	}
	strict := *scaled.Problem
	strict.Goodput = false
	return &ServersResult{
		Score: score, Goodput: scaled.Trials.goodput(&score), BacklogGrows: strict.backlogGrows(&score), KeepsSLOs: strict.keepsSLOs(&score, 1),
		Misses: strict.missPenalty(&score, scaled.Trials.runCounts(runs)),
	}, nil
}

// JudgePlan simulates instances with the search's limit on re-plans and, if they keep the SLOs so, as their plan runs. That tells quickly
// which instances keep them.
func (p *Search) JudgePlan(ctx context.Context, instances []formats.QueueInstance, factor float64, runs int) (*ServersResult, error) {
	result, err := p.JudgeAt(ctx, instances, factor, runs, p.Problem.SearchWork)
	if err != nil || !result.KeepsSLOs {
		return result, err
	}
	return p.JudgeAt(ctx, instances, factor, runs, 0)
}

// runCounts returns how many requests of each judge group some runs are expected to have together.
func (p *Trials) runCounts(runs int) []int64 {
	counts := p.requestCounts()
	for j := range counts {
		counts[j] *= int64(runs)
	}
	return counts
}

// AtFactor returns a search on the problem with all rates multiplied by a factor.
func (p *Search) AtFactor(factor float64) *Search { return p.withRates(factor, false) }

// WithSeed returns a search on the problem with other random numbers.
func (p *Search) WithSeed(seed uint64) *Search {
	reseeded := *p.Problem
	reseeded.Seed = seed
	s := NewSearch(&reseeded)
	s.Estimators.cache = p.Estimators.cache
	return s
}

// ServersFactor returns the largest multiple of the rates, of those that a bisection tries between carried and refused, at which instances
// keep the SLOs, or carried if there is none.
func (p *Search) ServersFactor(ctx context.Context, instances []formats.QueueInstance, carried, refused float64) (float64, error) {
	runs := 2 * max(p.Problem.Runs, 1) // the highest of several rates that pass is often a lucky one
	if carried > 0 {
		result, err := p.JudgePlan(ctx, instances, carried*(1+factorPrecision), runs)
		if err != nil || !result.KeepsSLOs {
			return carried, err
		}
		carried *= 1 + factorPrecision
	}
	return bisectFactor(carried, refused, func(factor float64) (bool, error) {
		result, err := p.JudgePlan(ctx, instances, factor, runs)
		return err == nil && result.KeepsSLOs, err
	})
}
