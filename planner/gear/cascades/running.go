package cascades

// Running says what devices hold under the plan that runs, and how many of them a new plan may move. A device moves if it
// loads a model or stage that it does not hold.
type Running struct {
	Devices  []RunningDevices
	MaxMoved int
}

// RunningDevices are devices of a kind that hold the same.
type RunningDevices struct {
	Kind     int    // index of the kind
	ModelSet uint32 // bits of the models that they hold whole
	Stages   []RunningStage
	Count    int
}

// RunningStage is a part of a model that a device holds.
type RunningStage struct {
	Model                int // index of the model
	FirstBlock, EndBlock int // blocks, half-open
}

// WithRunning returns the problem of plans that move at most maxMoved of some devices that run.
func (p *Problem) WithRunning(devices []RunningDevices, maxMoved int) *Problem {
	q := *p
	q.Running = &Running{Devices: devices, MaxMoved: maxMoved}
	return &q
}
