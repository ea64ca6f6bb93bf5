package policytest

import (
	"context"
	"slices"

	"inferplan/policy"
)

// foeLoad is a load or unload under way; those of a device end in their order.
type foeLoad struct {
	network, device int32
	key             int64
	up              bool
}

// foePlace is a place under way.
type foePlace struct {
	task, device int32
	epoch        int
}

// wide tells whether the policy may use all of the contract: it has a Control, or
// its devices are instances.
func (a *Adversary) wide() bool { return a.Control != nil || len(a.Tables.Instances) > 0 }

// actNews does what only policies that use all of the contract ask for.
func (a *Adversary) actNews(ev *policy.Event, act *policy.Action) {
	if !a.wide() {
		a.fail("on %+v the policy asks for action %d", *ev, act.Kind)
		return
	}
	switch act.Kind {
	case policy.Load, policy.Unload:
		if a.devices[act.Device].down {
			a.fail("on %+v the policy loads to device %d, which is lost", *ev, act.Device)
			return
		}
		a.loads = append(a.loads, foeLoad{act.Network, act.Device, act.Key, act.Kind == policy.Load})
	case policy.Evict:
		if b := a.batchAt(act.Batch); b == nil || a.Tables.InstanceOf(b.hops[0].Device) < 0 {
			a.fail("on %+v the policy evicts batch slot %d, which is on no instance", *ev, act.Batch)
		} else {
			b.failed = true // evicted; it comes back, unless it ends before
		}
	case policy.Replan:
		s, ok := policy.As[policy.Searcher](a.Policy)
		if !ok {
			a.fail("on %+v the policy asks for a re-plan and has no search", *ev)
			return
		}
		search := s.Search(a.now, act.Tag)
		a.searches[act.Tag] = func() []int32 {
			found, _ := search(context.Background(), int64(a.draw(0, 40)), nil)
			return found
		}
	case policy.Place:
		if act.Task < 0 || int(act.Task) >= len(a.tasks) || a.tasks[act.Task].state != foeWaits {
			a.fail("on %+v the policy places task slot %d, which does not wait", *ev, act.Task)
			return
		}
		a.tasks[act.Task].epoch++
		a.places = append(a.places, foePlace{act.Task, act.Device, a.tasks[act.Task].epoch})
	default:
		a.fail("on %+v the policy asks for action %d", *ev, act.Kind)
	}
}

// news lets one thing happen that only those policies hear; false: there is none.
func (a *Adversary) news() bool {
	if !a.wide() {
		return false
	}
	kinds := []func() bool{a.loadEnds, a.placeEnds, a.searchEnds, a.evictEnds, a.tokensCome}
	first := a.draw(0, len(kinds)-1)
	for i := range kinds {
		if kinds[(first+i)%len(kinds)]() {
			return true
		}
	}
	return false
}

// loadEnds ends the first load of some device, well or not.
func (a *Adversary) loadEnds() bool {
	if len(a.loads) == 0 {
		return false
	}
	l := a.loads[a.draw(0, len(a.loads)-1)]
	at := slices.IndexFunc(a.loads, func(o foeLoad) bool { return o.device == l.device })
	l = a.loads[at]
	a.loads = slices.Delete(a.loads, at, at+1)
	ev := policy.Event{Kind: policy.NetworkUnloaded, Network: l.network, Device: l.device, Key: l.key, Start: a.now, End: a.now}
	if l.up {
		if ev.Kind = policy.NetworkLoaded; a.draw(0, 4) == 0 {
			ev.Value = int64([]policy.Return{policy.ReturnFull, policy.ReturnFailed, policy.ReturnRefused}[a.draw(0, 2)])
		}
	}
	a.tell(ev)
	return true
}

// placeEnds brings inputs to where they are wanted, or were once.
func (a *Adversary) placeEnds() bool {
	at := slices.IndexFunc(a.places, func(p foePlace) bool {
		return a.tasks[p.task].epoch != p.epoch || a.tasks[p.task].state != foeWaits || a.devices[p.device].down || a.readable(p.task)
	})
	if at < 0 {
		return false
	}
	p := a.places[at]
	a.places = slices.Delete(a.places, at, at+1)
	if t := &a.tasks[p.task]; t.epoch == p.epoch && t.state == foeWaits && !a.devices[p.device].down {
		a.tell(policy.Event{Kind: policy.TransferFinished, Req: t.req, Task: p.task, Service: t.service, Batch: -1, Device: p.device, Start: a.now, End: a.now})
	}
	return true
}

// searchEnds ends a search: with what it found when it was asked for, late, or
// with nothing.
func (a *Adversary) searchEnds() bool {
	for tag := range int32(8) {
		search, ok := a.searches[tag]
		if !ok {
			continue
		}
		delete(a.searches, tag)
		ev := policy.Event{Kind: policy.ReplanResult, Value: int64(tag)}
		if a.draw(0, 3) > 0 {
			ev.List = search()
		}
		a.tell(ev)
		return true
	}
	return false
}

// evictEnds sends back what was evicted.
func (a *Adversary) evictEnds() bool {
	for _, b := range a.batches {
		if b != nil && b.live && b.failed {
			a.sendBack(b, policy.ReturnEvicted)
			return true
		}
	}
	return false
}

// sendBack ends a batch without a result.
func (a *Adversary) sendBack(b *foeBatch, why policy.Return) {
	if !b.live {
		return
	}
	d := b.hops[b.hop].Device
	a.unqueue(b)
	ev := a.batchEvent(policy.BatchReturned, b, d)
	ev.Value, ev.List = int64(why), make([]int32, len(b.tasks))
	a.giveBack(b)
	a.tell(ev)
}

// tokensCome has a batch on an instance produce tokens. It does no work that
// must happen, so that it says false when all else is over.
func (a *Adversary) tokensCome() bool {
	for _, b := range a.batches {
		if b == nil || !b.live || !b.started || b.tokens > 40 || a.Tables.InstanceOf(b.hops[0].Device) < 0 || a.draw(0, 1) == 0 {
			continue
		}
		ev := a.batchEvent(policy.TokenProgress, b, b.hops[0].Device)
		if b.tokens == 0 {
			b.tokens = 1
		} else {
			b.tokens += a.Tables.Instances[0].Progress
		}
		ev.Tokens = b.tokens
		a.tell(ev)
		return true
	}
	return false
}
