package workflow

import (
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// maxLearnt is the number of requests of an application from which the prediction learns. If more were recorded, each
// path counts by its share.
const mostLearnt = 10_000

// maxPriorBusy bounds the busy share of the devices that is expected before any task has run.
const mostBusy = .95

// learnPriors learns what is known before the first request: the recorded paths of the tables, and how often their tasks
// will be needed at the planned rates.
func (p *Policy) begin() {
	own := flow.WorkflowsOf(p.fleet.t)
	if own == nil || !p.opt.Predict && !p.opt.Admit {
		return
	}
	for app, list := range own.Ways {
		all := int64(0)
		for i := range list {
			all += int64(list[i].Count)
		}
		for i := range list {
			p.learn(int32(app), &list[i], all)
			if p.opt.Worth {
				p.demand.expect(p.fleet, &list[i], p.fleet.t.Models[app].RPS*float64(list[i].Count)/float64(all))
			}
		}
	}
	p.demand.busy = min(mostBusy, p.demand.busy)
}

// learnRecordedPath learns a path that w.Count of totalCount recorded requests of an application took.
func (p *Policy) learn(app int32, w *flow.Way, all int64) {
	var path, reads []int32
	for k := range w.Tasks {
		t := &w.Tasks[k]
		if reads = append(reads[:0], t.Reads...); len(reads) == 0 {
			reads = append(reads, 0)
		}
		path = append(path, p.Table().Number(t.Service, t.Work, reads))
	}
	if p.opt.Admit {
		p.door.learnWay(app, path, w, float64(w.Count)/float64(all))
	}
	if !p.opt.Predict {
		return
	}
	times := int64(w.Count)
	if all > mostLearnt {
		times = max(1, times*mostLearnt/all)
	}
	for range times {
		p.Table().Learn(app, predict.NoFeature, path, int(w.Known))
	}
}

// addPathDemand adds the demand of a path that is expected `rate` times per second.
func (d *demand) expect(f *fleet, w *flow.Way, rate float64) {
	for k := range w.Tasks {
		sv := &f.services[w.Tasks[k].Service]
		d.rates[sv.network] += rate / 1e9
		d.busy += rate / 1e9 * float64(scaled(sv.least, workOf(w.Tasks[k].Work))) / float64(len(f.ids))
	}
}
