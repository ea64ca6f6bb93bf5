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
type fluidRelaxation struct {
	rate       [][]float64     // requests per second, by module and second; nil for a module that not every request visits
	timeBefore []time.Duration // by module: least time of what runs before it
	timeAfter  []time.Duration // by module: least time of what runs after it
	freeAt     []time.Duration // by module: when the accepted work is done
	nextFreeAt []time.Duration // freeAt with the current request
}

// acceptIfInTime reports whether a request that arrives at the given time can be answered within the SLO beside the
// requests accepted before, and accepts it if so. In every module its work starts once the work accepted before is done
// (freeAt) and the modules before it could have ended (timeBefore), and it must end by the deadline less the least time
// of what follows (timeAfter).
func (f *fluidRelaxation) acceptIfInTime(arrivedAt, slo time.Duration) bool {
	for module := range f.rate {
		if f.rate[module] == nil { // not every request visits the module
			continue
		}
		start, limit := max(f.freeAt[module], arrivedAt+f.timeBefore[module]), arrivedAt+slo-f.timeAfter[module]
		f.nextFreeAt[module] = f.workDoneAt(module, start, limit)
		if f.nextFreeAt[module] > limit {
			return false
		}
	}
	copy(f.freeAt, f.nextFreeAt) // the new times become valid only if all modules are in time
	return true
}

// workDoneAt returns when the work of one request that begins at start is done on a module (an index in rate). The
// module serves as many requests per second as rate has for each second of the run; the last one lasts for ever. If
// the work ends after the limit, it returns a time after the limit.
func (f *fluidRelaxation) workDoneAt(module int, start, limit time.Duration) time.Duration {
	remainingRequests, rates := 1.0, f.rate[module]
	for start <= limit {
		// Serve at the rate of this second until the work is done or the second ends.
		second := int(start / time.Second)
		end := time.Duration(second+1) * time.Second
		rate := rates[min(second, len(rates)-1)]
		if second >= len(rates)-1 {
			end = 1<<63 - 1
		}
		if served := rate * (end - start).Seconds(); served < remainingRequests {
			remainingRequests -= served
			start = end
			continue
		}
		return start + time.Duration(remainingRequests/rate*float64(time.Second))
	}
	return limit + 1
}

// maxGoodRequests returns a bound on the requests of the run that any policy could answer in time. It lets a fluid
// relaxation (work flows without batches or queues) accept each arrival in turn. It returns -1, for no bound, if there
// are several applications, whose time windows differ, or if there are no counts of workers (totals.Modules[].Workers,
// the number at the end of every second).
func (f *flowStats) maxGoodRequests() int64 {
	if len(f.tables.Apps) != 1 || len(f.totals.Modules[0].Workers) == 0 {
		return -1
	}
	slo := f.loop.tables.Models[0].SLO

	// Requests outside of the counted time take work, too, so every arrival is offered to the relaxation. Of those
	// accepted, Bound counts the ones of each second, and the returned sum those of the run, if they are in the counted
	// time.
	relaxed, sum := f.relaxedProblem(), int64(0)
	for _, arrivedAt := range f.arrivalTimes {
		if relaxed.acceptIfInTime(arrivedAt, slo) && f.loop.ledger.reportCounts.IsCounted(arrivedAt) {
			f.secondOf(arrivedAt).Bound++
			sum++
		}
	}
	return sum
}

// relaxedProblem returns the fluid relaxation of the run's only application, which bounds how many requests could be in
// time: for each module that every request visits once, how many requests its workers serve in each second, and the
// least times that a request needs before and after it. The rates of other modules stay nil, and they limit nothing,
// which makes the bound looser. Modules that share their devices get one more constraint. No work is accepted yet, so
// all modules are free from 0 on (freeAt; nextFreeAt is scratch).
func (f *flowStats) relaxedProblem() *fluidRelaxation {
	app, services := &f.tables.Apps[0], int(f.services)
	relaxed := &fluidRelaxation{rate: make([][]float64, services), timeBefore: make([]time.Duration, services), timeAfter: make([]time.Duration, services), freeAt: make([]time.Duration, services), nextFreeAt: make([]time.Duration, services)}

	// Least time of every node that all requests visit.
	nodeTime := make([]time.Duration, len(app.Nodes))
	visits := make([]int, services)
	for i := range app.Nodes {
		if node := &app.Nodes[i]; node.AlwaysReached {
			nodeTime[i] = f.minTime(node.Service)
			visits[node.Service]++
		}
	}

	// Longest times before and after each node, of which a request must wait for all. In app.Order a node comes after its
	// inputs. A node's Paths are those behind it, without the node.
	timeBefore := make([]time.Duration, len(app.Nodes))
	for _, i := range app.Order {
		node := &app.Nodes[i]
		for _, edge := range node.Inputs {
			timeBefore[i] = max(timeBefore[i], timeBefore[edge.From]+nodeTime[edge.From])
		}
		if !node.AlwaysReached || visits[node.Service] > 1 { // several visits would have different windows
			continue
		}
		timeAfter := node.LongestTime(func(later int32) time.Duration { return nodeTime[later] })
		service := node.Service
		relaxed.timeBefore[service], relaxed.timeAfter[service], relaxed.rate[service] = timeBefore[i], timeAfter, f.serviceRates(service)
	}
	f.addSharedDevices(relaxed, visits)
	return relaxed
}

