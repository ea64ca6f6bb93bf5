package transitions

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Call is a recorded task of a request, with times in nanoseconds of any clock.
type Call struct {
	Model          string
	Start, EndedAt int64
	ID             string
	Reads          []string // ids of the tasks that it reads, if they were recorded
}

// RecordedPath returns the calls of a request, of which there is at least one, as its path: tasks in order, each with
// the earlier ones that it reads. Tasks that began before any had ended were known from the start. KnownTasks counts
// these.
func RecordedPath(list []Call) formats.Way {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Call) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.EndedAt, b.EndedAt)) })
	path, firstEnd := formats.Way{Count: 1}, list[0].EndedAt
	for i := range list {
		firstEnd = min(firstEnd, list[i].EndedAt)
	}
	for i := range list {
		if list[i].Start < firstEnd || i == 0 {
			path.KnownTasks++
		}
		path.Tasks = append(path.Tasks, formats.WayTask{Model: list[i].Model, Reads: predecessorsOf(list, i)})
	}
	return path
}

// predecessorsOf returns which calls call i reads, as distances backwards: those that it names or, if it names none,
// those that had ended before it began and were not read by another one in between. list is sorted by start. A
// distance of 1 is the call before.
func predecessorsOf(list []Call, i int) (out []int) {
	if list[i].Reads != nil {
		for _, id := range list[i].Reads {
			if index := slices.IndexFunc(list[:i], func(c Call) bool { return c.ID == id }); index >= 0 {
				out = append(out, i-index)
			}
		}
		return out
	}
	for k := range list[:i] {
		if list[k].EndedAt > list[i].Start {
			continue
		}
		// Skip a call if another one that began after it had ended, and has ended itself, has read it.
		if !slices.ContainsFunc(list[k+1:i], func(c Call) bool { return c.Start >= list[k].EndedAt && c.EndedAt <= list[i].Start }) {
			out = append(out, i-k)
		}
	}
	return out
}

// Recorder collects paths.
type Recorder struct {
	names      []string
	paths      map[string][]formats.Way // paths by application
	indexByKey map[string]int           // index of a path, by application and content

	leftOut      int    // requests of more tasks than a document can hold
	firstLeftOut string // what the first of them is
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{paths: map[string][]formats.Way{}, indexByKey: map[string]int{}}
}

// addCalls counts the path of a request, or leaves it out if it has more tasks than a document can hold. It returns
// whether it was counted. name is what the request is, such as a session.
func (r *Recorder) addCalls(application, name string, list []Call) bool {
	if len(list) > formats.MaxTasks {
		r.leaveOut(name)
		return false
	}
	r.Add(application, RecordedPath(list))
	return true
}

func (r *Recorder) leaveOut(name string) {
	if r.leftOut++; r.leftOut == 1 {
		r.firstLeftOut = name
	}
}

// Note says which requests were left out, or is empty if none was.
func (r *Recorder) Note() string {
	if r.leftOut == 0 {
		return ""
	}
	return fmt.Sprintf("left out %s of more than %d tasks, the first of them %s", document.CountOf(r.leftOut, "request"), formats.MaxTasks, r.firstLeftOut)
}

// Add counts a path of an application. Paths without tasks, or with more than a document can hold, are left out.
func (r *Recorder) Add(application string, path formats.Way) {
	if len(path.Tasks) > formats.MaxTasks {
		r.leaveOut("of the application " + application)
	}
	if len(path.Tasks) == 0 || len(path.Tasks) > formats.MaxTasks {
		return
	}
	if r.paths[application] == nil {
		r.names = append(r.names, application)
	}
	key := fmt.Sprint(application, "\x00", path.KnownTasks, path.Tasks)
	if i, ok := r.indexByKey[key]; ok {
		r.paths[application][i].Count += path.Count
		return
	}
	r.indexByKey[key] = len(r.paths[application])
	r.paths[application] = append(r.paths[application], path)
}

// Document returns the collected paths by application, the most frequent first.
func (r *Recorder) Document() *formats.Transitions {
	d := &formats.Transitions{Format: formats.FormatTransitions}
	names := slices.Clone(r.names)
	slices.Sort(names)
	for _, name := range names {
		list := slices.Clone(r.paths[name])
		slices.SortStableFunc(list, func(a, b formats.Way) int { return b.Count - a.Count })
		d.Applications = append(d.Applications, formats.WaysOf{Application: name, Paths: list})
	}
	return d
}
