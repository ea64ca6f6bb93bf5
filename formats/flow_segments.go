package formats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats/document"
)

// Segment is a part of a workflow whose tasks are all revealed at once. A module is listed after the modules that
// it reads. A name among its predecessors means the module of that name earlier in the segment or, if there is
// none, the latest run of a module of that name.
type Segment struct {
	Name         string   `json:"name"`
	Modules      []Module `json:"modules"`
	MaxVisits    int      `json:"most,omitempty"` // largest number of visits; required if segments lead back to it
	NextBranches []Branch `json:"next,omitzero"`  // branches, of which the first that holds is taken; if there are none, the request ends
}

// Route is a model that may run a module, as a request decides.
type Route struct {
	Model       string  `json:"model"`
	Probability float64 `json:"probability" check:"share"`
}

// MaxTasks bounds the tasks of a request.
const MaxTasks = 4096

// ProbabilityAt returns the probability that a request takes this way after visit number `visit` of its segment,
// from 1. The last one stated holds for all later visits.
func (b *Branch) ProbabilityAt(visit int) float64 {
	if visit < 2 || len(b.LaterProbabilities) == 0 {
		return b.Probability
	}
	return b.LaterProbabilities[min(visit-2, len(b.LaterProbabilities)-1)]
}

// Services returns the models of which one does a module's task at run time: its routes, or its only model.
func (m *Module) Services() []string {
	if len(m.Routes) == 0 {
		return []string{cmp.Or(m.Model, m.Name)}
	}
	return document.Map(m.Routes, func(r *Route) string { return r.Model })
}

// servicesOf returns the models of all modules of an application, which has either modules or segments (parts of a
// workflow with modules of their own).
func servicesOf(modules []Module, segments []Segment) []string {
	var out []string
	for i := range modules {
		out = append(out, modules[i].Services()...)
	}
	for i := range segments {
		out = append(out, servicesOf(segments[i].Modules, nil)...)
	}
	return out
}

// segmentsWithDefaults returns the segments with their defaults filled in: a module reads the module before it,
// and the first module of a segment reads the client's input.
func segmentsWithDefaults(list []Segment) []Segment {
	list = slices.Clone(list)
	for i := range list {
		s := &list[i]
		s.Modules = slices.Clone(s.Modules)
		for k := range s.Modules {
			m := &s.Modules[k]
			if m.Predecessors == nil {
				if m.Predecessors = []string{}; m.ForEach != "" {
					m.Predecessors = []string{m.ForEach}
				} else if k > 0 {
					m.Predecessors = []string{s.Modules[k-1].Name}
				}
			}
			if m.Model == "" && len(m.Routes) == 0 {
				m.Model = m.Name
			}
		}
	}
	return list
}

// segmentGraph checks the segments of an application.
type segmentGraph struct {
	*document.Checker
	list        []Segment
	names       []string
	indexByName map[string]int
	successors  [][]int // segments that one leads to
	fieldPath   string
}

// checkSegments reports to c what is wrong with the segments of an application, which form a graph: a request goes
// from segment to segment, until a way leads to none. A segment is a part of a workflow: modules that run one after
// the other or side by side.
func checkSegments(c *document.Checker, list []Segment, fieldPath string) {
	if c.FailIf(len(list) > MaxModules, fieldPath, fmt.Sprintf("%d segments", len(list)), "1 to %d", MaxModules) {
		return
	}
	g := &segmentGraph{Checker: c, list: list, names: make([]string, len(list)), indexByName: map[string]int{}, successors: make([][]int, len(list)), fieldPath: fieldPath}
	for i := range list {
		c.Name(g.indexByName, i, list[i].Name, "%s[%d].name", fieldPath, i)
		g.indexByName[list[i].Name], g.names[i] = i, list[i].Name
	}
	errorsBefore := c.Count()
	for i := range list {
		entryPath := fmt.Sprintf("%s[%d]", fieldPath, i)
		c.FailIf(list[i].MaxVisits < 0 || list[i].MaxVisits > MaxTasks, entryPath+".most", list[i].MaxVisits, "1 to %d visits", MaxTasks)
		g.checkBranches(i, entryPath)
		g.checkModules(i, entryPath)
	}

	// Check the graph as a whole, if its parts are right.
	if c.Count() > errorsBefore {
		return
	}
	g.checkAllReachable()
	g.checkCyclesBounded()
	if c.Count() == errorsBefore {
		g.checkTaskCount()
	}
}

