package formats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/formats/document"
)

// Applications are pipelines of modules, each under one deadline.
type Applications []Application

// Application is either a graph of modules without cycles, which requests enter at the first module, or a
// workflow. A workflow consists of segments, and a request learns only at run time which segment comes next.
type Application struct {
	Name            string            `json:"name"`
	SLO             document.SLO      `json:"slo,omitzero"`                              // the SLO of the complete application; if left out, --slo
	Percentile      string            `json:"percentile,omitempty" check:"percentile"`   // p99 by default
	Weight          float64           `json:"weight,omitempty" default:"1" check:"rate"` // 1 by default
	RPS             float64           `json:"rps,omitempty" check:"rate"`                // the rate to be carried
	Accuracy        float64           `json:"accuracy,omitempty" check:"share"`          // floor, of the product over the modules
	Parameters      map[string]string `json:"parameters,omitzero"`                       // values that requests bring for conditions, with their types
	Modules         []Module          `json:"modules,omitzero"`
	Segments        []Segment         `json:"segments,omitzero"`     // instead of modules
	TransitionsFile string            `json:"transitions,omitempty"` // file of recorded ways, for workflows
}

// Module is one step of an application: a model, or one of several variants of
// it. A text in its place is the module's name alone.
type Module struct {
	Name         string    `json:"name"`
	Model        string    `json:"model,omitempty"`    // a model of the profile; if left out, the module's name
	Variants     []Variant `json:"variants,omitempty"` // models to choose from, instead of one
	Predecessors []string  `json:"after,omitzero"`     // modules whose outputs it reads; if left out, the module before it
	Branches     []Branch  `json:"branches,omitempty"` // a request takes one of them
	// Pre is a step of the server that makes the model's input from the module's inputs and the client's. Post
	// makes the module's output from the model's (see PreSteps, PostSteps). If empty, tensors are passed on
	// unchanged.
	Pre  string `json:"pre,omitempty"`
	Post string `json:"post,omitempty"`
	// Passages configures the step passages, which reads a file in the folder of the models.
	Passages *Passages `json:"passages,omitempty"`
	// Outputs are the outputs that conditions may read, with their types.
	Outputs map[string]string `json:"outputs,omitzero"`
	// The others are of modules in segments. Items says how often the module runs,
	// each time on one item, with the chances of 0, 1, 2 … items. Each names a module
	// that ran so: this one runs once for each of its outputs. Route names one of the
	// models of Routes.
	Work    float64   `json:"work,omitempty" default:"1" check:"work"` // work as a part of the model's usual time
	Items   string    `json:"items,omitempty"`
	Chances []float64 `json:"chances,omitzero" check:"share"`
	ForEach string    `json:"each,omitempty"`
	Route   string    `json:"route,omitempty"`
	Routes  []Route   `json:"routes,omitzero"`
	// Prompt and Output are the tokens of a language model's task, instead of Work: its
	// tasks run iteration by iteration, by the profile's llms.
	Prompt *Lengths `json:"prompt,omitempty"`
	Output *Lengths `json:"output,omitempty"`
	// LengthsFile is a CSV file with the tokens of prompts and answers, row by row, in place of Prompt and Output.
	// Sample holds rows of it, as a plan stores them. A row is the prompt and answer of a task, and is drawn as a
	// whole.
	LengthsFile string   `json:"lengths_file,omitempty"`
	Sample      [][2]int `json:"sample,omitempty"`
}

// SetName makes a module that a document names alone.
func (m *Module) SetName(name string) { m.Name = name }

// Passages are texts that a prompt begins with: the texts of a file whose vectors are nearest to the module's
// input.
type Passages struct {
	File    string `json:"file"`
	Nearest int    `json:"nearest"`
}

// Variant is a model that does a module's task.
type Variant struct {
	Model    string  `json:"model"`
	Accuracy float64 `json:"accuracy" check:"positiveShare"`
}

// Branch is one of the paths that a request can take: the modules that then run, or the segment that comes next. A
// module that is in no branch runs for every request.
type Branch struct {
	Targets            []string  `json:"to"`             // if empty, the path ends
	Condition          string    `json:"when,omitempty"` // the first branch whose condition holds is taken
	Probability        float64   `json:"probability" check:"share"`
	LaterProbabilities []float64 `json:"later,omitzero" check:"share"` // probabilities at the second visit of a segment, the third, and so on; the last holds for all later visits
}

var applicationsPart = workloadPart{name: "applications", kind: PlanFlow, section: Applications(nil), schema: schemaFile("workload.applications")}

// ApplicationsOf returns the applications that a workload asks for, or nil if it asks for something else.
func ApplicationsOf(w *Workload) Applications { return workloadSection[Applications](w) }

