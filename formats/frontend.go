package formats

import (
	"math"
	"time"

	"inferplan/formats/document"
)

// FrontEnd is the machine that receives requests, passes them to devices and answers them.
type FrontEnd struct {
	Cores int `json:"cores" check:"cores"` // CPUs that it has for itself
}

// FrontEndOf returns the front end that the cluster names or, if it names none, the machine on which requests were
// measured. It returns nil if neither is known.
func FrontEndOf(c *Cluster, p *Profile) *FrontEnd {
	if c.FrontEnd != nil {
		return c.FrontEnd
	}
	return p.FrontEnd
}

// costReporter is a section whose requests may each use several models, and which states their costs.
type costReporter interface {
	RequestCosts() (overhead, frontEnd document.Micros)
}

// RequestOverhead returns the time that a request takes besides its runs on devices: from the plan's section or,
// if that does not say it, the mean over the models whose profile does.
func (d *Plan) RequestOverhead() time.Duration {
	if s, ok := d.Section.(costReporter); ok {
		if overhead, _ := s.RequestCosts(); overhead > 0 {
			return overhead.D()
		}
	}
	return d.meanOf(func(m *Deployed) document.Micros { return m.RequestUS })
}

// frontEndUse is the part of the front end's CPUs that requests and runs may occupy, by their measured times. Client,
// front end and workers wait for each other, and side by side they take longer than alone: a model with runs of .15 ms,
// on two cores, kept its SLO at a rate at which the CPUs were busy for .83 of the time and these times explain .77, and
// not at a rate 4 % above.
const frontEndUse = .75

// minRequestShare is the least share of the front end that the system's scheduler leaves to requests beside runs, even
// if the devices have all CPUs.
const minRequestShare = .25

// OccupiedTime returns for how long a request that costs so much CPU time takes up the front end.
func (f *FrontEnd) OccupiedTime(cost time.Duration) time.Duration {
	return time.Duration(float64(cost) / (frontEndUse * float64(f.Cores)))
}

// FrontEndTime returns how long a request occupies the front end, whose CPUs handle every request: by the CPU time
// of the request itself, and that of its runs, in batches as planned, on CPU devices of the same machine. It returns 0
// if that is not known.
func (d *Plan) FrontEndTime() time.Duration {
	if d.FrontEnd == nil {
		return 0
	}
	cost := d.RequestCPU()
	if cost > 0 { // without it, the runs alone say nothing
		cost += d.runCPUOnFrontEnd()
	}
	return d.FrontEnd.OccupiedTime(cost)
}

// FrontEndRuns returns, by device kind, which part of the front end a run on such a device occupies on average, and
// the largest share of the front end that all runs together can occupy for long. The front end is the process that
// takes requests in and shares its machine's CPUs with the plan's CPU devices. A device on one of several machines
// counts as that part of one here. The result is nil if nothing is known of requests or runs.
func (d *Plan) FrontEndRuns() (perRun map[string]float64, maxShare float64) {
	if d.FrontEnd == nil || d.RequestCPU() == 0 {
		return nil, 0
	}
	if d.runCPUOnFrontEnd() == 0 {
		return nil, 0
	}

	// Count the CPU threads of the devices of one node.
	perRun, usedCores := map[string]float64{}, frontEndUse*float64(d.FrontEnd.Cores)
	ofDevices := 0.0
	for _, pool := range d.Pools {
		if threads, ok := CPUThreads(pool.Device); ok {
			perRun[pool.Device] = d.computedShare(pool.Device) * float64(threads) / float64(pool.nodes()) / usedCores
			ofDevices += perRun[pool.Device] * float64(pool.Count)
		}
	}

	return perRun, min(ofDevices, 1-minRequestShare)
}

// computedShare returns the share of the time that a run of one request occupies a device in which the device computes:
// mean times also have the way of the command to the device and back, in which its CPUs are free.
func (d *Plan) computedShare(device string) float64 {
	computed, occupied := 0.0, 0.0
	for s := range d.Stages() {
		if s.Device == device && len(s.MeanUS) > 0 {
			computed, occupied = computed+s.Pipeline.RPS*float64(s.InferUS[0]), occupied+s.Pipeline.RPS*float64(s.MeanUS[0])
		}
	}
	if computed == 0 {
		return 1
	}
	return min(1, computed/occupied)
}

// FrontEndRequests returns for how long a request by itself occupies the front end, without its runs: the whole of
// FrontEndTime if no runs are known.
func (d *Plan) FrontEndRequests() time.Duration {
	if perRun, _ := d.FrontEndRuns(); perRun == nil {
		return d.FrontEndTime()
	}
	return d.FrontEnd.OccupiedTime(d.RequestCPU())
}

// nodes returns over how many machines the devices of a pool are spread.
func (p *Pool) nodes() int { return max(1, p.Count/max(1, p.PerNode)) }