// checkBranches reports what is wrong with the ways on from segment i: where they lead, their conditions, and
// their probabilities, which sum to 1 at every visit.
func (g *segmentGraph) checkBranches(i int, fieldPath string) {
	// Check each branch: its probabilities, the segment it leads to and its condition.
	branches, visits := g.list[i].NextBranches, 1
	for k := range branches {
		b, entryPath := &branches[k], fmt.Sprintf("%s.next[%d]", fieldPath, k)
		visits = max(visits, len(b.LaterProbabilities)+1)
		g.HintIf(len(b.Targets) > 1, entryPath+".to", fmt.Sprintf("%d segments", len(b.Targets)), "at most one", "tasks that run side by side are modules of one segment")
		for j, name := range b.Targets {
			if to, ok := g.indexByName[name]; ok {
				g.successors[i] = append(g.successors[i], to)
			} else {
				unknownName(g.Checker, name, "segment", g.names, fmt.Sprintf("%s.to[%d]", entryPath, j))
			}
		}
		if isLast := k == len(branches)-1; b.Condition == "" != isLast && slices.ContainsFunc(branches, func(b Branch) bool { return b.Condition != "" }) {
			expected := "a condition, which the last way alone lacks"
			if isLast {
				expected = "no condition: it is taken where none before it holds"
			}
			g.Fail(entryPath+".when", cmp.Or(b.Condition, "nothing"), expected, "")
		}
	}

	// At every visit, the probabilities of the branches sum to 1.
	for visit := 1; visit <= visits && len(branches) > 0; visit++ {
		sum := 0.0
		for k := range branches {
			sum += branches[k].ProbabilityAt(visit)
		}
		g.HintIf(!(math.Abs(sum-1) <= 1e-6), fieldPath+".next", fmt.Sprintf("probabilities that sum to %s at visit %d", document.FormatFloat(sum), visit), "1", "a way with an empty list of segments ends the request")
	}
}

// unknownName reports a name that is not among the known names.
func unknownName(c *document.Checker, name, kind string, names []string, fieldPath string) {
	c.Fail(fieldPath, "the "+kind+" "+document.Quote(name), "a "+kind+" of the application", document.DidYouMean(name, names))
}

// checkModules reports what is wrong with the modules of segment i: their work, and which modules they read.
func (g *segmentGraph) checkModules(i int, fieldPath string) {
	list, indexByName := g.list[i].Modules, map[string]int{}
	g.FailIf(len(list) == 0 || len(list) > MaxModules, fieldPath+".modules", fmt.Sprintf("%d modules", len(list)), "1 to %d", MaxModules)
	for k := range list {
		m, entryPath := &list[k], fmt.Sprintf("%s.modules[%d]", fieldPath, k)
		g.Name(indexByName, k, m.Name, "%s.name", entryPath)
		indexByName[m.Name] = k
		g.HintIf(len(m.Variants) > 0 || len(m.Branches) > 0, entryPath, "variants or branches", "neither in a segment", "routes choose a model at run time, and next a segment")
		checkTokens(g.Checker, m, entryPath)
		read := map[string]int{}
		for j, name := range m.Predecessors {
			g.Name(read, j, name, "%s.after[%d]", entryPath, j)
			g.checkReadable(i, k, name, fmt.Sprintf("%s.after[%d]", entryPath, j))
		}
		g.checkForEach(m, list[:k], entryPath)
		g.checkRoutes(m, entryPath)
	}
}

