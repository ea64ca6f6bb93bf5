package executor

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// fakeServer is a backend without processes: it runs stages and instances on
// timers, loads networks, and computes whole numbers.
type fakeServer struct {
	c       *core
	devices []fakeDevice
	live    map[uint64]*batch // by the serial of their use
	kept    map[int32]int32   // tokens by task, of batches that were evicted
	ran     [5]int            // batches by service
	refuse  policy.Return     // what the next batch comes back with; 0: it runs
}

type fakeDevice struct {
	down    bool
	gen     int32
	queue   []uint64 // batches, first come, first served
	busy    bool     // the first of the queue runs, or an instance iterates
	loaded  []int32
	loads   []order
	loading bool
	tokens  map[uint64]int32 // by batch of an instance
}

// Kinds of news of fake servers.
const (
	fakeRan uint8 = iota
	fakeIterated
	fakeReturned
	fakeLoaded
	fakeUnloaded
	fakePlaced
	fakeLost
	fakeBack
)

func newFakeServer(c *core) *fakeServer {
	f := &fakeServer{c: c, live: map[uint64]*batch{}, kept: map[int32]int32{}, devices: make([]fakeDevice, len(c.tables.Devices))}
	for d := range f.devices {
		f.restart(int32(d))
	}
	return f
}

func (f *fakeServer) restart(d int32) {
	dev := &f.devices[d]
	*dev = fakeDevice{gen: dev.gen + 1, loaded: slices.Clone(f.c.tables.Resident[d]), tokens: map[uint64]int32{}}
}

// later posts news after a while.
func (f *fakeServer) later(d time.Duration, n news) {
	n.gen = f.devices[n.device].gen
	time.AfterFunc(d, func() { f.c.in.post(n) })
}

func (f *fakeServer) start(context.Context) error { return nil }
func (f *fakeServer) begin()                      {}

func (f *fakeServer) run(b *batch) {
	d := &f.devices[b.device()]
	f.live[b.serial] = b
	if f.refuse != 0 {
		f.later(0, news{what: fakeReturned, device: b.device(), id: b.serial, code: uint32(f.refuse)})
		f.refuse = 0
		return
	}
	d.queue = append(d.queue, b.serial)
	if f.c.tables.InstanceOf(b.device()) >= 0 {
		d.tokens[b.serial] = f.kept[b.tasks[0]]
		f.c.began(b, b.device(), f.c.now())
	}
	f.next(b.device())
}

// next begins the next run of a device, or the next iteration of an instance.
func (f *fakeServer) next(device int32) {
	d := &f.devices[device]
	for !d.busy && !d.down && len(d.queue) > 0 {
		if f.c.tables.InstanceOf(device) >= 0 {
			d.busy = true
			f.later(time.Duration(len(d.queue))*200*time.Microsecond, news{what: fakeIterated, device: device})
			return
		}
		b := f.live[d.queue[0]]
		if !slices.Contains(d.loaded, f.c.tables.Pipelines[b.pipeline].Network) {
			d.queue = d.queue[1:]
			f.later(0, news{what: fakeReturned, device: device, id: b.serial, code: uint32(policy.ReturnNotLoaded)})
			continue
		}
		d.busy = true
		f.c.began(b, device, f.c.now())
		f.later(f.c.tables.Stages[b.hops[0].Stage].Infer[len(b.tasks)-1]/4, news{what: fakeRan, device: device, id: b.serial, start: int64(f.c.now())})
	}
}

func (f *fakeServer) took(n *news) {
	if d := &f.devices[n.device]; n.what != fakeBack && n.what != fakeLost && (n.gen != d.gen || d.down) {
		return
	}
	d := &f.devices[n.device]
	now := f.c.now()
	switch n.what {
	case fakeRan:
		d.busy = false
		b := f.live[n.id]
		f.leave(n.device, n.id)
		f.next(n.device)
		if b != nil {
			f.end(b, n.device, time.Duration(n.start), now)
		}
	case fakeIterated:
		f.iterated(n.device)
	case fakeReturned:
		if b := f.live[n.id]; b != nil {
			delete(f.live, n.id)
			f.c.returned(b, policy.Return(n.code), []int32{n.tokens})
		}
	case fakeLoaded:
		d.loading = false
		o := order{network: int32(n.id), device: n.device, key: n.total, up: true}
		why := policy.Return(0)
		if most := f.c.tables.Memory[n.device]; most > 0 && int64(len(d.loaded)) >= most {
			why = policy.ReturnFull
		} else {
			d.loaded = append(d.loaded, o.network)
		}
		f.load(order{network: -2, device: n.device, up: true})
		f.c.handle(o.event(time.Duration(n.start), now, why))
	case fakeUnloaded:
		o := order{network: int32(n.id), device: n.device}
		f.c.handle(o.event(now, now, 0))
	case fakePlaced:
		f.c.placed(int32(n.id), n.device, n.tokens, time.Duration(n.start), now)
	case fakeLost:
		d.down = true
		f.c.handle(policy.Event{Kind: policy.WorkerLost, Device: n.device})
	case fakeBack:
		f.restart(n.device)
		f.c.handle(policy.Event{Kind: policy.WorkerBack, Device: n.device, Value: 2, Limit: 1000})
	}
}

