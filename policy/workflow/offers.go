package workflow

// offer is what a place offers to a task.
type offer struct {
	end, start int64
	extra      int64 // of the batch, for states that are computed anew
	cost       int64 // end, and what its device time costs others
	own        int32 // batch of own that it joins; -1: none
	planned    int32 // batch of the device's plan that it joins; -1: none
}

// offers asks the places that the rows name, and those where the inputs are. An offer
// ends before f only where a task joins a second open batch, for whose first one it is
// too late. So the rest of the places, which are by rising f, is not asked once there
// are as many cheaper offers as are tried.
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

// ask adds the offer of a place.
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

func contains(list []int32, v int32) bool {
	for _, w := range list {
		if w == v {
			return true
		}
	}
	return false
}

// carry is when a task may start at a place with the state that it goes on with. What
// it pays there to compute that anew is its extra.
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

// offer is when a task would end at a place whose inputs are there at ready:
// with the first batch that it can join, or in one of its own.
func (x *search) offer(place int32, k *jobTask, ready int64) offer {
	c, d := x.c, &x.c.devices[place]
	on := c.fleet.on(k.service, place)
	if d.down {
		return offer{end: never, cost: never}
	}
	network := c.fleet.services[k.service].network
	usable := d.loadedAt(network)
	loads := usable < 0 // nothing there has asked for it yet
	if loads || on.times == nil {
		usable = c.usable(place, k.service)
	}
	if usable >= never {
		return offer{end: never, cost: never}
	}
	ready = max(ready, usable)
	took := c.fleet.cost(k.service, place, 1, k.work) + k.extra
	best := offer{own: -1, planned: -1, start: x.idle(place, d, ready, took), extra: k.extra}
	best.end = best.start + took
	best.cost = best.end
	if best.start > ready {
		best.cost += x.price * took >> 10
	}
	if q := c.sequences(); best.start > ready && c.opt.Thrift && q.drains(d, k.service, best.start) {
		best.cost += took // the model stands half empty while it drains
	}
	if loads && c.opt.Thrift && c.crowded(place, network) {
		best.cost += on.load // somebody has to load them again
	}
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
	for i := range d.plan {
		b := &d.plan[i]
		if b.service != k.service || max(b.start, ready) > b.until || !q.fits(k.service, place, b.n, b.kv, k.work) || x.taken(place, int32(i)) {
			continue
		}
		if o := x.joined(place, k, ready, &stay{start: b.start, n: b.n, work: b.work, extra: b.extra}); o.end < best.cost {
			best = o
			best.planned = int32(i)
		}
		break // a later one ends later
	}
	return best
}

// joined is what a batch offers to a task that joins it. It begins with the batch, or of
// a language model when its inputs are there.
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

// saved is what the device time is worth that a task does not take which joins a batch
// that begins at once. A language model of its own keeps a device from other services
// alone: its further tasks would join.
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

// taken tells whether the job has joined a planned batch already.
func (x *search) taken(place, planned int32) bool {
	for i := range x.own {
		if x.own[i].place == place && x.own[i].planned == planned {
			return true
		}
	}
	return false
}

// idle is the first instant from at on at which a device does nothing, the job's
// own batches included.
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
