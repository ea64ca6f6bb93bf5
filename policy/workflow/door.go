package workflow

import (
	"math"
	"slices"

	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// admission decides at the entry which requests are admitted. It admits a request if all admitted requests can still be
// in time with it. For every request, the device time owed to requests with earlier deadlines must fit into a share of
// what the devices can do until the request's own tasks must begin.
//
// The time that a request owes is that of its revealed tasks that wait, plus the mean time of what followed its latest
// task in requests that have ended. It is counted as device time in planned batches. Devices that several services share
// are one resource with one backlog.
//
// The share adapts to the requests that end late: batches are not always full, loads take time, and work is not spread
// evenly.
type door struct {
	*cluster
	table     *predict.Table
	resources []resource
	uses      [][]int32 // by service: the resources in which its work counts
	apps      []traits  // by application
	line      []int32   // admitted open requests, in the order of their deadlines
	sums      []float64 // scratch
	sorted    []int64   // scratch
}

// resource is a set of devices, with the work that only these devices can do.
type resource struct {
	places []int32
	in     []bool  // by place: whether it belongs to the set
	each   []int64 // by service: device time in ns of a task in a planned batch; 0 if others run it, too
	owed   int64   // device time in ns that admitted requests need
	busy   int64   // scratch: sum of the times at which its devices become free
	latest int64   // scratch: the latest of these times
	up     int64   // scratch: number of devices that are up
}

// appStats holds the statistics that admission keeps of an application.
type traits struct {
	behind []mean  // by token: device time of what followed it, by resource
	all    mean    // device time of a request, by resource
	chains []int64 // longest chains of task times of requests that ended lately
	count  int     // number of chains seen so far
	tail   int64   // quantile of chainTimes: time that a request needs at the end
	share  float64 // part of the device time before a deadline that backlogs may fill
	ended  float64 // requests that ended since the share was set
	late   float64 // those of them that were late
	full   bool    // a request was refused since the share was set
	holds  int64   // the share is not changed before then
	claim
}

// resourceMean is a weighted mean of device times, by resource.
type mean struct {
	n   float64
	sum []float64
}

const (
	// maxResources bounds the number of resources.
	mostResources = 64
	// maxSamples is the weight of a mean at most; then later requests count more.
	mostSamples = 2000
	// maxChains is the number of chains that a quantile is taken over, and chainQuantileLevel its level.
	mostChains = 128
	tailAt     = .9
	// A backlog share begins at initialShare. It grows by shareGrowth while at most half of maxLateShare of the
	// admitted requests end late, and shrinks if more than maxLateShare do.
	firstShare = .8
	leastShare = .05
	mostShare  = 2
	shareGrows = 1.03
	lateShare  = .01
	// endsPerUpdate is the number of ended requests after which a share may change.
	enoughEnds = 100
)

// newAdmission returns admission for a cluster. If the options do not ask for admission, it admits every request.
func newDoor(c *cluster) *door {
	g := &door{cluster: c}
	if !c.opt.Admit {
		return g
	}
	f := c.fleet

	// Resources are the sets of devices that run a service, and the unions of such sets.
	for s := range f.services {
		in := make([]bool, len(f.ids))
		for place := range f.ids {
			in[place] = f.runs(int32(s), int32(place))
		}
		g.addResource(in)
	}
	for i := 0; i < len(g.resources); i++ {
		for k := range i {
			in := slices.Clone(g.resources[i].in)
			for place, is := range g.resources[k].in {
				in[place] = in[place] || is
			}
			g.addResource(in)
		}
	}

	// The work of a service counts in every resource that holds all of the service's devices.
	g.uses = make([][]int32, len(f.services))
	for r := range g.resources {
		x := &g.resources[r]
		x.each = make([]int64, len(f.services))
		for s := range f.services {
			if x.each[s] = g.eachOn(x, int32(s)); x.each[s] > 0 {
				g.uses[s] = append(g.uses[s], int32(r))
			}
		}
	}
	g.apps, g.sums = make([]traits, len(f.t.Models)), make([]float64, len(g.resources))
	for i := range g.apps {
		a := &g.apps[i]
		a.share, a.claim = firstShare, newClaim(f.t.Models[i].RPS)
	}
	return g
}

// addResource adds a set of devices as a resource. It does nothing if the set is empty or known, or if there are
// maxResources already.
func (g *door) addResource(in []bool) {
	if len(g.resources) >= mostResources || slices.ContainsFunc(g.resources, func(x resource) bool { return slices.Equal(x.in, in) }) {
		return
	}
	x := resource{in: in}
	for place, is := range in {
		if is {
			x.places = append(x.places, int32(place))
		}
	}
	if len(x.places) > 0 {
		g.resources = append(g.resources, x)
	}
}

// taskTimeOn returns the device time in ns of a resource that a task of a service needs in a planned batch. If devices
// outside the resource run the service, too, it returns 0.
func (g *door) eachOn(x *resource, s int32) int64 {
	rate := 0.0
	for place := range g.fleet.ids {
		on := g.fleet.on(s, int32(place))
		if on.times == nil {
			continue
		}
		if !x.in[place] {
			return 0
		}
		rate += float64(on.most) / float64(on.times[on.most-1])
	}
	if rate == 0 {
		return 0
	}
	return max(1, int64(float64(len(x.places))/rate))
}

// admit returns true if a request may come in, and adds it to the admitted requests. Otherwise retryAt is when a request
// that arrives then is expected to fit.
func (g *door) admits(now int64, req int32) (in bool, again int64) {
	if !g.opt.Admit {
		return true, 0
	}
	q := &g.requests[req]
	app := &g.apps[q.model]
	q.owes = slices.Grow(q.owes[:0], len(g.resources))[:len(g.resources)]

	// Find the position by deadline.
	at := len(g.line)
	for at > 0 && g.requests[g.line[at-1]].deadline > q.deadline {
		at--
	}

	// Every resource must have time left for it and for the requests behind it.
	for r := range g.resources {
		q.owes[r] = app.all.of(r)
		if late := g.excess(now, r, at, q); late > 0 {
			if again < now+late {
				again, app.shortage = now+late, int32(r)
			}
			app.full, app.until = true, q.deadline
		}
	}
	if again > 0 {
		return false, again
	}

	// Applications that are short of a resource which it needs come first.
	if lead := g.lead(now, q); lead > 0 {
		return false, now + lead
	}
	app.virtual, app.shortage = app.virtual+app.gap, -1
	g.count(q, 1)
	g.line = slices.Insert(g.line, at, req)
	q.admitted = true
	return true, 0
}

// delayUntilFit returns by how many ns later a resource would have time for a request at a position of the admitted
// ones, and for all requests behind it. If there is time now, it returns 0. A request that shares a resource with no
// other one always fits.
//
//	earlierOwed <= backlogShare · deviceTimeUntil(deadline - chainQuantile)      for each of these requests
func (g *door) excess(now int64, r, at int, q *request) (late int64) {
	x := &g.resources[r]
	if q.owes[r] == 0 || x.owed <= 0 {
		return 0
	}
	g.free(now, x)
	owed := x.owed + q.owes[r]
	for i := len(g.line); i >= at; i-- {
		o := q
		if i > at {
			o = &g.requests[g.line[i-1]]
		}
		app := &g.apps[o.model]
		if o.owes[r] == 0 { // it needs nothing here
			continue
		}
		before := owed - o.owes[r]
		if over := float64(before) - app.share*float64(g.room(now, x, o.deadline-app.tail)); before > 0 && over > 0 {
			late = max(late, 1, int64(over/((1+app.share)*float64(max(1, x.up)))))
		}
		if i > at {
			owed -= o.owes[r]
		}
	}
	return late
}

// updateFreeTimes computes when the devices of a resource become free.
func (g *door) free(now int64, x *resource) {
	x.busy, x.latest, x.up = 0, now, 0
	for _, place := range x.places {
		if at := g.freeAt(now, place); at < never {
			x.busy, x.latest, x.up = x.busy+at, max(x.latest, at), x.up+1
		}
	}
}

// deviceFreeAt returns when a device has finished what it runs. If the device is down, it returns farFuture. Running
// sequences of a language model count as if the device did what remains of them at its full batch, and nothing else.
func (g *door) freeAt(now int64, place int32) int64 {
	d := &g.devices[place]
	switch q := g.sequences(); {
	case d.down:
		return never
	case !d.busy:
		return now
	case q.is(d.service):
		at, n := now, int32(len(d.batch))
		on := g.fleet.on(d.service, place)
		for _, id := range d.batch {
			k := &g.tasks[id]
			left := k.left - float64(now-d.seen)/float64(q.fleet.cost(k.service, place, n, k.work))
			at += int64(max(0, left) * float64(scaled(on.times[on.most-1], k.work)) / float64(on.most))
		}
		return at
	}
	return max(now, d.ends)
}

// deviceTimeUntil returns the device time in ns that a resource offers up to a deadline.
func (g *door) room(now int64, x *resource, deadline int64) int64 {
	if deadline >= x.latest {
		return x.up*deadline - x.busy
	}
	sum := int64(0)
	for _, place := range x.places {
		sum += max(0, deadline-g.freeAt(now, place))
	}
	return sum
}

// updateOwedTime computes anew the device time that a request owes, after a segment of it was revealed: its waiting
// tasks, and the mean of what followed its latest token.
func (g *door) revealed(q *request) {
	if !q.admitted {
		return
	}
	g.count(q, -1)
	clear(q.owes)
	for _, id := range q.tasks {
		if k := &g.tasks[id]; k.state == known || k.state == queued {
			for _, r := range g.uses[k.service] {
				q.owes[r] += scaled(g.resources[r].each[k.service], k.work)
			}
		}
	}
	token := q.path[len(q.path)-1]
	if list := g.apps[q.model].behind; int(token) < len(list) {
		for r := range q.owes {
			q.owes[r] += list[token].of(r)
		}
	}
	g.count(q, 1)
}

// addOwedTime adds the time that a request owes to the resources (sign 1), or subtracts it (-1).
func (g *door) count(q *request, sign int64) {
	for r, owes := range q.owes {
		g.resources[r].owed += sign * owes
	}
}

// settleOwedTime subtracts the time of a task that starts from what its request owes (sign 1), or adds that of a task
// that waits again (-1).
func (g *door) move(k *task, sign int64) {
	if k.req < 0 || !g.requests[k.req].admitted {
		return
	}
	q := &g.requests[k.req]
	for _, r := range g.uses[k.service] {
		w := sign * scaled(g.resources[r].each[k.service], k.work)
		q.owes[r] -= w
		g.resources[r].owed -= w
	}
}

// recordAnswer removes a request that has been answered from the admitted ones, and learns from it.
func (g *door) answered(now int64, req int32) {
	q := &g.requests[req]
	if !q.admitted {
		return
	}

	// The longest chain of task times, in planned batches.
	chain := int64(0)
	for _, id := range q.tasks {
		k := &g.tasks[id]
		k.soonest = 0
		for _, in := range k.inputs {
			if in >= 0 {
				k.soonest = max(k.soonest, g.tasks[in].soonest)
			}
		}
		k.soonest += g.step(k.service, k.work)
		chain = max(chain, k.soonest)
	}
	g.learn(q.model, q.path, chain, 1)
	g.leave(req)
	g.judge(now, q, now > q.deadline)
}

// removeRequest removes a request from the admitted ones.
func (g *door) leave(req int32) {
	q := &g.requests[req]
	if !q.admitted {
		return
	}
	g.count(q, -1)
	q.admitted = false
	at, _ := slices.BinarySearchFunc(g.line, q.deadline, func(o int32, deadline int64) int {
		return int(max(-1, min(1, g.requests[o].deadline-deadline)))
	})
	at += slices.Index(g.line[at:], req)
	g.line = slices.Delete(g.line, at, at+1)
}

// adjustShare counts an admitted request that has ended, late or in time. After endsPerUpdate of them the share of its
// application grows if few were late and some were refused, and shrinks if many were late.
func (g *door) judge(now int64, q *request, late bool) {
	a := &g.apps[q.model]
	if a.ended++; late {
		a.late++
	}
	if a.ended < enoughEnds || now < a.holds {
		return
	}
	share := a.late / a.ended
	switch {
	case share > lateShare:
		a.share = max(leastShare, a.share*max(.7, 1-share))
	case a.full && share <= lateShare/2:
		a.share = min(mostShare, a.share*shareGrows)
	}
	a.ended, a.late, a.full, a.holds = 0, 0, false, now+q.deadline-q.arrived
}

// plannedTaskTime returns the time of a task in a full planned batch, on the first kind of device that runs it.
func (g *door) step(s int32, work int64) int64 {
	sv := &g.fleet.services[s]
	i := slices.IndexFunc(sv.by, func(on onKind) bool { return on.times != nil })
	if i < 0 {
		return 0
	}
	return scaled(sv.by[i].times[sv.by[i].most-1], work)
}

// learnRecordedPath learns from a recorded path that a share of the requests took.
func (g *door) learnWay(app int32, path []int32, w *flow.Way, share float64) {
	ends, chain := make([]int64, len(w.Tasks)), int64(0)
	for i := range w.Tasks {
		t := &w.Tasks[i]
		for _, back := range t.Reads {
			if back > 0 && int(back) <= i {
				ends[i] = max(ends[i], ends[i-int(back)])
			}
		}
		ends[i] += g.step(t.Service, workOf(t.Work))
		chain = max(chain, ends[i])
	}
	g.learn(app, path, chain, share*mostChains/2)
}

// learnTokens counts a path of tokens that `count` requests took, with their longest chain of task times.
func (g *door) learn(app int32, path []int32, chain int64, times float64) {
	a := &g.apps[app]
	clear(g.sums)
	for _, token := range slices.Backward(path) {
		for int(token) >= len(a.behind) {
			a.behind = append(a.behind, mean{})
		}
		a.behind[token].add(g.sums, times)
		t := g.table.Token(token)
		for _, r := range g.uses[t.Service] {
			g.sums[r] += float64(scaled(g.resources[r].each[t.Service], workOf(t.Work)))
		}
	}

	// Keep the latest chains in a ring, and their quantile.
	a.all.add(g.sums, times)
	for range int(math.Ceil(times)) {
		if len(a.chains) < mostChains {
			a.chains = append(a.chains, chain)
		} else {
			a.chains[a.count%mostChains] = chain
		}
		a.count++
	}
	if a.count%16 == 1 || a.count < 16 || times > 1 {
		g.sorted = append(g.sorted[:0], a.chains...)
		slices.Sort(g.sorted)
		a.tail = g.sorted[int(tailAt*float64(len(g.sorted)))]
	}
}

// meanOf returns the mean for a resource. Without samples it returns 0.
func (m *mean) of(r int) int64 {
	if m.n == 0 {
		return 0
	}
	return int64(m.sum[r] / m.n)
}

// addSamples adds `count` samples of the same values. Beyond maxSamples, older samples lose weight.
func (m *mean) add(x []float64, times float64) {
	if m.sum == nil {
		m.sum = make([]float64, len(x))
	}
	if m.n+times > mostSamples {
		keep := max(0, mostSamples-times) / (m.n + times)
		for r := range m.sum {
			m.sum[r] *= keep
		}
		m.n *= keep
	}
	for r := range x {
		m.sum[r] += times * x[r]
	}
	m.n += times
}
