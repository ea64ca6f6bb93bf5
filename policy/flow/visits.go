package flow

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/policy"
)

// SegmentVisits says how often requests visit each segment, and the share of the requests that do so.
type SegmentVisits struct {
	Counts []int32 // by segment
	Chance float64
}

// ServiceDemand is the work of a visit of a segment for a service.
type ServiceDemand struct {
	Service int32
	Tasks   float64 // mean number
	Work    float64 // of all of them, in the usual work of a task
}

// maxVisitStates bounds the states that VisitCounts distinguishes.
const maxVisitStates = 20_000

// CompileSegments compiles a workflow by itself. It also returns the models that it names, which are its services, in
// this order. Errors name fields below path.
func CompileSegments(a *formats.Application, path string) (*Workflow, []string, error) {
	var names []string
	serviceOf := map[string]int32{}
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			for _, name := range a.Segments[i].Modules[k].Services() {
				if _, ok := serviceOf[name]; !ok {
					serviceOf[name] = int32(len(names))
					names = append(names, name)
				}
			}
		}
	}
	w, err := compileWorkflow(&formats.FlowApplication{Served: formats.Served{Model: a.Name}, Parameters: a.Parameters, Segments: a.Segments}, serviceOf, path)
	return w, names, err
}

// VisitCounts lists, for a request of the workflow, the different ways to visit its segments (parts whose tasks are
// revealed together): how often each is visited, with the chance of that, the most likely first. It returns an
// error if there are more than maxVisitStates ways to follow.
func (w *Workflow) VisitCounts() ([]SegmentVisits, error) {
	// A state is the visits so far and the segment that the request is in.
	type state struct {
		SegmentVisits
		at int32
	}
	first := state{SegmentVisits{make([]int32, len(w.Segments)), 1}, 0}
	first.Counts[0] = 1

	// All requests advance by one segment per round; equal states are merged.
	level, ended, foundAt := []state{first}, []SegmentVisits(nil), map[string]int{}
	for states := 0; len(level) > 0; {
		var nextStates []state
		nextAt := map[string]int{}
		for i := range level {
			s := &level[i]
			if states++; states > maxVisitStates {
				return nil, fmt.Errorf("more than %d ways through its segments", maxVisitStates)
			}
			for to, p := range w.nextChances(s.at, s.Counts) {
				after := state{SegmentVisits{slices.Clone(s.Counts), s.Chance * p}, int32(to) - 1}
				if p == 0 {
					continue
				}
				if after.at >= 0 {
					after.Counts[after.at]++
				}
				key := string(binary.NativeEndian.AppendUint32(nil, uint32(after.at)))
				for _, n := range after.Counts {
					key = string(binary.NativeEndian.AppendUint32([]byte(key), uint32(n)))
				}
				if after.at < 0 {
					if k, ok := foundAt[key]; ok {
						ended[k].Chance += after.Chance
						continue
					}
					foundAt[key] = len(ended)
					ended = append(ended, after.SegmentVisits)
				} else if k, ok := nextAt[key]; ok {
					nextStates[k].Chance += after.Chance
				} else {
					nextAt[key] = len(nextStates)
					nextStates = append(nextStates, after)
				}
			}
		}
		level = nextStates
	}

	// The most likely first.
	slices.SortStableFunc(ended, func(a, b SegmentVisits) int {
		return cmp.Or(cmp.Compare(b.Chance, a.Chance), slices.Compare(a.Counts, b.Counts))
	})
	return ended, nil
}

