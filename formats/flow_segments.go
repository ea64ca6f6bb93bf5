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
	Name    string   `json:"name"`
	Modules []Module `json:"modules"`
	Most    int      `json:"most,omitempty"` // largest number of visits; required if segments lead back to it
	Next    []Branch `json:"next,omitzero"`  // branches, of which the first that holds is taken; if there are none, the request ends
}

// Route is a model that may run a module, as a request decides.
type Route struct {
	Model       string  `json:"model"`
	Probability float64 `json:"probability"`
}

// MaxTasks bounds the tasks of a request.
const MaxTasks = 4096

// ChanceAt is the probability of a way at a visit of its segment, from 1.
func (b *Branch) ChanceAt(visit int) float64 {
	if visit < 2 || len(b.Later) == 0 {
		return b.Probability
	}
	return b.Later[min(visit-2, len(b.Later)-1)]
}

// Services are the models that may do a module's tasks at run time.
func (m *Module) Services() []string {
	if len(m.Routes) == 0 {
		return []string{cmp.Or(m.Model, m.Name)}
	}
	var out []string
	for i := range m.Routes {
		out = append(out, m.Routes[i].Model)
	}
	return out
}

// servicesOf lists the models of all modules of an application.
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
func segmented(list []Segment) []Segment {
	list = slices.Clone(list)
	for i := range list {
		s := &list[i]
		s.Modules = slices.Clone(s.Modules)
		for k := range s.Modules {
			m := &s.Modules[k]
			if m.After == nil {
				if m.After = []string{}; m.Each != "" {
					m.After = []string{m.Each}
				} else if k > 0 {
					m.After = []string{s.Modules[k-1].Name}
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
	list  []Segment
	names []string
	place map[string]int
	to    [][]int // segments that one leads to
	at    string
}

// checkSegments checks the segments of an application as a graph.
func checkSegments(c *document.Checker, list []Segment, at string) {
	if c.FailIf(len(list) > MaxModules, at, fmt.Sprintf("%d segments", len(list)), "1 to %d", MaxModules) {
		return
	}
	g := &segmentGraph{Checker: c, list: list, names: make([]string, len(list)), place: map[string]int{}, to: make([][]int, len(list)), at: at}
	for i := range list {
		c.Name(g.place, i, list[i].Name, "%s[%d].name", at, i)
		g.place[list[i].Name], g.names[i] = i, list[i].Name
	}
	found := c.Count()
	for i := range list {
		here := fmt.Sprintf("%s[%d]", at, i)
		if s := &list[i]; s.Most < 0 || s.Most > MaxTasks {
			c.Fail(here+".most", document.Whole(s.Most), fmt.Sprintf("1 to %d visits", MaxTasks), "")
		}
		g.ways(i, here)
		g.steps(i, here)
	}
	if c.Count() > found {
		return
	}
	g.reach()
	g.bounded()
	if c.Count() == found {
		g.size()
	}
}

// ways checks the ways on from a segment.
func (g *segmentGraph) ways(i int, at string) {
	// Check each branch: its probabilities, the segment it leads to and its condition.
	next, visits := g.list[i].Next, 1
	for k := range next {
		b, here := &next[k], fmt.Sprintf("%s.next[%d]", at, k)
		visits = max(visits, len(b.Later)+1)
		g.Share(here+".probability", b.Probability)
		for j, p := range b.Later {
			g.Share(fmt.Sprintf("%s.later[%d]", here, j), p)
		}
		if len(b.To) > 1 {
			g.Fail(here+".to", fmt.Sprintf("%d segments", len(b.To)), "at most one", "tasks that run side by side are modules of one segment")
		}
		for j, name := range b.To {
			if to, ok := g.place[name]; ok {
				g.to[i] = append(g.to[i], to)
			} else {
				unknownName(g.Checker, name, "segment", g.names, fmt.Sprintf("%s.to[%d]", here, j))
			}
		}
		if last := k == len(next)-1; b.When == "" != last && slices.ContainsFunc(next, func(b Branch) bool { return b.When != "" }) {
			expected := "a condition, which the last way alone lacks"
			if last {
				expected = "no condition: it is taken where none before it holds"
			}
			g.Fail(here+".when", cmp.Or(b.When, "nothing"), expected, "")
		}
	}

	// At every visit, the probabilities of the branches sum to 1.
	for visit := 1; visit <= visits && len(next) > 0; visit++ {
		sum := 0.0
		for k := range next {
			sum += next[k].ChanceAt(visit)
		}
		if !(math.Abs(sum-1) <= 1e-6) {
			g.Fail(at+".next", fmt.Sprintf("probabilities that sum to %s at visit %d", document.FormatFloat(sum), visit), "1", "a way with an empty list of segments ends the request")
		}
	}
}

// unknownName reports a name that is not among the known names.
func unknownName(c *document.Checker, name, what string, names []string, at string) {
	c.Fail(at, "the "+what+" "+document.Quote(name), "a "+what+" of the application", document.DidYouMean(name, names))
}

// steps checks the modules of a segment.
func (g *segmentGraph) steps(i int, at string) {
	list, seen := g.list[i].Modules, map[string]int{}
	g.FailIf(len(list) == 0 || len(list) > MaxModules, at+".modules", fmt.Sprintf("%d modules", len(list)), "1 to %d", MaxModules)
	for k := range list {
		m, here := &list[k], fmt.Sprintf("%s.modules[%d]", at, k)
		g.Name(seen, k, m.Name, "%s.name", here)
		seen[m.Name] = k
		if len(m.Variants) > 0 || len(m.Branches) > 0 {
			g.Fail(here, "variants or branches", "neither in a segment", "routes choose a model at run time, and next a segment")
		}
		g.FailIf(m.Work < 0 || m.Work > 1e3, here+".work", m.Work, "a part of the usual work, at most 1000")
		checkTokens(g.Checker, m, here)
		read := map[string]int{}
		for j, name := range m.After {
			g.Name(read, j, name, "%s.after[%d]", here, j)
			g.readable(i, k, name, fmt.Sprintf("%s.after[%d]", here, j))
		}
		g.fanned(m, list[:k], here)
		g.routed(m, here)
	}
}

// checkReadable checks that the module named name can have run before module k of segment i: it is listed before
// it in the segment, or is in a segment from which this one can be reached.
func (g *segmentGraph) readable(i, k int, name, at string) {
	var names []string
	for s := range g.list {
		for j := range g.list[s].Modules {
			if n := g.list[s].Modules[j].Name; n == name && (s == i && j < k || g.leads(s, i)) {
				return
			} else if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	if g.FailIf(slices.Contains(names, name), at, document.Quote(name)+", which never runs before", "a module before it in the segment, or in a segment that leads here") {
		return
	}
	unknownName(g.Checker, name, "module", names, at)
}

// isReachable reports whether a request in segment from can later be in segment to. A segment is reachable from
// itself only by a cycle.
func (g *segmentGraph) leads(from, to int) bool {
	seen := make([]bool, len(g.list))
	var walk func(i int) bool
	walk = func(i int) bool {
		for b := range g.list[i].Next {
			for _, name := range g.list[i].Next[b].To {
				n, ok := g.place[name]
				if ok && (n == to || !seen[n]) {
					seen[n] = true
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

// checkForEach checks the fields that make a module run once for each of several items.
func (g *segmentGraph) fanned(m *Module, before []Module, at string) {
	if m.Each != "" {
		g.FailIf(!slices.ContainsFunc(before, func(o Module) bool { return o.Name == m.Each }), at+".each", document.Quote(m.Each), "a module before it in the segment")
		g.FailIf(m.Items != "" || !slices.Contains(m.After, m.Each), at+".each", "a module that reads another one, or items of its own", "after with "+document.Quote(m.Each)+" in it, and no items")
	}
	g.FailIf(len(m.Chances) > 0 && m.Items == "", at+".chances", fmt.Sprintf("%d chances", len(m.Chances)), "items that they are of")
	sum := 0.0
	for j, p := range m.Chances {
		g.Share(fmt.Sprintf("%s.chances[%d]", at, j), p)
		sum += p
	}
	if len(m.Chances) > 0 && !(math.Abs(sum-1) <= 1e-6) {
		g.Fail(at+".chances", "probabilities that sum to "+document.FormatFloat(sum), "1", "they are of 0, 1, 2 … items")
	}
	g.FailIf(len(m.Chances) > MaxModules+1, at+".chances", fmt.Sprintf("%d chances", len(m.Chances)), "at most %d items", MaxModules)
}

// routed checks the models among which a request decides.
func (g *segmentGraph) routed(m *Module, at string) {
	if len(m.Routes) == 0 {
		g.FailIf(m.Route != "", at+".route", "an expression", "routes that it chooses from")
		return
	}
	g.FailIf(m.Model != "", at+".model", "a model beside routes", "one of the two")
	sum, seen := 0.0, map[string]int{}
	for j := range m.Routes {
		g.Name(seen, j, m.Routes[j].Model, "%s.routes[%d].model", at, j)
		g.Share(fmt.Sprintf("%s.routes[%d].probability", at, j), m.Routes[j].Probability)
		sum += m.Routes[j].Probability
	}
	g.FailIf(!(math.Abs(sum-1) <= 1e-6), at+".routes", "probabilities that sum to "+document.FormatFloat(sum), "1")
}

// reach checks that a request can come to every segment.
func (g *segmentGraph) reach() {
	for i := 1; i < len(g.list); i++ {
		if !g.leads(0, i) {
			g.Fail(fmt.Sprintf("%s[%d]", g.at, i), "the segment "+document.Quote(g.list[i].Name)+", to which no way leads", "one that is reached from the first", "name it in the next of a segment")
		}
	}
}

// bounded checks that every cycle has a segment that says how often it is visited.
func (g *segmentGraph) bounded() {
	state := make([]int8, len(g.list)) // 1: on the path, 2: done
	var path []string
	var walk func(i int)
	walk = func(i int) {
		state[i] = 1
		path = append(path, g.list[i].Name)
		for _, to := range g.to[i] {
			switch {
			case g.list[to].Most > 0 || state[to] == 2:
			case state[to] == 1:
				from := slices.Index(path, g.list[to].Name)
				g.Fail(fmt.Sprintf("%s[%d].next", g.at, i), "a cycle without a bound: "+strings.Join(append(slices.Clone(path[from:]), g.list[to].Name), " > "),
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

// size checks how many tasks a request can have at most: every visit of a bounded
// segment may lead to each of the others once more.
func (g *segmentGraph) size() {
	visits, most := 1, 0
	for i := range g.list {
		visits = min(visits+g.list[i].Most, MaxTasks+1)
	}
	for i := range g.list {
		tasks := 0
		for k := range g.list[i].Modules {
			tasks += max(1, len(g.list[i].Modules[k].Chances)-1)
		}
		n := visits
		if g.list[i].Most > 0 {
			n = g.list[i].Most
		}
		most += n * tasks
	}
	if most > MaxTasks {
		g.Fail(g.at, fmt.Sprintf("up to %d tasks of one request", most), fmt.Sprintf("at most %d", MaxTasks), "lower most, or the items of modules")
	}
}
