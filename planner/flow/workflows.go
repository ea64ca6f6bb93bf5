package flow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// workflowProblem is a planning problem of workflows as numbers. Services are the models of all
// applications, which share them.
type workflowProblem struct {
	in         *kind.Problem
	run        *kind.Run
	objective  string
	whole      []formats.Pool // pools of the cluster
	partitions []partition    // parts of these pools, each for the same models
	pools      []formats.Pool // the partitions as pools, which are the kinds of devices
	prices     []float64      // price of a device, by kind, in the unit of the objective
	apps       []workflow
	services   []service
	llms       map[string]*formats.FlowGeneration // by name: the language models among the services
	gap        float64                            // relative gap at which a solve may end
	seed       int32
	fluid      bool // there are no waits, and batch sizes may be mixed: for a bound of all plans
}

// workflow is an application whose requests take different paths, with its demand.
type workflow struct {
	asked       formats.Application
	graph       *flow.Workflow
	of          []int // service of the problem, by service of the graph
	weight      float64
	slo, margin time.Duration
	visits      []flow.Visits  // visits of the fastest requests, as many as the percentile asks for
	paths       [][][]flow.Leg // by segment
	tasks, work []float64      // mean tasks of a request, by service; the same in tasks with the usual work
}

// planWorkflows returns a plan of workflows. It chooses the batches first, then which services devices
// hold.
func planWorkflows(ctx context.Context, in *kind.Problem, run *kind.Run) (*kind.Outcome, error) {
	w, err := resolveWorkflows(in, run)
	if err != nil {
		return nil, err
	}
	var used []*formats.ProfileModel
	for i := range w.services {
		used = append(used, w.services[i].profile)
	}
	run.StaleModels(&in.Documents, used)
	run.Progress(kind.Progress{Phase: "batches", Value: math.NaN(), Bound: math.NaN()})

	// Divide the devices between groups of models if that is asked for, then choose batches.
	d, err := w.divided()
	if err != nil {
		return nil, err
	}
	b, err := (&batching{d}).choose(ctx)
	if errors.Is(err, errNone) {
		return nil, d.tooSoon()
	}
	if err != nil {
		return nil, err
	}

	// Place the services, and write the plan.
	run.Progress(kind.Progress{Phase: "placement", Value: math.NaN(), Bound: math.NaN()})
	p, err := (&placing{d}).place(ctx, b)
	if err != nil {
		return nil, err
	}
	o, err := d.outcome(b, p)
	if err == nil && in.Attained > 0 {
		err = bounded(o, w.among(), w.gap, func() (float64, error) { return w.fluidBound(ctx) })
	}
	return o, err
}

// resolveWorkflows reads the problem from the documents.
func resolveWorkflows(in *kind.Problem, run *kind.Run) (*workflowProblem, error) {
	if err := in.Complete(); err != nil {
		return nil, err
	}
	in, err := sampled(in, run)
	if err != nil {
		return nil, err
	}
	in, llms, err := generating(in)
	if err != nil {
		return nil, err
	}
	w := &workflowProblem{in: in, run: run, llms: llms, objective: in.Values.Word("objective"), gap: in.Values.Number("gap"), seed: int32(in.Seed % math.MaxInt32)}
	r := &resolved{in: in, run: run, objective: w.objective, problem: &problem{}}

	// All models of workflows take turns on a device, so every pool is shared in time and has one share per
	// device.
	quiet, cluster := *in, *in.Cluster
	cluster.Pools = slices.Clone(in.Cluster.Pools)
	for i := range cluster.Pools {
		if p := &cluster.Pools[i]; p.Sharing == formats.SharingExclusive {
			run.Assume("sharing: time on %s: all models of workflows take turns on a device", p.Device)
		} else {
			p.Sharing = formats.SharingExclusive
		}
	}
	quiet.Cluster, r.in = &cluster, &quiet
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	for i, pool := range r.pools {
		pool.Sharing, pool.MaxShares = formats.SharingTime, 1
		w.partitions, w.pools, w.prices = append(w.partitions, partition{pool: i}), append(w.pools, pool), append(w.prices, r.problem.pools[i].price)
	}
	w.whole = w.pools

	// Read the applications, which adds their services.
	for i, a := range formats.ApplicationsOf(in.Workload) {
		if err := w.application(a.WithDefaults(), fmt.Sprintf("applications[%d]", i)); err != nil {
			return nil, err
		}
	}
	for k := range w.pools {
		if !slices.ContainsFunc(w.services, func(s service) bool { return len(s.on[k].sizes) > 0 }) {
			run.Warn("%s: no model of the workflows runs there, and its devices stay idle", w.pools[k].Device)
		}
	}
	return w, nil
}

