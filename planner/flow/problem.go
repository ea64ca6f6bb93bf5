package flow

import (
	"math"
	"slices"
	"time"
)

// problem is a planning problem as numbers. Rates are in requests per second.
type problem struct {
	apps    []app
	models  []model
	pools   []pool
	longest time.Duration // the longest run B of any module that takes turns on devices, see turns.go
}

// pool is a number of devices of one kind.
type pool struct {
	kind  string
	count int
	price float64 // price of one device, in the unit of the objective
	// timeShared says that modules may take turns on the devices.
	time   bool
	memory int64 // bytes of one device. If it is 0, memory is not limited.
}

// app is an application. Its rate is its weight times the rate factor that all applications have in common.
type app struct {
	name   string
	slo    time.Duration
	margin time.Duration // kept back from the SLO
	weight float64
	floor  float64 // the least product of the modules' accuracies. If it is 0, there is no floor.
	nodes  []node
	paths  [][]int // from the entry to an exit, as indexes of modules
}

// budget returns the time that a path of a request may take: the SLO less the margin.
func (a *app) budget() time.Duration { return a.slo - a.margin }

// appModule is a module of an application. A share of the requests visits it, and one of its choices does
// the task.
type node struct {
	name   string
	chance float64
	of     []choice
}

// choice is a model that can do a module's task.
type choice struct {
	model    int
	accuracy float64 // accuracy of the model, from 0 to 1. 0 stands for unknown, which counts as 1.
}

// accuracyLoss returns -ln(accuracy): what the choice takes from the logarithm of the application's
// accuracy.
func (c *choice) loss() float64 {
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
	most time.Duration // no batch takes longer, wherever it runs
	best []template    // by pool. If the rate is 0, the pool has no template that is fast enough.
	// timeShared says that on time-shared pools the model has parts of the devices' time, not devices of
	// its own.
	turns bool
}

// template is a device that is divided into equal shares with a replica of one model in each.
type template struct {
	batch, share int           // shares per device, which is the number of its replicas
	infer        time.Duration // time of a batch of the planned size
	worst        time.Duration // longest time of any batch up to that size
	rate         float64       // requests per second of all replicas of the device
	memory       int64         // bytes of one replica
}

// batchTimesPerModule is how often a batch's time counts in each module. A request waits for the batch that
// runs, then is in one itself (PARD, section 4.2).
const waiting = 2

// levelsOf returns a level for every worst time of some template, with the fastest-serving template of each
// pool that takes no longer. It leaves out levels that have the same templates as the level before.
func levelsOf(byPool [][]template) []level {
	var times []time.Duration
	for _, list := range byPool {
		for _, t := range list {
			times = append(times, t.worst)
		}
	}
	slices.Sort(times)
	var out []level

	// Per time limit, choose the template of the highest rate in each pool.
	for _, most := range slices.Compact(times) {
		l := level{most: most, best: make([]template, len(byPool))}
		for k, list := range byPool {
			for _, t := range list {
				if t.worst <= most && t.rate > l.best[k].rate {
					l.best[k] = t
				}
			}
		}
		if n := len(out); n == 0 || !slices.Equal(out[n-1].best, l.best) {
			out = append(out, l)
		}
	}
	return out
}

// solution says which choice does every module's task, at which level each model runs, and on how many
// devices.
type picked struct {
	choice  [][]int // index of the choice, by application and module
	level   []int   // by model. If a model is not deployed, it is -1.
	devices [][]int // by model and pool
	// timeShares is the part of the devices' time that each model has on time-shared pools, by model and
	// pool, in devices. If no module takes turns, it is nil.
	time [][]float64
}

// deviceCount returns the number of all devices of the solution.
func (s *picked) used() int {
	n := 0
	for _, list := range s.devices {
		for _, d := range list {
			n += d
		}
	}
	return n
}

// price returns the price of the devices, in the unit of the objective.
func (p *problem) price(s *picked) float64 {
	sum := 0.0
	for u := range s.devices {
		for k, d := range s.devices[u] {
			sum += float64(d) * p.pools[k].price
		}
	}
	return sum
}

// capacity returns the rate that the devices of model u carry, in requests per second.
func (p *problem) capacity(s *picked, u int) float64 {
	sum := s.carriedInTurns(p, u)
	for k, d := range s.devices[u] {
		if d > 0 {
			sum += float64(d) * p.models[u].levels[s.level[u]].best[k].rate
		}
	}
	return sum
}

// modelRates returns the rate that each model has to carry if the rate factor is 1, so that every
// application has its weight as its rate.
func (p *problem) asked(s *picked) []float64 {
	out := make([]float64, len(p.models))
	for a := range p.apps {
		for i := range p.apps[a].nodes {
			n := &p.apps[a].nodes[i]
			out[n.of[s.choice[a][i]].model] += n.chance * p.apps[a].weight
		}
	}
	return out
}

// rateFactor returns the largest rate factor that the devices carry.
func (p *problem) factor(s *picked) float64 {
	least := math.Inf(1)
	for u, rate := range p.asked(s) {
		if rate > 0 {
			least = min(least, p.capacity(s, u)/rate)
		}
	}
	return least
}

// longestPathTime returns the longest time that a path of application a takes, waits included.
func (p *problem) took(s *picked, a int) time.Duration {
	most := time.Duration(0)
	for _, path := range p.apps[a].paths {
		most = max(most, p.along(s, a, path))
	}
	return most
}

// pathTime returns the time that one path takes, waits included.
func (p *problem) along(s *picked, a int, path []int) time.Duration {
	sum := time.Duration(0)
	for _, i := range path {
		u := p.apps[a].nodes[i].of[s.choice[a][i]].model
		sum += p.step(&p.models[u].levels[s.level[u]])
	}
	return sum
}
