package sim

import (
	"slices"
	"time"
)

// The bound of a plan of one application: how many requests any policy could
// answer in time, with the workers that there were and the times of the tables.
//
// It relaxes the problem. A request occupies a module only between the earliest
// and the latest moment at which it can be there: its arrival plus what runs
// before, at batch 1, and its deadline less what runs behind. And any batch
// costs at least the module's least time per request. So, for every module and
// interval, the accepted requests whose windows lie inside take at most what its
// workers can do in it. All windows move with the arrival, so that these are
// constraints on consecutive requests, for all modules at once.
//
// The greedy accepts in order of arrival whatever keeps every module's deadline
// in a fluid that serves first come, first served. It is optimal for the
// relaxation. Take an optimum that agrees with it on a prefix, and let the next
// request p be accepted by the greedy alone. With q the optimum's next accepted
// request, every interval that p fills up and that holds p holds q, too, or the
// prefix with p were infeasible. So q can be exchanged for p.
type fluid struct {
	rate   [][]float64 // by module and second: requests per second
	before []time.Duration
	after  []time.Duration
	free   []time.Duration // when the accepted work of a module is done
	next   []time.Duration // the same with the request at hand
}

// accept tells whether a request that arrives then can be answered within the
// SLO beside those accepted before, and accepts it if so.
func (f *fluid) accept(at, slo time.Duration) bool {
	for m := range f.rate {
		if f.rate[m] == nil { // not every request comes here
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

// serve is when one request's work that begins then is done, or past the limit.
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

// bound is how many of the run's requests could be answered in time; -1 where
// there are several applications, whose windows do not move together.
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

// relax makes the fluid of the run's application.
func (f *flowStats) relax() *fluid {
	app, n := &f.own.Apps[0], int(f.n)
	fl := &fluid{rate: make([][]float64, n), before: make([]time.Duration, n), after: make([]time.Duration, n), free: make([]time.Duration, n), next: make([]time.Duration, n)}
	one := make([]time.Duration, len(app.Nodes)) // the least that a node takes of every request
	visits := make([]int, n)
	for i := range app.Nodes {
		if nd := &app.Nodes[i]; nd.Always {
			one[i] = f.least(nd.Service)
			visits[nd.Service]++
		}
	}
	up := make([]time.Duration, len(app.Nodes))
	for _, i := range app.Order {
		nd := &app.Nodes[i]
		for _, e := range nd.In {
			up[i] = max(up[i], up[e.From]+one[e.From])
		}
		if !nd.Always || visits[nd.Service] > 1 { // of several visits the windows differ: left out, which is a looser bound
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

// together adds what modules that share all of their devices in time do there together:
// a request takes the sum of their least times, between the first of them and the last.
func (f *flowStats) together(fl *fluid, visits []int) {
	done := make([]bool, f.n)
	for m := range done {
		var before, after time.Duration
		var each []float64 // of a request and a device, in every second
		on := f.own.Modules[m].Workers
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
					each[s] *= rate / sum // 1 / (1/each + 1/rate)
				}
			}
		}
		if each != nil && len(f.modules[on[0]]) > 1 {
			fl.before, fl.after, fl.rate = append(fl.before, before), append(fl.after, after), append(fl.rate, each)
			fl.free, fl.next = append(fl.free, 0), append(fl.next, 0)
		}
	}
}

// least is the time of a batch of one on the fastest kind of a service.
func (f *flowStats) least(service int32) time.Duration {
	least, s := time.Duration(0), &f.l.t.Services[service]
	for p := s.FirstPipeline; p < s.FirstPipeline+s.NumPipelines; p++ {
		if d := f.l.t.Stages[f.l.t.Pipelines[p].FirstStage].Infer[0]; least == 0 || d < least {
			least = d
		}
	}
	return least
}

// rates is what the workers of a service can do in every second, with the batch
// of the least time per request. Workers that go serve what they have, so those
// of the second before count.
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
