package workers

import (
	"fmt"
	"strings"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// Assume takes the tensors of models from the plan, as if workers had loaded them, and divides their memory.
func (w *Workers) Assume() error {
	k := w.Crew
	for _, d := range k.own {
		cfg := k.workerConfig(d, k.places[d.Index])
		loaded := make([]worker.Loaded, len(cfg.Stages))
		for i := range cfg.Stages {
			s := &cfg.Stages[i]
			loaded[i] = worker.Loaded{ID: s.ID, Inputs: s.Inputs, Outputs: s.Outputs, WeightBytes: s.WeightBytes}
		}
		k.divide(d, loaded)
	}
	if err := k.readModels(); err != nil {
		return err
	}
	_, err := k.settleAll()
	return err
}

// cutAllResidentSlots cuts the slots of the networks that every device holds at the start. It returns, by device, the
// commands that load them.
func (k *crew) settleAll() ([][]worker.Swap, error) {
	first := make([][]worker.Swap, len(k.own))
	for i, d := range k.own {
		if d.Home == nil {
			continue
		}
		if err := k.loadsInTime(d); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
		var err error
		if first[i], err = homesOf(k).settle(d); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	return first, nil
}

// checkLoadTimes returns an error if a device that replays loads would not finish those at the start before its worker
// has to be ready.
func (k *crew) loadsInTime(d *Device) error {
	if k.c.Options.Engine != "replay" {
		return nil
	}
	loads, names := time.Duration(0), []string(nil)
	for _, n := range homesOf(k).residents(d) {
		network := &k.c.Tables.Networks[n]
		if names = append(names, network.Name); network.Load != nil {
			loads += network.Load[k.c.Tables.Devices[d.Index].Kind][1]
		}
		if loads < 0 || loads > k.opt.StartTimeout {
			return fmt.Errorf("device %d (%s) loads %s for more than the %v in which a worker has to start", d.Index, d.Kind, strings.Join(names, ", "), k.opt.StartTimeout)
		}
	}
	return nil
}
