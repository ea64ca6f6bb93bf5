package graph

import (
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
)

// A deployment serves a set of modules by one model, at some level, on some devices. At a given rate only
// those deployments matter of which no device can be spared. All of them are listed here.

// moduleSet is a set of modules that one model can serve together.
type moduleSet struct {
	model        int
	modules      uint64 // bits, by module
	members      []servedModule
	demand       float64 // requests per second at rate factor 1
	pathUses     []pathUse
	accuracyLoss []float64    // by application: the set's loss of the logarithm of accuracy
	deployments  []deployment // at the current rate factor, sorted by level
}

// servedModule is a module with the choice that serves it. The module's index counts the modules of all
// applications, indexInApp those of its own application.
type servedModule struct{ module, app, indexInApp, choice int }

// pathUse says how many modules of a set lie on a path.
type pathUse struct {
	path        int
	moduleCount int           // modules of the set on the path
	minTime     time.Duration // the least time that they can take together, set by deploymentSearch.startBudgets
}

// deployment is a level, and devices that together carry the rate of a module set.
type deployment struct {
	level       int
	devices     []int32 // by pool
	reducedCost float64 // a plan with this deployment costs at least lowerBound + reducedCost
}

// path is a path of an application, with the time that its modules may take together.
type path struct {
	modules []int
	budget  time.Duration
}

// moduleLayout is a problem as modules to serve and module sets to choose from.
type moduleLayout struct {
	problem    *problem
	appOf      []int // by module: its application
	moduleSets []moduleSet
	paths      []path
}

// Larger problems than these are left to the mixed-integer program.
const (
	maxModules     = 64
	maxDeployments = 400_000
)

// moduleLayout returns the problem as deployments see it: the modules of all applications, numbered in a row, their paths, and the module
// sets, which are the sets of modules that one model may serve together. If there are too many modules, or too many choices, to list
// these, it returns nil, and the mixed-integer program is used instead.
func (p *problem) moduleLayout() *moduleLayout {
	layout := &moduleLayout{problem: p}

	// Number the modules of all applications.
	firstModule := make([]int, len(p.apps))
	for a := range p.apps {
		firstModule[a] = len(layout.appOf)
		layout.appOf = append(layout.appOf, slices.Repeat([]int{a}, len(p.apps[a].modules))...)
	}
	if len(layout.appOf) > maxModules {
		return nil
	}

	// Translate the paths to these numbers.
	for a := range p.apps {
		for _, list := range p.apps[a].paths {
			w := path{budget: p.apps[a].budget()}
			w.modules = lists.Map(len(list), func(i int) int { return firstModule[a] + list[i] })
			layout.paths = append(layout.paths, w)
		}
	}

	// List the module sets of each model: what it has to serve, with every subset of what it may serve.
	for u := range p.models {
		required, optional := p.modulesServedBy(u, firstModule)
		// More than 2^6 subsets of a model are too many to list.
		if len(optional) > 6 {
			return nil
		}

		// Bit i of bits says that the set has the i-th optional module.
		for bits := range 1 << len(optional) {
			members := slices.Clone(required)
			for i := range optional {
				if bits>>i&1 == 1 {
					members = append(members, optional[i])
				}
			}
			if len(members) > 0 {
				layout.moduleSets = append(layout.moduleSets, layout.newModuleSet(u, members))
			}
		}
	}
	return layout
}

// modulesServedBy returns the modules that model u has to serve, because they have no other choice of a model, and those that it may
// serve. Modules are numbered over all applications: firstModule has the number of each application's first one.
func (p *problem) modulesServedBy(u int, firstModule []int) (required, optional []servedModule) {
	for a := range p.apps {
		for i := range p.apps[a].modules {
			n := &p.apps[a].modules[i]
			for c := range n.choices {
				switch member := (servedModule{firstModule[a] + i, a, i, c}); {
				case n.choices[c].model != u:
				case len(n.choices) == 1:
					required = append(required, member)
				default:
					optional = append(optional, member)
				}
			}
		}
	}
	return required, optional
}

// newModuleSet returns the set of some modules that model u serves together: with its demand in requests per second at rate factor 1 (a
// factor on all rates), what the model takes from the accuracy of each application, and how many of the modules lie on each path. Bit m
// of s.modules says that module m is a member.
func (y *moduleLayout) newModuleSet(u int, members []servedModule) moduleSet {
	s := moduleSet{model: u, members: members, accuracyLoss: make([]float64, len(y.problem.apps))}
	for _, t := range members {
		n := &y.problem.apps[t.app].modules[t.indexInApp]
		s.modules |= 1 << t.module
		s.demand += n.visitShare * y.problem.apps[t.app].weight
		s.accuracyLoss[t.app] += n.choices[t.choice].accuracyLoss()
	}
	for w := range y.paths {
		n := lists.Sum(len(y.paths[w].modules), func(i int) int { return int(s.modules >> y.paths[w].modules[i] & 1) })
		if n > 0 {
			s.pathUses = append(s.pathUses, pathUse{path: w, moduleCount: n})
		}
	}
	return s
}

