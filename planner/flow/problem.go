package flow

import (
	"math"
	"slices"
	"time"
)

// problem is what is to be planned. Rates are in requests per second.
type problem struct {
	apps    []app
	models  []model
	pools   []pool
	longest time.Duration // run of any module in turns, see turns.go
}

type pool struct {
	kind  string
	count int
	price float64 // of a device, by the objective
	// time says that modules may take turns on the devices.
	time   bool
	memory int64 // of a device; 0: not limited
}

// app is an application: its rate is the common factor of all rates times the weight.
type app struct {
	name   string
	slo    time.Duration
	margin time.Duration
	weight float64
	floor  float64 // of the product of accuracies; 0: none
	nodes  []node
	paths  [][]int // of nodes, from the entry to an end
}

// budget is what the path of a request may take.
func (a *app) budget() time.Duration { return a.slo - a.margin }

// node is a module: a request comes to it with a probability, and one of the
// choices does its task.
type node struct {
	name   string
	chance float64
	of     []choice
}

type choice struct {
	model    int
	accuracy float64 // 0: not known, taken as 1
}

// loss is what a choice takes from the logarithm of the accuracy.
func (c *choice) loss() float64 {
	if c.accuracy == 0 {
		return 0
	}
	return -math.Log(c.accuracy)
}

// model is something that can be deployed. A level is a time that its batches
// take at most, wherever they run.
type model struct {
	name   string
	levels []level // by rising time; each can do more than the one before
}

type level struct {
	most time.Duration
	best []template // by pool; rate 0: nothing there is so fast
	// turns says that the model has parts of devices' time where pools are shared in time.
	turns bool
}

// template is a device with equal replicas of a model.
type template struct {
	batch, share int
	infer        time.Duration // of a planned batch
	worst        time.Duration // of any batch up to that
	rate         float64       // of all replicas of the device
	memory       int64         // of a replica
}

// waiting is how often a batch's time counts in each module: a request waits for
// the batch that runs, then is in one itself (PARD, section 4.2).
const waiting = 2

// levelsOf keeps, for every time that some template takes, the best template of
// each pool that takes no longer. Levels that can do no more than a faster one
// are left out.
func levelsOf(byPool [][]template) []level {
	var times []time.Duration
	for _, list := range byPool {
		for _, t := range list {
			times = append(times, t.worst)
		}
	}
	slices.Sort(times)
	var out []level
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

// picked is a solution: what every module runs, and on how many devices.
type picked struct {
	choice  [][]int // by application and module
	level   []int   // by model; -1: not deployed
	devices [][]int // by model and pool
	// time is the parts of devices' time that models in turns have, by model and pool, in
	// devices; nil: no module takes turns.
	time [][]float64
}

// used is the number of devices.
func (s *picked) used() int {
	n := 0
	for _, list := range s.devices {
		for _, d := range list {
			n += d
		}
	}
	return n
}

// price is what the devices cost by the objective.
func (p *problem) price(s *picked) float64 {
	sum := 0.0
	for u := range s.devices {
		for k, d := range s.devices[u] {
			sum += float64(d) * p.pools[k].price
		}
	}
	return sum
}

// capacity is the rate that a model's devices carry.
func (p *problem) capacity(s *picked, u int) float64 {
	sum := s.carriedInTurns(p, u)
	for k, d := range s.devices[u] {
		if d > 0 {
			sum += float64(d) * p.models[u].levels[s.level[u]].best[k].rate
		}
	}
	return sum
}

// asked is the rate of every model where each application has its weight as rate.
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

// factor is the largest common factor of the rates that the devices carry.
func (p *problem) factor(s *picked) float64 {
	least := math.Inf(1)
	for u, rate := range p.asked(s) {
		if rate > 0 {
			least = min(least, p.capacity(s, u)/rate)
		}
	}
	return least
}

// took is the longest that a path of an application takes, waits included.
func (p *problem) took(s *picked, a int) time.Duration {
	most := time.Duration(0)
	for _, path := range p.apps[a].paths {
		most = max(most, p.along(s, a, path))
	}
	return most
}

// along is what a path takes.
func (p *problem) along(s *picked, a int, path []int) time.Duration {
	sum := time.Duration(0)
	for _, i := range path {
		u := p.apps[a].nodes[i].of[s.choice[a][i]].model
		sum += p.step(&p.models[u].levels[s.level[u]])
	}
	return sum
}