// RequestCPU returns the CPU time that a request costs the front end: from the section of the plan or, if that
// does not say it, the average over the models whose profile does.
func (d *Plan) RequestCPU() time.Duration {
	if s, ok := d.Section.(costReporter); ok {
		if _, cost := s.RequestCosts(); cost > 0 {
			return cost.D()
		}
	}
	return d.meanOf(func(m *Deployed) document.Micros { return m.RequestCPUUS })
}

// runCPUOnFrontEnd returns the CPU time of a request's runs on the machine of the front end, which has the CPU
// devices of one node. It returns 0 if a request is not served by exactly one deployment. The result is the mean over
// requests.
func (d *Plan) runCPUOnFrontEnd() time.Duration {
	served := d.ServedModels()
	if len(served) != len(d.Deployment) {
		return 0
	}

	// Sum up the CPU time of runs per second on one node, and the rates of requests.
	cpuTime, rates := 0.0, 0.0
	for i := range d.Deployment {
		m := &d.Deployment[i]
		if served[i].Model != m.Model {
			return 0
		}
		rates += m.RPS()
	}
	for s := range d.Stages() {
		threads, ok := CPUThreads(s.Device)
		pool := document.First(d.Pools, func(p *Pool) bool { return p.Device == s.Device })
		if l := s.Pipeline; ok && pool != nil {
			cpuTime += l.RPS * float64(d.RunUS(l, s.Stage).D()) * float64(threads) / float64(l.Batch*pool.nodes())
		}
	}
	if rates <= 0 {
		return 0
	}
	return time.Duration(cpuTime / rates)
}

// meanOf returns the mean of a figure over the deployments that have it, by their rates.
func (d *Plan) meanOf(figure func(*Deployed) document.Micros) time.Duration {
	return meanKnown(len(d.Deployment), func(i int) (document.Micros, float64) { return figure(&d.Deployment[i]), d.Deployment[i].RPS() })
}

// MeanOfFamily returns the mean of a figure over the models of a family that have it. A request of
// a cascade is one request whichever of them answers, so that rates do not weigh.
func MeanOfFamily(models []*ProfileModel, figure func(*ProfileModel) document.Micros) time.Duration {
	return meanKnown(len(models), func(i int) (document.Micros, float64) { return figure(models[i]), 1 })
}

// meanKnown returns the weighted mean of those of n values that are known (above 0), or 0 if none is.
// valueAndWeight returns the i-th.
func meanKnown(n int, valueAndWeight func(int) (document.Micros, float64)) time.Duration {
	sum, weights := 0.0, 0.0
	for i := range n {
		if value, weight := valueAndWeight(i); value > 0 {
			sum, weights = sum+weight*float64(value.D()), weights+weight
		}
	}
	if sum <= 0 {
		return 0
	}
	return time.Duration(sum / weights)
}

// FrontEndLoad returns the part of the front end that requests occupy at the rates that the plan serves.
func (d *Plan) FrontEndLoad() float64 {
	return d.servedRate() * d.FrontEndTime().Seconds()
}

// servedRate returns the requests/s that the plan serves, of all models.
func (d *Plan) servedRate() float64 {
	rate := 0.0
	for _, s := range d.ServedModels() {
		rate += s.RPS
	}
	return rate
}

// FrontEndRate returns the rate, in requests per second per unit of weight, at which the front end (the process that
// takes requests in) is fully occupied if every model is served in proportion to its weight. It is infinite if
// nothing is known of the front end.
func (d *Plan) FrontEndRate() float64 {
	weights := 0.0
	for _, s := range d.ServedModels() {
		weights += s.Weight
	}
	if occupied := weights * d.FrontEndTime().Seconds(); occupied > 0 {
		return 1 / occupied
	}
	return math.Inf(1)
}

// FrontEndBound returns a rate, in requests/s per unit of weight, that no plan of the same problem can exceed because
// of the front end. A request costs it the CPU time in the model's profile, or nothing if that is not known. If
// several models can answer a request, it costs what the cheapest does. It is infinite if nothing is known of the
// front end.
func (d *Plan) FrontEndBound() float64 {
	if d.FrontEnd == nil || len(d.Deployment) == 0 {
		return math.Inf(1)
	}
	cheapest := time.Duration(math.MaxInt64)
	costs := map[string]time.Duration{}
	for i := range d.Deployment {
		m := &d.Deployment[i]
		costs[m.Model], cheapest = m.RequestCPUUS.D(), min(cheapest, m.RequestCPUUS.D())
	}
	cpuTime := 0.0
	for _, s := range d.ServedModels() {
		cost, single := costs[s.Model]
		if !single {
			cost = cheapest
		}
		cpuTime += s.Weight * cost.Seconds()
	}
	if cpuTime <= 0 {
		return math.Inf(1)
	}
	return float64(d.FrontEnd.Cores) / cpuTime
}
