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
	LoopStarted()
	// RunBatch takes over a batch for its current hop.
	RunBatch(b *Batch)
	// AbortBatch forgets a batch. A run that has begun may go on to its end.
	AbortBatch(b *Batch)
	// EvictBatch removes a batch from its instance. With `keep` its state stays near the instance.
	EvictBatch(b *Batch, keep bool)
	// LoadNetwork loads a network on a device, or unloads it.
	LoadNetwork(o LoadOrder)
	// PlaceInputs brings the inputs of a task, all of which exist, to a device. The ticket is returned with the event.
	PlaceInputs(task, device, ticket int32)
	// HandleEvent handles an event that the backend has posted. The event is valid during the call only.
	HandleEvent(n *BackendEvent)
	// SendWaiting is called at the end of every round. Batches that waited for a slot may now have one.
	SendWaiting()
	// Watch is called a few times per second to find what hangs. In the time `paused` no round ran, as on a machine that was
	// suspended.
	Watch(now, paused time.Duration)
	// IsUp returns true if a device executes. Any goroutine may call it.
	IsUp(device int32) bool
	// BusyTime returns how long a device has run batches so far.
	BusyTime(device int32) time.Duration
	// Close ends what executes, after the last round or a failed start. Events that no round handled are still in the inbox.
	Close(ctx context.Context)
}

// HangFactor is the multiple of the planned time before which nothing that executes is assumed to hang.
const HangFactor = 10

// Factories create the answerer and the backends that a plan needs.
type Factories struct {
	// Answerers are tried in order. Each returns nil for plans of another kind.
	Answerers []func(c *Core, plan *formats.Plan) (Answerer, error)
	// Backends are those beside the default one. Each returns the devices that it takes, and nil if it takes none.
	Backends []func(c *Core) (b Backend, devices []int32)
	// DefaultBackend returns the backend of the devices that no other one takes, for which isDefault is true.
	DefaultBackend func(c *Core, ours []bool) (Backend, error)
}

// backendSet holds the backends of a core.
type backendSet struct {
	backends []Backend
	byDevice []uint8 // index of the backend, by device
}

// AddBackends creates the backends of a core, each of which runs batches on some devices, when the core is made, and
// records the backend of each device. Devices that no special backend takes belong to the default one, number 0.
func (x *backendSet) AddBackends(c *Core) error {
	x.byDevice = make([]uint8, len(c.Tables.Devices))
	otherBackends := []Backend{}
	for _, newBackend := range c.Factories.Backends {
		b, devices := newBackend(c)
		if b == nil {
			continue
		}
		otherBackends = append(otherBackends, b)
		for _, d := range devices {
			x.byDevice[d] = uint8(len(otherBackends)) // its index in x.backends, where the default backend has index 0
		}
	}
	isDefault := make([]bool, len(x.byDevice))
	for d, backend := range x.byDevice {
		isDefault[d] = backend == 0
	}
	defaultBackend, err := c.Factories.DefaultBackend(c, isDefault)
	if err != nil {
		return err
	}
	x.backends = append([]Backend{defaultBackend}, otherBackends...)
	return nil
}

// BackendOf returns the backend of a device.
func (x *backendSet) BackendOf(device int32) Backend { return x.backends[x.byDevice[device]] }

// HasServers returns true if servers of language models execute on some device.
func (x *backendSet) HasServers() bool { return len(x.backends) > 1 }

// StartBackends prepares all devices for work (processes, servers), one backend after the other. If one fails, all
// are closed, so nothing is left running.
func (x *backendSet) StartBackends(ctx context.Context) error {
	for _, b := range x.backends {
		if err := b.Start(ctx); err != nil {
			x.CloseBackends()
			return err
		}
	}
	return nil
}

// Assume has each backend that can do so take the shapes and types of its models' tensors from the plan, instead of
// loading the models to learn them. It serves callers that compile a plan without starting it.
func (x *backendSet) Assume() error {
	for _, b := range x.backends {
		if a, ok := b.(interface{ Assume() error }); ok {
			if err := a.Assume(); err != nil {
				return err
			}
		}
	}
	return nil
}

// CloseBackends ends what executes: the workers and connections of all backends, which have two seconds for it.
func (x *backendSet) CloseBackends() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, b := range x.backends {
		b.Close(ctx)
	}
}

// LoadOrder is a network to be loaded on a device or unloaded from it.
type LoadOrder struct {
	Network, Device int32
	Key             int64         // slot of a task whose session state it is, with network -1
	Load            bool          // false to unload
	OrderedAt       time.Duration // when the policy ordered it
}

// IsSame returns true if two orders are for the same network or session state.
func (o *LoadOrder) IsSame(other LoadOrder) bool {
	return other.Network == o.Network && other.Key == o.Key
}

// event returns the event that tells the policy the end of an order.
func (o *LoadOrder) event(start, end time.Duration, reason policy.ReturnReason) policy.Event {
	ev := policy.Event{Kind: policy.NetworkLoaded, Network: o.Network, Device: o.Device, Key: o.Key, Value: int64(reason), Start: start, End: end}
	if !o.Load {
		ev.Kind = policy.NetworkUnloaded
	}
	return ev
}

// BatchOutputs are the outputs of a batch in the memory where they were produced. They are valid during the call to
// which they are passed.
type BatchOutputs interface {
	// Output returns the i-th output of the batch's service, task after task.
	Output(i int) []byte
}

// BackendEvent is an event that a backend posts to the inbox: one flat value for all kinds.
type BackendEvent struct {
	Kind       uint8 // numbered by the backend
	Code       uint32
	Device     int32 // its backend handles the event
	Generation int32 // generation of the worker or connection on the device
	Tokens     int32
	Id         uint64 // of a run
	Start, End int64  // CLOCK_MONOTONIC
	Cpu, Total int64
	Text       string
	Result     any // a result; rarely set
}
