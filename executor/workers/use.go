package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
)

// countRun adds a run that has ended with result n to the device's statistics (busy time, CPU time), also if its batch
// was aborted. begin and end are its times on the core's clock. Runs that succeed are recorded for simulations, with a
// recorder.
func (d *Device) countRun(c *turn.Core, r *stageRun, n *turn.BackendEvent, begin, end time.Duration) {
	d.BusyTime += end - begin
	cpuTime := n.Total - d.cpuTotal
	d.cpuTotal = n.Total
	d.stats.AddCPUTime(time.Duration(n.Cpu), time.Duration(cpuTime))
	// The device is counted as busy from the time at which it could have begun: until it did, the policy decided,
	// the batch was copied into its memory, and the command was sent.
	if requestedAt := r.sentAt; !d.isRemote {
		if r.Batch != nil && r.Batch.CurrentHop == 0 {
			requestedAt = r.Batch.DispatchedAt
		}
		begin = min(begin, max(requestedAt, d.lastEnd))
	}
	d.lastEnd = max(d.lastEnd, end)
	if c.Stats.Recorder != nil && r.Batch != nil && worker.Code(n.Code) == worker.OK && !c.Answerer.HoldsDevice(r.Batch.Pipeline) {
		r.Batch.LastRun = c.Stats.Recorder.RecordRun(r.stage, r.size, begin, end-begin)
	}
}

// recordLoad records how long a load took until the policy is told of it now. It began when it was ordered or, if
// later, when the load before it was over, so that it includes evicting other networks.
func (h *deviceNetworks) recordLoad(c *turn.Core, o *turn.LoadOrder) {
	now := c.Loop.Now()
	if begin := max(o.OrderedAt, h.lastLoadEnd); c.Stats.Recorder != nil {
		c.Stats.Recorder.Loads[o.Network] = append(c.Stats.Recorder.Loads[o.Network], turn.RecordedRun{Start: begin - c.Stats.Recorder.FirstArrival(), Duration: now - begin})
	}
	h.lastLoadEnd = now
}

// recordTransfer counts a tensor of so many bytes that passed from one stage's device to the next, and how long that
// took, under its way (tier): a stream between hosts (Stream), GPU memory of another worker (Ipc), the device's memory,
// which is not copied (Reference), or shared memory of the host that the GPU reads directly (Pinned) or not (Shm).
func recordTransfer(c *turn.Core, bytes int64, from, to *Device, usedTier transferTier, duration time.Duration) {
	s := c.Stats
	t, m := &s.Shm, &s.Metrics.Shm
	onDevice := !usedTier.outlivesWorker()
	switch gpu := !formats.IsCPU(from.Kind) && c.Options.Engine == engineONNX; {
	case from.isRemote || to.isRemote:
		t, m = &s.Stream, &s.Metrics.Stream
	case onDevice && from != to:
		t, m = &s.Ipc, &s.Metrics.Ipc
	case from == to && (onDevice || !gpu):
		t, m = &s.Reference, &s.Metrics.Reference
	case gpu && from.pinned && to.pinned:
		t, m = &s.Pinned, &s.Metrics.Pinned
	}
	t.Add(bytes)
	t.Duration += duration
	m.Transfers.Inc()
	m.Bytes.Add(float64(bytes))
}

// Report adds to a report how the devices were used in the elapsed time, by device kind: running, loading, both,
// and idle. A device that is a share 1/v of a GPU counts as 1/v.
func (w *WorkerBackend) Report(r *formats.Report, elapsed time.Duration) {
	out := make([]formats.DeviceReport, len(w.core.Tables.Kinds))
	weight := make([]float64, len(out))
	busyTime, loadingTime, loadingBeside := make([]float64, len(out)), make([]float64, len(out)), make([]float64, len(out))
	seenGPUs := make([]map[int32]bool, len(out))

	// Sum up by kind.
	for _, d := range w.OwnDevices {
		t := &w.core.Tables.Devices[d.Index]
		w := 1 / float64(max(t.Share, 1))
		weight[t.Kind] += w
		busyTime[t.Kind] += w * float64(d.BusyTime)
		if d.Networks != nil {
			loadingTime[t.Kind] += w * float64(d.Networks.loadTime)
			loadingBeside[t.Kind] += w * float64(d.Networks.loadTimeBesideBatches)
		}
		if seenGPUs[t.Kind] == nil {
			seenGPUs[t.Kind] = map[int32]bool{}
		}
		seenGPUs[t.Kind][t.GPU] = true
	}

	// Report the kinds that have devices here.
	devices := out[:0]
	for k := range w.core.Tables.Kinds {
		if weight[k] == 0 {
			continue
		}
		totalTime := weight[k] * float64(elapsed)
		report := formats.DeviceReport{Device: w.core.Tables.Kinds[k], Count: len(seenGPUs[k]), RunningUS: document.Micros(busyTime[k] - loadingBeside[k]), LoadingUS: document.Micros(max(loadingTime[k]-loadingBeside[k], 0)), BothUS: document.Micros(loadingBeside[k])}
		report.IdleUS = max(document.Micros(totalTime)-report.RunningUS-report.LoadingUS-report.BothUS, 0)
		if totalTime > 0 {
			report.Utilisation = busyTime[k] / totalTime
		}
		devices = append(devices, report)
	}
	r.Devices = devices
}