// checkReadable reports an error unless the module called name can have run before module k of segment i: it
// stands before it in the segment, or in a segment from which this one can be reached.
func (g *segmentGraph) checkReadable(i, k int, name, fieldPath string) {
	var names []string
	for s := range g.list {
		for j := range g.list[s].Modules {
			if n := g.list[s].Modules[j].Name; n == name && (s == i && j < k || g.isReachable(s, i)) {
				return
			} else if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	if g.FailIf(slices.Contains(names, name), fieldPath, document.Quote(name)+", which never runs before", "a module before it in the segment, or in a segment that leads here") {
		return
	}
	unknownName(g.Checker, name, "module", names, fieldPath)
}

// isReachable reports whether a request in segment from can later be in segment to. A segment is reachable from
// itself only by a cycle. from and to are indices into g.list.
func (g *segmentGraph) isReachable(from, to int) bool {
	visited := make([]bool, len(g.list))
	var walk func(i int) bool
	walk = func(i int) bool {
		for b := range g.list[i].NextBranches {
			for _, name := range g.list[i].NextBranches[b].Targets {
				n, ok := g.indexByName[name]
				if ok && (n == to || !visited[n]) {
					visited[n] = true
					if n == to || walk(n) {
						return true
					}
				}
			}
		}
		return false
	}
	return walk(from)
}

// checkForEach reports what is wrong with the fields that make a module run once for each of several items: of
// another module, or a number of its own with the chances of 0, 1, 2 … items. earlierModules are the modules before m
// in its segment.
func (g *segmentGraph) checkForEach(m *Module, earlierModules []Module, fieldPath string) {
	if m.ForEach != "" {
		g.FailIf(!slices.ContainsFunc(earlierModules, func(o Module) bool { return o.Name == m.ForEach }), fieldPath+".each", document.Quote(m.ForEach), "a module before it in the segment")
		g.FailIf(m.Items != "" || !slices.Contains(m.Predecessors, m.ForEach), fieldPath+".each", "a module that reads another one, or items of its own", "after with "+document.Quote(m.ForEach)+" in it, and no items")
	}
	g.FailIf(len(m.Chances) > 0 && m.Items == "", fieldPath+".chances", fmt.Sprintf("%d chances", len(m.Chances)), "items that they are of")
	sum := 0.0
	for _, p := range m.Chances {
		sum += p
	}
	g.HintIf(len(m.Chances) > 0 && !(math.Abs(sum-1) <= 1e-6), fieldPath+".chances", "probabilities that sum to "+document.FormatFloat(sum), "1", "they are of 0, 1, 2 … items")
	g.FailIf(len(m.Chances) > MaxModules+1, fieldPath+".chances", fmt.Sprintf("%d chances", len(m.Chances)), "at most %d items", MaxModules)
}

// checkRoutes reports what is wrong with a module's routes, the models of which a request uses one, by an
// expression or, in simulation, by probabilities.
func (g *segmentGraph) checkRoutes(m *Module, fieldPath string) {
	if len(m.Routes) == 0 {
		g.FailIf(m.Route != "", fieldPath+".route", "an expression", "routes that it chooses from")
		return
	}
	g.FailIf(m.Model != "", fieldPath+".model", "a model beside routes", "one of the two")
	sum, indexByName := 0.0, map[string]int{}
	for j := range m.Routes {
		g.Name(indexByName, j, m.Routes[j].Model, "%s.routes[%d].model", fieldPath, j)
		sum += m.Routes[j].Probability
	}
	g.FailIf(!(math.Abs(sum-1) <= 1e-6), fieldPath+".routes", "probabilities that sum to "+document.FormatFloat(sum), "1")
}

// checkAllReachable reports segments to which no way leads from the first one.
func (g *segmentGraph) checkAllReachable() {
	for i := 1; i < len(g.list); i++ {
		g.HintIf(!g.isReachable(0, i), fmt.Sprintf("%s[%d]", g.fieldPath, i), "the segment "+document.Quote(g.list[i].Name)+", to which no way leads", "one that is reached from the first", "name it in the next of a segment")
	}
}

// checkCyclesBounded reports cycles of segments of which none limits how often it is visited, because requests
// might never end.
func (g *segmentGraph) checkCyclesBounded() {
	state := make([]int8, len(g.list)) // 1: on the path, 2: done
	var path []string
	var walk func(i int)
	walk = func(i int) { // depth first; a segment on the path again closes a cycle
		state[i] = 1
		path = append(path, g.list[i].Name)
		for _, to := range g.successors[i] {
			switch {
			case g.list[to].MaxVisits > 0 || state[to] == 2:
			case state[to] == 1:
				cycleStart := slices.Index(path, g.list[to].Name)
				g.Fail(fmt.Sprintf("%s[%d].next", g.fieldPath, i), "a cycle without a bound: "+strings.Join(append(slices.Clone(path[cycleStart:]), g.list[to].Name), " > "),
					"most on one of its segments", "most: 3 ends a loop after three visits")
			default:
				walk(to)
			}
		}
		path = path[:len(path)-1]
		state[i] = 2
	}
	for i := range g.list {
		if state[i] == 0 {
			walk(i)
		}
	}
}

// checkTaskCount reports an error if a request can have more than MaxTasks tasks: every visit of a segment with a
// limit of visits may lead to each of the others once more.
func (g *segmentGraph) checkTaskCount() {
	visits, maxTasks := 1, 0
	for i := range g.list {
		visits = min(visits+g.list[i].MaxVisits, MaxTasks+1)
	}
	for i := range g.list {
		tasks := 0
		for k := range g.list[i].Modules {
			tasks += max(1, len(g.list[i].Modules[k].Chances)-1)
		}
		// A segment without a limit is visited at most as often as all limited ones together, and once more.
		n := visits
		if g.list[i].MaxVisits > 0 {
			n = g.list[i].MaxVisits
		}
		maxTasks += n * tasks
	}
	g.HintIf(maxTasks > MaxTasks, g.fieldPath, fmt.Sprintf("up to %d tasks of one request", maxTasks), fmt.Sprintf("at most %d", MaxTasks), "lower most, or the items of modules")
}
