package sim

import (
	"slices"
	"time"
)

// fluidRelaxation bounds how many requests of one application any policy could answer in
// time, with the workers that there were and the times of the tables.
//
// Relaxation. A request can occupy a module only within a window: from its arrival plus
// the time of what runs before the module, at batch size 1, to its deadline less the time
// of what runs after it. Every batch costs at least the module's least time per request.
// So for every module and interval, the accepted requests whose windows lie inside take
// at most the time that the workers have in it. All windows move with the arrival, so
// these constraints concern consecutive requests, for all modules at once.
//
// Greedy. Requests are taken in order of arrival. A request is accepted if every module,
// as a fluid that serves first come, first served, keeps its deadlines. This is optimal
// for the relaxation: Take an optimum that agrees with the greedy on a prefix, and let p
// be the next request, accepted by the greedy alone. Let q be the next request that the
// optimum accepts. Every interval that p fills and that contains p also contains q, else
// the prefix with p were infeasible. So q can be exchanged for p.
type fluid struct {
	rate   [][]float64     // requests per second, by module and second; nil for a module that not every request visits
	before []time.Duration // by module: least time of what runs before it
	after  []time.Duration // by module: least time of what runs after it
	free   []time.Duration // by module: when the accepted work is done
	next   []time.Duration // freeAt with the current request
}

// accept returns whether a request that arrives at the given time can be answered within
// the SLO beside those accepted before. If it can, it is accepted.
func (f *fluid) accept(at, slo time.Duration) bool {
	for m := range f.rate {
		if f.rate[m] == nil { // not every request visits the module
			continue
		}
		f.next[m] = f.serve(m, max(f.free[m], at+f.before[m]), at+slo-f.after[m])
		if f.next[m] > at+slo-f.after[m] {
			return false
		}
	}
	copy(f.free, f.next)
	return true
}

// serve returns when the work of one request that begins at start is done on module m. If
// that is after the limit, it returns a time after the limit.
func (f *fluid) serve(m int, from, limit time.Duration) time.Duration {
	work, rates := 1.0, f.rate[m]
	for from <= limit {
		s := int(from / time.Second)
		end := time.Duration(s+1) * time.Second
		rate := rates[min(s, len(rates)-1)]
		if s >= len(rates)-1 {
			end = 1<<63 - 1
		}
		if done := rate * (end - from).Seconds(); done < work {
			work -= done
			from = end
			continue
		}
		return from + time.Duration(work/rate*float64(time.Second))
	}
	return limit + 1
}

// maxGoodRequests returns a bound on the requests of the run that could be answered in
// time. It returns -1 if there are several applications, whose windows differ.
func (f *flowStats) bound() int64 {
	if len(f.own.Apps) != 1 || len(f.sums.Modules[0].Workers) == 0 {
		return -1
	}
	slo := f.l.t.Models[0].SLO
	fl, sum := f.relax(), int64(0)
	for _, at := range f.came {
		if fl.accept(at, slo) && f.l.acc.Counted(at) {
			f.second(at).Bound++
			sum++
		}
	}
	return sum
}

// relaxedProblem builds the relaxation of the run's application.
func (f *flowStats) relax() *fluid {
	app, n := &f.own.Apps[0], int(f.n)
	fl := &fluid{rate: make([][]float64, n), before: make([]time.Duration, n), after: make([]time.Duration, n), free: make([]time.Duration, n), next: make([]time.Duration, n)}

	// Least time of every node that all requests visit.
	one := make([]time.Duration, len(app.Nodes))
	visits := make([]int, n)
	for i := range app.Nodes {
		if nd := &app.Nodes[i]; nd.Always {
			one[i] = f.least(nd.Service)
			visits[nd.Service]++
		}
	}

	// Longest times before and after each node. In app.Order a node comes after its inputs.
	up := make([]time.Duration, len(app.Nodes))
	for _, i := range app.Order {
		nd := &app.Nodes[i]
		for _, e := range nd.In {
			up[i] = max(up[i], up[e.From]+one[e.From])
		}
		if !nd.Always || visits[nd.Service] > 1 { // several visits have different windows; without them the bound is looser
			continue
		}
		down := time.Duration(0)
		for _, path := range nd.Paths {
			sum := time.Duration(0)
			for _, k := range path {
				sum += one[k]
			}
			down = max(down, sum)
		}
		s := nd.Service
		fl.before[s], fl.after[s], fl.rate[s] = up[i], down, f.rates(s)
	}
	f.together(fl, visits)
	return fl
}

// addSharedDevices adds, for modules that share all of their devices, one more constraint:
// a request takes the sum of their least times, between the first of them and the last.
func (f *flowStats) together(fl *fluid, visits []int) {
	done := make([]bool, f.n)
	for m := range done {
		var before, after time.Duration

		// Requests per second that the devices serve, if each visits all modules handled so far.
		var each []float64
		on := f.own.Modules[m].Workers

		// Collect the modules on the same devices. The rates r1 and r2 join to 1 / (1/r1 + 1/r2).
		for o := m; o < len(done); o++ {
			if done[o] || fl.rate[o] == nil || visits[o] != 1 || !slices.Equal(f.own.Modules[o].Workers, on) {
				continue
			}
			done[o] = true
			if each == nil {
				before, after, each = fl.before[o], fl.after[o], slices.Clone(fl.rate[o])
				continue
			}
			before, after = min(before, fl.before[o]), min(after, fl.after[o])
			for s, rate := range fl.rate[o] {
				if sum := each[s] + rate; sum > 0 {
					each[s] *= rate / sum
				}
			}
		}

		// A constraint on one module alone is there already.
		if each != nil && len(f.modules[on[0]]) > 1 {
			fl.before, fl.after, fl.rate = append(fl.before, before), append(fl.after, after), append(fl.rate, each)
			fl.free, fl.next = append(fl.free, 0), append(fl.next, 0)
		}
	}
}

// minTime returns the time of a batch of one on the fastest kind of a service.
func (f *flowStats) least(service int32) time.Duration {
	least, s := time.Duration(0), &f.l.t.Services[service]
	for p := s.FirstPipeline; p < s.FirstPipeline+s.NumPipelines; p++ {
		if d := f.l.t.Stages[f.l.t.Pipelines[p].FirstStage].Infer[0]; least == 0 || d < least {
			least = d
		}
	}
	return least
}

// serviceRates returns how many requests the workers of a service can serve in every second,
// at the batch size with the least time per request. Workers that leave still serve what
// they have, so the workers of the second before count too.
func (f *flowStats) rates(service int32) []float64 {
	most, s := 0.0, &f.l.t.Services[service]
	for p := s.FirstPipeline; p < s.FirstPipeline+s.NumPipelines; p++ {
		for i, d := range f.l.t.Stages[f.l.t.Pipelines[p].FirstStage].Infer {
			most = max(most, float64(i+1)/d.Seconds())
		}
	}
	workers := f.sums.Modules[service].Workers
	out := make([]float64, len(workers))
	for i, n := range workers {
		out[i] = most * float64(max(n, workers[max(0, i-1)]))
	}
	return out
}