// end ends a batch whose outputs are there.
func (f *fakeServer) end(b *batch, device int32, start, end time.Duration) {
	service := b.service.index
	f.ran[service]++
	f.c.answers.ran(b, f.compute(b))
	f.c.finishHop(b, device, start, end)
}

// iterated gives every sequence of an instance a token.
func (f *fakeServer) iterated(device int32) {
	d := &f.devices[device]
	d.busy = false
	for _, id := range slices.Clone(d.queue) {
		b := f.live[id]
		if b == nil || !slices.Contains(d.queue, id) {
			continue
		}
		d.tokens[id]++
		if n := d.tokens[id]; n >= 10 {
			delete(f.kept, b.tasks[0])
			f.leave(device, id)
			f.end(b, device, 0, f.c.now())
		} else {
			f.c.progressed(b, n)
		}
	}
	f.next(device)
}

// leave takes a batch out of a device's queue.
func (f *fakeServer) leave(device int32, id uint64) {
	d := &f.devices[device]
	d.queue = slices.DeleteFunc(d.queue, func(o uint64) bool { return o == id })
	delete(d.tokens, id)
	delete(f.live, id)
}

func (f *fakeServer) abort(b *batch) {
	d := &f.devices[b.device()]
	delete(f.live, b.serial)
	if !d.busy || len(d.queue) == 0 || d.queue[0] != b.serial { // else it runs to its end
		f.leave(b.device(), b.serial)
	}
}

func (f *fakeServer) evict(b *batch, keep bool) {
	n := f.devices[b.device()].tokens[b.serial]
	f.leave(b.device(), b.serial)
	if f.live[b.serial] = b; keep {
		f.kept[b.tasks[0]] = n
	}
	f.later(0, news{what: fakeReturned, device: b.device(), id: b.serial, code: uint32(policy.ReturnEvicted), tokens: n})
}

// load does one order of a device after the other; network -2 is none.
func (f *fakeServer) load(o order) {
	d := &f.devices[o.device]
	if d.down {
		return
	}
	if !o.up {
		d.loaded = slices.DeleteFunc(d.loaded, func(n int32) bool { return n == o.network })
		f.later(0, news{what: fakeUnloaded, device: o.device, id: uint64(o.network)})
		return
	}
	if o.network > -2 {
		d.loads = append(d.loads, o)
	}
	if !d.loading && len(d.loads) > 0 {
		d.loading = true
		f.later(time.Millisecond, news{what: fakeLoaded, device: o.device, id: uint64(d.loads[0].network), total: d.loads[0].key, start: int64(f.c.now())})
		d.loads = d.loads[1:]
	}
}

func (f *fakeServer) place(task, device, ticket int32) {
	if !f.devices[device].down {
		f.later(time.Duration(device)*100*time.Microsecond, news{what: fakePlaced, device: device, id: uint64(task), tokens: ticket, start: int64(f.c.now())})
	}
}

func (f *fakeServer) room()                             {}
func (f *fakeServer) look(time.Duration, time.Duration) {}
func (f *fakeServer) up(device int32) bool              { return !f.devices[device].down }
func (f *fakeServer) close(context.Context)             {}

// numbers are the outputs of a batch, one number per task.
type numbers []byte

func (n numbers) output(int) []byte { return n }

// compute makes the outputs of a batch from what its tasks read.
func (f *fakeServer) compute(b *batch) numbers {
	var out numbers
	read := func(t int32, i int) uint32 {
		if in := f.c.answers.input(t, i); in != nil {
			return binary.LittleEndian.Uint32(in)
		}
		return 0
	}
	for _, t := range b.tasks {
		x := read(t, 0)
		switch b.service.index {
		case policytest.Left:
			x++
		case policytest.Right:
			x *= 2
		case policytest.Merge:
			x += 10 * read(t, 1)
		case policytest.Write:
			x += 7
		}
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

// written is what the diamond answers.
func written(x uint32) uint32 {
	if x%3 == 0 {
		return x + 1 + 7
	}
	return x + 1 + 10*2*x + 7
}

// halved takes the right side out for every third number.
func halved(service int32, outputs [][]byte) (o policy.Outcome) {
	if service == policytest.Split && binary.LittleEndian.Uint32(outputs[0])%3 == 0 {
		o.Branch = 1
	}
	return o
}
