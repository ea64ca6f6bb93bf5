package workflow

import (
	"math"
	"slices"

	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// door is admission at the entry. A request comes in while all that was admitted can
// still be in time with it: for every request, what those with earlier deadlines still ask
// for has to fit into a share of what their devices can do until its own tasks must begin.
//
// What a request asks for is what is revealed of it and waits, and the mean of what came
// behind its latest task in requests that have ended. It is device time in planned
// batches. Devices that services share are one resource with one backlog.
//
// The share follows what happens. Batches are not always full, loads take time, and work
// is not spread evenly.
type door struct {
	*cluster
	table     *predict.Table
	resources []resource
	uses      [][]int32 // by service: the resources that its work counts in
	apps      []traits  // by application
	line      []int32   // open requests in the order of their deadlines
	sums      []float64 // scratch
	sorted    []int64   // scratch
}

// resource is a set of devices with the work that no other device can do.
type resource struct {
	places []int32
	in     []bool  // by place
	each   []int64 // by service: device time of a task in a planned batch
	owed   int64   // device time that open requests ask for
	busy   int64   // scratch: sum of when its devices are free
	latest int64   // scratch: the last of them
	up     int64   // scratch: how many there are
}

// traits are what is known of an application.
type traits struct {
	behind []mean  // by token: what came behind it; by resource
	all    mean    // of a request
	chains []int64 // of requests that ended lately: their longest chains of tasks
	count  int     // of chains so far
	tail   int64   // quantile of chains
	share  float64 // of the time before a deadline that backlogs may take up
	ended  float64 // requests since the share was set
	late   float64 // of those
	full   bool    // requests were refused since then
	holds  int64   // the share holds up to then at least
	claim
}

// mean is a mean by resource.
type mean struct {
	n   float64
	sum []float64
}

const (
	// mostResources bounds the unions of devices that are looked at.
	mostResources = 64
	// mostSamples is how many requests a mean is of; later ones count more.
	mostSamples = 2000
	// mostChains is how many chains a quantile is of, and tailAt the quantile.
	mostChains = 128
	tailAt     = .9
	// A share begins at firstShare. It grows by shareGrows while no more than half of
	// lateShare end late of those admitted, and shrinks where more than lateShare do.
	firstShare = .8
	leastShare = .05
	mostShare  = 2
	shareGrows = 1.03
	lateShare  = .01
	// enoughEnds is how many ends a share is judged by.
	enoughEnds = 100
)

func newDoor(c *cluster) *door {
	g := &door{cluster: c}
	if !c.opt.Admit {
		return g
	}
	f := c.fleet
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

// addResource adds a set of devices.
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

// eachOn is what a task of a service takes of a resource; 0: other devices run it, too.
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

// admits returns true if a request may come in, and puts it into the line. If not, again is
// when one that comes then is expected to have room.
func (g *door) admits(now int64, req int32) (in bool, again int64) {
	if !g.opt.Admit {
		return true, 0
	}
	q := &g.requests[req]
	app := &g.apps[q.model]
	q.owes = slices.Grow(q.owes[:0], len(g.resources))[:len(g.resources)]
	at := len(g.line)
	for at > 0 && g.requests[g.line[at-1]].deadline > q.deadline {
		at--
	}
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
	if lead := g.lead(now, q); lead > 0 {
		return false, now + lead
	}
	app.virtual, app.shortage = app.virtual+app.gap, -1
	g.count(q, 1)
	g.line = slices.Insert(g.line, at, req)
	q.admitted = true
	return true, 0
}

// excess is how much later there would be room in a resource for a request that would
// stand at a place of the line, and for all behind it; 0: there is room. A request that
// shares it with nobody always has room.
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
		if o.owes[r] == 0 { // it asks for nothing here
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

// free works out when the devices of a resource are free.
func (g *door) free(now int64, x *resource) {
	x.busy, x.latest, x.up = 0, now, 0
	for _, place := range x.places {
		if at := g.freeAt(now, place); at < never {
			x.busy, x.latest, x.up = x.busy+at, max(x.latest, at), x.up+1
		}
	}
}

// freeAt is when a device has done what it runs; never: it is down. Sequences of a
// language model count as if the device did what is left of them, and nothing else.
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

// room is the device time of a resource up to a deadline.
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

// revealed brings what a request asks for up to date once a segment of it is revealed.
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

// count adds what a request owes to the resources, or takes it away.
func (g *door) count(q *request, sign int64) {
	for r, owes := range q.owes {
		g.resources[r].owed += sign * owes
	}
}

// move takes a task that begins to run out of what its request owes (sign 1), or adds
// one that waits again (-1).
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

// answered takes a request out of the line that has ended, and learns from it.
func (g *door) answered(now int64, req int32) {
	q := &g.requests[req]
	if !q.admitted {
		return
	}
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

// leave takes a request out of the line.
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

// judge notes whether a request that was admitted is late. Its application may take up
// more of the time before its deadlines while few are, and less where many are.
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

// step is the time of a task in a planned batch.
func (g *door) step(s int32, work int64) int64 {
	sv := &g.fleet.services[s]
	i := slices.IndexFunc(sv.by, func(on onKind) bool { return on.times != nil })
	if i < 0 {
		return 0
	}
	return scaled(sv.by[i].times[sv.by[i].most-1], work)
}

// learnWay takes in a recorded way that a share of the requests took.
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

// learn takes in a way that so many requests took.
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

// of is the mean in a resource; 0: nothing is known.
func (m *mean) of(r int) int64 {
	if m.n == 0 {
		return 0
	}
	return int64(m.sum[r] / m.n)
}

// add takes in so many samples of a value by resource.
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
