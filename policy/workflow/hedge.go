package workflow

import (
	"inferplan/policy"
	"inferplan/policy/predict"
)

// hedges are loads for what may come next beside what is most likely to: such a load
// saves, by the chance that its task comes, the wait where the devices of all copies
// are busy. It takes the room of networks that are worth less over hedgeFor.
type hedges struct {
	*loads
	shares []predict.Share
}

// hedge begins the load that saves most of those for the next task of a request, if
// there is one that saves more than what has to go for it.
func (h *hedges) hedge(now int64, t *predict.Table, at *predict.Cursor, out *policy.Actions) {
	if h.opt.Hedge <= 0 {
		return
	}
	h.value(now)
	h.shares = t.Shares(at, h.shares[:0])
	best, place, most := int32(-1), int32(-1), 0.0
	for _, s := range h.shares {
		if s.Token == predict.End {
			continue
		}
		n := h.fleet.services[t.Token(s.Token).Service].network
		gain := s.Share * h.demand.others[min(int(h.copies[n]), len(h.demand.others)-1)]
		if d, net := h.hedgeAt(n, gain); d >= 0 && net > most {
			best, place, most = n, d, net
		}
	}
	if best < 0 {
		return
	}
	d := &h.devices[place]
	if need := h.fleet.bytes[best] - (d.memory - d.taken); need <= 0 || h.evict(place, -1, spareClass, need, out) {
		h.load(place, best, now, out)
	}
}

// hedgeAt is the device on which a load saves most, and what it saves there.
func (h *hedges) hedgeAt(network int32, gain float64) (place int32, net float64) {
	place = -1
	for i := range h.devices {
		d := &h.devices[i]
		if d.down || d.memory == 0 || d.loading >= 0 || d.loaded[network] || len(d.loads) > 0 {
			continue
		}
		saves := gain*float64(h.loadTime(network, int32(i))) + h.hedgeWorth(network, int32(i), 0)
		need := h.fleet.bytes[network] - (d.memory - d.taken)
		if need > 0 {
			lost, ok := h.lost(int32(i), need)
			if !ok {
				continue
			}
			saves -= lost
		}
		if saves > net {
			place, net = int32(i), saves
		}
	}
	return place, net
}

// hedgeWorth is what a copy saves over the time of a hedge, beside so many others.
func (h *hedges) hedgeWorth(network, place, more int32) float64 {
	d := &h.demand
	others := min(int(h.copies[network]-more), len(d.others)-1)
	return d.values[network] * d.others[max(0, others)] * float64(h.loadTime(network, place)) * h.opt.Hedge
}

// lost is what those networks would save that have to go for so many bytes, the least
// worth first; false: there is no room to be made.
func (h *hedges) lost(place int32, need int64) (sum float64, ok bool) {
	d := &h.devices[place]
	h.epoch++
	for need > 0 {
		best, least := int32(-1), 0.0
		for n, is := range d.loaded {
			if !is || h.marks[n] == h.epoch || h.classOf(place, -1, int32(n)) > spareClass {
				continue
			}
			if w := h.worth(int32(n), place); best < 0 || w < least {
				best, least = int32(n), w
			}
		}
		if best < 0 {
			return 0, false
		}
		h.marks[best] = h.epoch
		need -= h.fleet.bytes[best]
		sum += h.hedgeWorth(best, place, 1)
	}
	return sum, true
}
