package programs

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Program is the integer program over a set of templates: rates within what whole replicas carry, and
// replicas within the devices. With x_t a rate, g_s replicas, v_s shares and X_s the rate of a replica:
//
//	max θ   s.t.  θ <= Σ x_t / w_d,   x_t <= X_s g_s,   devices of each slot >= Σ g_s / v_s (whole),   Σ devices <= N_k
type Program struct {
	problem       *problem.Problem
	catalogue     *templates.Catalogue
	Model         *milp.Model
	TemplateSet   []int // indexes of the templates
	theta         milp.Var
	rateVars      []milp.Var              // [i]: rate of template TemplateSet[i], in units
	replicaVars   [][]milp.Var            // [i][stage]: replicas; -1 on time-shared pools
	usedVars      []milp.Var              // [i]: whether the template is used at all; -1 if no row needs it
	sharedWeights []sharedWeight          // weights that several templates share in memory
	wholeCounts   []wholeCount            // counts of whole devices that replicas round up to
	takenTerms    [][]milp.Term           // devices taken, by model and pool
	rateRows      []milp.Row              // by model: its rate is at least w_d θ
	floorRows     []milp.Row              // by model; -1 without a floor
	poolRows      []milp.Row              // by pool; -1 for empty pools
	memoryRows    []milp.Row              // by pool; -1 if memory is enough
	idleVars      []milp.Var              // by pool: whole devices that nothing takes; nil unless the goal needs them
	replan        *placement.RunningState // of the plan that runs, if moves are counted
	movedVar      milp.Var                // devices that load something
	newContents   []newContent            // replicas of contents beyond those that run
}

// wholeCount is a count of whole devices that the replicas of several templates round up to.
type wholeCount struct {
	count        milp.Var
	replicaTerms []milp.Term // each replica by the part of a device that it takes
}

// sharedWeight says whether weights are loaded that stages of several templates use.
type sharedWeight struct {
	blocks    templates.SharedBlocks
	loadedVar milp.Var
	userVars  []milp.Var // usedVars of those templates
}

// New builds the integer program that makes a plan: whole replicas of each stage of some templates (indexes in the
// catalogue), and the rate through each template, within the devices and the memory, and above the least rates of the
// models. θ, the least rate of a model per weight, is maximised. It is at least floor and at most bound, in units (1 is
// about what the cluster reaches). For another goal the caller then changes the objective.
func New(c *templates.Catalogue, templates []int, bound, floor float64) *Program {
	program := &Program{problem: c.Problem, catalogue: c, Model: milp.New("plan"), TemplateSet: templates}
	program.Model.SetSense(milp.Maximize)
	program.theta = program.Model.AddVar("theta", floor, math.Max(floor, bound), 1)
	program.addRows()

	// The templates, and the replicas of each slot (a stage position of one model on one pool), by their shares of a
	// device. The list keeps the slots in order, which the map does not.
	replicaTerms := map[placement.SlotKey][]milp.Term{}
	var slots []placement.SlotKey
	for i := range templates {
		t := program.addTemplateVars(i)
		for si, replicaVar := range program.replicaVars[i] {
			if replicaVar < 0 { // on a time-shared pool
				continue
			}
			slot := placement.SlotKey{Model: t.Model, Stage: si, Pool: t.Stages[si].Pool}
			if _, ok := replicaTerms[slot]; !ok {
				slots = append(slots, slot)
			}
			replicaTerms[slot] = append(replicaTerms[slot], milp.Term{Var: replicaVar, Coef: 1 / float64(t.Stages[si].Share)})
		}
	}

	// The devices of each slot, which also enter takenTerms, by model and pool.
	program.takenTerms = make([][]milp.Term, len(c.Problem.Models)*len(c.Problem.Pools))
	for _, slot := range slots {
		program.addDeviceTerms(slot, replicaTerms[slot])
	}
	return program
}