// nextChances returns the chances of what follows a segment (part of a workflow) after the given visits: element 0
// is the end, element i+1 segment i. Segments that may not be visited again are left out. If nothing is left, the
// request ends.
func (w *Workflow) nextChances(segment int32, visits []int32) []float64 {
	out := make([]float64, len(w.Segments)+1)
	s, sum := &w.Segments[segment], 0.0
	for b, to := range s.BranchTargets {
		if to < 0 || w.Segments[to].MaxVisits == 0 || visits[to] < w.Segments[to].MaxVisits {
			p := s.Branches[b].ProbabilityAt(int(visits[segment]))
			out[to+1] += p
			sum += p
		}
	}
	if sum == 0 {
		clear(out)
		out[0] = 1
		return out
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// ServiceDemands returns what a visit of a segment demands of each service, step by step: the mean number of tasks,
// and their mean work relative to the usual one. A step with routes divides both among them.
func (w *Workflow) ServiceDemands(segment int) []ServiceDemand {
	var out []ServiceDemand
	s := &w.Segments[segment]
	mean := make([]float64, len(w.Names)) // mean number of tasks, by name
	for k := range s.Steps {
		p := &s.Steps[k]
		n := float64(p.FixedCount)
		switch {
		case p.EachOf >= 0:
			n = mean[p.EachOf]
		case p.CountVaries && len(p.ItemChances) > 0:
			n = 0
			for i, share := range p.ItemChances {
				n += float64(i) * share
			}
		}
		mean[p.Name] = n
		work := n * p.relativeWork()
		if p.Service >= 0 {
			out = append(out, ServiceDemand{p.Service, n, work})
		}
		for r, id := range p.Routes {
			out = append(out, ServiceDemand{id, n * p.RouteShares[r], work * p.RouteShares[r]})
		}
	}
	return out
}

// relativeWork returns a step's work relative to the usual.
func (s *Step) relativeWork() float64 {
	if s.Work == 0 {
		return 1
	}
	return float64(s.Work) / millionths
}

// PathStep is a step on a path through a segment. Any of the services may run it.
type PathStep struct {
	Services []int32
	Work     float64
}

// SegmentPaths lists the paths through a segment (part of a workflow whose tasks are revealed together): from steps
// that read no step of it, along those that read the one before, to steps that none of it reads. It returns an
// error if there are more than MaxPaths.
func (w *Workflow) SegmentPaths(segment int) ([][]PathStep, error) {
	steps := w.Segments[segment].Steps
	readers, readsOther := make([][]int, len(steps)), make([]bool, len(steps)) // steps that read a step; whether a step reads any
	for k := range steps {
		for _, name := range steps[k].Reads {
			if source := slices.IndexFunc(steps[:k], func(s Step) bool { return s.Name == name }); source >= 0 {
				readers[source], readsOther[k] = append(readers[source], k), true
			}
		}
	}

	// Walk from every first step.
	var out [][]PathStep
	var walk func(k int, path []PathStep)
	walk = func(k int, path []PathStep) {
		s := &steps[k]
		pathStep := PathStep{Services: s.Routes, Work: s.relativeWork()}
		if s.Service >= 0 {
			pathStep.Services = []int32{s.Service}
		}
		path = append(slices.Clone(path), pathStep)
		if len(out) > MaxPaths {
			return
		}
		if len(readers[k]) == 0 {
			out = append(out, path)
		}
		for _, to := range readers[k] {
			walk(to, path)
		}
	}
	for k := range steps {
		if !readsOther[k] {
			walk(k, nil)
		}
	}
	if len(out) > MaxPaths {
		return nil, fmt.Errorf("more than %d paths through segment %s", MaxPaths, w.Segments[segment].Name)
	}
	return out, nil
}

// DrawnRequests is the number of drawn requests that stand for the chances of an application.
const DrawnRequests = 1000

// DrawPaths draws the paths (tasks in order, with what they read) of a number of requests of a workflow by its
// chances, and returns the different ones with their counts, the most frequent first. It is used where no paths
// were recorded. `services` are those that CompileSegments returned.
func DrawPaths(w *Workflow, name string, services []string, requests int, seed uint64) []formats.Way {
	t := &policy.Tables{Models: []policy.Model{{Name: name}}}
	workflows := &WorkflowTables{Apps: []Workflow{*w}}
	control := &WorkflowControl{workflows: workflows}
	control.SetChoices(NewRandomChoices(workflows, t, seed))
	var out []formats.Way
	foundAt := map[string]int{}
	var reveals policy.RevealedTasks

	// Run each request to its end, and note its tasks.
	for range requests {
		path := formats.Way{Count: 1}
		indexOf := map[int32]int{} // by slot: index in the path
		control.BeginRequest(0, 0, &reveals)
		path.KnownTasks = len(reveals.Tasks)
		for next := 0; next < len(reveals.Tasks); next++ { // Ended appends to the list
			r := reveals.Tasks[next]
			task := formats.WayTask{Model: services[r.Service]}
			if r.Work > 0 {
				task.Work = float64(r.Work) / millionths
			}
			for _, in := range reveals.InputsOf(&r) {
				if in >= 0 {
					task.Reads = append(task.Reads, len(path.Tasks)-indexOf[in])
				}
			}
			indexOf[r.Task] = len(path.Tasks)
			path.Tasks = append(path.Tasks, task)
			control.TaskEnded(r.Task, policy.Outcome{}, &reveals)
		}
		for _, slot := range reveals.UnreadTasks {
			reveals.ReleaseSlot(slot)
		}
		reveals.Reset()
		if len(path.Tasks) == 0 {
			continue
		}

		// Equal paths count together.
		key := fmt.Sprint(path.KnownTasks, path.Tasks)
		if k, ok := foundAt[key]; ok {
			out[k].Count++
			continue
		}
		foundAt[key] = len(out)
		out = append(out, path)
	}
	slices.SortStableFunc(out, func(a, b formats.Way) int { return b.Count - a.Count })
	return out
}
