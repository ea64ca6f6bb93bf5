package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/policy/flow"
	"inferplan/solver/milp"
)

// workflowProblem is a planning problem of workflows as numbers. Services are the models of all
// applications, which share them.
type workflowProblem struct {
	input           *kind.Problem
	run             *kind.SolveRun
	objective       string
	clusterPools    []formats.Pool // pools of the cluster
	partitions      []partition    // parts of these pools, each for the same models
	pools           []formats.Pool // the partitions as pools, which are the kinds of devices
	prices          []float64      // price of a device, by kind, in the unit of the objective
	apps            []workflow
	services        []service
	languageModels  map[string]*formats.FlowGeneration // by name: the language models among the services
	batchWait       float64                            // batches that a request waits for at each step (option batch-wait)
	gap             float64                            // relative gap at which a solve may end
	seed            int32
	withoutQueueing bool // there are no waits, and batch sizes may be mixed: for a bound of all plans
}

// workflow is an application whose requests take different paths, with its demand.
type workflow struct {
	application         formats.Application
	graph               *flow.Workflow
	serviceOf           []int // service of the problem, by service of the graph
	weight              float64
	slo, margin         time.Duration
	visits              []flow.SegmentVisits // visits of the fastest requests, as many as the percentile asks for
	paths               [][][]flow.PathStep  // by segment
	meanTasks, meanWork []float64            // mean tasks of a request, by service; the same in tasks with the usual work
}

// Plan plans workflows: applications whose next step becomes known only at run time. It chooses the devices and batches first, then which
// services (models) devices hold at the start, and returns the parts of a plan. If in asks for the bound of all plans, it replaces that
// of the chosen batches. If no batches keep the deadlines, the error names the nearest SLO.
func Plan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	problem, err := resolveWorkflows(in, run)
	if err != nil {
		return nil, err
	}
	usedModels := lists.Map(len(problem.services), func(i int) *formats.ProfileModel { return problem.services[i].profile })
	run.WarnStaleModels(&in.Documents, usedModels)
	if in.KeepRunning {
		return problem.keepRunning(ctx)
	}
	run.Progress(kind.Progress{Phase: "batches", Value: math.NaN(), Bound: math.NaN()})

	// Divide the devices between groups of models if that is asked for, then choose batches.
	dividedProblem, err := problem.withDedicatedDevices()
	if err != nil {
		return nil, err
	}
	batchChoice, err := dividedProblem.chooseDevices(ctx)
	if err != nil && ctx.Err() != nil && in.RunningPlan != nil {
		if o, _ := problem.keepRunning(context.WithoutCancel(ctx)); o != nil { // what runs stands
			o.StoppedBy = milp.StoppedByInterrupt
			return o, nil
		}
	}
	if errors.Is(err, terms.ErrNoPlan) {
		return nil, dividedProblem.sloError()
	}
	if err != nil {
		return nil, err
	}

	// Place the services, and write the plan.
	run.Progress(kind.Progress{Phase: "placement", Value: math.NaN(), Bound: math.NaN()})
	p, err := placeServices(ctx, dividedProblem, batchChoice)
	if err != nil {
		return nil, err
	}
	var outcome *kind.Outcome
	if in.RunningPlan != nil && !in.FeasibilityOnly {
		outcome, err = problem.outcomeNear(ctx, dividedProblem, batchChoice, p)
	} else {
		outcome, err = dividedProblem.outcome(batchChoice, p)
		dividedProblem.warnLoads(p)
	}
	if err != nil || in.BoundAttainment == 0 {
		return outcome, err
	}
	bound, err := problem.objectiveBound(ctx)
	terms.SetObjectiveBound(outcome, bound, problem.boundScope(), problem.gap)
	return outcome, err
}

