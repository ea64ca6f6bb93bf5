package gear

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/moves"
)

// checkRunning returns an error if a new plan cannot start from the one that runs, as the CheckRunning of Method.
func checkRunning(p *kind.Problem) error {
	var family []string
	if cascade := formats.CascadeOf(p.Workload); cascade != nil {
		family = cascade.Family
	}
	return moves.CheckRunning(p, formats.PlanGear, family)
}

// runningCascade is the plan that runs, in the numbers of the problem.
type runningCascade struct {
	workload     *resolvedWorkload
	plan         *formats.Plan
	section      *formats.GearPlan
	heldByDevice [][]cascades.RunningDevices // by kind and device, each with a count of 1
}

// readRunning returns the plan that runs. A model that the profile no longer has as it was (another model file, other
// blocks) counts as one that no device holds, which is stated as an assumption.
func (f *resolvedWorkload) readRunning() *runningCascade {
	r := &runningCascade{workload: f, plan: f.input.RunningPlan, section: formats.GearOf(f.input.RunningPlan)}
	for k, contents := range moves.HeldByPool(r.plan, f.pools) {
		r.heldByDevice = append(r.heldByDevice, make([]cascades.RunningDevices, len(contents)))
		for n, content := range contents {
			held := &r.heldByDevice[k][n]
			held.Kind, held.Count = k, 1
			for _, part := range content {
				m := f.unchangedModel(part.Model)
				switch {
				case m < 0:
				case part.WholeModel:
					held.ModelSet |= 1 << m
				default:
					held.Stages = append(held.Stages, cascades.RunningStage{Model: m, FirstBlock: part.Blocks[0], EndBlock: part.Blocks[1]})
				}
			}
		}
	}
	return r
}

// unchangedModel returns the index of a model that runs, or -1 if it is not of the family, or has other blocks or another
// file than the profile.
func (f *resolvedWorkload) unchangedModel(name string) int {
	m := slices.IndexFunc(f.modelProfiles, func(p *formats.ProfileModel) bool { return p.Model == name })
	if m < 0 {
		return -1
	}
	running := moves.WholeModel(document.First(f.input.RunningPlan.Deployment, func(d *formats.Deployed) bool { return d.Model == name }), 1)
	if moves.IsUnchanged(&running, f.modelProfiles[m], 1) {
		return m
	}
	note := fmt.Sprintf("all of %s is loaded anew: the profile has other blocks or another model file than the plan that runs", name)
	if !slices.Contains(f.run.Assumptions, note) {
		f.run.Assume("%s", note)
	}
	return -1
}

// isEqual reports whether devices of one kind hold the same.
func isEqual(a, b *cascades.RunningDevices) bool {
	return a.ModelSet == b.ModelSet && slices.Equal(a.Stages, b.Stages)
}

// devices returns what devices hold, those of one kind that hold the same together. Idle devices are left out.
func (r *runningCascade) devices() (list []cascades.RunningDevices) {
	for k := range r.heldByDevice {
		for n := range r.heldByDevice[k] {
			held := &r.heldByDevice[k][n]
			if held.ModelSet == 0 && len(held.Stages) == 0 {
				continue
			}
			i := slices.IndexFunc(list, func(o cascades.RunningDevices) bool { return o.Kind == k && isEqual(&o, held) })
			if i < 0 {
				i, list = len(list), append(list, *held)
				list[i].Count = 0
			}
			list[i].Count++
		}
	}
	return list
}

// latencySteps limits the doublings of the latency by which a running plan is judged, if the latency is minimised.
const latencySteps = 8

// judge returns the plan that runs as a plan of the problem, judged as new plans are: by trials of its gears at the upper
// edges of today's ranges of rates, or by runs at the measured rates if the SLO is over all requests. A range has the gear
// that serves its upper edge today. If the plan cannot be judged or does not keep the SLO and the accuracy that are asked
// for, it returns the reason instead.
func (r *runningCascade) judge(ctx context.Context, overRequests bool) (plan *trials.Plan, reason string, err error) {
	p := *r.workload.problem
	p.OverRequests = overRequests
	if p.Goal() != cascades.LeastLatency {
		return r.judgeBy(ctx, &p)
	}

	// Without an SLO, the latency is that of the plan, or longer.
	latency := time.Millisecond
	for i := range r.section.Gears {
		latency = max(latency, r.section.Gears[i].LatencyUS.D(), r.section.Gears[i].LatencyHeldOutUS.D())
	}
	for range latencySteps {
		if plan, reason, err = r.judgeBy(ctx, p.WithSLO(latency)); plan != nil || err != nil {
			return plan, "", err
		}
		latency *= 2
	}
	return nil, reason, nil
}

