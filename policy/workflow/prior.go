package workflow

import (
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// mostLearnt is how many requests of an application are learnt from; of more, their
// shares.
const mostLearnt = 10_000

// mostBusy bounds the share of busy devices that is expected before any has run.
const mostBusy = .95

// begin takes in what is known before the first request: the ways of the tables, and
// how often their tasks are asked for at the planned rates.
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

// learn takes in a way that a count of all requests of an application took.
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

// expect takes in a way that is expected so often per second.
func (d *demand) expect(f *fleet, w *flow.Way, rate float64) {
	for k := range w.Tasks {
		sv := &f.services[w.Tasks[k].Service]
		d.rates[sv.network] += rate / 1e9
		d.busy += rate / 1e9 * float64(scaled(sv.least, workOf(w.Tasks[k].Work))) / float64(len(f.ids))
	}
}
