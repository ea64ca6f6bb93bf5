package workflow

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// service is a model that the applications share.
type service struct {
	name                      string
	profile                   *formats.ProfileModel
	weights                   int64           // bytes
	nearMoveTime, farMoveTime time.Duration   // to move a session's state to a device of the same machine, or of another
	byKind                    []serviceOnKind // by kind of devices
}

// serviceOnKind is a service on one kind of devices.
type serviceOnKind struct {
	costs        stages.ShareCosts
	workingBytes int64 // memory of the largest useful batch, in bytes, beside the weights
	loadTime     time.Duration
	batches      []usefulBatch // rising. If there is none, the service cannot run there.
}

// usefulBatch is a batch size that a service may have on a kind of devices.
type usefulBatch struct {
	batch               int
	meanTime, worstTime time.Duration // mean time of this batch, and the longest of any batch up to it
}

// secondsPerTask returns the device time of a task in a full batch, in seconds.
func (s *usefulBatch) secondsPerTask() float64 { return s.meanTime.Seconds() / float64(s.batch) }

// minBatchGain is the least factor by which a larger batch must raise the throughput to be useful.
const minBatchGain = 1.001

// notDeployed stands for the batch of a service on a kind of devices that does not run it.
const notDeployed = -1

// slowestBatch returns the longest time that a batch of the service takes on any kind of devices. chosen has, by kind, the index of the
// useful batch that was chosen for it, or notDeployed.
func (s *service) slowestBatch(chosen []int) time.Duration {
	maxTime := time.Duration(0)
	for k, batch := range chosen {
		if batch != notDeployed {
			maxTime = max(maxTime, s.byKind[k].batches[batch].worstTime)
		}
	}
	return maxTime
}

// minSingleTime returns the least time that the smallest batch of the service takes on any kind of devices, for the shortest time that its
// step of a workflow may have.
func (s *service) minSingleTime() time.Duration {
	minTime, anyKind := time.Duration(0), false
	for k := range s.byKind {
		batches := s.byKind[k].batches
		if len(batches) > 0 && (!anyKind || batches[0].worstTime < minTime) {
			minTime, anyKind = batches[0].worstTime, true
		}
	}
	return minTime
}

// serviceIndex returns the index of a service (a model that applications ask for) in the problem. If it is not there yet, it is read from
// the profile and added, with its useful batches and load time on each kind of devices. A model that fits on none is an error. docPath is
// the place of the module that asks for it.
func (w *workflowProblem) serviceIndex(name, docPath string) (int, error) {
	if i := slices.IndexFunc(w.services, func(s service) bool { return s.name == name }); i >= 0 {
		return i, nil
	}
	i, err := w.input.ModelIndex(name, docPath)
	if err != nil {
		return 0, err
	}
	m := &w.input.Profile.Models[i]
	costs, err := stages.MeasuredCosts(m, w.pools, w.input.Values.WholeNumber("max-batch"), w.input.FileName("profile"), fmt.Sprintf("models[%d]", i))
	if err != nil {
		return 0, err
	}
	s := service{name: name, profile: m, byKind: make([]serviceOnKind, len(w.pools))}
	s.weights += lists.Sum(len(m.Blocks), func(k int) int64 { return m.Blocks[k].WeightBytes })
	if m := m.Move; m != nil {
		s.nearMoveTime, s.farMoveTime = m.NearUS.D(), m.FarUS.D()
	}

	// Measure it on each kind of devices. It must run on some kind.
	anyKind := false
	for k := range w.pools {
		s.byKind[k].costs = costs[k][0]
		s.listBatches(k, &w.pools[k])
		if len(s.byKind[k].batches) > 0 {
			anyKind = true
			w.setLoadTime(&s, k)
		}
	}
	if !anyKind && w.languageModels[name] != nil {
		return 0, w.input.FieldError("workload", docPath, fmt.Sprintf("%q, whose longest sequence has no room in KV memory beside the weights on %s", name, kind.DeviceNames(w.pools)), "devices with more memory", "a lower max of prompt and output makes sequences shorter")
	}
	if !anyKind {
		return 0, w.input.FieldError("workload", docPath, fmt.Sprintf("%q, which was measured with no batch that fits on %s", name, kind.DeviceNames(w.pools)), "a model that was measured there", "")
	}

	// The applications read so far ask nothing of the new service.
	for k := range w.apps {
		w.apps[k].meanTasks, w.apps[k].meanWork = append(w.apps[k].meanTasks, 0), append(w.apps[k].meanWork, 0)
	}
	w.services = append(w.services, s)
	return len(w.services) - 1, nil
}

// listBatches lists the useful batches of the service on kind k of devices, with their mean and longest times: rising sizes, up to the
// one where the throughput stops rising or the memory of the pool is full. It also sets the memory of the largest one beside the weights.
func (s *service) listBatches(k int, pool *formats.Pool) {
	onKind, worstTime, bestRate := &s.byKind[k], time.Duration(0), 0.0
	for _, b := range onKind.costs.PlannableSizes() {
		e := onKind.costs.ExpectedTimes(b)
		worstTime = max(worstTime, stages.MaxTime(&onKind.costs, b, 0, len(s.profile.Blocks)))
		meanTime := e.Mean(0, len(s.profile.Blocks))
		rate := float64(b) / meanTime.Seconds()
		workingBytes := max(0, onKind.costs.CostAt(b).Memory-s.weights)
		if pool.Memory > 0 && s.weights+workingBytes > int64(pool.Memory) || rate < bestRate*minBatchGain {
			return
		}
		bestRate, onKind.workingBytes = rate, max(onKind.workingBytes, workingBytes)
		onKind.batches = append(onKind.batches, usefulBatch{batch: b, meanTime: meanTime, worstTime: worstTime})
	}
}

// Assumed times of loads from the host's memory if none was measured: a fixed part, and bytes per second.
const (
	loadFixed = 100 * time.Millisecond
	loadRate  = 12e9
)

// setLoadTime sets how long it takes to load a service onto a device of kind k: as measured, from host memory if possible, else from
// disk; without a measurement it is computed from the bytes of its weights, which the plan states as an assumption.
func (w *workflowProblem) setLoadTime(s *service, k int) {
	onKind, device := &s.byKind[k], w.pools[k].Device
	for _, l := range s.profile.Loads {
		if l.Device == device {
			if onKind.loadTime = l.WarmUS.D(); onKind.loadTime == 0 {
				onKind.loadTime = l.ColdUS.D()
			}
		}
	}
	if onKind.loadTime == 0 && s.weights > 0 {
		onKind.loadTime = loadFixed + time.Duration(float64(s.weights)/loadRate*1e9).Round(time.Microsecond)
		w.run.Assume("load of %s: %s, at 12 GB/s and 100ms: the profile has no time of a load on %s", s.name, document.Duration(onKind.loadTime), device)
	}
}