// judgeBy returns the plan that runs as judge does, by the SLO of problem p.
func (r *runningCascade) judgeBy(ctx context.Context, p *cascades.Problem) (plan *trials.Plan, reason string, err error) {
	plan, reason = r.asPlan(r.withBatches(p))
	if reason != "" {
		return nil, reason, nil
	}
	p = plan.Problem
	simulator := trials.NewSimulator(p, plan.Configs, plan.Chains, trialSeed)
	switch {
	case p.SimulatesMeasured():
		measured, err := simulator.RunStreams(ctx, plan.Gears, trials.StreamCount(p), 1-p.Percentile)
		if err != nil {
			return nil, "", err
		}
		if !measured.KeepsSLO(p) {
			return nil, "it does not keep the SLO at the measured rates", nil
		}
		plan.AdoptMeasured(p, &measured)
	case p.OverRequests:
		return nil, "an SLO over all requests is judged at measured rates only, of which there are none or too many", nil
	default:
		if reason, err = r.tryGears(ctx, simulator, plan); reason != "" || err != nil {
			return nil, reason, err
		}
	}

	// The accuracy that is asked for, also on the samples held out.
	heldOut, isHeldOut := plan.HeldOutAccuracy()
	if p.MissesTarget(plan.Accuracy) || isHeldOut && p.TargetAccuracy > 0 && heldOut.Low < p.TargetAccuracy {
		return nil, fmt.Sprintf("its accuracy is %.4f on the samples of the profile, and %.4g is asked for", plan.Accuracy, p.TargetAccuracy), nil
	}
	plan.Goal = r.workload.problem.Goal()
	plan.RemoveIdlePipelines(p)
	usedCounts := plan.RemoveIdleDevices()
	plan.Value = plan.Accuracy
	switch plan.Goal {
	case cascades.LeastLatency:
		plan.Value = plan.MaxTailLatency().Seconds() * 1e3
	case cascades.FewestDevices:
		plan.Value = 0
		for k, count := range usedCounts {
			plan.Value += p.Kinds[k].Price * float64(count)
		}
	}
	return plan, "", nil
}

// tryGears tries the gears of the plan that runs at the upper edges of the ranges. reason says which of them fails.
func (r *runningCascade) tryGears(ctx context.Context, simulator *trials.Simulator, plan *trials.Plan) (reason string, err error) {
	for i, edge := range plan.Problem.RangeEdges {
		g := &plan.Gears[i]
		loaded := &placement.LoadedCascade{Cascade: &g.Cascade, DeviceLoad: g.BusiestLoad / edge, MaxLoad: g.BusiestLoad / edge, Shares: g.Shares}
		simulator.MinQueue = g.MinQueue
		if g.BusiestLoad <= 1 {
			if g.Trial, err = simulator.TryCascade(ctx, loaded, edge); err != nil {
				return "", err
			}
		}
		if !g.Trial.Passed {
			return fmt.Sprintf("its gear for range %d, up to %.6g requests per second, does not keep the SLO", i+1, edge), nil
		}
		g.LateShare = g.Trial.LateShare
	}
	return "", nil
}

// withBatches returns problem p with the limit on the time of batches under which the largest batches are those of the
// plan that runs. If there is none, it returns p.
func (r *runningCascade) withBatches(p *cascades.Problem) *cascades.Problem {
	for _, limited := range cascades.WithBatchLimits(p) {
		maxBatch, _ := cascades.BatchesAndSpeeds(limited)
		isSame := true
		for s := range r.plan.Stages() {
			m, k := r.workload.unchangedModel(s.Deployed.Model), r.kindOf(s.Device)
			isSame = isSame && (m < 0 || k < 0 || len(s.Pipeline.Stages) > 1 || maxBatch[k][m] == s.Pipeline.Batch)
		}
		if isSame {
			return limited
		}
	}
	return p
}

