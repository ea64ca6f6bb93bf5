package workflow

import "inferplan/policy"

// loadNext gives the copy engine of a device its next load: the network of the
// first task in the queue, expected ones included, that is not there.
func (p *Policy) loadNext(place int32, now int64, out *policy.Actions) {
	d := &p.devices[place]
	if d.loading >= 0 || d.memory == 0 {
		return
	}
	stuck := p.stuck(d)
	for i, id := range d.queue {
		k := &p.tasks[id]
		n := p.fleet.services[k.service].network
		if d.loaded[n] {
			continue
		}
		if p.makeRoom(place, i, n, stuck, out) {
			p.load(place, n, now, out)
			return
		}
		if k.slot >= 0 && !stuck {
			return // what comes behind must not take its room
		}
	}
	p.scale.loadNext(p, place, now, out)
}

// load starts a load that there is room for.
func (p *Policy) load(place, network int32, now int64, out *policy.Actions) {
	d := &p.devices[place]
	took := int64(0)
	if l := p.fleet.t.Networks[network].Load; l != nil {
		took = int64(l[p.fleet.kindOf[place]][0])
	}
	d.loading, d.there, d.dirty = network, now+took, true
	d.taken += p.fleet.bytes[network]
	p.copies[network]++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: p.fleet.ids[place]})
}

// Classes of networks on a device, in the order in which they make room.
const (
	spareClass  = iota // no task in the queue asks for it
	aheadClass         // expected tasks alone ask for it
	behindClass        // revealed tasks behind the one that needs room ask for it
	neededClass        // revealed tasks before it
	kept
)

// makeRoom makes room for the network of the i-th task in a queue. Networks go
// that were of use longest ago, in the order of their classes: expected tasks
// take spare ones alone. What revealed tasks ask for goes only where the device
// would stand still for ever: nothing there can run, and the task could.
func (p *Policy) makeRoom(place int32, i int, network int32, stuck bool, out *policy.Actions) bool {
	d := &p.devices[place]
	need := p.fleet.bytes[network] - (d.memory - d.taken)
	if need <= 0 {
		return true
	}
	most := spareClass
	if k := &p.tasks[d.queue[i]]; k.slot >= 0 {
		most = aheadClass
		if stuck && k.pending == 0 && k.arrived == place {
			most = neededClass
		}
	}
	return p.evict(place, i, most, need, out)
}

// stuck tells whether a device neither runs nor could run anything.
func (p *Policy) stuck(d *device) bool {
	if d.busy {
		return false
	}
	for _, id := range d.queue {
		if p.runnable(d, &p.tasks[id]) {
			return false
		}
	}
	return true
}

// evict unloads networks up to a class until so many bytes are free, or none.
func (p *Policy) evict(place int32, i, most int, need int64, out *policy.Actions) bool {
	d := &p.devices[place]
	can := int64(0)
	for n, is := range d.loaded {
		if is && p.classOf(place, i, int32(n)) <= most {
			can += p.fleet.bytes[n]
		}
	}
	if can < need {
		return false
	}
	for need > 0 {
		best, class := int32(-1), kept
		for n, is := range d.loaded {
			if !is {
				continue
			}
			if c := p.classOf(place, i, int32(n)); c <= most && (c < class || c == class && d.last[n] < d.last[best]) {
				best, class = int32(n), c
			}
		}
		d.loaded[best] = false
		p.copies[best]--
		d.taken -= p.fleet.bytes[best]
		need -= p.fleet.bytes[best]
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: best, Device: p.fleet.ids[place]})
	}
	d.dirty = true
	return true
}

// classOf is the class of a network for the i-th task in a queue; i is -1 for a
// load that no task asks for.
func (p *Policy) classOf(place int32, i int, network int32) int {
	d := &p.devices[place]
	if d.busy && p.fleet.services[d.service].network == network {
		return kept
	}
	if i < 0 && p.scale.holds(p, network, place) {
		return kept
	}
	class := spareClass
	for at, id := range d.queue {
		k := &p.tasks[id]
		switch {
		case p.fleet.services[k.service].network != network:
		case k.slot < 0:
			class = max(class, aheadClass)
		case at > i:
			class = max(class, behindClass)
		default:
			return neededClass
		}
	}
	return class
}

// network notes what a device holds.
func (p *Policy) network(now int64, ev *policy.Event) {
	place := p.fleet.places[ev.Device]
	d := &p.devices[place]
	if ev.Network < 0 {
		return
	}
	if ev.Kind == policy.NetworkUnloaded {
		if ev.Value != 0 && !d.loaded[ev.Network] { // it stays
			d.loaded[ev.Network] = true
			p.copies[ev.Network]++
			d.taken += p.fleet.bytes[ev.Network]
			d.dirty = true
		}
		return
	}
	if d.loading == ev.Network {
		d.loading = -1
		if ev.Value == 0 {
			d.loaded[ev.Network], d.last[ev.Network] = true, now
		} else {
			p.copies[ev.Network]--
			d.taken -= p.fleet.bytes[ev.Network]
		}
	}
	d.dirty = true
	p.touchDevice(place)
}

// scaleOut loads a task's service onto a further device, where the task would
// have to wait though another device is free sooner. The task stays where it is.
// No room is made for it: where memory is scarce, what goes is missed.
func (p *Policy) scaleOut(now int64, id int32, start int64, out *policy.Actions) {
	k := &p.tasks[id]
	if k.state != queued || start-p.readyAt(k, k.place, now) <= scaleOutWait {
		return
	}
	network := p.fleet.services[k.service].network
	best, free := int32(-1), start
	for i := range p.devices {
		d := &p.devices[i]
		if d.down || d.memory == 0 || d.loading >= 0 || d.loaded[network] || len(d.loads) > 0 || d.tail >= free {
			continue
		}
		if p.fleet.bytes[network] <= d.memory-d.taken {
			best, free = int32(i), d.tail
		}
	}
	if best >= 0 {
		p.load(best, network, now, out)
	}
}

// crowded tells whether a network that nothing has asked for yet would take the
// room of others on a device.
func (p *Policy) crowded(place, network int32) bool {
	d := &p.devices[place]
	if d.loadedAt(network) >= 0 {
		return false
	}
	free := d.memory - d.taken
	for i := range d.loads {
		free -= p.fleet.bytes[d.loads[i].network]
	}
	return free < p.fleet.bytes[network]
}
