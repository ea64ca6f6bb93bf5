package graph

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"inferplan/planner/lists"
)

// deploymentSearch looks for plans whose cost is close to the lower bound. Depth first, it serves one
// module after another by a deployment. The reduced costs of the chosen deployments add up, so that only
// deployments with small ones need be tried. Deadlines are kept to the nanosecond.
type deploymentSearch struct {
	problem          *problem
	layout           *moduleLayout
	covers           *coverProgram
	maxPrice         float64         // plans that cost more are not looked for
	stopAtFirst      bool            // the search ends with the first plan
	remainingSteps   int64           // candidates that may still be tried
	moduleOrder      []int           // modules, those with the fewest candidates first
	candidates       [][]candidate   // candidates by module, those with the least reduced cost first
	remainingDevices []int           // free devices, by pool
	pathSlack        []time.Duration // by path: its budget less the least times of its modules, and less the time beyond these of the chosen deployments
	accuracyLoss     []float64       // accuracy loss of the chosen deployments, by application
	deployedModels   []bool          // by model: it has a chosen deployment
	chosen           []candidate
	bestSolution     *solution
	bestPrice        float64 // price of bestSolution
	bestDevices      int     // number of devices of bestSolution
}

// candidate is a module set with one of its deployments.
type candidate struct {
	set        *moduleSet
	deployment *deployment
}

// searchDeployments looks, by depth-first search over the listed deployments (modules served by a model on given devices), for the best
// plan that costs at most maxPrice: deployments that serve every module once within devices, deadlines and accuracy. d has the best one
// in bestSolution, nil if none was found. done says that there is no better one; otherwise the search ran out of maxSteps. With
// stopAtFirst any plan will do.
func (x *coverProgram) searchDeployments(maxPrice float64, stopAtFirst bool, maxSteps int64) (d *deploymentSearch, done bool) {
	d = &deploymentSearch{
		problem: x.problem, layout: x.layout, covers: x, maxPrice: maxPrice, stopAtFirst: stopAtFirst, remainingSteps: maxSteps,
		candidates: make([][]candidate, len(x.layout.appOf)), accuracyLoss: make([]float64, len(x.problem.apps)), deployedModels: make([]bool, len(x.problem.models)),
	}
	minTimes := d.collectCandidates()
	if !d.orderCandidates() || !d.startBudgets(minTimes) {
		return d, true
	}
	d.serveNextModule(0, x.lowerBound)
	return d, d.remainingSteps > 0
}

// collectCandidates lists the candidates of each module: the deployments that serve it and may be in a plan of at most maxPrice, by the
// lower bound plus their reduced costs. It returns, by module, the least time that it can take of a path's budget with any of them, the
// wait for a batch included.
func (d *deploymentSearch) collectCandidates() (minTimes []time.Duration) {
	minTimes = make([]time.Duration, len(d.layout.appOf))
	for i := range d.layout.moduleSets {
		s := &d.layout.moduleSets[i]
		for j := range s.deployments {
			c := &s.deployments[j]
			if d.covers.lowerBound+c.reducedCost > d.maxPrice+d.priceTolerance() {
				continue
			}
			moduleTime := d.problem.moduleTime(&d.problem.models[s.model].levels[c.level])
			for _, t := range s.members {
				if len(d.candidates[t.module]) == 0 || moduleTime < minTimes[t.module] {
					minTimes[t.module] = moduleTime
				}
				d.candidates[t.module] = append(d.candidates[t.module], candidate{s, c})
			}
		}
	}
	return minTimes
}

// orderCandidates orders the search so that it fails early: of each module the candidates (deployments) with
// the least reduced costs come first, and of the modules those with the fewest candidates. It returns false if
// some module has none: then there is no plan.
func (d *deploymentSearch) orderCandidates() bool {
	for module := range d.candidates {
		if len(d.candidates[module]) == 0 {
			return false
		}
		d.moduleOrder = append(d.moduleOrder, module)
		slices.SortStableFunc(d.candidates[module], func(a, b candidate) int {
			return cmp.Compare(a.deployment.reducedCost, b.deployment.reducedCost)
		})
	}
	slices.SortStableFunc(d.moduleOrder, func(a, b int) int { return len(d.candidates[a]) - len(d.candidates[b]) })
	return true
}

// startBudgets sets the free devices and, by path, the slack of its time budget if every module takes its least time (minTimes), before
// any deployment is chosen. It returns false if a slack is negative: then there is no plan. It also sets minTime in the path uses of each
// module set: the part of the path's budget that the slack counts for the set already.
func (d *deploymentSearch) startBudgets(minTimes []time.Duration) bool {
	d.remainingDevices = append(d.remainingDevices, lists.Map(len(d.problem.pools), func(k int) int { return d.problem.pools[k].count })...)
	for w := range d.layout.paths {
		slack := d.layout.paths[w].budget
		for _, module := range d.layout.paths[w].modules {
			slack -= minTimes[module]
		}
		if d.pathSlack = append(d.pathSlack, slack); slack < 0 {
			return false
		}
	}

	// Compute the least time of each set's modules on each path. It is part of pathSlack already.
	for i := range d.layout.moduleSets {
		s := &d.layout.moduleSets[i]
		for j := range s.pathUses {
			use := &s.pathUses[j]
			use.minTime = 0
			for _, module := range d.layout.paths[use.path].modules {
				if s.modules>>module&1 == 1 {
					use.minTime += minTimes[module]
				}
			}
		}
	}
	return true
}