// kindOf returns the index of a kind of devices, or -1 if the cluster has none of it.
func (r *runningCascade) kindOf(device string) int {
	return slices.IndexFunc(r.workload.pools, func(p formats.Pool) bool { return p.Device == device })
}

// deviceUnit is a device of a kind, by index.
type deviceUnit struct{ kind, device int }

// runningReplica is a replica of a model in the plan that runs: a device with the whole model or, if chain is not negative,
// the next replica of a chain. Neither is there if its device is gone.
type runningReplica struct {
	deviceUnit
	chain int
}

// asPlan returns the plan that runs as one of problem p without trials. Its configs keep the numbers of the devices. If it
// cannot be expressed, it returns the reason.
func (r *runningCascade) asPlan(p *cascades.Problem) (plan *trials.Plan, reason string) {
	plan = &trials.Plan{Problem: p}
	for k := range r.heldByDevice {
		for n := range r.heldByDevice[k] {
			held := &r.heldByDevice[k][n]
			if last := len(plan.Configs) - 1; n > 0 && plan.Configs[last].ModelSet == held.ModelSet {
				plan.Configs[last].Count++
				continue
			}
			plan.Configs = append(plan.Configs, planspace.Config{Kind: k, ModelSet: held.ModelSet, Count: 1})
		}
	}

	// The replicas of every model, and the chains.
	replicas := make([][]runningReplica, len(p.Models))
	chains, _, err := planspace.EnumerateChains(p)
	if err != nil {
		return nil, err.Error()
	}
	for i := range r.plan.Deployment {
		d := &r.plan.Deployment[i]
		m := r.workload.unchangedModel(d.Model)
		for j := range d.Pipelines {
			l := &d.Pipelines[j]
			switch {
			case m < 0:
			case len(l.Stages) == 1:
				for n := range l.Stages[0].Devices() {
					replicas[m] = append(replicas[m], runningReplica{deviceUnit{r.kindOf(l.Stages[0].Device), n}, -1})
				}
			default:
				chain := r.placeChain(chains, m, l)
				if chain == nil {
					return nil, d.Model + " runs in stages that the profile and the cluster do not have today"
				}
				for range chain.Replicas() {
					replicas[m] = append(replicas[m], runningReplica{deviceUnit{-1, -1}, len(plan.Chains)})
				}
				plan.Chains = append(plan.Chains, *chain)
			}
		}
	}

	// The gear of each range.
	for i, edge := range p.RangeEdges {
		g := r.gearAt(edge)
		cascade, reason := r.cascadeOf(p, g)
		if reason != "" {
			return nil, reason
		}
		planned := trials.PlannedGear{Cascade: *cascade, MinQueue: max(1, g.Stages[0].MinQueue), Shares: make([][]float64, len(p.Models)), Accuracy: cascades.PlannedAccuracy(p, cascade)}
		for m := range p.Models {
			var split []float64
			if k := slices.Index(cascade.Models, uint8(m)); k >= 0 {
				split = g.Stages[k].Split
			}
			if planned.Shares[m] = sharesOf(plan, m, replicas[m], split); split != nil && !(lists.Total(planned.Shares[m]) > 0) {
				return nil, fmt.Sprintf("no device is left that answers with %s in range %d", p.Models[m].Name, i+1)
			}
		}
		planned.BusiestLoad = edge * busiestLoad(plan, cascade, planned.Shares)
		plan.AddGear(planned)
	}
	return plan, ""
}

// placeChain returns the chain of a pipeline of several stages, of model m, with its devices. If there is none today, or a
// device is gone, it returns nil.
func (r *runningCascade) placeChain(chains []*planspace.Chain, m int, l *formats.Pipeline) *planspace.PlacedChain {
	for _, chain := range chains {
		if chain.Model != m || chain.MaxBatch != l.Batch || len(chain.Stages) != len(l.Stages) {
			continue
		}
		placed := &planspace.PlacedChain{Chain: chain}
		isSame := true
		for i := range chain.Stages {
			s := &l.Stages[i]
			devices := slices.Sorted(s.Devices())
			isSame = isSame && chain.Stages[i].Kind == r.kindOf(s.Device) && s.Blocks == [2]int{chain.Stages[i].FirstBlock, chain.Stages[i].EndBlock} && devices[len(devices)-1] < len(r.heldByDevice[chain.Stages[i].Kind])
			placed.Devices = append(placed.Devices, devices)
		}
		if isSame {
			return placed
		}
	}
	return nil
}

