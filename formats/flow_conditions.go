package formats

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"inferplan/formats/condition"
	"inferplan/formats/document"
)

// Conditions are the checked expressions of an application, by the path of their field: segments[1].next[0].when.
type Conditions map[string]*condition.Expression

// Conditions checks the expressions of an application and gives them back. Errors
// name the field, and the column in the expression.
func (a *Application) Conditions() (Conditions, error) {
	var c document.Checker
	out := a.checkConditions(&c, "")
	return out, c.Err()
}

// checkConditions compiles the expressions of an application (conditions, numbers of items, routes), reports wrong
// ones to c, and returns the others by their field paths. A condition decides at run time which branch a request
// takes, by the request's parameters and the outputs of modules that have run. A route chooses a model, and items are
// how often a module runs.
func (a *Application) checkConditions(c *document.Checker, fieldPath string) Conditions {
	texts := a.expressions()
	if len(texts) == 0 && len(a.Parameters) == 0 {
		a.declaredNames(c, fieldPath)
		return nil
	}

	// Declare the names that conditions can use.
	errorsBefore := c.Count()
	names := a.declaredNames(c, fieldPath)
	if c.Count() > errorsBefore {
		return nil
	}
	scope, err := condition.NewScope(names)
	if err != nil {
		c.Fail(fieldPath, err.Error(), "names and types that conditions can use", "")
		return nil
	}

	// Compile every expression.
	out := Conditions{}
	for _, t := range texts {
		x, err := scope.Compile(t.text, t.valueKind)
		if err != nil {
			offset, reason := 1, err.Error()
			if e, ok := errors.AsType[*condition.Error](err); ok {
				offset, reason = e.Column, e.Reason
			}
			c.Fail(document.Join(fieldPath, t.path), fmt.Sprintf("%s, whose column %d is wrong: %s", document.Quote(t.text), offset, reason), "a condition of type "+string(t.valueKind), "")
			continue
		}
		out[t.path] = x
	}
	return out
}

// expression is a text that has to be checked.
type expression struct {
	path, text string
	valueKind  condition.ValueKind
}

// expressions returns the texts of an application's conditions, numbers of items and routes, with the kind of
// value that each must have, in the order of the document.
func (a *Application) expressions() []expression {
	var out []expression
	add := func(text string, valueKind condition.ValueKind, path string, args ...any) {
		if text != "" {
			out = append(out, expression{fmt.Sprintf(path, args...), text, valueKind})
		}
	}
	for k := range a.Modules {
		for b := range a.Modules[k].Branches {
			add(a.Modules[k].Branches[b].Condition, condition.Bool, "modules[%d].branches[%d].when", k, b)
		}
	}
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			m := &a.Segments[i].Modules[k]
			add(m.Items, condition.Count, "segments[%d].modules[%d].items", i, k)
			add(m.Route, condition.Text, "segments[%d].modules[%d].route", i, k)
		}
		for b := range a.Segments[i].NextBranches {
			add(a.Segments[i].NextBranches[b].Condition, condition.Bool, "segments[%d].next[%d].when", i, b)
		}
	}
	return out
}

// identifier is a name that expressions can use.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// declaredNames returns the names that conditions of an application may use, with their types: parameters, and
// outputs of modules. A module that runs once for each of several items has a list of each output. If one has two
// types or is no identifier, that is reported to c. In workflows, visit is the number of the visit of a segment.
func (a *Application) declaredNames(c *document.Checker, fieldPath string) map[string]string {
	out := map[string]string{}
	declareName := func(name, typ, path string) {
		if earlierType, ok := out[name]; ok && earlierType != typ {
			c.Fail(path, name+" of type "+typ, "the type "+earlierType+", as elsewhere in the application", "")
		}
		out[name] = typ
	}
	declare := func(owner string, types map[string]string, isList bool, path string) {
		for _, name := range slices.Sorted(maps.Keys(types)) {
			entryPath := path + "." + name
			if !identifier.MatchString(name) || !identifier.MatchString(owner) {
				c.Fail(entryPath, document.Quote(owner+"."+name), "names of letters, digits and underscores", "a module's name may differ from its model")
				continue
			}
			typ := types[name]
			if c.FailIf(!condition.KnownType(typ), entryPath, "the type "+document.Quote(typ), "bool, int, double, string or list(…) of one of them") {
				continue
			}
			if isList {
				typ = "list(" + typ + ")"
			}
			declareName(owner+"."+name, typ, entryPath)
		}
	}

	// Declare the parameters and what the modules return. A module that runs once per item returns lists.
	declare("parameters", a.Parameters, false, fieldPath+".parameters")
	for k := range a.Modules {
		declare(a.Modules[k].Name, a.Modules[k].Outputs, false, fmt.Sprintf("%s.modules[%d].outputs", fieldPath, k))
	}
	for i := range a.Segments {
		isListByModule := map[string]bool{}
		for k := range a.Segments[i].Modules {
			m := &a.Segments[i].Modules[k]
			isListByModule[m.Name] = m.Items != "" || isListByModule[m.ForEach]
			declare(m.Name, m.Outputs, isListByModule[m.Name], fmt.Sprintf("%s.segments[%d].modules[%d].outputs", fieldPath, i, k))
		}
	}
	if len(a.Segments) > 0 {
		declareName("visit", "int", fieldPath)
	}
	return out
}

// PreSteps and PostSteps are the steps that a server can run before and after a module's model (package
// executor/steps).
var (
	PreSteps  = []string{"client", "ocr-image", "ocr-line", "ocr-upright", StepPassages, "text-words"}
	PostSteps = []string{"ocr-box", "ocr-boxes", "ocr-text"}
)

// StepPassages makes a prompt of a question and of the passages nearest to it.
const StepPassages = "passages"

// maxNearest bounds the passages of a prompt.
const maxNearest = 64

// checkSteps reports to c steps before or after a module's model that are not known, or a file of passages without
// the step that reads it.
func (m *Module) checkSteps(c *document.Checker, fieldPath string) {
	c.OptionalWord(fieldPath+".pre", m.Pre, PreSteps...)
	if m.Post != "" {
		c.OneOf(fieldPath+".post", m.Post, PostSteps...)
	}
	switch p := m.Passages; {
	case p == nil && m.Pre == StepPassages:
		c.Fail(fieldPath+".passages", "nothing", "the file that the step passages reads, and how many are taken", "passages: {file: passages.jsonl, nearest: 3}")
	case p == nil:
	case m.Pre != StepPassages:
		c.Fail(fieldPath+".passages", document.Quote(p.File), "nothing without the step that reads them", "pre: passages")
	case !filepath.IsLocal(p.File):
		c.Fail(fieldPath+".passages.file", document.Quote(p.File), "a file in the folder of the models", "")
	case p.Nearest < 1 || p.Nearest > maxNearest:
		c.Fail(fieldPath+".passages.nearest", document.FormatWhole(int64(p.Nearest)), "1 to "+strconv.Itoa(maxNearest), "")
	}
}
