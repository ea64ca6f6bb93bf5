package sim

import (
	"time"

	"inferplan/policy"
	dropping "inferplan/policy/drop"
	flows "inferplan/policy/flow"
)

// FlowResult is what a run of a plan of applications showed beside its report.
// Only requests that are counted in the report count here, but for the times of
// devices.
type FlowResult struct {
	Modules []FlowModule
	Seconds []FlowSecond // by arrival
	// Late requests were answered after their deadline; what ran of them is
	// invalid, as of dropped ones.
	Requests, Good, Late, Dropped int64
	// Bound is how many requests any policy could have answered in time (flow
	// bound, see flowbound.go); -1: it is not known.
	Bound int64
	// DeviceTime is from the decision for a worker to its removal.
	DeviceTime time.Duration
	Seen       *dropping.Seen // nil: the policy does not tell
}

// FlowModule is a module's part of a run.
type FlowModule struct {
	Name     string
	Requests int64         // tasks that came to it
	Dropped  int64         // requests that were dropped because of it
	Running  time.Duration // of its devices, on requests
	Invalid  time.Duration // of that, on requests that were not answered in time
	Consumed float64       // sum over the ended tasks of (end - arrival) / SLO
	Ended    int64
	Runs     []int64 // batches by size
	Workers  []int32 // at the end of every second
}

// FlowSecond is what became of the requests that arrived within a second.
type FlowSecond struct {
	Arrived, Good int32
	Bound         int32   // of them, that the bound answers
	Carried       float64 // requests that the workers carry in it, with the planned batches
}

// flowStats follows the requests of a run.
type flowStats struct {
	l       *loop
	own     *flows.Tables
	n       int32           // services
	spent   []time.Duration // by request and service
	sums    FlowResult
	came    []time.Duration // arrivals
	up      []int32         // workers by service
	modules [][]int32       // by device: the services that run on it
	there   []bool          // by device: it serves
	coming  []bool          // by device: it was decided for and is not loaded
	since   []time.Duration // by device: when it was decided for; -1: it is not there
}

func newFlowStats(l *loop) *flowStats {
	own := flows.Of(l.t)
	if own == nil {
		return nil
	}
	f := &flowStats{l: l, own: own, n: int32(len(l.t.Services)), up: make([]int32, len(l.t.Services)), modules: make([][]int32, len(l.t.Devices)), there: make([]bool, len(l.t.Devices)), coming: make([]bool, len(l.t.Devices)), since: make([]time.Duration, len(l.t.Devices))}
	for s := range l.t.Services {
		f.sums.Modules = append(f.sums.Modules, FlowModule{Name: l.t.Services[s].Name})
		for _, d := range own.Modules[s].Workers {
			f.modules[d], f.since[d] = append(f.modules[d], int32(s)), -1
			if len(l.t.Resident[d]) > 0 {
				f.since[d], f.there[d] = 0, true
				f.up[s]++
			}
		}
	}
	if l.truth == nil && hasWays(own) {
		l.truth = newWays(l.t, own, l.cfg.Seed)
	}
	return f
}

// arrive follows a new request.
func (f *flowStats) arrive(req int32) {
	for int(req+1)*int(f.n) > len(f.spent) {
		f.spent = append(f.spent, 0)
	}
	clear(f.spent[req*f.n : (req+1)*f.n])
	at := f.l.requests[req].arrived
	f.came = append(f.came, at)
	if f.l.acc.Counted(at) {
		f.sums.Requests++
		f.second(at).Arrived++
	}
}

func (f *flowStats) second(at time.Duration) *FlowSecond {
	s := int(at / time.Second)
	for len(f.sums.Seconds) <= s {
		f.sums.Seconds = append(f.sums.Seconds, FlowSecond{})
	}
	return &f.sums.Seconds[s]
}

// ran takes in a batch of a module that took so long.
func (f *flowStats) ran(service int32, took time.Duration, members []int32) {
	m := &f.sums.Modules[service]
	for len(m.Runs) <= len(members) {
		m.Runs = append(m.Runs, 0)
	}
	m.Runs[len(members)]++
	m.Running += took
	each := took / time.Duration(len(members))
	for _, t := range members {
		req := f.l.tasks.List[t].Req
		q := &f.l.requests[req]
		if q.state != waiting { // dropped while it ran
			m.Invalid += each
			continue
		}
		f.spent[req*f.n+service] += each
		m.Consumed += float64(f.l.now-q.arrived) / float64(q.deadline-q.arrived)
		m.Ended++
	}
}