// withLanguageModels returns the problem with the language models that the workflows ask for among the
// models of its profile.
func generating(in *kind.Problem) (*kind.Problem, map[string]*formats.FlowGeneration, error) {
	profile, llms, err := flow.Measured(in.Profile, formats.ApplicationsOf(in.Workload), "applications")
	if e := (*document.Error)(nil); errors.As(err, &e) {
		return nil, nil, in.Fail("workload", e.Path, e.Found, e.Expected, e.Hint)
	}
	own := *in
	own.Profile = profile
	return &own, llms, err
}

// addApplication adds an application of the workload, found at docPath, to the problem.
func (w *workflowProblem) application(asked formats.Application, at string) error {
	a := workflow{asked: asked, weight: asked.Weight}
	if w.objective != "throughput" {
		if a.weight = asked.RPS; !(asked.RPS > 0) {
			return w.in.Fail("workload", at+".rps", "no rate to carry", "one of every application with --objective "+w.objective, "")
		}
	}

	// Services.
	worked := asked
	worked.Segments = flow.WithWork(asked.Segments, w.llms)
	graph, names, err := flow.Segments(&worked, at)
	if err != nil {
		return err
	}
	a.graph = graph
	for _, name := range names {
		s, err := w.service(name, askedAt(&asked, name, at))
		if err != nil {
			return err
		}
		a.of = append(a.of, s)
	}

	// Visits and paths, then the demand and the deadline of the requests that count.
	percentile, err := document.ParsePercentile(asked.Percentile)
	if err != nil {
		return err
	}
	visits, err := graph.Visits()
	for i := range graph.Segments {
		paths, e := graph.Paths(i)
		a.paths, err = append(a.paths, paths), errors.Join(err, e)
	}
	if err != nil {
		return w.in.Fail("workload", at+".segments", err.Error(), "a smaller workflow", "lower most, or use fewer segments")
	}
	a.tasks, a.work = w.demand(&a, visits)
	a.visits = w.covered(&a, visits, percentile)
	if err := w.deadline(&a, at); err != nil {
		return err
	}
	w.apps = append(w.apps, a)
	return nil
}

// requestDemand returns how many tasks a request has on average, by service, and the same number in units
// of tasks with the usual work.
func (w *workflowProblem) demand(a *workflow, visits []flow.Visits) (tasks, work []float64) {
	tasks, work = make([]float64, len(w.services)), make([]float64, len(w.services))
	for g := range a.graph.Segments {
		times := 0.0
		for _, v := range visits {
			times += v.Chance * float64(v.Times[g])
		}
		for _, ask := range a.graph.Asks(g) {
			s := a.of[ask.Service]
			tasks[s] += times * ask.Tasks
			work[s] += times * ask.Work
		}
	}
	return tasks, work
}

// coveredVisits returns the visits of the fastest requests, whose share reaches the percentile.
func (w *workflowProblem) covered(a *workflow, visits []flow.Visits, share float64) []flow.Visits {
	alone := w.longest(a, nil)
	visits = slices.Clone(visits)
	slices.SortStableFunc(visits, func(x, y flow.Visits) int { return int(visitTime(alone, x) - visitTime(alone, y)) })
	sum := 0.0
	for i := range visits {
		if sum += visits[i].Chance; sum >= share-1e-12 {
			return visits[:i+1]
		}
	}
	return visits
}

