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

// workflowProblem is what is to be planned of workflows, as numbers. Services are the
// models of all applications, which share them.
type workflowProblem struct {
	in         *kind.Problem
	run        *kind.Run
	objective  string
	whole      []formats.Pool // of the cluster
	partitions []partition    // of these, whose devices run the same models
	pools      []formats.Pool // the parts as pools, which are the kinds of devices
	prices     []float64      // of a device, by kind
	apps       []workflow
	services   []service
	llms       map[string]*formats.FlowGeneration // the language models among them
	gap        float64
	seed       int32
	fluid      bool // no waits, and batches may mix: for a bound of all plans
}

// workflow is an application.
type workflow struct {
	asked       formats.Application
	graph       *flow.Workflow
	of          []int // service of the problem, by that of the graph
	weight      float64
	slo, margin time.Duration
	visits      []flow.Visits  // of the requests that the percentile asks for
	paths       [][][]flow.Leg // by segment
	tasks, work []float64      // of a request, by service: mean, and in the usual work of one
}

// planWorkflows plans workflows: batches first, then what devices hold.
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

// resolveWorkflows reads the documents.
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

// generating is a problem whose profile has the language models among its models that
// the workflows ask for.
func generating(in *kind.Problem) (*kind.Problem, map[string]*formats.FlowGeneration, error) {
	profile, llms, err := flow.Measured(in.Profile, formats.ApplicationsOf(in.Workload), "applications")
	if e := (*document.Error)(nil); errors.As(err, &e) {
		return nil, nil, in.Fail("workload", e.Path, e.Found, e.Expected, e.Hint)
	}
	own := *in
	own.Profile = profile
	return &own, llms, err
}

// application adds an application.
func (w *workflowProblem) application(asked formats.Application, at string) error {
	a := workflow{asked: asked, weight: asked.Weight}
	if w.objective != "throughput" {
		if a.weight = asked.RPS; !(asked.RPS > 0) {
			return w.in.Fail("workload", at+".rps", "no rate to carry", "one of every application with --objective "+w.objective, "")
		}
	}
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

// demand is what a request asks for, by service.
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

// covered are the visits of the fastest requests, as many as a percentile asks for.
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

// visitTime is what visits take, where each segment takes so long.
func visitTime(segments []time.Duration, v flow.Visits) time.Duration {
	sum := time.Duration(0)
	for g, n := range v.Times {
		sum += time.Duration(n) * segments[g]
	}
	return sum
}

// longest is the longest path through each segment, with the largest batches up to
// those that were chosen, on the slowest of the kinds that run them; nil: in batches of
// one on the quickest kind.
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

// took is the longest that the requests that count take on their way, waits left
// out.
func (w *workflowProblem) took(a *workflow, chosen [][]int) time.Duration {
	most, segments := time.Duration(0), w.longest(a, chosen)
	for _, v := range a.visits {
		most = max(most, visitTime(segments, v))
	}
	return most
}

// deadline sets an application's SLO. "5x" is a multiple of its longest way in
// batches of one, on the quickest devices.
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

// askedAt is the first module of an application that asks for a model.
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

// ways are the ways that an application's requests take: those that were recorded,
// or drawn by its chances.
func (w *workflowProblem) ways(a *workflow) ([]formats.Way, error) {
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
	var names []string
	for _, s := range a.of {
		names = append(names, w.services[s].name)
	}
	return flow.DrawWays(a.graph, a.asked.Name, names, flow.DrawnRequests, w.in.Seed), nil
}
