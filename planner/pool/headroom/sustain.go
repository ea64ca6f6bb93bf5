package headroom

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/sim"
)

// simulateLoads simulates the plan of an attempt in short runs, and finds the load that every model sustains:
// the multiple of its promised rate at which it still keeps its SLO. It scores the attempt by these.
func (a *planTuner) simulateLoads(ctx context.Context, t *planAttempt) error {
	test, err := certify.NewTest(t.result.Plan, a.certifyRequest)
	if err != nil {
		return err
	}

	// Short runs, started from the loads of the best attempt.
	scenario, fullDuration := test.Scenario, test.Settings.Duration
	scenario.Budget = a.runBudgets.Search
	scenario.Seed = seeded.Seed(test.Settings.Seed, "headroom")
	scenario.Duration = min(fullDuration, max(fullDuration/shortRunDivisor, certify.MinDuration(t.result.Plan)))
	// The first tenth, in which queues fill, does not count.
	scenario.Warmup = scenario.Duration / 10
	// startLoads, by model, are tried first; nil if none are known.
	var startLoads []float64
	if a.bestAttempt != nil && len(a.bestAttempt.loads) > 0 {
		startLoads = a.bestAttempt.loads
	}

	// Loads far below those of the best attempt are not looked for.
	minLoads := a.loadsAtShare(t, reachShare)
	halfOfRuns := (test.Settings.Runs + 1) / 2 // enough to compare plans
	sustained, err := sim.FindModelLoads(ctx, scenario, sim.ModelLoadSearch{
		Shares: test.Shares, Runs: halfOfRuns, Step: certify.Step, StartLoads: startLoads, MinLoads: minLoads, SameLoad: modelsTakeTurns(t.result.Plan),
		MaxLoad: 1 / slices.MinFunc(t.setting.headroom, compareUtilisation).Utilisation, // replicas carry no more
	})
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	a.workDone += int64(float64(sustained.Events) / test.Lengthening) // longer runs do not leave fewer trials
	// All loads are 0 if the search gave up, because some model failed at minLoads.
	t.loads, t.outOfReach = sustained.Loads, minLoads != nil && slices.Max(sustained.Loads) == 0
	a.scoreAttempt(t)
	return nil
}

// loadsAtShare returns, for each model, the multiple of the rate that the plan promises at which it reaches a
// part of the best rate so far. If there is no best attempt, or plans are not compared by rate, it returns nil.
func (a *planTuner) loadsAtShare(t *planAttempt, part float64) (loads []float64) {
	if a.bestAttempt == nil || !a.maximises() || !(a.bestAttempt.sustainedRate > 0) {
		return nil
	}
	for i := range t.result.Plan.Deployment {
		m := t.result.Plan.PromiseFor(i)
		loads = append(loads, part*a.bestAttempt.sustainedRate*m.Weight/m.RPS)
	}
	return loads
}

// scoreAttempt sets the scores of an attempt (a plan with what simulation showed of it) from t.loads, the multiples of the
// promised rates that its models sustain. The scores are sustainedRate, the least rate per weight of a model; meetsFloors,
// whether every model has its floor (the least rate asked for); and balancedRate, the rate per weight if the devices were
// divided so that all models had the same.
func (a *planTuner) scoreAttempt(t *planAttempt) {
	t.sustainedRate, t.meetsFloors = math.Inf(1), true
	totalGPUs, neededGPUs := 0.0, 0.0
	for i := range t.loads {
		m := t.result.Plan.PromiseFor(i)
		sustainedRPS := t.loads[i] * m.RPS
		t.sustainedRate = min(t.sustainedRate, sustainedRPS/m.Weight)
		t.meetsFloors = t.meetsFloors && problem.MeetsFloor(sustainedRPS, a.floorRate(i))
		// The devices of the model, and how many it would need for a rate of its weight.
		modelGPUs := 0.0
		for _, p := range t.result.Plan.Deployment[i].Pipelines {
			for _, s := range p.Stages {
				modelGPUs += s.GPUs
			}
		}
		totalGPUs, neededGPUs = totalGPUs+modelGPUs, neededGPUs+modelGPUs*m.Weight/max(sustainedRPS, 1e-9)
	}
	t.balancedRate = totalGPUs / max(neededGPUs, 1e-12)
}