// visitTime returns the time that a request with the given visits takes, if every visit of a segment takes
// segmentTimes.
func visitTime(segments []time.Duration, v flow.Visits) time.Duration {
	sum := time.Duration(0)
	for g, n := range v.Times {
		sum += time.Duration(n) * segments[g]
	}
	return sum
}

// segmentTimes returns the time of the longest path through each segment, with the chosen batches, on the
// slowest of the kinds that run each service. If chosen is nil, it is the time of batches of one on the
// fastest kind.
func (w *workflowProblem) longest(a *workflow, chosen [][]int) []time.Duration {
	out := make([]time.Duration, len(a.paths))
	for g := range a.paths {
		for _, path := range a.paths[g] {
			sum := time.Duration(0)
			for i := range path {
				most := time.Duration(0)
				for _, id := range path[i].Services {
					most = max(most, time.Duration(path[i].Work*float64(w.services[a.of[id]].slowest(chosen, a.of[id]))))
				}
				sum += most
			}
			out[g] = max(out[g], sum)
		}
	}
	return out
}

// longestVisitTime returns the longest time that a request of those that count takes, without waits.
func (w *workflowProblem) took(a *workflow, chosen [][]int) time.Duration {
	most, segments := time.Duration(0), w.longest(a, chosen)
	for _, v := range a.visits {
		most = max(most, visitTime(segments, v))
	}
	return most
}

// setDeadline sets the SLO and the margin of an application. "5x" is a multiple of its longest time in
// batches of one on the fastest devices.
func (w *workflowProblem) deadline(a *workflow, at string) error {
	target := a.asked.SLO
	if slo := w.in.Values.SLO("slo"); !slo.IsZero() {
		target = slo
	}
	if target.IsZero() {
		return w.in.Fail("workload", at+".slo", "nothing", "a latency target such as 30s or 5x", "--slo sets it for all applications")
	}
	base := w.took(a, nil)
	if target.Times > 0 {
		w.run.Assume("slo of %s: %s of the longest way at %s in batches of one, %s, is %s", a.asked.Name, target, a.asked.Percentile, document.Duration(base), document.Duration(target.Of(base)))
	}
	if a.slo = target.Of(base); a.slo <= 0 {
		return w.in.Fail("workload", at+".slo", target.String(), "more than 0", "")
	}
	a.margin = kind.Margin(a.slo, w.in.Values.Number("margin"))
	return nil
}

// modulePath returns the place in the document of the first module that asks for a model.
func askedAt(a *formats.Application, model, at string) string {
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			if slices.Contains(a.Segments[i].Modules[k].Services(), model) {
				return fmt.Sprintf("%s.segments[%d].modules[%d]", at, i, k)
			}
		}
	}
	return at + ".segments"
}

// requestPaths returns the ways that an application's requests take: those that were recorded, or ways
// drawn by the probabilities of its conditions.
func (w *workflowProblem) ways(a *workflow) ([]formats.Way, error) {
	// Read the recorded ways, if the workload names a file of them.
	if a.asked.Ways != "" {
		path := filepath.FromSlash(a.asked.Ways)
		if !filepath.IsAbs(path) {
			path = filepath.Join(w.in.WorkloadDir, path)
		}
		doc, err := formats.ReadTransitions(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, w.in.Fail("workload", "applications", fmt.Sprintf("the transitions %q of %s, which are not there", path, a.asked.Name), "a file, from the folder of the workload", "plan import transitions writes one")
		}
		if err != nil {
			return nil, err
		}
		for i := range doc.Applications {
			if doc.Applications[i].Application == a.asked.Name {
				return doc.Applications[i].Ways, nil
			}
		}
		return nil, w.in.Fail("workload", "applications", fmt.Sprintf("no ways of %s in %s", a.asked.Name, a.asked.Ways), "recorded ways of the application", "")
	}

	// Otherwise draw them.
	var names []string
	for _, s := range a.of {
		names = append(names, w.services[s].name)
	}
	return flow.DrawWays(a.graph, a.asked.Name, names, flow.DrawnRequests, w.in.Seed), nil
}
