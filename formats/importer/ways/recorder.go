package ways

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats"
)

// Call is a recorded task of a request, with times in nanoseconds of any clock.
type Call struct {
	Model      string
	Start, End int64
	ID         string
	Reads      []string // ids of the tasks that it reads, if they were recorded
}

// RecordedPath returns the path of a request with these calls, of which there is at least one.
func Way(list []Call) formats.Way {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Call) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	way, first := formats.Way{Count: 1}, list[0].End
	for i := range list {
		first = min(first, list[i].End)
	}
	for i := range list {
		if list[i].Start < first || i == 0 {
			way.Known++
		}
		way.Tasks = append(way.Tasks, formats.WayTask{Model: list[i].Model, Reads: reads(list, i)})
	}
	return way
}

// predecessorsOf returns the calls that a call reads, as distances backwards.
func reads(list []Call, i int) (out []int) {
	if list[i].Reads != nil {
		for _, id := range list[i].Reads {
			if at := slices.IndexFunc(list[:i], func(c Call) bool { return c.ID == id }); at >= 0 {
				out = append(out, i-at)
			}
		}
		return out
	}
	for k := range list[:i] {
		if list[k].End > list[i].Start {
			continue
		}
		// Skip a call if another one that began after it had ended, and has ended itself, has read it.
		if !slices.ContainsFunc(list[k+1:i], func(c Call) bool { return c.Start >= list[k].End && c.End <= list[i].Start }) {
			out = append(out, i-k)
		}
	}
	return out
}

// Recorder collects paths.
type Recorder struct {
	names []string
	ways  map[string][]formats.Way // paths by application
	at    map[string]int           // index of a path, by application and content
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{ways: map[string][]formats.Way{}, at: map[string]int{}}
}

// Add counts a path of an application. Paths without tasks, or with more than a document can hold, are left out.
func (r *Recorder) Add(application string, way formats.Way) {
	if len(way.Tasks) == 0 || len(way.Tasks) > formats.MaxTasks {
		return
	}
	if r.ways[application] == nil {
		r.names = append(r.names, application)
	}
	key := fmt.Sprint(application, "\x00", way.Known, way.Tasks)
	if i, ok := r.at[key]; ok {
		r.ways[application][i].Count += way.Count
		return
	}
	r.at[key] = len(r.ways[application])
	r.ways[application] = append(r.ways[application], way)
}

// Document returns the collected paths by application, the most frequent first.
func (r *Recorder) Document() *formats.Transitions {
	d := &formats.Transitions{Format: formats.FormatTransitions}
	names := slices.Clone(r.names)
	slices.Sort(names)
	for _, name := range names {
		list := slices.Clone(r.ways[name])
		slices.SortStableFunc(list, func(a, b formats.Way) int { return b.Count - a.Count })
		d.Applications = append(d.Applications, formats.WaysOf{Application: name, Ways: list})
	}
	return d
}
