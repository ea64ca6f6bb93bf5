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

// ServiceDemand is the tasks and the work that a visit of a segment gives to a service.
type ServiceDemand struct {
	Service int32
	Tasks   float64 // mean number of tasks
	Work    float64 // mean work of all of them, in units of the usual work of a task
}

// maxVisitStates bounds the states that VisitCounts distinguishes.
const maxVisitStates = 20_000

// CompileSegments compiles a workflow by itself. It also returns the models that it names, which are its services, in
// this order. Errors name fields below path.
func CompileSegments(application *formats.Application, path string) (*Workflow, []string, error) {
	var names []string
	serviceOf := map[string]int32{}
	for i := range application.Segments {
		for k := range application.Segments[i].Modules {
			for _, name := range application.Segments[i].Modules[k].Services() {
				if _, ok := serviceOf[name]; !ok {
					serviceOf[name] = int32(len(names))
					names = append(names, name)
				}
			}
		}
	}
	workflow, err := compileWorkflow(&formats.FlowApplication{Served: formats.Served{Model: application.Name}, Parameters: application.Parameters, Segments: application.Segments}, serviceOf, path)
	return workflow, names, err
}

// VisitCounts lists, for a request of the workflow, the different ways to visit its segments (parts whose tasks are
// revealed together): how often each is visited, with the chance of that, the most likely first. It returns an error
// if there are more than maxVisitStates states to follow.
func (w *Workflow) VisitCounts() ([]SegmentVisits, error) {
	// A state is the visits so far with their chance, and the segment that the request is in.
	type state struct {
		SegmentVisits
		segment int32 // -1 if the request has ended
	}
	first := state{SegmentVisits{make([]int32, len(w.Segments)), 1}, 0}
	first.Counts[0] = 1

	// All requests advance by one segment per round. Equal states are merged: endedIndex and nextIndex have, by the text of a
	// state, its index in `ended` or nextStates.
	states, ended, endedIndex := []state{first}, []SegmentVisits(nil), map[string]int{}
	for statesFollowed := 0; len(states) > 0; {
		var nextStates []state
		nextIndex := map[string]int{}
		for i := range states {
			current := &states[i]
			statesFollowed++
			if statesFollowed > maxVisitStates {
				return nil, fmt.Errorf("more than %d ways through its segments", maxVisitStates)
			}
			for element, chance := range w.nextChances(current.segment, current.Counts) { // element 0 is the end, i+1 segment i
				if chance == 0 {
					continue
				}
				next := state{SegmentVisits{slices.Clone(current.Counts), current.Chance * chance}, int32(element) - 1}
				if next.segment >= 0 {
					next.Counts[next.segment]++
				}

				// Add the state, or its chance to that of an equal state.
				key := stateText(next.segment, next.Counts)
				if next.segment < 0 {
					if index, ok := endedIndex[key]; ok {
						ended[index].Chance += next.Chance
						continue
					}
					endedIndex[key] = len(ended)
					ended = append(ended, next.SegmentVisits)
				} else if index, ok := nextIndex[key]; ok {
					nextStates[index].Chance += next.Chance
				} else {
					nextIndex[key] = len(nextStates)
					nextStates = append(nextStates, next)
				}
			}
		}
		states = nextStates
	}

	// The most likely first.
	slices.SortStableFunc(ended, func(first, second SegmentVisits) int {
		return cmp.Or(cmp.Compare(second.Chance, first.Chance), slices.Compare(first.Counts, second.Counts))
	})
	return ended, nil
}

// stateText returns a text by which VisitCounts finds equal states: the bytes of the segment that a request is in, and of
// its visits by segment.
func stateText(segment int32, visits []int32) string {
	text := binary.NativeEndian.AppendUint32(nil, uint32(segment))
	for _, count := range visits {
		text = binary.NativeEndian.AppendUint32(text, uint32(count))
	}
	return string(text)
}

// nextChances returns the chances of the next step of a request in a segment (part of a workflow), if it has visited
// each segment as often as visits says: element 0 is the end, element i+1 segment i. Segments that may not be visited
// again are left out, and the other chances are scaled to the sum 1. If nothing is left, the request ends.
func (w *Workflow) nextChances(segment int32, visits []int32) []float64 {
	chances := make([]float64, len(w.Segments)+1)

	// Add the chances of the branches that are open.
	segmentRow, sum := &w.Segments[segment], 0.0
	for branch, target := range segmentRow.BranchTargets {
		if target < 0 || w.Segments[target].MaxVisits == 0 || visits[target] < w.Segments[target].MaxVisits {
			chance := segmentRow.Branches[branch].ProbabilityAt(int(visits[segment]))
			chances[target+1] += chance
			sum += chance
		}
	}

	// Scale them to the sum 1.
	if sum == 0 {
		clear(chances)
		chances[0] = 1
		return chances
	}
	for i := range chances {
		chances[i] /= sum
	}
	return chances
}