// Files returns the files that the applications of a workload name: recorded ways, and lengths of prompts and
// answers.
func (s Applications) Files() []SectionFile {
	var out []SectionFile
	for i := range s {
		if s[i].TransitionsFile != "" {
			out = append(out, SectionFile{Role: fmt.Sprintf("transitions[%d]", i), Path: s[i].TransitionsFile})
		}
		for g := range s[i].Segments {
			for k := range s[i].Segments[g].Modules {
				if m := &s[i].Segments[g].Modules[k]; m.LengthsFile != "" {
					out = append(out, SectionFile{Role: fmt.Sprintf("lengths[%d,%d,%d]", i, g, k), Path: m.LengthsFile})
				}
			}
		}
	}
	return out
}

// Models returns the models of which planning chooses one for a module, with the accuracy of each, or 0 if that is
// not known.
func (m *Module) Models() []Variant {
	if len(m.Variants) > 0 {
		return m.Variants
	}
	return []Variant{{Model: cmp.Or(m.Model, m.Name)}}
}

// WithDefaults returns the application with its defaults filled in: p99, weight 1, and every module's
// predecessors.
func (a Application) WithDefaults() Application {
	a.Percentile, a.Weight = cmp.Or(a.Percentile, "p99"), cmp.Or(a.Weight, 1)
	a.Modules, a.Segments = slices.Clone(a.Modules), segmentsWithDefaults(a.Segments)
	for i := range a.Modules {
		m := &a.Modules[i]
		if m.Predecessors == nil && i > 0 {
			m.Predecessors = []string{a.Modules[i-1].Name}
		}
		if m.Model == "" && len(m.Variants) == 0 {
			m.Model = m.Name
		}
	}
	return a
}

// MaxModules bounds the modules of one application.
const MaxModules = 64

// check reports to c what is wrong with a workload's applications, when the workload is validated: their names,
// targets, rates and graphs. All of them are either graphs of modules or lists of segments, because a plan serves
// only one of the two forms.
func (s Applications) check(c *document.Checker) {
	c.FailIf(len(s) == 0, "applications", "an empty list", "at least one application")
	indexByName := map[string]int{}
	for i := range s {
		a, fieldPath := &s[i], fmt.Sprintf("applications[%d]", i)
		c.Name(indexByName, i, a.Name, "applications[%d].name", i)
		if !a.SLO.IsZero() {
			checkSlo(c, a.SLO, fieldPath+".slo")
		}
		a.checkGraph(c, fieldPath)
		c.HintIf((len(a.Segments) > 0) != (len(s[0].Segments) > 0), fieldPath, "modules and segments in one workload", "one of the two for all applications", "make two workloads")
	}
	s.checkSameUnits(c)
}

// checkGraph reports to c what is wrong with the graph of an application, which has either modules or segments.
func (a *Application) checkGraph(c *document.Checker, fieldPath string) {
	complete := a.WithDefaults()
	switch {
	case len(a.Modules) > 0 && len(a.Segments) > 0:
		c.Fail(fieldPath+".segments", "segments beside modules", "one of the two", "")
		return
	case len(a.Segments) > 0:
		checkSegments(c, complete.Segments, fieldPath+".segments")
		c.FailIf(a.Accuracy > 0, fieldPath+".accuracy", a.Accuracy, "no floor: the models of segments have no variants")
	default:
		checkModules(c, complete.Modules, fieldPath+".modules")
		c.FailIf(a.TransitionsFile != "", fieldPath+".transitions", document.Quote(a.TransitionsFile), "an application with segments")
	}
	a.checkConditions(c, fieldPath)
}

// moduleGraph checks the modules of an application as a graph.
type moduleGraph struct {
	*document.Checker
	modules     []Module
	names       []string
	indexByName map[string]int // the index of a name in the list
	fieldPath   string
}