// listDeployments lists, in every module set, the deployments that carry its demand at a rate factor: a level (a limit on batch times)
// with devices of which none can be spared. Those of the last call are overwritten. It returns false if there are more than
// maxDeployments.
func (y *moduleLayout) listDeployments(factor float64) bool {
	remaining := maxDeployments
	for i := range y.moduleSets {
		s := &y.moduleSets[i]
		lister := deploymentLister{
			problem: y.problem, model: &y.problem.models[s.model], requiredRate: factor * s.demand * (1 - 1e-9),
			devices: make([]int32, len(y.problem.pools)), maxListed: remaining, listed: s.deployments[:0],
		}
		for lister.level = range lister.model.levels {
			lister.chooseDevices(0, lister.requiredRate, false) // from the first pool on, with no device chosen yet
		}
		// The lister stops once it has one more than it may.
		if s.deployments = lister.listed; len(lister.listed) > remaining {
			return false
		}
		remaining -= len(lister.listed)
	}
	return true
}

// deploymentLister lists the deployments of one module set.
type deploymentLister struct {
	problem      *problem
	model        *model
	requiredRate float64 // requests per second
	level        int
	devices      []int32
	maxListed    int // the search stops when more deployments are listed
	listed       []deployment
}

// chooseDevices lists the deployments at the lister's level (a limit on batch times): recursively, pool by pool from k on, it tries all
// numbers of devices that may carry the missing rate, in requests per second, beside those already chosen in l.devices. anyChosen says
// that some device is chosen already: even a rate of 0 needs one.
func (l *deploymentLister) chooseDevices(k int, missingRate float64, anyChosen bool) {
	if anyChosen && missingRate <= 0 {
		l.addIfMinimal()
		return
	}
	if k == len(l.devices) || len(l.listed) > l.maxListed {
		return
	}

	// If all devices of the remaining pools cannot carry the missing rate, there is nothing to list.
	templates, remainingRate := l.model.levels[l.level].templates, 0.0
	for i := k; i < len(templates); i++ {
		remainingRate += templates[i].rate * float64(l.problem.pools[i].count)
	}
	if remainingRate < missingRate {
		return
	}

	// The last pool needs at least as many devices as carry the missing rate.
	deviceRate := templates[k].rate
	minDevices := 0
	if k == len(l.devices)-1 && deviceRate > 0 {
		minDevices = int(math.Ceil(missingRate/deviceRate - 1e-12))
	}
	for n := minDevices; n <= l.problem.pools[k].count; n++ {
		if n > 0 && deviceRate == 0 {
			break // the pool cannot run the level
		}
		l.devices[k] = int32(n)
		l.chooseDevices(k+1, missingRate-float64(n)*deviceRate, anyChosen || n > 0)
		if float64(n)*deviceRate >= missingRate && n > 0 {
			break // a further device could be spared
		}
	}
	l.devices[k] = 0
}

// addIfMinimal adds the chosen devices at the lister's level as a deployment, unless one of them can be spared or the next lower level
// (limit on batch times) carries the rate with the same devices: then another deployment is at least as good.
func (l *deploymentLister) addIfMinimal() {
	if l.level > 0 && l.carriesRate(l.level-1, -1) {
		return
	}
	for k, n := range l.devices {
		if n > 0 && l.carriesRate(l.level, k) {
			return
		}
	}
	l.listed = append(l.listed, deployment{level: l.level, devices: slices.Clone(l.devices)})
}

// carriesRate returns whether the chosen devices carry the required rate at a level (a limit on batch times).
// One device of sparedPool is left out of the count, to see whether it can be spared; if that is -1, none is.
// If the model cannot run at that level on some of the devices, it returns false.
func (l *deploymentLister) carriesRate(level, sparedPool int) bool {
	rate, anyDevice := 0.0, false
	for k, n := range l.devices {
		r := l.model.levels[level].templates[k].rate
		if k == sparedPool {
			n--
		}
		if n > 0 && r == 0 {
			return false
		}
		rate, anyDevice = rate+float64(n)*r, anyDevice || n > 0
	}
	return anyDevice && rate >= l.requiredRate
}
