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
type Visits struct {
	Times  []int32 // by segment
	Chance float64
}

// ServiceDemand is what a visit of a segment demands of a service.
type Ask struct {
	Service int32
	Tasks   float64 // mean number
	Work    float64 // of all of them, in the usual work of a task
}

// maxVisitStates bounds the states that VisitCounts distinguishes.
const maxVisits = 20_000

// CompileSegments compiles a workflow by itself. It also returns the models that it names, which are its services, in
// this order. Errors name fields below `at`.
func Segments(a *formats.Application, at string) (*Workflow, []string, error) {
	var names []string
	service := map[string]int32{}
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			for _, name := range a.Segments[i].Modules[k].Services() {
				if _, ok := service[name]; !ok {
					service[name] = int32(len(names))
					names = append(names, name)
				}
			}
		}
	}
	w, err := compileWorkflow(&formats.FlowApplication{Served: formats.Served{Model: a.Name}, Parameters: a.Parameters, Segments: a.Segments}, service, at)
	return w, names, err
}

// VisitCounts lists the different visit counts of the segments with their chances, the most likely first.
func (w *Workflow) Visits() ([]Visits, error) {
	// A state is the visits so far and the segment that the request is in.
	type state struct {
		Visits
		at int32
	}
	first := state{Visits{make([]int32, len(w.Segments)), 1}, 0}
	first.Times[0] = 1

	// All requests advance by one segment per round; equal states are merged.
	level, found, where := []state{first}, []Visits(nil), map[string]int{}
	for seen := 0; len(level) > 0; {
		var next []state
		place := map[string]int{}
		for i := range level {
			s := &level[i]
			if seen++; seen > maxVisits {
				return nil, fmt.Errorf("more than %d ways through its segments", maxVisits)
			}
			for to, p := range w.ways(s.at, s.Times) {
				x := state{Visits{slices.Clone(s.Times), s.Chance * p}, int32(to) - 1}
				if p == 0 {
					continue
				}
				if x.at >= 0 {
					x.Times[x.at]++
				}
				key := string(binary.NativeEndian.AppendUint32(nil, uint32(x.at)))
				for _, n := range x.Times {
					key = string(binary.NativeEndian.AppendUint32([]byte(key), uint32(n)))
				}
				if x.at < 0 {
					if k, ok := where[key]; ok {
						found[k].Chance += x.Chance
						continue
					}
					where[key] = len(found)
					found = append(found, x.Visits)
				} else if k, ok := place[key]; ok {
					next[k].Chance += x.Chance
				} else {
					place[key] = len(next)
					next = append(next, x)
				}
			}
		}
		level = next
	}

	// The most likely first.
	slices.SortStableFunc(found, func(a, b Visits) int {
		return cmp.Or(cmp.Compare(b.Chance, a.Chance), slices.Compare(a.Times, b.Times))
	})
	return found, nil
}

// nextChances returns the chances of what follows a segment: element 0 is the end, element i+1 segment i.
func (w *Workflow) ways(at int32, times []int32) []float64 {
	out := make([]float64, len(w.Segments)+1)
	s, sum := &w.Segments[at], 0.0
	for b, to := range s.To {
		if to < 0 || w.Segments[to].Most == 0 || times[to] < w.Segments[to].Most {
			p := s.Next[b].ChanceAt(int(times[at]))
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

// ServiceDemands returns what a visit of a segment demands, step by step.
func (w *Workflow) Asks(segment int) []Ask {
	var out []Ask
	s := &w.Segments[segment]
	mean := make([]float64, len(w.Names)) // mean number of tasks, by name
	for k := range s.Steps {
		p := &s.Steps[k]
		n := float64(p.Fixed)
		switch {
		case p.Each >= 0:
			n = mean[p.Each]
		case p.Counted && len(p.Items) > 0:
			n = 0
			for i, share := range p.Items {
				n += float64(i) * share
			}
		}
		mean[p.Name] = n
		work := n * p.work()
		if p.Service >= 0 {
			out = append(out, Ask{p.Service, n, work})
		}
		for r, id := range p.Routes {
			out = append(out, Ask{id, n * p.Shares[r], work * p.Shares[r]})
		}
	}
	return out
}

// relativeWork returns a step's work relative to the usual.
func (s *Step) work() float64 {
	if s.Work == 0 {
		return 1
	}
	return float64(s.Work) / millionths
}

// PathStep is a step on a path through a segment. Any of the services may run it.
type Leg struct {
	Services []int32
	Work     float64
}

// SegmentPaths lists the paths through a segment, from steps that read no step of it to steps that none of it reads.
func (w *Workflow) Paths(segment int) ([][]Leg, error) {
	steps := w.Segments[segment].Steps
	behind, read := make([][]int, len(steps)), make([]bool, len(steps)) // steps that read a step; whether a step reads any
	for k := range steps {
		for _, name := range steps[k].Reads {
			if from := slices.IndexFunc(steps[:k], func(s Step) bool { return s.Name == name }); from >= 0 {
				behind[from], read[k] = append(behind[from], k), true
			}
		}
	}

	// Walk from every first step.
	var out [][]Leg
	var walk func(k int, path []Leg)
	walk = func(k int, path []Leg) {
		s := &steps[k]
		leg := Leg{Services: s.Routes, Work: s.work()}
		if s.Service >= 0 {
			leg.Services = []int32{s.Service}
		}
		path = append(slices.Clone(path), leg)
		if len(out) > MaxPaths {
			return
		}
		if len(behind[k]) == 0 {
			out = append(out, path)
		}
		for _, to := range behind[k] {
			walk(to, path)
		}
	}
	for k := range steps {
		if !read[k] {
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

// DrawPaths draws the paths of a number of requests of a workflow by its chances. `services` are those that
// CompileSegments returned.
func DrawWays(w *Workflow, name string, services []string, requests int, seed uint64) []formats.Way {
	t := &policy.Tables{Models: []policy.Model{{Name: name}}}
	own := &Workflows{Apps: []Workflow{*w}}
	walk := &Walk{own: own}
	walk.Choose(NewDraws(own, t, seed))
	var out []formats.Way
	where := map[string]int{}
	var reveals policy.Reveals

	// Run each request to its end, and note its tasks.
	for range requests {
		way := formats.Way{Count: 1}
		place := map[int32]int{} // by slot: index in the path
		walk.Begin(0, 0, &reveals)
		way.Known = len(reveals.Tasks)
		for at := 0; at < len(reveals.Tasks); at++ { // Ended appends to the list
			r := reveals.Tasks[at]
			task := formats.WayTask{Model: services[r.Service]}
			if r.Work > 0 {
				task.Work = float64(r.Work) / millionths
			}
			for _, in := range reveals.InputsOf(&r) {
				if in >= 0 {
					task.Reads = append(task.Reads, len(way.Tasks)-place[in])
				}
			}
			place[r.Task] = len(way.Tasks)
			way.Tasks = append(way.Tasks, task)
			walk.Ended(r.Task, policy.Outcome{}, &reveals)
		}
		for _, slot := range reveals.Freed {
			reveals.Give(slot)
		}
		reveals.Reset()
		if len(way.Tasks) == 0 {
			continue
		}

		// Equal paths count together.
		key := fmt.Sprint(way.Known, way.Tasks)
		if k, ok := where[key]; ok {
			out[k].Count++
			continue
		}
		where[key] = len(out)
		out = append(out, way)
	}
	slices.SortStableFunc(out, func(a, b formats.Way) int { return b.Count - a.Count })
	return out
}
