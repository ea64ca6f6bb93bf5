package workflow

import (
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// maxLearnt is the number of requests of an application from which the prediction learns. If more were recorded, each
// path counts by its share.
const maxLearnt = 10_000

// maxPriorBusy bounds the busy share of the devices that is expected before any task has run.
const maxPriorBusy = .95

// learnPriors learns what is known before the first request: the paths of tasks in the plan's tables that recorded requests took, and how
// often networks will be needed at the planned rates of requests.
// It is called once, when the policy is made, and does nothing if neither prediction nor admission would use it.
func (p *Policy) learnPriors() {
	workflows := flow.WorkflowTablesOf(p.tables.planTables)
	if workflows == nil || !p.cluster.options.ExpectTasks && !p.cluster.options.Admit {
		return
	}
	for app, paths := range workflows.Paths {
		totalCount := int64(0)
		for i := range paths {
			totalCount += int64(paths[i].Count)
		}
		for i := range paths {
			p.learnRecordedPath(int32(app), &paths[i], totalCount)
			// The application's planned rate of requests (RPS) is divided among its paths.
			if p.cluster.options.EvictByValue {
				p.cluster.demand.addPathDemand(p.tables, &paths[i], p.tables.planTables.Models[app].RPS*float64(paths[i].Count)/float64(totalCount))
			}
		}
	}
	p.cluster.demand.busyShare = min(maxPriorBusy, p.cluster.demand.busyShare)
}

// learnRecordedPath learns a path that recordedPath.Count of totalCount recorded requests of an application took, for admission and for prediction.
// The prediction learns a path once per request, but at most maxLearnt times for all paths of the application, because more would only take time.
func (p *Policy) learnRecordedPath(app int32, recordedPath *flow.RecordedPath, totalCount int64) {
	// Number the kinds of its tasks in the prediction table. A task that lists no input reads the client's.
	var taskKinds, reads []int32
	for taskIndex := range recordedPath.Tasks {
		task := &recordedPath.Tasks[taskIndex]
		reads = append(reads[:0], task.Reads...)
		if len(reads) == 0 {
			reads = append(reads, 0)
		}
		taskKinds = append(taskKinds, p.Table().TokenNumber(task.Service, task.Work, reads))
	}

	// Admission learns the path once, with its share of the requests.
	if p.cluster.options.Admit {
		p.admission.learnRecordedPath(app, taskKinds, recordedPath, float64(recordedPath.Count)/float64(totalCount))
	}
	if !p.cluster.options.ExpectTasks {
		return
	}

	// The prediction learns it as often as it was taken, up to a bound.
	times := int64(recordedPath.Count)
	if totalCount > maxLearnt {
		times = max(1, times*maxLearnt/totalCount)
	}
	for range times {
		p.Table().Learn(app, predict.NoFeature, taskKinds, int(recordedPath.KnownTasks))
	}
}

// addPathDemand adds the demand for networks of a recorded path of tasks that is expected `rate` times per second, before the first
// request. It also adds to busyShare the share of all device time that these tasks take.
func (d *networkDemand) addPathDemand(tables *deviceTables, recordedPath *flow.RecordedPath, rate float64) {
	ratePerNs := rate / 1e9
	for taskIndex := range recordedPath.Tasks {
		task := &recordedPath.Tasks[taskIndex]
		profile := &tables.services[task.Service]
		d.rates[profile.network] += ratePerNs

		// A task takes at least the time of the quickest kind of device.
		taskTime := scaleTime(profile.minTaskTime, factorFromMillionths(task.Work))
		d.busyShare += ratePerNs * float64(taskTime) / float64(len(tables.planDevice))
	}
}