// resolveWorkflows reads the problem of workflows from the documents: pools of devices, on which all models take turns, and applications
// with the services (models) that they ask for. Each pool is one partition (devices that run the same models) until the option dedicated
// divides it. What it assumes or doubts is recorded in run.
func resolveWorkflows(in *kind.Problem, run *kind.SolveRun) (*workflowProblem, error) {
	if err := in.CheckPresent(); err != nil {
		return nil, err
	}

	// From here on, `in` has the rows of length files, and language models among the models of its profile.
	in, err := withLengthSamples(in, run)
	if err != nil {
		return nil, err
	}
	in, llms, err := withLanguageModels(in)
	if err != nil {
		return nil, err
	}
	w := &workflowProblem{input: in, run: run, languageModels: llms, objective: in.Values.Word("objective"), batchWait: in.Values.Number("batch-wait"), gap: in.Values.Number("gap"), seed: int32(in.Seed % math.MaxInt32)}
	prices, err := terms.Prices(in)
	if err != nil {
		return nil, err
	}

	// All models of workflows take turns on a device, so every pool is shared in time and has one share per device.
	w.prices = prices
	for i, pool := range in.Cluster.Pools {
		if pool.Sharing == formats.SharingExclusive {
			run.Assume("sharing: time on %s: all models of workflows take turns on a device", pool.Device)
		}
		pool = pool.WithDefaults()
		pool.Sharing, pool.MaxShares = formats.SharingTime, 1
		w.partitions, w.pools = append(w.partitions, partition{pool: i}), append(w.pools, pool)
	}
	w.clusterPools = w.pools

	// Read the applications, which adds their services.
	for i, a := range formats.ApplicationsOf(in.Workload) {
		if err := w.addApplication(a.WithDefaults(), fmt.Sprintf("applications[%d]", i)); err != nil {
			return nil, err
		}
	}
	for k := range w.pools {
		if !slices.ContainsFunc(w.services, func(s service) bool { return len(s.byKind[k].batches) > 0 }) {
			run.Warn("%s: no model of the workflows runs there, and its devices stay idle", w.pools[k].Device)
		}
	}
	return w, nil
}

// withLanguageModels returns a copy of the problem in which the language models that the workflows ask for stand among the models of the
// profile, as if they had been measured in batches, and these models by name. Errors name their place in the workload.
func withLanguageModels(in *kind.Problem) (*kind.Problem, map[string]*formats.FlowGeneration, error) {
	profile, llms, err := flow.WithLanguageModels(in.Profile, formats.ApplicationsOf(in.Workload), "applications")
	if e := (*document.Error)(nil); errors.As(err, &e) {
		return nil, nil, in.FieldError("workload", e.Path, e.Found, e.Expected, e.Hint)
	}
	copied := *in
	copied.Profile = profile
	return &copied, llms, err
}

// addApplication adds an application of the workload, found at docPath, to the problem: the services (models) that it asks for, the ways
// of its requests through its segments, its demand, and the deadline. Errors name their place in the workload.
func (w *workflowProblem) addApplication(application formats.Application, docPath string) error {
	weight, err := terms.Weight(w.input, &application, docPath)
	if err != nil {
		return err
	}
	a := workflow{application: application, weight: weight}

	// Services.
	withWork := application
	withWork.Segments = flow.WithTokenWork(application.Segments, w.languageModels)
	graph, names, err := flow.CompileSegments(&withWork, docPath)
	if err != nil {
		return err
	}
	a.graph = graph
	for _, name := range names {
		s, err := w.serviceIndex(name, modulePath(&application, name, docPath))
		if err != nil {
			return err
		}
		a.serviceOf = append(a.serviceOf, s)
	}

	// Visits and paths, then the demand and the deadline of the requests that count.
	percentile, err := document.ParsePercentile(application.Percentile)
	if err != nil {
		return err
	}
	visits, err := graph.VisitCounts()
	for i := range graph.Segments {
		paths, e := graph.SegmentPaths(i)
		a.paths, err = append(a.paths, paths), errors.Join(err, e)
	}
	if err != nil {
		return w.input.FieldError("workload", docPath+".segments", err.Error(), "a smaller workflow", "lower most, or use fewer segments")
	}
	a.meanTasks, a.meanWork = w.requestDemand(&a, visits)
	a.visits = w.coveredVisits(&a, visits, percentile)
	baseName := fmt.Sprintf("the longest way at %s in batches of one", application.Percentile)
	if a.slo, a.margin, err = terms.SLO(w.input, w.run, &application, docPath, "30s", w.longestVisitTime(&a, nil), baseName); err != nil {
		return err
	}
	w.apps = append(w.apps, a)
	return nil
}