// dropped takes in that a request was refused, because of a task of it or, -1, at
// the entry.
func (f *flowStats) dropped(req, task int32) {
	q := &f.l.requests[req]
	service := f.own.Apps[q.model].Nodes[0].Service
	if task >= 0 && int(task) < len(f.l.tasks.List) && f.l.tasks.List[task].Req == req {
		service = f.l.tasks.List[task].Service
	}
	if f.l.acc.Counted(q.arrived) {
		f.sums.Dropped++
		f.sums.Modules[service].Dropped++
	}
	f.void(req)
}

// void counts what ran of a request as invalid.
func (f *flowStats) void(req int32) {
	for s, d := range f.spent[req*f.n : (req+1)*f.n] {
		f.sums.Modules[s].Invalid += d
	}
}

// answered takes in the end of a request.
func (f *flowStats) answered(req int32) {
	q := &f.l.requests[req]
	late := f.l.now+f.l.cfg.Egress > q.deadline
	if late {
		f.void(req)
	}
	switch {
	case !f.l.acc.Counted(q.arrived):
	case late:
		f.sums.Late++
	default:
		f.sums.Good++
		f.second(q.arrived).Good++
	}
}

// ordered takes in that a worker was decided for.
func (f *flowStats) ordered(device int32) {
	f.coming[device] = true
	if f.since[device] < 0 {
		f.since[device] = f.l.now
	}
}

// change takes in that a worker is there, or gone.
func (f *flowStats) change(device int32, up bool) {
	f.serves(device, up)
	switch {
	case up:
		f.coming[device] = false
	case f.since[device] >= 0:
		f.sums.DeviceTime += f.l.now - f.since[device]
		if f.since[device] = f.l.now; !f.coming[device] {
			f.since[device] = -1
		}
	}
}

// serves counts a worker in or out.
func (f *flowStats) serves(device int32, up bool) {
	f.known(f.l.now)
	if f.there[device] == up {
		return
	}
	f.there[device] = up
	for _, s := range f.modules[device] {
		if up {
			f.up[s]++
		} else {
			f.up[s]--
		}
	}
}

// fault takes in that a device is gone, or back with what the plan put on it. A
// device that is gone is still paid for.
func (f *flowStats) fault(device int32, back bool) {
	if !back || len(f.l.t.Resident[device]) > 0 {
		f.serves(device, back)
	}
}

// known writes down how many workers there were in the seconds before now.
func (f *flowStats) known(now time.Duration) {
	for s := range f.sums.Modules {
		m := &f.sums.Modules[s]
		for len(m.Workers) < int(now/time.Second) {
			m.Workers = append(m.Workers, f.up[s])
		}
	}
}

func (f *flowStats) result(r *Result) {
	f.known(f.l.now + time.Second)
	end := f.l.now
	if f.l.cfg.Duration > 0 {
		end = f.l.cfg.Duration
	}
	for _, at := range f.since {
		if at >= 0 {
			f.sums.DeviceTime += max(0, end-at)
		}
	}
	f.sums.Bound = f.bound()
	if p, ok := policy.As[interface{ Seen() *dropping.Seen }](f.l.cfg.Policy); ok {
		f.sums.Seen = p.Seen()
	}
	for s := range f.sums.Seconds {
		f.sums.Seconds[s].Carried = f.carried(s)
	}
	r.setFlow(&f.sums)
}

// carried is what the workers of a second carry: those of the module, among those
// that every request comes to, that carries least.
func (f *flowStats) carried(second int) float64 {
	least, one := 0.0, false
	for a := range f.own.Apps {
		for i := range f.own.Apps[a].Nodes {
			n := &f.own.Apps[a].Nodes[i]
			if !n.Always {
				continue
			}
			w, p := f.sums.Modules[n.Service].Workers, &f.l.t.Pipelines[f.l.t.Services[n.Service].FirstPipeline]
			rate := float64(w[min(second, len(w)-1)]) * f.own.Modules[n.Service].Parts[0] * float64(p.Batch) / f.l.t.Stages[p.FirstStage].Infer[p.Batch-1].Seconds()
			if !one || rate < least {
				least, one = rate, true
			}
		}
	}
	return least
}