// checkModules reports to c what is wrong with the modules of an application, which form a graph without cycles.
// Requests enter at the first module.
func checkModules(c *document.Checker, list []Module, fieldPath string) {
	if c.FailIf(len(list) == 0 || len(list) > MaxModules, fieldPath, fmt.Sprintf("%d modules", len(list)), "1 to %d", MaxModules) {
		return
	}
	g := &moduleGraph{Checker: c, modules: list, names: make([]string, len(list)), indexByName: map[string]int{}, fieldPath: fieldPath}
	for i := range list {
		c.Name(g.indexByName, i, list[i].Name, "%s[%d].name", fieldPath, i)
		g.indexByName[list[i].Name], g.names[i] = i, list[i].Name
	}

	// Check each module, then the order of all.
	errorsBefore := c.Count()
	for i := range list {
		m, entryPath := &list[i], fmt.Sprintf("%s[%d]", fieldPath, i)
		m.checkVariants(c, entryPath)
		isOfSegment := m.Work != 0 || m.Items != "" || m.Chances != nil || m.ForEach != "" || m.Route != "" || m.Routes != nil
		c.FailIf(isOfSegment, entryPath, "work, items, chances, each, route or routes", "none of them: they are of modules in segments")
		c.FailIf(m.Generates(), entryPath+".prompt", "tokens of a language model", "none: they are of modules in segments")
		m.checkSteps(c, entryPath)
		g.checkPredecessors(i, entryPath)
		g.checkBranches(i, entryPath)
	}
	if c.Count() == errorsBefore {
		g.checkOrder()
	}
}

// checkPredecessors reports what is wrong with the list of modules that module i reads the outputs of.
func (g *moduleGraph) checkPredecessors(i int, fieldPath string) {
	m, indexByName := &g.modules[i], map[string]int{}
	for k, name := range m.Predecessors {
		g.Name(indexByName, k, name, "%s.after[%d]", fieldPath, k)
		g.checkKnown(name, fmt.Sprintf("%s.after[%d]", fieldPath, k))
	}
	switch {
	case i == 0 && len(m.Predecessors) > 0:
		g.Fail(fieldPath+".after", fmt.Sprintf("%d modules", len(m.Predecessors)), "none: requests enter at the first module", "put the module that requests enter at first")
	case i > 0 && len(m.Predecessors) == 0:
		g.Fail(fieldPath+".after", "nothing", "the modules whose outputs it reads", "a module that follows none is never reached")
	}
}

// checkKnown checks that a name is one of the application's modules.
func (g *moduleGraph) checkKnown(name, fieldPath string) {
	if _, ok := g.indexByName[name]; !ok && name != "" {
		unknownName(g.Checker, name, "module", g.names, fieldPath)
	}
}

// checkVariants reports to c what is wrong with a module's variants: models of which planning chooses one, by
// their accuracy.
func (m *Module) checkVariants(c *document.Checker, fieldPath string) {
	c.FailIf(len(m.Variants) > 0 && m.Model != "", fieldPath+".model", "a model beside variants", "one of the two")
	indexByName := map[string]int{}
	for k := range m.Variants {
		v := &m.Variants[k]
		c.Name(indexByName, k, v.Model, "%s.variants[%d].model", fieldPath, k)
	}
}

// checkBranches checks the branches of a module: each leads to modules behind it, no module is in two of them, and
// the probabilities sum to 1.
func (g *moduleGraph) checkBranches(i int, fieldPath string) {
	m := &g.modules[i]
	if len(m.Branches) == 0 {
		return
	}
	sum, indexByName := 0.0, map[string]int{}
	for k := range m.Branches {
		b := &m.Branches[k]
		entryPath := fmt.Sprintf("%s.branches[%d]", fieldPath, k)
		g.FailIf(len(b.LaterProbabilities) > 0, entryPath+".later", fmt.Sprintf("%d probabilities", len(b.LaterProbabilities)), "none: a module is visited once")
		sum += b.Probability
		for j, name := range b.Targets {
			g.Name(indexByName, k, name, "%s.to[%d]", entryPath, j)
			if to, ok := g.indexByName[name]; !ok || !slices.Contains(g.modules[to].Predecessors, m.Name) {
				g.Fail(fmt.Sprintf("%s.to[%d]", entryPath, j), "the module "+document.Quote(name), "a module that reads the output of "+document.Quote(m.Name), "name it in the module's after")
			}
		}
	}
	g.HintIf(!(math.Abs(sum-1) <= 1e-6), fieldPath+".branches", "probabilities that sum to "+document.FormatFloat(sum), "1", "a branch with an empty list of modules stands for nothing more to do")
}

// checkOrder reports a module that waits for itself. It puts modules into an order in which each stands behind
// those that it reads; a module that has no place is on a cycle.
func (g *moduleGraph) checkOrder() {
	ordered := make([]bool, len(g.modules))
	for progressed := true; progressed; {
		progressed = false
		for i := range g.modules {
			if !ordered[i] && !slices.ContainsFunc(g.modules[i].Predecessors, func(name string) bool { return !ordered[g.indexByName[name]] }) {
				ordered[i], progressed = true, true
			}
		}
	}
	if i := slices.Index(ordered, false); i >= 0 {
		g.Fail(fmt.Sprintf("%s[%d].after", g.fieldPath, i), "a module that waits for itself", "a graph without cycles", "loops have to be unrolled")
	}
}
