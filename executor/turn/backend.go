package turn

import (
	"context"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Backend executes batches on its devices. The core calls it per device and does not know how it works. Its methods are
// called by the goroutine that has the core's turn, and none of them blocks. Their results come later, as events in the
// inbox.
type Backend interface {
	// Start prepares the devices, before there is a loop, and sets the tensors of the services with pipelines there. If it
	// or another backend fails, Close follows.
	Start(ctx context.Context) error
	// LoopStarted is called once the loop runs. Events may be posted from then on.
	Begin()
	// RunBatch takes over a batch for its current hop.
	Run(b *Batch)
	// AbortBatch forgets a batch. A run that has begun may go on to its end.
	Abort(b *Batch)
	// EvictBatch removes a batch from its instance. With `keep` its state stays near the instance.
	Evict(b *Batch, keep bool)
	// LoadNetwork loads a network on a device, or unloads it.
	Load(o Order)
	// PlaceInputs brings the inputs of a task, all of which exist, to a device. The ticket is returned with the event.
	Place(task, device, ticket int32)
	// HandleEvent handles an event that the backend has posted. The event is valid during the call only.
	Took(n *News)
	// SendWaiting is called at the end of every round. Batches that waited for a slot may now have one.
	Room()
	// Watch is called a few times per second to find what hangs. In the time `paused` no round ran, as on a machine that was
	// suspended.
	Look(now, paused time.Duration)
	// IsUp returns true if a device executes. Any goroutine may call it.
	Up(device int32) bool
	// Close ends what executes, after the last round or a failed start. Events that no round handled are still in the inbox.
	Close(ctx context.Context)
}

// HangFactor is the multiple of the planned time before which nothing that executes is assumed to hang.
const HangsAfter = 10

// Factories create the answerer and the backends that a plan needs.
type Kinds struct {
	// Answerers are tried in order. Each returns nil for plans of another kind.
	Answers []func(c *Core, plan *formats.Plan) (Answer, error)
	// Backends are those beside the default one. Each returns the devices that it takes, and nil if it takes none.
	Backends []func(c *Core) (b Backend, devices []int32)
	// DefaultBackend returns the backend of the devices that no other one takes, for which isDefault is true.
	First func(c *Core, ours []bool) (Backend, error)
}

// backendSet holds the backends of a core.
type execution struct {
	backends []Backend
	byDevice []uint8 // index of the backend, by device
}

// AddBackends creates the backends of a core.
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

// BackendOf returns the backend of a device.
func (x *execution) BackendOf(device int32) Backend { return x.backends[x.byDevice[device]] }

// HasServers returns true if servers of language models execute on some device.
func (x *execution) AsksServers() bool { return len(x.backends) > 1 }

// StartBackends prepares all devices. If it fails, nothing is left running.
func (x *execution) StartBackends(ctx context.Context) error {
	for _, b := range x.backends {
		if err := b.Start(ctx); err != nil {
			x.CloseBackends()
			return err
		}
	}
	return nil
}

// Assume takes the tensors of models from the plan, for backends that would otherwise learn them by loading the models.
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

// LoadOrder is a network to be loaded on a device or unloaded from it.
type Order struct {
	Network, Device int32
	Key             int64         // slot of a task whose session state it is, with network -1
	Load            bool          // false to unload
	Given           time.Duration // when the policy ordered it
}

// IsSame returns true if two orders are for the same network or session state.
func (o *Order) Same(w Order) bool { return w.Network == o.Network && w.Key == o.Key }

// event returns the event that tells the policy the end of an order.
func (o *Order) event(start, end time.Duration, why policy.Return) policy.Event {
	ev := policy.Event{Kind: policy.NetworkLoaded, Network: o.Network, Device: o.Device, Key: o.Key, Value: int64(why), Start: start, End: end}
	if !o.Load {
		ev.Kind = policy.NetworkUnloaded
	}
	return ev
}

// BatchOutputs are the outputs of a batch in the memory where they were produced. They are valid during the call to
// which they are passed.
type Outputs interface {
	// Output returns the i-th output of the batch's service, task after task.
	Output(i int) []byte
}

// BackendEvent is an event that a backend posts to the inbox: one flat value for all kinds.
type News struct {
	Kind       uint8 // numbered by the backend
	Code       uint32
	Device     int32 // its backend handles the event
	Gen        int32 // generation of the worker or connection on the device
	Tokens     int32
	Id         uint64 // of a run
	Start, End int64  // CLOCK_MONOTONIC
	Cpu, Total int64
	Text       string
	Back       any // a result; rarely set
}