// addModelCounts adds, for each model and pool, an integer variable that counts the devices that the model takes. Under
// the slot rule this is a whole number, because no two models share a device. The counts are sums of other variables, so
// they change no solution. But they are few, and a branch and bound that branches on them needs fewer nodes. If models may
// share devices (the other rule, or a time-shared pool in the problem), it adds none.
func (q *Program) addModelCounts() {
	if q.problem.Rounding != problem.Slot || q.problem.HasTimeShared() {
		return
	}
	for i, terms := range q.takenTerms { // one entry for each model and pool, the pools of a model one after another
		if len(terms) < 2 { // a single term is a whole count itself
			continue
		}
		d, k := i/len(q.problem.Pools), i%len(q.problem.Pools)
		count := q.Model.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(q.problem.Pools[k].Count), 0)
		q.Model.AddRow("", 0, 0, append(slices.Clone(terms), milp.Term{Var: count, Coef: -1})...)
		q.wholeCounts = append(q.wholeCounts, wholeCount{count, terms})
	}
}

// addRows adds the rows that the templates' columns enter later: rates, floors (least rates), devices of each pool and
// memory of time-shared devices. A row that is not needed (no floor, no devices, enough memory) is -1.
func (q *Program) addRows() {
	// The rate of each model, in units, is at least θ, and as a part of its floor at least 1.
	for d := range q.problem.Models {
		q.rateRows = append(q.rateRows, q.Model.AddGE("rate "+q.problem.Models[d].Name, 0, milp.Term{Var: q.theta, Coef: -1}))
	}
	q.floorRows = make([]milp.Row, len(q.problem.Models))
	for d := range q.problem.Models {
		q.floorRows[d] = -1
		if floor := q.problem.Models[d].MinRPS; floor > 0 {
			q.floorRows[d] = q.Model.AddGE("floor "+q.problem.Models[d].Name, 1)
		}
	}

	// The devices in use of each pool are at most those that there are.
	q.poolRows = make([]milp.Row, len(q.problem.Pools))
	for k := range q.problem.Pools {
		q.poolRows[k] = -1
		if q.problem.Pools[k].Count > 0 {
			q.poolRows[k] = q.Model.AddLE("devices "+q.problem.Pools[k].Kind, float64(q.problem.Pools[k].Count))
		}
	}
	q.addMemoryRows(q.TemplateSet)
}

// addMemoryRows adds, for each time-shared pool, a row for the memory of one device, which holds all stages that are
// placed there: the parts of it in use are at most 1. A pool that has enough memory for all the templates (indexes in
// the catalogue) together gets none, and no exclusive pool does: the row is -1. addMemoryTerms fills the rows.
func (q *Program) addMemoryRows(templates []int) {
	tightPools := q.catalogue.TightMemory(templates)
	q.memoryRows = make([]milp.Row, len(q.problem.Pools))
	for k := range q.problem.Pools {
		q.memoryRows[k] = -1
		if tightPools[k] {
			q.memoryRows[k] = q.Model.AddLE("memory "+q.problem.Pools[k].Kind, 1)
		}
	}
}

// addTemplateVars adds the variables of template TemplateSet[i], and their terms in the rows: its rate in units, the
// whole replicas of each stage on an exclusive pool and, where memory of a time-shared pool is tight, whether it is used
// at all. The devices of the replicas are added later, by slot (stage position of a model on a pool). It returns the
// template.
func (q *Program) addTemplateVars(i int) *stages.Template {
	// The rate, at most what the template carries alone, counts for its model and as a part of the model's floor.
	t := &q.catalogue.Templates[q.TemplateSet[i]]
	unitRPS := q.catalogue.Units.ModelRPS[t.Model]
	maxUnits := q.problem.MaxRate(t) / unitRPS
	rateVar := q.Model.AddVar(fmt.Sprintf("x%d", i), 0, maxUnits, 0)
	q.rateVars = append(q.rateVars, rateVar)
	q.Model.AddTerm(q.rateRows[t.Model], rateVar, 1)
	if floorRow := q.floorRows[t.Model]; floorRow >= 0 {
		q.Model.AddTerm(floorRow, rateVar, q.catalogue.FloorShare(t.Model))
	}
	replicaVars := make([]milp.Var, len(t.Stages))
	usedVar := milp.Var(-1)

	// On an exclusive pool whole replicas of each stage carry the rate: x <= X g, with x the rate, X the rate of a replica
	// and g the replicas. The row is divided by X: x/X, the replicas that the rate takes, are at most g. On a time-shared
	// pool there are no replicas to count (-1), and the rate takes devices in proportion. If memory is tight on one of these
	// pools, the rate is 0 unless the template is used, and then the stages on all of them take memory.
	for si := range t.Stages {
		s := &t.Stages[si]
		if pool := &q.problem.Pools[s.Pool]; !pool.TimeShared {
			replicaVars[si] = q.Model.AddInt(fmt.Sprintf("g%d_%d", i, si), 0, float64(pool.Count*s.Share), 0)
			q.Model.AddLE("", 0, milp.Term{Var: rateVar, Coef: partOfReplica(q.catalogue, t.Model, s.Rate)}, milp.Term{Var: replicaVars[si], Coef: -1})
			continue
		}
		replicaVars[si] = -1
		q.Model.AddTerm(q.poolRows[s.Pool], rateVar, unitRPS/s.Rate)
		if q.memoryRows[s.Pool] >= 0 && usedVar < 0 {
			usedVar = q.Model.AddBool(fmt.Sprintf("y%d", i), 0)
			q.Model.AddLE("", 0, milp.Term{Var: rateVar, Coef: 1}, milp.Term{Var: usedVar, Coef: -maxUnits})
			q.addMemoryTerms(t, usedVar)
		}
	}
	q.replicaVars, q.usedVars = append(q.replicaVars, replicaVars), append(q.usedVars, usedVar)
	return t
}

