package text

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// serverDevice is a device whose requests servers of language models answer.
type serverDevice struct {
	core     *turn.Core
	options  *Options
	requests *serverRequests // of all devices of the backend
	device   int32
	name     string // in metrics and messages
	watch    serverWatch
	busyTime time.Duration // in which it had requests, as the core's watches saw it
}

// state returns the device. It implements servedDevice.
func (g *serverDevice) state() *serverDevice { return g }

// post posts an event of the device's servers to the core. lossCount is the number of losses from when its work began.
func (g *serverDevice) post(kind uint8, lossCount int32, text string) {
	g.core.Inbox.PostEvents(turn.BackendEvent{Kind: kind, Device: g.device, Generation: lossCount, Text: text})
}

// servedDevice is the part of a device's agent or generator that serverBackend needs.
type servedDevice interface {
	state() *serverDevice
	// prepare makes the servers ready.
	prepare(ctx context.Context) error
	// checkStatus checks servers that work, and tryRevive prepares lost ones. Both post what they find.
	checkStatus(ctx context.Context)
	tryRevive(ctx context.Context)
	// showState sets the gauges of the device.
	showState()
	// isBusy returns true if requests run on the device. The core's turn calls it.
	isBusy() bool
}

// serverBackend is the part that the backends of instances and of generators have in common. All its fields belong to the
// core's turn.
type serverBackend[S servedDevice] struct {
	core     *turn.Core
	options  *Options
	byDevice []S     // nil for devices that another backend executes
	devices  []int32 // devices of this backend, ascending
	requests serverRequests

	watchedAt time.Duration // when the core last watched the devices
}

// Kinds of events that agents and generators post to the core.
const (
	eventRunEnded uint8 = iota
	eventProgress       // a run has made tokens that the policy wants to know of
	eventOrderDone
	eventServerAnswers // a check found that the server answers
	eventServerLost
	eventServerReady
	eventServersChanged // the servers of an instance have changed
)

// open sets the fields of a backend without devices.
func (a *serverBackend[S]) open(c *turn.Core, o *Options) {
	a.core, a.options, a.byDevice = c, o, make([]S, len(c.Tables.Devices))
	a.requests.openRequests()
}

// prepareAll connects to the servers of all devices at once. A server that does not answer within SilenceTimeout is waited
// for later, while the others work. A server that lacks an adapter that the plan needs is an error. owner is the noun for
// the device in the log.
func (a *serverBackend[S]) prepareAll(ctx context.Context, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.SilenceTimeout)
	defer cancel()
	var wg sync.WaitGroup
	adapterErrs := make([]error, len(a.devices))
	for i, d := range a.devices {
		wg.Go(func() {
			g := a.byDevice[d].state()
			switch err := a.byDevice[d].prepare(ctx); {
			case errors.Is(err, llm.ErrNoAdapter):
				adapterErrs[i] = fmt.Errorf("%w: instance %s: %w", turn.ErrPlan, g.name, err)
			case err != nil:
				a.core.Options.Log.Warn("the server of "+owner+" does not answer yet", "instance", g.name, "error", err)
			default:
				g.watch.alive.Store(true)
			}
		})
	}
	wg.Wait()
	return errors.Join(adapterErrs...)
}

// LoopStarted is called once when the core's loop runs. It starts a goroutine for each server that watches whether it
// works, and tells the policy, by events, which servers do not answer yet.
func (a *serverBackend[S]) LoopStarted() {
	for _, d := range a.devices {
		g := a.byDevice[d]
		g.showState()
		watch := &g.state().watch
		if !watch.alive.Load() {
			g.state().post(eventServerLost, watch.lossCount.Load(), "")
		}
		a.requests.wg.Go(func() { watch.run(a.requests.ctx, g.checkStatus, g.tryRevive) })
	}
}

// IsUp reports whether the servers of a device work.
func (a *serverBackend[S]) IsUp(device int32) bool {
	return a.byDevice[device].state().watch.alive.Load()
}

// BusyTime implements turn.Backend.
func (a *serverBackend[S]) BusyTime(device int32) time.Duration {
	return a.byDevice[device].state().busyTime
}

// addBusyTime adds the time since the last watch to the busy times of the devices that have requests now, without the time
// `paused` in which this process stood still. Watches come a few times per second.
func (a *serverBackend[S]) addBusyTime(now, paused time.Duration) {
	for _, d := range a.devices {
		if g := a.byDevice[d]; g.isBusy() {
			g.state().busyTime += max(now-a.watchedAt-paused, 0)
		}
	}
	a.watchedAt = now
}

// answerOrder answers an order to load or unload at once. A reason other than 0 refuses it.
func (a *serverBackend[S]) answerOrder(o turn.LoadOrder, reason policy.ReturnReason) {
	now := a.core.Loop.Now()
	a.core.TellLoaded(&o, now, now, reason)
}

// PlaceInputs answers at once, because a request brings to its server all that it reads.
func (a *serverBackend[S]) PlaceInputs(task, device, ticket int32) {
	now := a.core.Loop.Now()
	a.core.TellPlaced(task, device, ticket, now, now)
}

// SendWaiting does nothing: batches do not wait for slots here.
func (a *serverBackend[S]) SendWaiting() {}

// Close ends all runs. The text that was written is stored.
func (a *serverBackend[S]) Close(ctx context.Context) {
	a.requests.endRequests(ctx, a.core.Options.Log)
}
