package workers

import (
	"fmt"
	"strings"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// Assume sets up the backend as if its workers had started: it takes the tensors of models from the plan and
// divides the workers' memory, without starting any. Compiling a plan for serving uses it as a check.
func (w *WorkerBackend) Assume() error {
	k := w.Supervisor
	for _, d := range k.ownDevices {
		cfg := k.workerConfig(d, k.workerDevices[d.Index])
		loaded := make([]worker.LoadedStage, len(cfg.Stages))
		for i := range cfg.Stages {
			s := &cfg.Stages[i]
			loaded[i] = worker.LoadedStage{ID: s.ID, Inputs: s.Inputs, Outputs: s.Outputs, WeightBytes: s.WeightBytes}
		}
		k.divideSegment(d, loaded)
	}
	if err := k.setModelTensors(); err != nil {
		return err
	}
	_, err := k.cutAllResidentSlots()
	return err
}

// cutAllResidentSlots gives memory slots (each holds one batch's tensors) to the networks, models that come and go,
// that every device holds at the start. It returns, by device, the commands that make the workers load them.
func (k *supervisor) cutAllResidentSlots() ([][]worker.Swap, error) {
	first := make([][]worker.Swap, len(k.ownDevices))
	for i, d := range k.ownDevices {
		if d.Networks == nil {
			continue
		}
		if err := k.checkLoadTimes(d); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
		var err error
		if first[i], err = k.cutResidentSlots(d); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	return first, nil
}

// checkLoadTimes returns an error if a device would not finish the loads at its start within the time that a
// worker has to get ready. It applies to the engine replay, which only waits for as long as the plan says that a
// load takes.
func (k *supervisor) checkLoadTimes(d *Device) error {
	if k.core.Options.Engine != "replay" {
		return nil
	}
	loads, names := time.Duration(0), []string(nil)
	for _, n := range k.residentNetworks(d) {
		network := &k.core.Tables.Networks[n]
		if names = append(names, network.Name); network.LoadTimes != nil {
			loads += network.LoadTimes[k.core.Tables.Devices[d.Index].Kind][1] // from disk; index 0 is from the host's memory
		}
		// A sum below 0 has overflowed.
		if loads < 0 || loads > k.options.StartTimeout {
			return fmt.Errorf("device %d (%s) loads %s for more than the %v in which a worker has to start", d.Index, d.Kind, strings.Join(names, ", "), k.options.StartTimeout)
		}
	}
	return nil
}