// addDeviceTerms adds to the row of a pool, and to the terms of the devices that the model takes there, the devices of a
// slot (one stage position of one model on the pool). terms are the slot's replica variables, each with the share of a
// device that a replica takes. Where the shares of a slot round up to whole devices (under the slot rule, unless every
// replica takes a whole one), it adds a variable that counts these.
func (q *Program) addDeviceTerms(slot placement.SlotKey, terms []milp.Term) {
	// Without rounding the replicas enter the row themselves.
	takenTerms := &q.takenTerms[slot.Model*len(q.problem.Pools)+slot.Pool]
	if q.problem.Rounding == problem.Fractional || !slices.ContainsFunc(terms, func(t milp.Term) bool { return t.Coef != 1 }) {
		for _, t := range terms {
			q.Model.AddTerm(q.poolRows[slot.Pool], t.Var, t.Coef)
		}
		*takenTerms = append(*takenTerms, terms...)
		return
	}

	// Else a whole count, which is at least the sum of the shares, does.
	count := q.Model.AddInt(fmt.Sprintf("c%d_%d_%d", slot.Model, slot.Stage, slot.Pool), 0, float64(q.problem.Pools[slot.Pool].Count), 0)
	q.Model.AddLE("", 0, append(slices.Clone(terms), milp.Term{Var: count, Coef: -1})...)
	q.Model.AddTerm(q.poolRows[slot.Pool], count, 1)
	*takenTerms = append(*takenTerms, milp.Term{Var: count, Coef: 1})
	q.wholeCounts = append(q.wholeCounts, wholeCount{count, terms})
}

// minReplicaPart is the least part of a replica that programs can tell from none.
const minReplicaPart = 1e-5

// partOfReplica returns the part of a replica (which carries rate requests/s) that one unit of model d's rate takes. If
// a replica carries far more units than any goal asks for, the part would lie within the solver's tolerance, and the
// model would run without the replica. So the part is at least minReplicaPart. But if the highest rate that a goal may
// ask for would then take more than one replica, the part is returned as it is.
func partOfReplica(c *templates.Catalogue, d int, rate float64) float64 {
	part := c.Units.ModelRPS[d] / rate
	// A throughput is at most as many units as there are models, by what a unit is (Catalogue.SetUnits).
	maxUnits := max(float64(len(c.Problem.Models)), c.Problem.Models[d].MinRPS/c.Units.ModelRPS[d])
	if maxUnits*minReplicaPart > 1 {
		return part
	}
	return max(part, minReplicaPart)
}

