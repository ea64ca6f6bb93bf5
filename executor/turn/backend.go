package turn

import (
	"context"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Backend executes on its devices. The core asks it per device and knows nothing
// of how it works. Its methods belong to whoever has the core's turn, and none of
// them waits. What comes of them later, the backend tells through the inbox.
type Backend interface {
	// Start makes ready what executes on the devices, before there is a loop. Where
	// it fails, or another backend does, close follows. Of services with pipelines
	// there it sets the tensors.
	Start(ctx context.Context) error
	// Begin follows once the loop turns: news may come from then on.
	Begin()
	// Run takes a batch over for its next hop.
	Run(b *Batch)
	// Abort forgets a batch. What works on it may go on to its end.
	Abort(b *Batch)
	// Evict takes a batch off its instance; keep: its state stays near.
	Evict(b *Batch, keep bool)
	// Load brings a network to a device, or takes it away.
	Load(o Order)
	// Place brings what a task reads, all of which is there, to a device. The
	// ticket goes back with the answer.
	Place(task, device, ticket int32)
	// Took handles news of the backend's own. They hold for the call alone.
	Took(n *News)
	// Room follows a round: what waited for a slot may have one.
	Room()
	// Look comes a few times a second. For the time paused no round ran, as on a
	// machine that stood still.
	Look(now, paused time.Duration)
	// Up tells whether a device executes. Any goroutine may ask.
	Up(device int32) bool
	// Close ends what executes, after the last round or a start that failed. News
	// that no round took are still in the inbox.
	Close(ctx context.Context)
}

// HangsAfter says when what executes is taken to hang: no earlier than after so many times
// what it was planned to take.
const HangsAfter = 10

// Kinds are what a core may need, by the kind of its plan.
type Kinds struct {
	// Answers that there are beside the direct one. Each returns nil for plans of
	// another kind.
	Answers []func(c *Core, plan *formats.Plan) (Answer, error)
	// Backends that there are beside the first. Each returns nil where no device of a
	// core's plan is its own, else also which are.
	Backends []func(c *Core) (b Backend, devices []int32)
	// First makes the backend of the devices that no other takes; ours is true for them.
	First func(c *Core, ours []bool) (Backend, error)
}

// execution carries out the decisions of a core.
type execution struct {
	backends []Backend
	byDevice []uint8 // backend by device
}

// AddBackends makes the backends of a core.
func (x *execution) AddBackends(c *Core) error {
	x.byDevice = make([]uint8, len(c.Tables.Devices))
	others := []Backend{}
	for _, of := range c.Kinds.Backends {
		b, devices := of(c)
		if b == nil {
			continue
		}
		others = append(others, b)
		for _, d := range devices {
			x.byDevice[d] = uint8(len(others))
		}
	}
	ours := make([]bool, len(x.byDevice))
	for d, backend := range x.byDevice {
		ours[d] = backend == 0
	}
	first, err := c.Kinds.First(c, ours)
	if err != nil {
		return err
	}
	x.backends = append([]Backend{first}, others...)
	return nil
}

// BackendOf is the backend of a device.
func (x *execution) BackendOf(device int32) Backend { return x.backends[x.byDevice[device]] }

// AsksServers returns true if servers of language models execute on some device.
func (x *execution) AsksServers() bool { return len(x.backends) > 1 }

// StartBackends makes all devices ready. On failure nothing is left running.
func (x *execution) StartBackends(ctx context.Context) error {
	for _, b := range x.backends {
		if err := b.Start(ctx); err != nil {
			x.CloseBackends()
			return err
		}
	}
	return nil
}

// Assume takes the tensors of models from the plan, where a backend would learn them by
// loading the models.
func (x *execution) Assume() error {
	for _, b := range x.backends {
		if a, ok := b.(interface{ Assume() error }); ok {
			if err := a.Assume(); err != nil {
				return err
			}
		}
	}
	return nil
}

// CloseBackends ends what executes.
func (x *execution) CloseBackends() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, b := range x.backends {
		b.Close(ctx)
	}
}

// Order is a network to be loaded or unloaded.
type Order struct {
	Network, Device int32
	Key             int64 // of a session's state, with network -1
	Load            bool
	Given           time.Duration
}

// Same reports whether two orders are of one thing.
func (o *Order) Same(w Order) bool { return w.Network == o.Network && w.Key == o.Key }

// event is the answer to an order.
func (o *Order) event(start, end time.Duration, why policy.Return) policy.Event {
	ev := policy.Event{Kind: policy.NetworkLoaded, Network: o.Network, Device: o.Device, Key: o.Key, Value: int64(why), Start: start, End: end}
	if !o.Load {
		ev.Kind = policy.NetworkUnloaded
	}
	return ev
}

// Outputs are what a batch has made, where it was made. They hold until the end
// of the call that they are given to.
type Outputs interface {
	// Output is the i-th output of the batch's service, task after task.
	Output(i int) []byte
}

// News is what a backend leaves in the inbox: one flat value for all of them.
type News struct {
	Kind       uint8 // the backend's to number
	Code       uint32
	Device     int32 // says whose news it is
	Gen        int32 // of what executes there
	Tokens     int32
	Id         uint64 // of a run
	Start, End int64  // CLOCK_MONOTONIC
	Cpu, Total int64
	Text       string
	Back       any // what came back; rare
}