// gearAt returns the gear of the plan that runs that serves rates up to an edge, in requests per second.
func (r *runningCascade) gearAt(edge float64) *formats.Gear {
	for i := range r.section.Gears {
		if edge <= r.section.Gears[i].ToQPS*(1+1e-9) {
			return &r.section.Gears[i]
		}
	}
	return &r.section.Gears[len(r.section.Gears)-1]
}

// cascadeOf returns the cascade of a gear that runs in the numbers of problem p. If that has not its models in that order,
// or not its thresholds, it returns the reason.
func (r *runningCascade) cascadeOf(p *cascades.Problem, g *formats.Gear) (*cascades.Cascade, string) {
	c := &cascades.Cascade{}
	for k := range g.Stages {
		s := &g.Stages[k]
		m := r.workload.unchangedModel(s.Model)
		if m < 0 || k > 0 && m <= int(c.Models[k-1]) {
			return nil, "its cascades ask " + s.Model + ", which the family does not have today as they ask it"
		}
		if c.Models = append(c.Models, uint8(m)); s.Level == 0 {
			continue
		}
		level := slices.Index(p.Thresholds[m], s.Threshold)
		if level < 0 {
			return nil, fmt.Sprintf("its threshold %.4g of %s is none of today's records", s.Threshold, s.Model)
		}
		c.Levels = append(c.Levels, uint8(level+1))
	}
	reachCounts, correct := p.PlanningSamples.Replay(c.Models, c.Levels)
	c.ReachCounts, c.CorrectCount = document.Map(reachCounts, func(n *int) int32 { return int32(*n) }), int32(correct)
	return c, ""
}

// sharesOf returns the shares of model m's samples by replica, in the order of new plans: devices with the whole model by
// kind and number, then its chains. split has those of the replicas that run; nil stands for none. The shares of replicas
// whose devices are gone go to the others.
func sharesOf(plan *trials.Plan, m int, replicas []runningReplica, split []float64) (shares []float64) {
	shareOf := func(i int) float64 {
		if i < 0 || i >= len(split) {
			return 0
		}
		return split[i]
	}
	for k := range plan.Problem.Kinds {
		for _, n := range plan.Replicas(m, k) {
			shares = append(shares, shareOf(slices.Index(replicas, runningReplica{deviceUnit{k, n}, -1})))
		}
	}
	for c := range plan.Chains {
		for i := range replicas {
			if replicas[i].chain == c {
				shares = append(shares, shareOf(i))
			}
		}
	}
	if lists.Total(shares) > 0 {
		cascades.Normalise(shares)
	}
	return shares
}

// busiestLoad returns the time, in seconds per request, that a cascade with its shares takes of the busiest device.
func busiestLoad(plan *trials.Plan, c *cascades.Cascade, shares [][]float64) float64 {
	_, secondsPerSample := cascades.BatchesAndSpeeds(plan.Problem)
	loads, busiest := map[deviceUnit]float64{}, 0.0
	add := func(u deviceUnit, load float64) {
		if load > 0 {
			loads[u] += load
			busiest = max(busiest, loads[u])
		}
	}
	for i, m := range c.Models {
		samples, next := float64(c.ReachCounts[i])/float64(plan.Problem.PlanningSamples.N), 0
		for k := range plan.Problem.Kinds {
			for _, n := range plan.Replicas(int(m), k) {
				add(deviceUnit{k, n}, samples*shares[m][next]*secondsPerSample[k][m])
				next++
			}
		}
		for j := range plan.Chains {
			chain := &plan.Chains[j]
			for n := range chain.Replicas() {
				if chain.Chain.Model != int(m) {
					break
				}
				for s := range chain.Chain.Stages {
					add(deviceUnit{chain.Chain.Stages[s].Kind, chain.DeviceOf(s, n)}, samples*shares[m][next]*chain.Chain.Stages[s].SecondsPerSample)
				}
				next++
			}
		}
	}
	return busiest
}