// addMemoryTerms adds, to the rows of memory, the memory that a template needs on each device of time-shared pools if
// usedVar is 1 (the template is used), in parts of the device's memory. Weights that stages of several templates share
// get a variable of their own, so that they count once. Pools without such a row (-1) have enough.
func (q *Program) addMemoryTerms(t *stages.Template, usedVar milp.Var) {
	for si := range t.Stages {
		s := &t.Stages[si]
		row := q.memoryRows[s.Pool]
		if row < 0 {
			continue
		}
		deviceBytes := float64(q.problem.Pools[s.Pool].Memory)
		unsharedBytes := s.Memory
		if blocks, ok := templates.SharedBlocksOf(q.problem, t, s); ok {
			weightBytes := q.problem.Models[t.Model].WeightBytes(s.FirstBlock, s.EndBlock)
			unsharedBytes -= weightBytes
			q.shareWeights(blocks, usedVar, row, float64(weightBytes)/deviceBytes)
		}
		q.Model.AddTerm(row, usedVar, float64(unsharedBytes)/deviceBytes)
	}
}

// shareWeights makes the weights of some blocks count once in a row of memory if any of the templates that share them is
// used. usedVar is 1 if one more such template is used. weightPart is the size of the weights in parts of the device's
// memory. Each set of shared weights has one variable, loadedVar, that must be at least the usedVar of each template.
func (q *Program) shareWeights(blocks templates.SharedBlocks, usedVar milp.Var, memoryRow milp.Row, weightPart float64) {
	// The first template with these blocks adds their variable.
	i := slices.IndexFunc(q.sharedWeights, func(shared sharedWeight) bool { return shared.blocks == blocks })
	if i < 0 {
		i = len(q.sharedWeights)
		loadedVar := q.Model.AddVar(fmt.Sprintf("w%d", i), 0, 1, 0)
		q.Model.AddTerm(memoryRow, loadedVar, weightPart)
		q.sharedWeights = append(q.sharedWeights, sharedWeight{blocks: blocks, loadedVar: loadedVar})
	}

	// usedVar <= loadedVar.
	shared := &q.sharedWeights[i]
	q.Model.AddLE("", 0, milp.Term{Var: usedVar, Coef: 1}, milp.Term{Var: shared.loadedVar, Coef: -1})
	shared.userVars = append(shared.userVars, usedVar)
}

// FixReplicas makes the replicas that a plan has the lower bounds of the program's replicas, so that solutions only add
// some on idle devices. Searches do so where not all templates are known, or models are many. Pipelines of templates that
// the program lacks are passed over.
func (q *Program) FixReplicas(plan *placement.Plan) {
	for _, pipeline := range plan.Pipelines {
		i := slices.Index(q.TemplateSet, pipeline.Template)
		if i < 0 {
			continue
		}
		for si, replicaVar := range q.replicaVars[i] {
			if replicaVar >= 0 {
				_, upper := q.Model.Bounds(replicaVar)
				q.Model.SetBounds(replicaVar, float64(pipeline.Replicas[si]), upper)
			}
		}
	}
}

// StartPoint returns a plan as a value for each variable of the program, by its index, from which the solver starts its
// search. If the plan uses a template that the program lacks, it returns nil, and the solver starts from nothing.
func (q *Program) StartPoint(plan *placement.Plan) []float64 {
	// Rates, replicas and use of the plan's templates.
	point := make([]float64, q.Model.NumVars())
	for _, pipeline := range plan.Pipelines {
		i := slices.Index(q.TemplateSet, pipeline.Template)
		if i < 0 {
			return nil
		}
		point[q.rateVars[i]] = pipeline.RPS / q.catalogue.Units.ModelRPS[pipeline.Model]
		for si, replicaVar := range q.replicaVars[i] {
			if replicaVar >= 0 {
				point[replicaVar] = float64(pipeline.Replicas[si])
			}
		}
		if q.usedVars[i] >= 0 {
			point[q.usedVars[i]] = 1
		}
	}
	q.setDerived(point, plan)
	return point
}

