package executor

import (
	"context"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// backend executes on its devices. The core asks it per device and knows nothing
// of how it works. Its methods belong to whoever has the core's turn, and none of
// them waits. What comes of them later, the backend tells through the inbox.
type backend interface {
	// start makes ready what executes on the devices, before there is a loop. Where
	// it fails, or another backend does, close follows. Of services with pipelines
	// there it sets the tensors.
	start(ctx context.Context) error
	// begin follows once the loop turns: news may come from then on.
	begin()
	// run takes a batch over for its next hop.
	run(b *batch)
	// abort forgets a batch. What works on it may go on to its end.
	abort(b *batch)
	// evict takes a batch off its instance; keep: its state stays near.
	evict(b *batch, keep bool)
	// load brings a network to a device, or takes it away.
	load(o order)
	// place brings what a task reads, all of which is there, to a device. The
	// ticket goes back with the answer.
	place(task, device, ticket int32)
	// took handles news of the backend's own. They hold for the call alone.
	took(n *news)
	// room follows a round: what waited for a slot may have one.
	room()
	// look comes a few times a second. For the time paused no round ran, as on a
	// machine that stood still.
	look(now, paused time.Duration)
	// up tells whether a device executes. Any goroutine may ask.
	up(device int32) bool
	// close ends what executes, after the last round or a start that failed. News
	// that no round took are still in the inbox.
	close(ctx context.Context)
}

// kinds are what a core may need, by the kind of its plan.
type kinds struct {
	// answers that there are beside the direct one. Each returns nil for plans of
	// another kind.
	answers []func(c *core, plan *formats.Plan) (answer, error)
	// backends that there are beside the first. Each returns nil where no device of a
	// core's plan is its own, else also which are.
	backends []func(c *core) (b backend, devices []int32)
	// first is the backend of the devices that no other takes.
	first func(c *core) (backend, error)
}

// execution is what executes the decisions of a core.
type execution struct {
	backends []backend
	of       []uint8 // backend by device
}

// addBackends makes the backends of a core.
func (x *execution) addBackends(c *core) error {
	x.of = make([]uint8, len(c.tables.Devices))
	others := []backend{}
	for _, of := range c.kinds.backends {
		b, devices := of(c)
		if b == nil {
			continue
		}
		others = append(others, b)
		for _, d := range devices {
			x.of[d] = uint8(len(others))
		}
	}
	first, err := c.kinds.first(c)
	if err != nil {
		return err
	}
	x.backends = append([]backend{first}, others...)
	return nil
}

// backendOf is the backend of a device.
func (x *execution) backendOf(device int32) backend { return x.backends[x.of[device]] }

// asksServers returns true if servers of language models execute on some device.
func (x *execution) asksServers() bool { return len(x.backends) > 1 }

// startBackends makes all devices ready. On failure nothing is left running.
func (x *execution) startBackends(ctx context.Context) error {
	for _, b := range x.backends {
		if err := b.start(ctx); err != nil {
			x.closeBackends()
			return err
		}
	}
	return nil
}

// closeBackends ends what executes.
func (x *execution) closeBackends() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, b := range x.backends {
		b.close(ctx)
	}
}

// order is a network to be loaded or unloaded.
type order struct {
	network, device int32
	key             int64 // of a session's state, with network -1
	up              bool
	given           time.Duration
}

// same reports whether two orders are of one thing.
func (o *order) same(w order) bool { return w.network == o.network && w.key == o.key }

// event is the answer to an order.
func (o *order) event(start, end time.Duration, why policy.Return) policy.Event {
	ev := policy.Event{Kind: policy.NetworkLoaded, Network: o.network, Device: o.device, Key: o.key, Value: int64(why), Start: start, End: end}
	if !o.up {
		ev.Kind = policy.NetworkUnloaded
	}
	return ev
}

// outputs are what a batch has made, where it was made. They hold until the end
// of the call that they are given to.
type outputs interface {
	// output is the i-th output of the batch's service, task after task.
	output(i int) []byte
}

// news is what a backend leaves in the inbox: one flat value for all of them.
type news struct {
	what       uint8 // the backend's to number
	code       uint32
	device     int32 // says whose news it is
	gen        int32 // of what executes there
	tokens     int32
	id         uint64 // of a run
	start, end int64  // CLOCK_MONOTONIC
	cpu, total int64
	text       string
	back       any // what came back; rare
}
