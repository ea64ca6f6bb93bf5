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

// wide returns true if the policy may use all of the contract: it has a Control, or
// its devices are instances.
func (a *Adversary) wide() bool { return a.Control != nil || len(a.Tables.Instances) > 0 }

// foeNews holds the orders that only policies give which use all of the contract, and
// their results.
type foeNews struct {
	a        *Adversary
	loads    []foeLoad
	places   []foePlace
	searches map[int32]func() []int32
}

// act takes in what the policy asks for.
func (n *foeNews) act(ev *policy.Event, act *policy.Action) {
	if !n.a.wide() {
		n.a.judge.fail("on %+v the policy asks for action %d", *ev, act.Kind)
	}
	if !n.a.judge.mayAsk(ev, act) {
		return
	}
	switch act.Kind {
	case policy.Load, policy.Unload:
		n.loads = append(n.loads, foeLoad{act.Network, act.Device, act.Key, act.Kind == policy.Load})
	case policy.Evict:
		n.a.book.batches[act.Batch].failed = true // evicted; it comes back, unless it ends before
	case policy.Replan:
		n.search(ev, act.Tag)
	case policy.Place:
		t := &n.a.book.tasks[act.Task]
		t.epoch++
		n.places = append(n.places, foePlace{act.Task, act.Device, t.epoch})
	default:
		n.a.judge.fail("on %+v the policy asks for action %d", *ev, act.Kind)
	}
}

// search begins a search.
func (n *foeNews) search(ev *policy.Event, tag int32) {
	s, ok := policy.FindExtension[policy.Searcher](n.a.Policy)
	if !ok {
		n.a.judge.fail("on %+v the policy asks for a re-plan and has no search", *ev)
		return
	}
	search := s.Search(n.a.now, tag)
	n.searches[tag] = func() []int32 {
		found, _ := search(context.Background(), int64(n.a.draws.number(0, 40)), nil)
		return found
	}
}

// happen draws one event that only those policies receive. If there is none, it returns
// false.
func (n *foeNews) happen() bool {
	if !n.a.wide() {
		return false
	}
	kinds := []func() bool{n.loadEnds, n.placeEnds, n.searchEnds, n.evictEnds, n.tokensCome}
	first := n.a.draws.number(0, len(kinds)-1)
	for i := range kinds {
		if kinds[(first+i)%len(kinds)]() {
			return true
		}
	}
	return false
}

// loadEnds ends the first load of some device, well or not.
func (n *foeNews) loadEnds() bool {
	if len(n.loads) == 0 {
		return false
	}
	l := n.loads[n.a.draws.number(0, len(n.loads)-1)]
	at := slices.IndexFunc(n.loads, func(o foeLoad) bool { return o.device == l.device })
	l = n.loads[at]
	n.loads = slices.Delete(n.loads, at, at+1)
	ev := policy.Event{Kind: policy.NetworkUnloaded, Network: l.network, Device: l.device, Key: l.key, Start: n.a.now, End: n.a.now}
	if l.up {
		if ev.Kind = policy.NetworkLoaded; n.a.draws.number(0, 4) == 0 {
			ev.Value = int64(n.a.draws.oneOf(policy.ReturnFull, policy.ReturnFailed, policy.ReturnRefused))
		}
	}
	n.a.tell(ev)
	return true
}

// placeEnds brings inputs to where they are wanted, or were once.
func (n *foeNews) placeEnds() bool {
	at := slices.IndexFunc(n.places, func(p foePlace) bool {
		return n.a.book.tasks[p.task].epoch != p.epoch || n.a.book.tasks[p.task].state != foeWaits || n.a.book.devices[p.device].down || n.a.book.readable(p.task)
	})
	if at < 0 {
		return false
	}
	p := n.places[at]
	n.places = slices.Delete(n.places, at, at+1)
	if t := &n.a.book.tasks[p.task]; t.epoch == p.epoch && t.state == foeWaits && !n.a.book.devices[p.device].down {
		n.a.tell(policy.Event{Kind: policy.TransferFinished, Req: t.req, Task: p.task, Service: t.service, Batch: -1, Device: p.device, Start: n.a.now, End: n.a.now})
	}
	return true
}

// searchEnds ends a search: with what it found when it was asked for, late, or
// with nothing.
func (n *foeNews) searchEnds() bool {
	for tag := range int32(8) {
		search, ok := n.searches[tag]
		if !ok {
			continue
		}
		delete(n.searches, tag)
		ev := policy.Event{Kind: policy.ReplanResult, Value: int64(tag)}
		if n.a.draws.number(0, 3) > 0 {
			ev.List = search()
		}
		n.a.tell(ev)
		return true
	}
	return false
}

// evictEnds sends back what was evicted.
func (n *foeNews) evictEnds() bool {
	for _, b := range n.a.book.batches {
		if b != nil && b.live && b.failed {
			n.a.sendBack(b, policy.ReturnEvicted)
			return true
		}
	}
	return false
}

// sendBack ends a batch without a result.
func (a *Adversary) sendBack(b *foeBatch, why policy.ReturnReason) {
	if !b.live {
		return
	}
	d := b.hops[b.hop].Device
	a.book.unqueue(b)
	ev := a.batchEvent(policy.BatchReturned, b, d)
	ev.Value, ev.List = int64(why), make([]int32, len(b.tasks))
	a.book.giveBack(b)
	a.tell(ev)
}

// tokensCome has a batch on an instance produce tokens. It does no work that
// must happen, so that it says false when all else is over.
func (n *foeNews) tokensCome() bool {
	for _, b := range n.a.book.batches {
		if b == nil || !b.live || !b.started || b.tokens > 40 || n.a.Tables.InstanceOf(b.hops[0].Device) < 0 || n.a.draws.number(0, 1) == 0 {
			continue
		}
		ev := n.a.batchEvent(policy.TokenProgress, b, b.hops[0].Device)
		if b.tokens == 0 {
			b.tokens = 1
		} else {
			b.tokens += n.a.Tables.Instances[0].ProgressTokens
		}
		ev.Tokens = b.tokens
		n.a.tell(ev)
		return true
	}
	return false
}