// certifyPlans tests in long runs, with other random numbers, the plans that were best in short runs, one after
// another as nextForLongRuns picks them. The one that sustains most becomes the best and promises what it
// showed. If plans must carry floors (the objective is minimised), certifyFloors does so. If the budget of simulated
// events does not even allow the first test, the plan promises what short runs showed.
func (a *planTuner) certifyPlans(ctx context.Context) error {
	if len(a.bestAttempt.loads) == 0 { // the best plan was not simulated, because a budget or an interruption forbade it
		return nil
	}
	if !a.maximises() {
		return a.certifyFloors(ctx)
	}
	a.bestShortRunRate = a.bestAttempt.sustainedRate
	a.workBudget = a.workDone + certifyBudget*int64(a.problem.Values.WholeNumber("effort"))

	// Test one candidate after another. Once one is confirmed, it is the best attempt, and the next must sustain more:
	// equalLoads has, for each model of the candidate, the multiple of its promised rate at which it has the confirmed
	// plan's rate per weight. A candidate that fails there is marked as out of reach.
	for candidate := nextForLongRuns(a); candidate != nil; candidate = nextForLongRuns(a) {
		var equalLoads []float64
		if a.confirmedBest != nil {
			a.bestAttempt = a.confirmedBest
			equalLoads = a.loadsAtShare(candidate, 1)
		}
		err := a.certifyAttempt(ctx, candidate, equalLoads)
		if certify.OverBudget(err) && a.confirmedBest == nil {
			return a.promiseUnconfirmed(candidate, err)
		}
		if certify.OverBudget(err) {
			break // the confirmed plan stands
		}
		if err != nil {
			return err
		}
		if a.confirmedBest == nil || !candidate.outOfReach && a.compare(candidate, a.confirmedBest) > 0 {
			a.confirmedBest = candidate
		}
	}
	a.bestAttempt = a.confirmedBest
	return nil
}

// promiseUnconfirmed makes a plan that no test confirms promise what short runs showed: the budget did not
// allow the long runs that confirm it. The plan states err as the reason.
func (a *planTuner) promiseUnconfirmed(t *planAttempt, err error) error {
	if slices.Min(t.loads) < certify.Step {
		return unsustainedError(a)
	}
	a.overBudgetErr = err
	lowerPromise(t.result, t.loads)
	return certify.NoteUnconfirmed(t.result.Plan, err)
}

// nextForLongRuns returns the attempt that long runs test next, nil if there is none. The first is the best attempt. After
// that, of the untested attempts it is the one with the highest rate in short runs among two sorts: those whose rate is
// clearly above the one confirmed by long runs, as long as work remains, and the best attempt with one margin for all
// models, if it was close to the best attempt before the first long runs.
func nextForLongRuns(tuner *planTuner) (best *planAttempt) {
	if tuner.confirmedBest == nil {
		return tuner.bestAttempt
	}

	// The sustainedRate of an attempt is from short runs until long runs test it, and from these then. So those compared here
	// are from short runs, but that of confirmedBest is from long ones.
	uniformBest := bestUniform(tuner)
	for _, t := range tuner.attempts {
		if t.longRunsDone || t.isRepeat || t.outOfReach {
			continue
		}
		isCloseUniform := t == uniformBest && t.sustainedRate > tuner.bestShortRunRate*(1-uniformTolerance)
		isRival := t.sustainedRate > tuner.confirmedBest.sustainedRate*(1+minRateGain) && tuner.workDone < tuner.workBudget
		if (isCloseUniform || isRival) && (best == nil || t.sustainedRate > best.sustainedRate) {
			best = t
		}
	}
	return best
}

// bestUniform returns the best of the attempts with one margin for all models, but for those whose margin the workload sets.
// The first attempt, which may have the several margins of a running plan, counts as one of them. Attempts that are out of
// reach do not count. If there is none, it returns nil.
func bestUniform(tuner *planTuner) (bestAttempt *planAttempt) {
	for i, t := range tuner.attempts {
		// The margin of some model must give the whole setting, if it is made the margin of all models.
		givesSetting := func(h formats.Headroom) bool {
			return slices.Equal(t.setting.headroom, tuner.uniformSetting(h.Margin, t.setting.shape).headroom)
		}
		isFirst, isUniform := i == 0, slices.ContainsFunc(t.setting.headroom, givesSetting)
		if !isFirst && !isUniform || t.outOfReach {
			continue
		}
		if bestAttempt == nil || tuner.compare(t, bestAttempt) > 0 {
			bestAttempt = t
		}
	}
	return bestAttempt
}