// ServiceDemands returns the demands of a visit of a segment (part of a workflow whose tasks are revealed together), one
// for each step or, if a step has routes (services that may run it), for each route by its share: the service, the mean
// number of tasks, and their mean work together, in units of a usual task of the service.
func (w *Workflow) ServiceDemands(segment int) []ServiceDemand {
	var out []ServiceDemand
	segmentRow := &w.Segments[segment]
	meanTasks := make([]float64, len(w.Names)) // mean number of tasks, by name
	for k := range segmentRow.Steps {
		step := &segmentRow.Steps[k]

		// How many tasks does the step have on average? As many as another step has (EachOf, an index of names), as the
		// chances say (ItemChances[i] is that of i tasks), or a fixed number.
		tasks := float64(step.FixedCount)
		switch {
		case step.EachOf >= 0:
			tasks = meanTasks[step.EachOf]
		case step.CountVaries && len(step.ItemChances) > 0:
			tasks = 0
			for i, share := range step.ItemChances {
				tasks += float64(i) * share
			}
		}
		meanTasks[step.Name] = tasks

		// Demand them of its service, or of its routes by their shares.
		work := tasks * step.relativeWork()
		if step.Service >= 0 {
			out = append(out, ServiceDemand{step.Service, tasks, work})
		}
		for route, service := range step.Routes {
			out = append(out, ServiceDemand{service, tasks * step.RouteShares[route], work * step.RouteShares[route]})
		}
	}
	return out
}

// relativeWork returns a step's work relative to the usual work of its service, 1 by default.
func (s *Step) relativeWork() float64 {
	if s.Work == 0 {
		return 1
	}
	return float64(s.Work) / millionths
}

// PathStep is a step on a path through a segment. Any of the services may run it. Work is relative to the usual.
type PathStep struct {
	Services []int32
	Work     float64
}

// SegmentPaths lists the paths through a segment (part of a workflow whose tasks are revealed together): from steps that
// read no step of it, along those that read the one before, to steps that none of it reads. Each step of a path has the
// services any of which may run it, and its work relative to a usual task. It returns an error if there are more than
// MaxPaths.
func (w *Workflow) SegmentPaths(segment int) ([][]PathStep, error) {
	steps := w.Segments[segment].Steps
	readers := make([][]int, len(steps))  // by step: the steps that read it
	readsStep := make([]bool, len(steps)) // by step: whether it reads a step of the segment
	for stepIndex := range steps {
		for _, name := range steps[stepIndex].Reads {
			if source := slices.IndexFunc(steps[:stepIndex], func(step Step) bool { return step.Name == name }); source >= 0 {
				readers[source] = append(readers[source], stepIndex)
				readsStep[stepIndex] = true
			}
		}
	}

	// Walk from every first step.
	var out [][]PathStep
	var walk func(stepIndex int, path []PathStep)
	walk = func(stepIndex int, path []PathStep) {
		step := &steps[stepIndex]
		pathStep := PathStep{Services: step.Routes, Work: step.relativeWork()}
		if step.Service >= 0 {
			pathStep.Services = []int32{step.Service}
		}
		path = append(slices.Clone(path), pathStep)
		if len(out) > MaxPaths {
			return
		}
		if len(readers[stepIndex]) == 0 {
			out = append(out, path)
		}
		for _, reader := range readers[stepIndex] {
			walk(reader, path)
		}
	}
	for stepIndex := range steps {
		if !readsStep[stepIndex] {
			walk(stepIndex, nil)
		}
	}
	if len(out) > MaxPaths {
		return nil, fmt.Errorf("more than %d paths through segment %s", MaxPaths, w.Segments[segment].Name)
	}
	return out, nil
}

// DrawnRequests is the number of drawn requests that stand for the chances of an application.
const DrawnRequests = 1000

// DrawPaths draws a number of requests of a workflow by its chances, and returns the different paths that they take,
// with their counts, the most frequent first. A path (a formats.Way in documents) is a list of tasks in the order in
// which they are revealed, each with the tasks that it reads. It is used where no paths were recorded. `services` are
// those that CompileSegments returned.
func DrawPaths(workflow *Workflow, name string, services []string, requests int, seed uint64) []formats.Way {
	tables := &policy.Tables{Models: []policy.Model{{Name: name}}}
	workflows := &WorkflowTables{Apps: []Workflow{*workflow}}
	control := &WorkflowControl{workflows: workflows}
	control.SetChoices(NewRandomChoices(workflows, tables, seed))
	var out []formats.Way
	indexInOut := map[string]int{} // by the text of a path
	var reveals policy.RevealedTasks

	// Run each request to its end, and note its tasks. BeginRequest reveals the first ones, those that are known at its
	// arrival. Every task ends at once, and TaskEnded may append further tasks to the list that the loop goes through.
	for range requests {
		request := recordedRequest{path: formats.Way{Count: 1}}
		control.BeginRequest(0, 0, &reveals) // one request at a time, so all use slot 0; the only application is 0
		request.path.KnownTasks = len(reveals.Tasks)
		for next := 0; next < len(reveals.Tasks); next++ {
			revealed := reveals.Tasks[next]
			request.addTask(services[revealed.Service], revealed.Task, revealed.Work, reveals.InputsOf(&revealed))
			control.TaskEnded(revealed.Task, policy.Outcome{}, &reveals)
		}

		// At its end the control lists all slots of the request as unread. Release them for the next request.
		for _, slot := range reveals.UnreadTasks {
			reveals.ReleaseSlot(slot)
		}
		reveals.Reset()
		if len(request.path.Tasks) == 0 {
			continue
		}

		// Equal paths count together.
		pathText := fmt.Sprint(request.path.KnownTasks, request.path.Tasks)
		if pathIndex, ok := indexInOut[pathText]; ok {
			out[pathIndex].Count++
			continue
		}
		indexInOut[pathText] = len(out)
		out = append(out, request.path)
	}
	slices.SortStableFunc(out, func(first, second formats.Way) int { return second.Count - first.Count })
	return out
}