// priceTolerance returns the tolerance with which prices are compared.
func (d *deploymentSearch) priceTolerance() float64 { return 1e-9 * d.covers.maxCost() }

// serveNextModule serves the first module without a deployment by each of its candidates in turn, and by recursion the modules after it.
// servedModules has a bit for each module that is served. partialPrice is the lower bound plus the reduced costs of the chosen deployments:
// no plan that has them costs less. It returns true if the search is over, because any plan is enough or the steps are used up.
func (d *deploymentSearch) serveNextModule(servedModules uint64, partialPrice float64) bool {
	if bits.OnesCount64(servedModules) == len(d.layout.appOf) {
		return d.keepIfBest()
	}

	// Find the first module that is not served.
	module := 0
	for _, module = range d.moduleOrder {
		if servedModules>>module&1 == 0 {
			break
		}
	}

	// Candidates come by rising reduced cost, so the first one that is too dear ends the loop.
	for _, c := range d.candidates[module] {
		if d.remainingSteps--; d.remainingSteps <= 0 {
			return true
		}
		nextPrice := partialPrice + c.deployment.reducedCost
		if nextPrice > d.maxPrice+d.priceTolerance() {
			return false
		}
		if d.deployedModels[c.set.model] || c.set.modules&servedModules != 0 || !d.fitsRemaining(c) {
			continue
		}
		d.apply(c, 1)
		d.chosen = append(d.chosen, c)
		done := d.serveNextModule(servedModules|c.set.modules, nextPrice)
		d.chosen = d.chosen[:len(d.chosen)-1]
		d.apply(c, -1)
		if done {
			return true
		}
	}
	return false
}

// fitsRemaining returns whether the free devices, the slack of the paths' time budgets and the accuracy floors allow candidate c (a
// module set with one of its deployments) beside those that are chosen.
func (d *deploymentSearch) fitsRemaining(c candidate) bool {
	for k, n := range c.deployment.devices {
		if int(n) > d.remainingDevices[k] {
			return false
		}
	}

	for i := range c.set.pathUses {
		use := &c.set.pathUses[i]
		if d.pathSlack[use.path] < d.slackUse(c, use) {
			return false
		}
	}
	for a, loss := range c.set.accuracyLoss {
		if loss > 0 && d.problem.apps[a].accuracyFloor > 0 && d.accuracyLoss[a]+loss > d.problem.apps[a].accuracyAllowance() {
			return false
		}
	}
	return true
}

// slackUse returns how much of a path's slack candidate c takes by its modules on the path: the time that they take there beyond their
// least times, which pathSlack counts already.
func (d *deploymentSearch) slackUse(c candidate, use *pathUse) time.Duration {
	moduleTime := d.problem.moduleTime(&d.problem.models[c.set.model].levels[c.deployment.level])
	return time.Duration(use.moduleCount)*moduleTime - use.minTime
}

// apply takes the devices, times and accuracy of a candidate (a module set with a deployment) from those that are left, and marks its
// model as deployed, with sign 1 when the search chooses it. With sign -1 it gives them back.
func (d *deploymentSearch) apply(c candidate, sign int) {
	for k, n := range c.deployment.devices {
		d.remainingDevices[k] -= sign * int(n)
	}
	for i := range c.set.pathUses {
		use := &c.set.pathUses[i]
		d.pathSlack[use.path] -= time.Duration(sign) * d.slackUse(c, use)
	}
	for a, loss := range c.set.accuracyLoss {
		d.accuracyLoss[a] += float64(sign) * loss
	}
	d.deployedModels[c.set.model] = sign > 0
}

// keepIfBest is called when every module is served: it stores the chosen deployments as bestSolution if they are the best so far, by the
// least price, then by the fewest devices, and lowers maxPrice to their price. It returns true if the search may end: with stopAtFirst, as
// soon as one solution is stored.
//
// With minimizeShare, maxPrice limits the share of the pools that a solution takes, not its price. A solution that fits the devices takes
// at most all of them, so there is nothing to test or to lower.
func (d *deploymentSearch) keepIfBest() bool {
	s := d.chosenSolution()
	price, n := d.problem.price(s), s.deviceCount()
	if !d.covers.minimizeShare && price > d.maxPrice+d.priceTolerance() {
		return false // serveNextModule tested only a lower bound of the price
	}
	cheaper := price < d.bestPrice-d.priceTolerance()
	asCheap := price <= d.bestPrice+d.priceTolerance()
	if d.bestSolution == nil || cheaper || asCheap && n < d.bestDevices {
		d.bestSolution, d.bestPrice, d.bestDevices = s, price, n
		if !d.covers.minimizeShare {
			d.maxPrice = price
		}
	}
	return d.stopAtFirst
}

// chosenSolution returns the chosen deployments as a solution of the problem.
func (d *deploymentSearch) chosenSolution() *solution {
	s := d.problem.newSolution()
	for _, t := range d.chosen {
		s.level[t.set.model] = t.deployment.level
		for k, n := range t.deployment.devices {
			s.devices[t.set.model][k] = int(n)
		}
		for _, member := range t.set.members {
			s.choice[member.app][member.indexInApp] = member.choice
		}
	}
	return s
}
