package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
	"inferplan/policy/flow"
)

// resolvedProblem is the problem that the documents describe, as numbers.
type resolvedProblem struct {
	input            *kind.Problem
	run              *kind.SolveRun
	objective        string
	allowTimeSharing bool // modules may take turns on the devices of time-shared pools
	problem          *problem
	applications     formats.Applications // applications of the workload, with defaults filled in
	pools            []formats.Pool       // with defaults filled in
	measuredModels   []measuredModel      // by model of the problem
}

// resolveProblem reads the problem from the documents. It returns an error that names the place in a document if
// something is missing or contradictory.
func resolveProblem(in *kind.Problem, run *kind.SolveRun) (*resolvedProblem, error) {
	if err := in.CheckPresent(); err != nil {
		return nil, err
	}
	r := &resolvedProblem{input: in, run: run, objective: in.Values.Word("objective"), problem: &problem{batchWait: in.Values.Number("batch-wait")}}

	// Turns are planned for throughput only, and only if replicas do not come and go.
	r.allowTimeSharing = r.objective == "throughput" && in.Values.Time("cold-start") == 0
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	models := lists.Map(len(in.Profile.Models), func(i int) *formats.ProfileModel { return &in.Profile.Models[i] })
	if err := in.CheckPools(models); err != nil {
		return nil, err
	}
	for i, a := range formats.ApplicationsOf(in.Workload) {
		if err := r.addApplication(i, a.WithDefaults()); err != nil {
			return nil, err
		}
	}
	if len(r.applications) == 0 {
		return nil, in.FieldError("workload", "applications", "no application", "at least one", "")
	}
	return r, nil
}

// resolvePools reads the cluster's pools with the price of a device by the objective. A pool that the cluster shares in time becomes
// exclusive, with an assumption in the plan, if modules cannot take turns in a plan of this sort (r.allowTimeSharing).
func (r *resolvedProblem) resolvePools() error {
	prices, err := terms.Prices(r.input)
	if err != nil {
		return err
	}
	for i, p := range r.input.Cluster.Pools {
		timeShared := p.Sharing == formats.SharingTime && r.allowTimeSharing
		if p.TimeShared() && !timeShared {
			r.run.Assume("sharing: exclusive on %s: a module has devices of its own", p.Device)
			p.Sharing = formats.SharingExclusive
		}
		p = p.WithDefaults()
		r.pools = append(r.pools, p)
		r.problem.pools = append(r.problem.pools, pool{kind: p.Device, count: p.Count, price: prices[i], timeShared: timeShared, memory: int64(p.Memory)})
	}
	return nil
}

// addApplication adds application i of the workload to the problem: its modules with the choices of models for their tasks, its paths
// from the entry to the exits as indexes of modules, and its deadline. Errors name their place in the workload.
func (r *resolvedProblem) addApplication(i int, source formats.Application) error {
	docPath := fmt.Sprintf("applications[%d]", i)
	graph, err := flow.CompileGraph(source.Modules, docPath)
	if err != nil {
		return err
	}

	weight, err := terms.Weight(r.input, &source, docPath)
	if err != nil {
		return err
	}
	a := app{name: source.Name, weight: weight, accuracyFloor: source.Accuracy}

	// Modules with their choices. A variant that runs on no device of the cluster is left out.
	for k := range source.Modules {
		n := appModule{name: source.Modules[k].Name, visitShare: graph.Nodes[k].ReachChance}
		for _, v := range source.Modules[k].Models() {
			u, err := r.modelIndex(v.Model, fmt.Sprintf("%s.modules[%d]", docPath, k))
			if err != nil {
				return err
			}
			if len(r.problem.models[u].levels) == 0 && len(source.Modules[k].Variants) > 0 {
				r.run.Warn("%s was measured on no device of the cluster where it fits: it is not chosen", v.Model)
				continue
			}
			n.choices = append(n.choices, choice{model: u, accuracy: v.Accuracy})
		}
		if err := r.checkModuleRuns(&n, docPath, k); err != nil {
			return err
		}
		a.modules = append(a.modules, n)
	}

	// Paths: the graph's are those that follow the entry.
	for _, path := range graph.Nodes[0].Paths {
		list := []int{0}
		list = append(list, lists.Map(len(path), func(i int) int { return int(path[i]) })...)
		a.paths = append(a.paths, list)
	}
	if err := r.setDeadline(&a, &source, docPath); err != nil {
		return err
	}
	if source.Percentile == "" {
		source.Percentile = "p99"
	}
	r.applications = append(r.applications, source)
	r.problem.apps = append(r.problem.apps, a)
	return r.checkAccuracyFloor(&a)
}

// checkModuleRuns returns an error if no choice of a module runs on a device of the cluster.
func (r *resolvedProblem) checkModuleRuns(module *appModule, docPath string, index int) error {
	if !slices.ContainsFunc(module.choices, func(c choice) bool { return len(r.problem.models[c.model].levels) > 0 }) {
		return r.input.FieldError("workload", fmt.Sprintf("%s.modules[%d].model", docPath, index), "a model that was measured on no device of the cluster on which it fits", "one that was",
			"the cluster has "+kind.DeviceNames(r.pools)+": measure the model there (plan profile --device …)")
	}
	return nil
}

