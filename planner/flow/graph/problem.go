package graph

import (
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
)

// problem is a planning problem as numbers. Rates are in requests per second.
type problem struct {
	apps         []app
	models       []model
	pools        []pool
	batchWait    float64       // batches that a request waits for in every module (option batch-wait)
	maxSharedRun time.Duration // the longest run B of any module that takes turns on devices, see turns.go
}

// pool is a number of devices of one kind.
type pool struct {
	kind  string
	count int
	price float64 // price of one device, in the unit of the objective
	// timeShared says that modules may take turns on the devices.
	timeShared bool
	memory     int64 // bytes of one device. If it is 0, memory is not limited.
}

// app is an application. Its rate is its weight times the rate factor that all applications have in common.
type app struct {
	name          string
	slo           time.Duration
	margin        time.Duration // kept back from the SLO
	weight        float64
	accuracyFloor float64 // the least product of the modules' accuracies. If it is 0, there is no floor.
	modules       []appModule
	paths         [][]int // from the entry to an exit, as indexes of modules
}

// budget returns the time that a path of a request may take: the SLO less the margin.
func (a *app) budget() time.Duration { return a.slo - a.margin }

// appModule is a module of an application. A share of the requests visits it, and one of its choices does
// the task.
type appModule struct {
	name       string
	visitShare float64
	choices    []choice
}

// choice is a model that can do a module's task.
type choice struct {
	model    int
	accuracy float64 // accuracy of the model, from 0 to 1. 0 stands for unknown, which counts as 1.
}

// accuracyLoss returns -ln(accuracy) of a choice, so that the product of accuracies along an application
// becomes a sum, which linear programs can limit. An unknown accuracy counts as 1.
func (c *choice) accuracyLoss() float64 {
	if c.accuracy == 0 {
		return 0
	}
	return -math.Log(c.accuracy)
}

// model is a model that can be deployed, with the levels that it can have.
type model struct {
	name   string
	levels []level // by rising time; each level has a higher rate somewhere than the one before
}

// level is a time limit for the batches of a model, with the best template of each pool within that limit.
type level struct {
	maxTime   time.Duration // no batch takes longer, wherever it runs
	templates []template    // by pool. If the rate is 0, the pool has no template that is fast enough.
	// timeShared says that on time-shared pools the model has parts of the devices' time, not devices of
	// its own.
	timeShared bool
}

// template is a device that is divided into equal shares with a replica of one model in each.
type template struct {
	batch, sharesPerDevice int           // shares per device, which is the number of its replicas
	worstTime              time.Duration // longest time of any batch up to that size
	rate                   float64       // requests per second of all replicas of the device
	memory                 int64         // bytes of one replica
}

// levelsOf returns the levels of a model from its templates (a device in equal shares with a batch size) by pool. A level is a limit on
// the time of batches, with the template of the highest rate in each pool that keeps it; a template of rate 0 says that the pool has
// none. There is one for every worst time of some template; those with the same templates as the level before are left out.
func levelsOf(byPool [][]template) []level {
	var times []time.Duration
	for _, list := range byPool {
		times = append(times, lists.Map(len(list), func(i int) time.Duration { return list[i].worstTime })...)
	}
	slices.Sort(times)
	var levels []level

	// Per time limit, choose the template of the highest rate in each pool.
	for _, maxTime := range slices.Compact(times) {
		l := level{maxTime: maxTime, templates: make([]template, len(byPool))}
		for k, list := range byPool {
			for _, t := range list {
				if t.worstTime <= maxTime && t.rate > l.templates[k].rate {
					l.templates[k] = t
				}
			}
		}
		if n := len(levels); n == 0 || !slices.Equal(levels[n-1].templates, l.templates) {
			levels = append(levels, l)
		}
	}
	return levels
}

// solution says which choice does every module's task, at which level each model runs, and on how many
// devices.
type solution struct {
	choice  [][]int // index of the choice, by application and module
	level   []int   // by model. If a model is not deployed, it is -1.
	devices [][]int // by model and pool
	// timeShares is the part of the devices' time that each model has on time-shared pools, by model and
	// pool, in devices. If no module takes turns, it is nil.
	timeShares [][]float64
}

// newSolution returns a solution in which no model is deployed, and every module has its first choice.
func (p *problem) newSolution() *solution {
	s := &solution{level: slices.Repeat([]int{-1}, len(p.models))}
	s.devices = lists.Map(len(p.models), func(int) []int { return make([]int, len(p.pools)) })
	s.choice = lists.Map(len(p.apps), func(a int) []int { return make([]int, len(p.apps[a].modules)) })
	return s
}

// deviceCount returns the number of all devices of the solution.
func (s *solution) deviceCount() int {
	return lists.Sum(len(s.devices), func(i int) int { return lists.Total(s.devices[i]) })
}

// price returns the price of the devices, in the unit of the objective.
func (p *problem) price(s *solution) float64 {
	total := 0.0
	for u := range s.devices {
		for k, d := range s.devices[u] {
			total += float64(d) * p.pools[k].price
		}
	}
	return total
}

// capacity returns the rate that the devices of model u carry together at its level (the limit on its batch times), in requests per
// second: its own devices and its part of the time of shared ones.
func (p *problem) capacity(s *solution, u int) float64 {
	sum := s.timeSharedRate(p, u)
	for k, d := range s.devices[u] {
		if d > 0 {
			sum += float64(d) * p.models[u].levels[s.level[u]].templates[k].rate
		}
	}
	return sum
}

// modelRates returns, by model, the rate that it has to carry in a solution, in requests per second, if every application has its weight
// as its rate (a rate factor of 1): the sum over the modules that chose it.
func (p *problem) modelRates(s *solution) []float64 {
	rates := make([]float64, len(p.models))
	for a := range p.apps {
		for i := range p.apps[a].modules {
			n := &p.apps[a].modules[i]
			rates[n.choices[s.choice[a][i]].model] += n.visitShare * p.apps[a].weight
		}
	}
	return rates
}

// rateFactor returns the largest factor on the rates of all applications that the devices of a solution carry.
func (p *problem) rateFactor(s *solution) float64 {
	minFactor := math.Inf(1)
	for u, rate := range p.modelRates(s) {
		if rate > 0 {
			minFactor = min(minFactor, p.capacity(s, u)/rate)
		}
	}
	return minFactor
}

// longestPathTime returns the longest time that a path of application a takes, waits included.
func (p *problem) longestPathTime(s *solution, a int) time.Duration {
	return lists.Max(time.Duration(0), len(p.apps[a].paths), func(i int) time.Duration { return p.pathTime(s, a, p.apps[a].paths[i]) })
}

// pathTime returns the longest time that a request takes along one path of modules in a solution: in each it
// waits for a batch and then is in one.
func (p *problem) pathTime(s *solution, a int, path []int) time.Duration {
	sum := time.Duration(0)
	for _, i := range path {
		u := p.apps[a].modules[i].choices[s.choice[a][i]].model
		sum += p.moduleTime(&p.models[u].levels[s.level[u]])
	}
	return sum
}