// requestDemand returns, by service (a model), how many tasks a request of application a has on average, and the same in units of tasks
// with the usual work, for which a batch's time is measured. visits has the ways of a request: how often it enters each segment, with the
// chance of each way.
func (w *workflowProblem) requestDemand(a *workflow, visits []flow.SegmentVisits) (tasks, work []float64) {
	tasks, work = make([]float64, len(w.services)), make([]float64, len(w.services))
	for g := range a.graph.Segments {
		// times is the mean number of visits of segment g.
		times := lists.Sum(len(visits), func(i int) float64 { return visits[i].Chance * float64(visits[i].Counts[g]) })
		for _, ask := range a.graph.ServiceDemands(g) {
			s := a.serviceOf[ask.Service]
			tasks[s] += times * ask.Tasks
			work[s] += times * ask.Work
		}
	}
	return tasks, work
}

// coveredVisits returns the ways of the fastest requests, as many as sum to the share that must be in time: only these have to keep the
// deadline. A way is how often a request visits each segment, with its chance. The order is by the time in batches of one.
func (w *workflowProblem) coveredVisits(a *workflow, visits []flow.SegmentVisits, requiredShare float64) []flow.SegmentVisits {
	segmentTimes := w.segmentTimes(a, nil)
	visits = slices.Clone(visits)
	slices.SortStableFunc(visits, func(x, y flow.SegmentVisits) int { return int(visitTime(segmentTimes, x) - visitTime(segmentTimes, y)) })
	sum := 0.0
	for i := range visits {
		if sum += visits[i].Chance; sum >= requiredShare-1e-12 {
			return visits[:i+1]
		}
	}
	return visits
}

// visitTime returns the time that a request takes which visits each segment as often as v says, if a visit of a
// segment takes its segmentTimes.
func visitTime(segmentTimes []time.Duration, v flow.SegmentVisits) time.Duration {
	return lists.Sum(len(v.Counts), func(g int) time.Duration { return time.Duration(v.Counts[g]) * segmentTimes[g] })
}

// segmentTimes returns, by segment of application a, the time of the longest path through it without waits: with the batches chosen (by
// service and kind of devices), on the slowest kind that runs each service. If chosen is nil, it is the time of batches of one on the
// fastest kind.
func (w *workflowProblem) segmentTimes(a *workflow, chosen [][]int) []time.Duration {
	times := make([]time.Duration, len(a.paths))
	for g := range a.paths {
		times[g] = longestPathTime(a.paths[g], func(id int32) time.Duration {
			s := a.serviceOf[id]
			if chosen == nil {
				return w.services[s].minSingleTime()
			}
			return w.services[s].slowestBatch(chosen[s])
		})
	}
	return times
}

// longestPathTime returns the longest time of some paths through a segment, without waits. A step takes as long as the slowest of the
// services (models) that may run it, each its serviceTime times the step's work relative to the usual. serviceTime is asked by the
// service's index in the graph.
func longestPathTime(paths [][]flow.PathStep, serviceTime func(service int32) time.Duration) time.Duration {
	maxTime := time.Duration(0)
	for _, path := range paths {
		sum := time.Duration(0)
		for _, step := range path {
			stepTime := lists.Max(time.Duration(0), len(step.Services), func(i int) time.Duration { return time.Duration(step.Work * float64(serviceTime(step.Services[i]))) })
			sum += stepTime
		}
		maxTime = max(maxTime, sum)
	}
	return maxTime
}

