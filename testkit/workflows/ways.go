package workflows

import (
	"slices"

	"inferplan/policy/flow"
)

// Ways draws the ways of so many requests of each application: what a plan of them
// says of their chances.
func Ways(requests int, seed uint64) [][]flow.RecordedPath {
	apps, out := NewApps(seed), make([][]flow.RecordedPath, len(Names))
	var w Way
	for m := range out {
		for range requests {
			w.Reset()
			apps.Draw(int32(m), &w)
			way := flow.RecordedPath{Count: 1, KnownTasks: w.Ends[0]}
			for i := range w.Len() {
				t := &w.Tasks[i]
				task := flow.PathTask{Service: t.Service, Work: t.Work, Reads: slices.Clone(t.Reads)}
				for k := range task.Reads {
					task.Reads[k] = int32(i) - task.Reads[k]
				}
				way.Tasks = append(way.Tasks, task)
			}
			out[m] = append(out[m], way)
		}
	}
	return out
}