// certifyFloors tests in long runs whether the best plan carries the floors, the least rates asked for. As long as it
// does not, in short or in long runs, another plan is made, in which the models that fall short promise less of what
// their replicas carry and so get more devices. If none passes in several tries, it returns an error. If the budget
// does not allow to simulate a new plan, the last one stays, and states that no test confirmed it.
func (a *planTuner) certifyFloors(ctx context.Context) error {
	for range floorTries {
		current := a.bestAttempt
		if current.meetsFloors {
			if confirmed, err := a.confirmFloors(ctx, current); confirmed || err != nil {
				return err
			}
		}

		// Plan again for the loads that the models sustained. If it failed in long runs, confirmFloors has lowered them.
		replanned, err := a.trySetting(ctx, planSetting{current.setting.shape, a.balancedHeadroom(current)})
		if err != nil {
			return err
		}
		if replanned == nil && a.overBudgetErr != nil {
			return certify.NoteUnconfirmed(current.result.Plan, a.overBudgetErr)
		}
		if replanned == nil {
			break // there is no such plan, or it was tried before
		}

		// The next try starts from this plan even if it misses the floors. If it carries them, an earlier plan that does so,
		// too, and is better (cheaper) comes first.
		a.bestAttempt = replanned
		if !replanned.meetsFloors {
			continue
		}
		for _, other := range a.attempts {
			if other.meetsFloors && a.compare(other, a.bestAttempt) > 0 {
				a.bestAttempt = other
			}
		}
	}
	return unsustainedError(a)
}

// confirmFloors tests in long runs whether an attempt carries the floors (the least rates asked for) and, if it
// does, writes the certificate into its plan, which then promises the floors. If the test could not be
// finished, the plan states why, and counts as confirmed. If models fall short, it lowers their loads, for the
// next plan.
func (a *planTuner) confirmFloors(ctx context.Context, attempt *planAttempt) (confirmed bool, err error) {
	test, err := certify.NewTest(attempt.result.Plan, a.certifyRequest)
	if err != nil {
		return false, err
	}
	test.Scenario.Budget = a.runBudgets.Tests
	floorLoads := lists.Filled(len(attempt.loads), func(i int) float64 { return a.floorRate(i) / attempt.result.Plan.PromiseFor(i).RPS })
	run, fallsShort, err := test.Confirm(ctx, floorLoads)
	if err != nil {
		return true, certify.NoteUnconfirmed(attempt.result.Plan, err)
	}
	if !slices.Contains(fallsShort, true) {
		lowerPromise(attempt.result, floorLoads)
		test.StoreCertificate(1, run.Report)
		return true, test.StoreSlowdowns(ctx)
	}
	for i := range attempt.loads {
		if fallsShort[i] {
			attempt.loads[i] = certify.NextLowerLoad(min(attempt.loads[i], floorLoads[i]))
		}
	}
	attempt.meetsFloors = false
	return false, nil
}

// limitToFrontEnd lowers the rates that a plan promises if the front end (the server process that takes in all requests)
// manages fewer requests/s than the devices carry. The front end's rate is divided among the models by weight: FrontEndRate
// is the rate per weight. A model whose rate is below its part keeps it. It is called before a plan is simulated.
func limitToFrontEnd(result *kind.Result) {
	plan := result.Plan
	if plan.FrontEndLoad() <= 1 {
		return
	}
	maxRate, parts := plan.FrontEndRate(), make([]float64, len(plan.Deployment))
	for i := range parts {
		parts[i] = 1
		if m := plan.PromiseFor(i); m.RPS > 0 {
			parts[i] = min(1, maxRate*m.Weight/m.RPS)
		}
	}
	lowerPromise(result, parts)
}

// busyFrontEnd is the load of the front end from which on one model's requests may delay another's.
const busyFrontEnd = .5

// floorTries bounds the plans that are made until one carries the floors.
const floorTries = 12