// longestVisitTime returns the longest time that a request of those within the percentile takes, without waits:
// in the chosen batches, or in batches of one if chosen is nil.
func (w *workflowProblem) longestVisitTime(a *workflow, chosen [][]int) time.Duration {
	maxTime, segments := time.Duration(0), w.segmentTimes(a, chosen)
	maxTime = lists.Max(maxTime, len(a.visits), func(i int) time.Duration { return visitTime(segments, a.visits[i]) })
	return maxTime
}

// modulePath returns the place in the document of the first module that asks for a model.
func modulePath(a *formats.Application, model, docPath string) string {
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			if slices.Contains(a.Segments[i].Modules[k].Services(), model) {
				return fmt.Sprintf("%s.segments[%d].modules[%d]", docPath, i, k)
			}
		}
	}
	return docPath + ".segments"
}

// requestPaths returns sample ways of an application's requests, from which the run-time policy predicts the next steps: those that were
// recorded in the file that the workload names or, without one, ways drawn by the probabilities of its conditions.
func (w *workflowProblem) requestPaths(a *workflow) ([]formats.Way, error) {
	// Read the recorded ways, if the workload names a file of them.
	if a.application.TransitionsFile != "" {
		path := kind.PathIn(w.input.WorkloadDir, a.application.TransitionsFile)
		doc, err := formats.ReadTransitions(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, w.input.FieldError("workload", "applications", fmt.Sprintf("the transitions %q of %s, which are not there", path, a.application.Name), "a file, from the folder of the workload", "plan import transitions writes one")
		}
		if err != nil {
			return nil, err
		}
		for i := range doc.Applications {
			if doc.Applications[i].Application == a.application.Name {
				return doc.Applications[i].Paths, nil
			}
		}
		return nil, w.input.FieldError("workload", "applications", fmt.Sprintf("no ways of %s in %s", a.application.Name, a.application.TransitionsFile), "recorded ways of the application", "")
	}

	// Otherwise draw them.
	names := lists.Map(len(a.serviceOf), func(i int) string { return w.services[a.serviceOf[i]].name })
	return flow.DrawPaths(a.graph, a.application.Name, names, flow.DrawnRequests, w.input.Seed), nil
}

// withLengthSamples returns a copy of the problem in which the modules that name a file of lengths have its rows (tokens of prompts and
// answers) as a sample. Of more than MaxSampleRows rows they have some evenly spread ones, and the plan states that as an assumption. The
// caller's documents do not change.
func withLengthSamples(in *kind.Problem, run *kind.SolveRun) (*kind.Problem, error) {
	applications := slices.Clone(formats.ApplicationsOf(in.Workload))
	for i := range applications {
		applications[i].Segments = slices.Clone(applications[i].Segments)
		for g := range applications[i].Segments {
			modules := slices.Clone(applications[i].Segments[g].Modules)
			for k := range modules {
				m := &modules[k]
				if m.LengthsFile == "" {
					continue
				}

				rows, err := arrivals.ReadLengths(in.WorkloadDir, m.LengthsFile)
				if err != nil {
					return nil, err
				}
				if m.Sample = evenlySpread(rows, formats.MaxSampleRows); len(m.Sample) < len(rows) {
					run.Assume("lengths of %s: %d rows of the %d of %s", m.Name, len(m.Sample), len(rows), m.LengthsFile)
				}
			}
			applications[i].Segments[g].Modules = modules
		}
	}

	// Return copies: the caller keeps its documents.
	workload := *in.Workload
	workload.Section = applications
	copied := *in
	copied.Workload = &workload
	return &copied, nil
}

// evenlySpread returns at most maxRows rows, evenly spread over the list.
func evenlySpread(rows [][2]int, maxRows int) [][2]int {
	if len(rows) <= maxRows {
		return rows
	}
	return lists.Filled(maxRows, func(i int) [2]int { return rows[(2*i+1)*len(rows)/(2*maxRows)] })
}