// addSharedDevices adds one more constraint to the relaxation for each set of modules that share all of their devices:
// the devices serve a request as one module whose time is the sum of the modules' least times. Its work may begin as
// soon as that of some module of the set may (the least time before), and must end when the last one must (the least
// time after). Each constraint is appended to the lists of the relaxation like a further module. visits[service] is how
// often every request visits the service; those with other than one visit have no constraint of their own and are left
// out.
func (f *flowStats) addSharedDevices(relaxed *fluidRelaxation, visits []int) {
	handled := make([]bool, f.services)
	for module := range handled {
		// The least times that a request needs before and after the modules of this set.
		var timeBefore, timeAfter time.Duration

		// By second of the run: requests per second that the devices serve, if each request visits all modules joined so far.
		var jointRates []float64
		workers := f.tables.Modules[module].Workers

		// Collect the modules on the same devices. The rates r1 and r2 join to 1 / (1/r1 + 1/r2).
		for other := module; other < len(handled); other++ {
			hasConstraint := relaxed.rate[other] != nil && visits[other] == 1
			if handled[other] || !hasConstraint || !slices.Equal(f.tables.Modules[other].Workers, workers) {
				continue
			}
			handled[other] = true
			if jointRates == nil {
				timeBefore, timeAfter, jointRates = relaxed.timeBefore[other], relaxed.timeAfter[other], slices.Clone(relaxed.rate[other])
				continue
			}
			timeBefore, timeAfter = min(timeBefore, relaxed.timeBefore[other]), min(timeAfter, relaxed.timeAfter[other])
			for second, rate := range relaxed.rate[other] {
				if sum := jointRates[second] + rate; sum > 0 {
					jointRates[second] *= rate / sum
				}
			}
		}

		// If the devices run a single module, its own constraint says the same. (If they run others that are left out, the
		// constraint of the one that is not is added once more, which changes nothing.) freeAt and nextFreeAt begin at 0, as no
		// work is accepted yet.
		if jointRates != nil && len(f.servicesByDevice[workers[0]]) > 1 {
			relaxed.rate = append(relaxed.rate, jointRates)
			relaxed.timeBefore = append(relaxed.timeBefore, timeBefore)
			relaxed.timeAfter = append(relaxed.timeAfter, timeAfter)
			relaxed.freeAt = append(relaxed.freeAt, 0)
			relaxed.nextFreeAt = append(relaxed.nextFreeAt, 0)
		}
	}
}

// minTime returns the least time of a service's task: that of a batch of one (Infer[0]) on its fastest kind of device. A
// service has one pipeline, of a single stage, for each kind of device.
func (f *flowStats) minTime(service int32) time.Duration {
	shortest, serviceTable := time.Duration(0), &f.loop.tables.Services[service]
	for pipeline := serviceTable.FirstPipeline; pipeline < serviceTable.FirstPipeline+serviceTable.NumPipelines; pipeline++ {
		if runTime := f.loop.tables.Stages[f.loop.tables.Pipelines[pipeline].FirstStage].Infer[0]; shortest == 0 || runTime < shortest {
			shortest = runTime
		}
	}
	return shortest
}

// serviceRates returns, by second of the run, how many requests per second the workers of a service (devices that run
// it) can serve, at the batch size with the least time per request. Workers that leave still serve what they have, so
// the workers of the second before count too.
func (f *flowStats) serviceRates(service int32) []float64 {
	maxRate, serviceTable := 0.0, &f.loop.tables.Services[service]
	for pipeline := serviceTable.FirstPipeline; pipeline < serviceTable.FirstPipeline+serviceTable.NumPipelines; pipeline++ {
		// Infer has the run times of a stage by batch size - 1.
		for sizeIndex, runTime := range f.loop.tables.Stages[f.loop.tables.Pipelines[pipeline].FirstStage].Infer {
			maxRate = max(maxRate, float64(sizeIndex+1)/runTime.Seconds())
		}
	}
	workers := f.totals.Modules[service].Workers
	rates := make([]float64, len(workers))
	for second, workerCount := range workers {
		rates[second] = maxRate * float64(max(workerCount, workers[max(0, second-1)]))
	}
	return rates
}