// unsustainedError returns the error that no plan carries the floors, or any rate. It names the part of the
// floors (least rates) that the best plan carries in simulation.
func unsustainedError(tuner *planTuner) error {
	// The largest part of the floors that some attempt sustained. Models without a floor do not count.
	bestShare := 0.0
	for _, t := range tuner.attempts {
		minShare := math.Inf(1)
		for i := range t.loads {
			if floor := tuner.floorRate(i); floor > 0 {
				minShare = min(minShare, t.loads[i]*t.result.Plan.PromiseFor(i).RPS/floor)
			}
		}
		bestShare = max(bestShare, minShare)
	}
	if tuner.maximises() {
		return &kind.InfeasibleError{Constraint: "slo", RefutedBySimulation: true, Reason: fmt.Sprintf(
			"simulation shows no rate at which every model keeps its SLO: the best plan misses it at %s of what its replicas carry, too", kind.FormatPercent(certify.Step))}
	}
	if bestShare >= 1 {
		return &kind.InfeasibleError{Constraint: "min_rps", RefutedBySimulation: true,
			Reason: "simulation shows no plan that surely keeps the SLOs at the rates asked: they are so short that plans keep them in some runs only"}
	}
	infeasible := &kind.InfeasibleError{Constraint: "min_rps", OnlyMinLoad: true, RefutedBySimulation: true,
		Reason: fmt.Sprintf("simulation shows no plan that keeps the SLOs at the rates asked; the best keeps them at %s of these", kind.FormatPercent(bestShare))}
	if bestShare > 0 {
		infeasible.Nearest.LoadFactor = bestShare
		if load := tuner.problem.Values.Number("min-load"); load > 0 {
			infeasible.Nearest.MinLoadRPS = kind.RoundDown(load*bestShare, 4)
		}
	}
	return infeasible
}

// certifyAttempt tests in long runs, with other random numbers than the search had, the loads (multiples of the promised
// rates) that an attempt sustained in short runs. It makes its plan promise the highest loads that pass, and stores the
// certificate. minLoads, if it is not nil, has the loads at which the plan has the rate per weight of a plan that was
// confirmed before: if it does not pass there, it is marked as out of reach, and nothing else changes. Without minLoads it
// returns an error if no loads pass.
func (a *planTuner) certifyAttempt(ctx context.Context, t *planAttempt, minLoads []float64) error {
	test, err := certify.NewTest(t.result.Plan, a.certifyRequest)
	if err != nil {
		return err
	}
	t.longRunsDone, test.Scenario.Budget = true, a.runBudgets.Tests

	// The test starts at the loads that the plan was seen to sustain, and climbs while work is left. Work is counted in
	// simulated events as if the plan's runs were not lengthened for models of few requests. A load of 1/utilisation is all
	// that replicas carry, as plans promise this part of it.
	climb := &certify.LoadClimb{StartLoads: t.loads, SameLoad: modelsTakeTurns(t.result.Plan), MaxEvents: int64(float64(a.workBudget-a.workDone) * test.Lengthening)}
	climb.MaxLoads = lists.Map(len(t.loads), func(i int) float64 { return 1 / t.setting.headroom[i].Utilisation })
	// A plan that only has to beat another one is tested there, and no further if it fails. One that showed
	// nothing in short runs (less than the lowest load of the grid) starts low, at a load that halves down to that.
	if minLoads != nil {
		climb.StartLoads, climb.StopAtFirstFailure = minLoads, true
	} else if slices.Min(t.loads) < certify.Step {
		climb.StartLoads, climb.HalveUntilPass = slices.Repeat([]float64{64 * certify.Step}, len(t.loads)), true
	}
	loads, confirmed, err := climb.Run(ctx, test)
	a.workDone += int64(float64(climb.Events) / test.Lengthening)
	switch {
	case err != nil:
		return err
	case loads == nil && minLoads != nil:
		t.outOfReach = true
		return nil
	case loads == nil:
		return unsustainedError(a)
	}

	// The plan promises the loads that passed, so its certificate is of all of its rates (load 1). It also states how
	// latencies grow if runs are slower than profiled.
	t.loads, t.outOfReach = loads, false
	a.scoreAttempt(t)
	lowerPromise(t.result, loads)
	test.StoreCertificate(1, confirmed.Report)
	return test.StoreSlowdowns(ctx)
}

// modelsTakeTurns reports whether models of a plan take turns on devices, or at a busy front end.
func modelsTakeTurns(plan *formats.Plan) bool {
	return plan.FrontEndLoad() > busyFrontEnd || slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.TimeShared() })
}
