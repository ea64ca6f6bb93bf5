package workflow

// offer is what a place offers to a task.
type offer struct {
	end, start int64 // when the task would end, and begin to run
	extra      int64 // time of the batch in which session states are recomputed
	cost       int64 // the end, plus what its device time costs other tasks
	own        int32 // the job's own batch that it joins, in search.ownBatches; -1 if none
	planned    int32 // batch of the device's plan that it joins; -1 if none
}

// collectOffers collects the offers of the candidate places of a task, and of the places of its inputs.
//
// An offer ends before the earliest end f of its place only where a task joins a second open batch, being too late for
// the first. Candidates are sorted by f, so the remaining ones are skipped once as many cheaper offers are known as the
// search tries.
func (x *search) offers(j *job, t int32, l *level) {
	l.places, l.offers, l.least = l.places[:0], l.offers[:0], l.least[:0]
	ends := x.s.ends[int(x.s.same[t])*len(x.c.devices):][:len(x.c.devices)]
	for _, d := range x.names[t] {
		if x.width > 0 && len(l.least) == x.width && l.least[x.width-1] <= ends[d] {
			break
		}
		x.ask(j, t, d, l)
	}
	if x.width > 0 {
		for _, in := range j.inputsOf(t) {
			if in >= 0 && !contains(l.places, x.place[in]) {
				x.ask(j, t, x.place[in], l)
			}
		}
	}
}

// addOffer adds the offer of a place, and keeps the costs of the cheapest offers in order.
func (x *search) ask(j *job, t, d int32, l *level) {
	k, ready := &j.tasks[t], x.now
	for _, in := range j.inputsOf(t) {
		if in >= 0 {
			ready = max(ready, x.end[in]+x.c.fleet.move(j.tasks[in].service, x.place[in], d))
		}
	}
	if k.price > 0 {
		ready = x.carry(k, d, ready)
	}
	o := x.offer(d, k, ready)
	l.places, l.offers = append(l.places, d), append(l.offers, o)
	if x.width == 0 {
		return
	}

	// Insert the cost among the cheapest ones.
	if len(l.least) < x.width {
		l.least = append(l.least, never)
	}
	for i := len(l.least) - 1; i >= 0 && l.least[i] > o.cost; i-- {
		if i+1 < len(l.least) {
			l.least[i+1] = l.least[i]
		}
		l.least[i] = o.cost
	}
}

// contains returns true if a value is in a list.
func contains(list []int32, v int32) bool {
	for _, w := range list {
		if w == v {
			return true
		}
	}
	return false
}

// readyWithState returns when a task may start at a place with the session state that it continues. It sets the task's
// addedTime to the time that recomputing the state there takes, or to 0 if the state is moved.
func (x *search) carry(k *jobTask, place int32, ready int64) int64 {
	home, at := k.home, max(x.now, k.homeAt)
	if k.from >= 0 {
		home, at = x.place[k.from], x.end[k.from]
	}
	took, moved := x.c.fleet.away(k.service, k.price, home, place)
	if k.extra = took; moved {
		k.extra, ready = 0, max(ready, at+took)
	}
	return ready
}

// bestOffer returns the cheapest offer of a place to a task whose inputs are there at `ready`: to join one of the first
// open batches, or to have a batch of its own.
func (x *search) offer(place int32, k *jobTask, ready int64) offer {
	c, d := x.c, &x.c.devices[place]
	on := c.fleet.on(k.service, place)
	if d.down {
		return offer{end: never, cost: never}
	}

	// When is the network usable?
	network := c.fleet.services[k.service].network
	usable := d.loadedAt(network)
	loads := usable < 0 // no task there needs the network yet
	if loads || on.times == nil {
		usable = c.usable(place, k.service)
	}
	if usable >= never {
		return offer{end: never, cost: never}
	}
	ready = max(ready, usable)

	// A batch of its own, in the first gap of the plan.
	took := c.fleet.cost(k.service, place, 1, k.work) + k.extra
	best := offer{own: -1, planned: -1, start: x.idle(place, d, ready, took), extra: k.extra}
	best.end = best.start + took
	best.cost = best.end
	if best.start > ready {
		best.cost += x.price * took >> 10
	}
	if q := c.sequences(); best.start > ready && c.opt.Thrift && q.drains(d, k.service, best.start) {
		best.cost += took // the model runs half empty while it drains
	}
	if loads && c.opt.Thrift && c.crowded(place, network) {
		best.cost += on.load // someone has to load the evicted networks again
	}

	// Batches that tasks of this job form already.
	q := c.sequences()
	for i := range x.own {
		b := &x.own[i]
		if b.place != place || b.service != k.service || max(b.start, ready) > b.until || !q.fits(k.service, place, b.n, b.kv, k.work) {
			continue
		}
		o := x.joined(place, k, ready, b)
		if o.cost -= x.saved(k.service, took, o.start, ready); o.cost < best.cost {
			best = o
			best.own = int32(i)
		}
	}

	// Batches of the device's plan.
	for i := range d.plan {
		b := &d.plan[i]
		if b.service != k.service || max(b.start, ready) > b.until || !q.fits(k.service, place, b.n, b.kv, k.work) || x.taken(place, int32(i)) {
			continue
		}
		if o := x.joined(place, k, ready, &stay{start: b.start, n: b.n, work: b.work, extra: b.extra}); o.end < best.cost {
			best = o
			best.planned = int32(i)
		}
		break // later ones end later
	}
	return best
}

// joinOffer returns the offer of a batch to a task that joins it. The task begins with the batch; on a language model it
// begins when its inputs are there.
func (x *search) joined(place int32, k *jobTask, ready int64, b *stay) offer {
	o := offer{own: -1, planned: -1, start: b.start, extra: b.extra + k.extra}
	if x.c.sequences().is(k.service) {
		o.start, o.extra = max(b.start, ready), k.extra
		o.end = o.start + x.c.fleet.cost(k.service, place, b.n+1, k.work) + o.extra
	} else {
		o.end = o.start + x.c.fleet.cost(k.service, place, b.n+1, max(b.work, k.work)) + o.extra
	}
	o.cost = o.end
	return o
}

// joinBenefit returns the benefit, in ns, of joining a batch that starts at once: the task leaves another device free. A
// language model that runs alone keeps its device only from other services, because further tasks of its own would join
// it, so for these the benefit is scaled by the other services' share of the demand.
func (x *search) saved(service int32, took, start, ready int64) int64 {
	if start > ready || x.crowd == 0 {
		return 0
	}
	saves := x.crowd * took >> 10
	if x.c.sequences().is(service) {
		return int64(float64(saves) * x.c.others(service))
	}
	return saves
}

// hasJoined returns true if a task of the job has joined a planned batch already.
func (x *search) taken(place, planned int32) bool {
	for i := range x.own {
		if x.own[i].place == place && x.own[i].planned == planned {
			return true
		}
	}
	return false
}

// firstIdle returns the first instant, not before a given one, at which a device can start a batch of a given duration,
// the job's own batches included.
func (x *search) idle(place int32, d *device, at, took int64) int64 {
	for again := true; again; {
		at, again = d.idle(at, took), false
		for i := range x.own {
			if b := &x.own[i]; b.place == place && at+took > b.start && at < b.end {
				at, again = b.end, true
			}
		}
	}
	return at
}