// setDeadline sets the SLO and the margin of an application. "5x" is a multiple of the longest path in
// batches of one on the fastest devices.
func (r *resolvedProblem) setDeadline(a *app, w *formats.Application, docPath string) (err error) {
	longestPath := time.Duration(0)
	for _, path := range a.paths {
		sum := lists.Sum(len(path), func(i int) time.Duration { return r.minSingleTime(&a.modules[path[i]]) })
		longestPath = max(longestPath, sum)
	}
	a.slo, a.margin, err = terms.SLO(r.input, r.run, w, docPath, "400ms", longestPath, "the longest path in batches of one")
	return err
}

// minSingleTime returns the least time that a batch of one takes in a module: by the choice of model and the
// device that are fastest.
func (r *resolvedProblem) minSingleTime(n *appModule) time.Duration {
	return lists.Min(time.Duration(math.MaxInt64), len(n.choices), func(i int) time.Duration { return r.measuredModels[n.choices[i].model].minSingleTime })
}

// checkAccuracyFloor returns an error if even the most accurate choices of models miss an application's accuracy floor, a least product
// over its modules. Models without a given accuracy count as 1, which the plan states as an assumption if there is a floor.
func (r *resolvedProblem) checkAccuracyFloor(a *app) error {
	reachable, unknown := 1.0, []string(nil)
	for i := range a.modules {
		maxAccuracy := 0.0
		for _, c := range a.modules[i].choices {
			accuracy := c.accuracy
			if accuracy == 0 {
				accuracy = 1
				unknown = append(unknown, a.modules[i].name)
			}
			maxAccuracy = max(maxAccuracy, accuracy)
		}
		reachable *= maxAccuracy
	}

	// reachable is the product of the best accuracies of all modules.
	switch {
	case a.accuracyFloor == 0:
		return nil
	case reachable < a.accuracyFloor-1e-12:
		return &kind.InfeasibleError{Model: a.name, Constraint: "accuracy",
			Reason: fmt.Sprintf("the most accurate variants of %s reach %.6g over all modules, and its floor is %.6g", a.name, reachable, a.accuracyFloor)}
	case len(unknown) > 0:
		r.run.Assume("accuracy 1 for %s of %s: no accuracy is given", strings.Join(unknown, ", "), a.name)
	}
	return nil
}

// measuredModel is a model of the profile on the devices of the cluster.
type measuredModel struct {
	profile       *formats.ProfileModel
	costs         [][]stages.ShareCosts // by pool and by number of shares per device, less one
	minSingleTime time.Duration         // time of the fastest batch of one
}

// modelIndex returns the index of a model in the problem. If the model is not there yet, it is read from the profile and added, with its
// levels (limits on batch times, each with the best batch size for a device of each pool). docPath is the place, in the workload, of the
// module that asks for it.
func (r *resolvedProblem) modelIndex(name, docPath string) (int, error) {
	if u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == name }); u >= 0 {
		return u, nil
	}

	// Find the model in the profile, and what its blocks cost on each pool.
	i, err := r.input.ModelIndex(name, docPath+".model")
	if err != nil {
		return 0, err
	}
	m, path := &r.input.Profile.Models[i], fmt.Sprintf("models[%d]", i)
	if len(m.Blocks) == 0 {
		return 0, r.input.FieldError("profile", path+".blocks", "no block", "at least one", "")
	}
	costs, err := stages.MeasuredCosts(m, r.pools, r.input.Values.WholeNumber("max-batch"), r.input.FileName("profile"), path)
	if err != nil {
		return 0, err
	}

	// Compute its templates, and from these the levels.
	measured := measuredModel{profile: m, costs: costs, minSingleTime: math.MaxInt64}
	byPool := make([][]template, len(r.pools))
	for k := range r.pools {
		byPool[k] = measured.deviceTemplates(&r.pools[k], k)
		for _, t := range byPool[k] {
			measured.minSingleTime = min(measured.minSingleTime, stages.MaxTime(&costs[k][t.sharesPerDevice-1], 1, 0, len(m.Blocks)))
		}
	}
	r.problem.models = append(r.problem.models, model{name: name, levels: levelsOf(byPool)})
	r.measuredModels = append(r.measuredModels, measured)
	return len(r.measuredModels) - 1, nil
}

// deviceTemplates returns the templates of a model on a device of pool k: every division of the device into equal shares with a replica
// in each, with every batch size that was measured and fits into the memory of a share. worstTime is there the longest time of any batch
// up to that size, rate that of all replicas.
func (m *measuredModel) deviceTemplates(pool *formats.Pool, k int) []template {
	weights := lists.Sum(len(m.profile.Blocks), func(i int) int64 { return m.profile.Blocks[i].WeightBytes })
	var templates []template
	if pool.Count == 0 {
		return nil
	}
	for v := range m.costs[k] {
		s := &m.costs[k][v]
		worstTime := time.Duration(0)
		for _, b := range s.PlannableSizes() {
			e := s.ExpectedTimes(b)
			worstTime = max(worstTime, stages.MaxTime(s, b, 0, len(m.profile.Blocks)))
			memory := max(weights, s.CostAt(b).Memory)
			if pool.Memory > 0 && memory > int64(pool.Memory)/int64(v+1) {
				continue
			}
			templates = append(templates, template{batch: b, sharesPerDevice: v + 1, worstTime: worstTime, rate: float64(v+1) * float64(b) / e.Mean(0, len(m.profile.Blocks)).Seconds(), memory: memory})
		}
	}
	return templates
}