// setDerived sets, in a point (a value for each variable), those that follow from the rates and replicas of its plan:
// loaded weights, whole devices, θ (the least rate per weight), idle devices and moves. Each gets the value that the
// rows of the program then force. StartPoint calls it with the rest of the point set.
func (q *Program) setDerived(point []float64, plan *placement.Plan) {
	// Shared weights are loaded if any template that uses them is used. Counts are sums of shares, rounded up.
	for _, shared := range q.sharedWeights {
		point[shared.loadedVar] = lists.Max(point[shared.loadedVar], len(shared.userVars), func(i int) float64 { return point[shared.userVars[i]] })
	}
	for _, whole := range q.wholeCounts {
		sum := lists.Sum(len(whole.replicaTerms), func(i int) float64 { return whole.replicaTerms[i].Coef * point[whole.replicaTerms[i].Var] })
		point[whole.count] = math.Ceil(sum - 1e-9)
	}

	// θ, unless it is bounded to 0 because the goal is the price.
	if _, maxTheta := q.Model.Bounds(q.theta); maxTheta > 0 {
		point[q.theta] = plan.Value / q.catalogue.Units.Throughput
	}
	if q.idleVars != nil {
		for k, n := range placement.WholeDevicesUsed(q.catalogue, plan) {
			if q.idleVars[k] >= 0 {
				point[q.idleVars[k]] = float64(q.problem.Pools[k].Count - n)
			}
		}
	}

	// Of each content that devices hold already, the replicas beyond those; and the devices that move.
	if q.replan != nil {
		for _, content := range q.newContents {
			sum := -float64(content.heldReplicas)
			for _, v := range content.replicaVars {
				sum += point[v]
			}
			point[content.addedVar] = max(sum, 0)
		}
		point[q.movedVar] = q.replan.MovedDevices(plan.Pipelines)
	}
}

// SolveFrom solves the program within the limits of options, with a plan as the start, and returns the plan of the best
// solution found. If none was found, or its replicas break a limit once the rates are computed anew, the plan is nil.
// aim names, in errors, the thing that was looked for.
func (q *Program) SolveFrom(ctx context.Context, solver milp.Solver, plan *placement.Plan, options milp.Options, aim string) (*placement.Plan, milp.Stats, error) {
	options.Start = q.StartPoint(plan)
	sol, err := solver.Solve(ctx, q.Model, options)
	if err != nil {
		return nil, milp.Stats{}, fmt.Errorf("solving for %s: %w", aim, err)
	}
	if !sol.Feasible() {
		return nil, sol.Stats, nil
	}
	return q.ReadPlan(sol), sol.Stats, nil
}

// ReadPlan returns the plan of a solution: the templates in use with their whole replicas, from which the rates are
// computed anew, so that the plan does not rest on the solver's tolerances. If the plan breaks a limit at these rates, it
// returns nil. Stages on time-shared pools, where rates take parts of the devices' time, have no replicas to count: 0.
func (q *Program) ReadPlan(sol *milp.Solution) *placement.Plan {
	var pipelines []placement.PlanPipeline
	for i, ti := range q.TemplateSet {
		t := &q.catalogue.Templates[ti]
		pipeline := placement.PlanPipeline{Template: ti, Model: t.Model, RPS: sol.At(q.rateVars[i]) * q.catalogue.Units.ModelRPS[t.Model], Replicas: make([]int, len(t.Stages))}
		// Within the solver's tolerance a little rate passes through a template that is not used. Whether it is used is a
		// variable of its own only if memory is tight, else -1.
		isUsed := pipeline.RPS > 1e-7*q.catalogue.Units.ModelRPS[t.Model] && (q.usedVars[i] < 0 || sol.Int(q.usedVars[i]) > 0)
		for si, replicaVar := range q.replicaVars[i] {
			if replicaVar >= 0 {
				pipeline.Replicas[si] = sol.Int(replicaVar)
				isUsed = isUsed && pipeline.Replicas[si] > 0
			}
		}
		if isUsed {
			pipelines = append(pipelines, pipeline)
		}
	}
	return placement.Recompute(q.catalogue, pipelines)
}

// UnionTemplates returns a set of templates (indexes in the catalogue) together with those of the pipelines of some
// plans, sorted and without duplicates. A program over it can start from each of the plans.
func UnionTemplates(templates []int, plans ...[]placement.PlanPipeline) []int {
	union := slices.Clone(templates)
	for _, pipelines := range plans {
		union = append(union, lists.Map(len(pipelines), func(i int) int { return pipelines[i].Template })...)
	}
	slices.Sort(union)
	return slices.Compact(union)
}
