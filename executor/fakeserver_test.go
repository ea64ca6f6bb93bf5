package executor

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// fakeServer is a backend without processes: it runs stages and instances on
// timers, loads networks, and computes whole numbers.
type fakeServer struct {
	c       *turn.Core
	devices []fakeDevice
	live    map[uint64]*turn.Batch // by the serial of their use
	kept    map[int32]int32        // tokens by task, of batches that were evicted
	ran     [5]int                 // batches by service
	refuse  policy.ReturnReason    // what the next batch comes back with; 0: it runs
}

type fakeDevice struct {
	down    bool
	gen     int32
	queue   []uint64 // batches, first come, first served
	busy    bool     // the first of the queue runs, or an instance iterates
	loaded  []int32
	loads   []turn.LoadOrder
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

func newFakeServer(c *turn.Core) *fakeServer {
	f := &fakeServer{c: c, live: map[uint64]*turn.Batch{}, kept: map[int32]int32{}, devices: make([]fakeDevice, len(c.Tables.Devices))}
	for d := range f.devices {
		f.restart(int32(d))
	}
	return f
}

func (f *fakeServer) restart(d int32) {
	dev := &f.devices[d]
	*dev = fakeDevice{gen: dev.gen + 1, loaded: slices.Clone(f.c.Tables.Resident[d]), tokens: map[uint64]int32{}}
}

// later posts news after a while.
func (f *fakeServer) later(d time.Duration, n turn.BackendEvent) {
	n.Generation = f.devices[n.Device].gen
	time.AfterFunc(d, func() { f.c.Inbox.PostEvents(n) })
}

func (f *fakeServer) Start(context.Context) error { return nil }
func (f *fakeServer) LoopStarted()                {}

func (f *fakeServer) RunBatch(b *turn.Batch) {
	d := &f.devices[b.Device()]
	f.live[b.Serial] = b
	if f.refuse != 0 {
		f.later(0, turn.BackendEvent{Kind: fakeReturned, Device: b.Device(), Id: b.Serial, Code: uint32(f.refuse)})
		f.refuse = 0
		return
	}
	d.queue = append(d.queue, b.Serial)
	if f.c.Tables.InstanceOf(b.Device()) >= 0 {
		d.tokens[b.Serial] = f.kept[b.Tasks[0]]
		f.c.Batches.TellStarted(b, b.Device(), f.c.Loop.Now())
	}
	f.next(b.Device())
}

// next begins the next run of a device, or the next iteration of an instance.
func (f *fakeServer) next(device int32) {
	d := &f.devices[device]
	for !d.busy && !d.down && len(d.queue) > 0 {
		if f.c.Tables.InstanceOf(device) >= 0 {
			d.busy = true
			f.later(time.Duration(len(d.queue))*200*time.Microsecond, turn.BackendEvent{Kind: fakeIterated, Device: device})
			return
		}
		b := f.live[d.queue[0]]
		if !slices.Contains(d.loaded, f.c.Tables.Pipelines[b.Pipeline].Network) {
			d.queue = d.queue[1:]
			f.later(0, turn.BackendEvent{Kind: fakeReturned, Device: device, Id: b.Serial, Code: uint32(policy.ReturnNotLoaded)})
			continue
		}
		d.busy = true
		f.c.Batches.TellStarted(b, device, f.c.Loop.Now())
		f.later(f.c.Tables.Stages[b.Hops[0].Stage].Infer[len(b.Tasks)-1]/4, turn.BackendEvent{Kind: fakeRan, Device: device, Id: b.Serial, Start: int64(f.c.Loop.Now())})
	}
}

func (f *fakeServer) HandleEvent(n *turn.BackendEvent) {
	if d := &f.devices[n.Device]; n.Kind != fakeBack && n.Kind != fakeLost && (n.Generation != d.gen || d.down) {
		return
	}
	d := &f.devices[n.Device]
	now := f.c.Loop.Now()
	switch n.Kind {
	case fakeRan:
		d.busy = false
		b := f.live[n.Id]
		f.leave(n.Device, n.Id)
		f.next(n.Device)
		if b != nil {
			f.end(b, n.Device, time.Duration(n.Start), now)
		}
	case fakeIterated:
		f.iterated(n.Device)
	case fakeReturned:
		if b := f.live[n.Id]; b != nil {
			delete(f.live, n.Id)
			f.c.Batches.TellReturned(b, policy.ReturnReason(n.Code), []int32{n.Tokens})
		}
	case fakeLoaded:
		d.loading = false
		o := turn.LoadOrder{Network: int32(n.Id), Device: n.Device, Key: n.Total, Load: true}
		why := policy.ReturnReason(0)
		if most := f.c.Tables.Memory[n.Device]; most > 0 && int64(len(d.loaded)) >= most {
			why = policy.ReturnFull
		} else {
			d.loaded = append(d.loaded, o.Network)
		}
		f.LoadNetwork(turn.LoadOrder{Network: -2, Device: n.Device, Load: true})
		f.c.TellLoaded(&o, time.Duration(n.Start), now, why)
	case fakeUnloaded:
		o := turn.LoadOrder{Network: int32(n.Id), Device: n.Device}
		f.c.TellLoaded(&o, now, now, 0)
	case fakePlaced:
		f.c.TellPlaced(int32(n.Id), n.Device, n.Tokens, time.Duration(n.Start), now)
	case fakeLost:
		d.down = true
		f.c.Loop.TellPolicy(policy.Event{Kind: policy.WorkerLost, Device: n.Device})
	case fakeBack:
		f.restart(n.Device)
		f.c.Loop.TellPolicy(policy.Event{Kind: policy.WorkerBack, Device: n.Device, Value: 2, Limit: 1000})
	}
}

// end ends a batch whose outputs are there.
func (f *fakeServer) end(b *turn.Batch, device int32, start, end time.Duration) {
	service := b.Service.Index
	f.ran[service]++
	f.c.Answerer.TakeOutputs(b, f.compute(b))
	f.c.Batches.FinishHop(b, device, start, end)
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
			delete(f.kept, b.Tasks[0])
			f.leave(device, id)
			f.end(b, device, 0, f.c.Loop.Now())
		} else {
			f.c.Batches.TellProgress(b, n)
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

func (f *fakeServer) AbortBatch(b *turn.Batch) {
	d := &f.devices[b.Device()]
	delete(f.live, b.Serial)
	if !d.busy || len(d.queue) == 0 || d.queue[0] != b.Serial { // else it runs to its end
		f.leave(b.Device(), b.Serial)
	}
}

func (f *fakeServer) EvictBatch(b *turn.Batch, keep bool) {
	n := f.devices[b.Device()].tokens[b.Serial]
	f.leave(b.Device(), b.Serial)
	if f.live[b.Serial] = b; keep {
		f.kept[b.Tasks[0]] = n
	}
	f.later(0, turn.BackendEvent{Kind: fakeReturned, Device: b.Device(), Id: b.Serial, Code: uint32(policy.ReturnEvicted), Tokens: n})
}

// LoadNetwork does one order of a device after the other; network -2 is none.
func (f *fakeServer) LoadNetwork(o turn.LoadOrder) {
	d := &f.devices[o.Device]
	if d.down {
		return
	}
	if !o.Load {
		d.loaded = slices.DeleteFunc(d.loaded, func(n int32) bool { return n == o.Network })
		f.later(0, turn.BackendEvent{Kind: fakeUnloaded, Device: o.Device, Id: uint64(o.Network)})
		return
	}
	if o.Network > -2 {
		d.loads = append(d.loads, o)
	}
	if !d.loading && len(d.loads) > 0 {
		d.loading = true
		f.later(time.Millisecond, turn.BackendEvent{Kind: fakeLoaded, Device: o.Device, Id: uint64(d.loads[0].Network), Total: d.loads[0].Key, Start: int64(f.c.Loop.Now())})
		d.loads = d.loads[1:]
	}
}

func (f *fakeServer) PlaceInputs(task, device, ticket int32) {
	if !f.devices[device].down {
		f.later(time.Duration(device)*100*time.Microsecond, turn.BackendEvent{Kind: fakePlaced, Device: device, Id: uint64(task), Tokens: ticket, Start: int64(f.c.Loop.Now())})
	}
}

func (f *fakeServer) SendWaiting()                       {}
func (f *fakeServer) Watch(time.Duration, time.Duration) {}
func (f *fakeServer) IsUp(device int32) bool             { return !f.devices[device].down }
func (f *fakeServer) BusyTime(int32) time.Duration       { return 0 }
func (f *fakeServer) Close(context.Context)              {}

// numbers are the outputs of a batch, one number per task.
type numbers []byte

func (n numbers) Output(int) []byte { return n }

// compute makes the outputs of a batch from what its tasks read.
func (f *fakeServer) compute(b *turn.Batch) numbers {
	var out numbers
	read := func(t int32, i int) uint32 {
		if in := f.c.Answerer.TaskInput(t, i); in != nil {
			return binary.LittleEndian.Uint32(in)
		}
		return 0
	}
	for _, t := range b.Tasks {
		x := read(t, 0)
		switch b.Service.Index {
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
