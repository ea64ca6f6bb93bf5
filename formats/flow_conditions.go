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

// knownType reports whether a text names a type of an output or parameter.
func knownType(text string) bool { return condition.KnownType(text) }

// Conditions are the checked expressions of an application, by the path of their field: segments[1].next[0].when.
type Conditions map[string]*condition.Expression

// Conditions checks the expressions of an application and gives them back. Errors
// name the field, and the column in the expression.
func (a *Application) Conditions() (Conditions, error) {
	var c document.Checker
	out := a.conditions(&c, "")
	return out, c.Err()
}

// conditions checks the expressions of an application.
func (a *Application) conditions(c *document.Checker, at string) Conditions {
	texts := a.expressions()
	if len(texts) == 0 && len(a.Parameters) == 0 {
		a.names(c, at)
		return nil
	}

	// Declare the names that conditions can use.
	found := c.Count()
	names := a.names(c, at)
	if c.Count() > found {
		return nil
	}
	scope, err := condition.NewScope(names)
	if err != nil {
		c.Fail(at, err.Error(), "names and types that conditions can use", "")
		return nil
	}

	// Compile every expression.
	out := Conditions{}
	for _, t := range texts {
		x, err := scope.Compile(t.text, t.want)
		if err != nil {
			where, reason := 1, err.Error()
			if e, ok := errors.AsType[*condition.Error](err); ok {
				where, reason = e.Column, e.Reason
			}
			path := t.path
			if at != "" {
				path = at + "." + path
			}
			c.Fail(path, fmt.Sprintf("%s, whose column %d is wrong: %s", document.Quote(t.text), where, reason), "a condition of type "+string(t.want), "")
			continue
		}
		out[t.path] = x
	}
	return out
}

// expression is a text that has to be checked.
type expression struct {
	path, text string
	want       condition.Want
}

// expressions lists the expressions of an application in the order of the document.
func (a *Application) expressions() []expression {
	var out []expression
	add := func(text string, want condition.Want, path string, args ...any) {
		if text != "" {
			out = append(out, expression{fmt.Sprintf(path, args...), text, want})
		}
	}
	for k := range a.Modules {
		for b := range a.Modules[k].Branches {
			add(a.Modules[k].Branches[b].When, condition.Bool, "modules[%d].branches[%d].when", k, b)
		}
	}
	for i := range a.Segments {
		for k := range a.Segments[i].Modules {
			m := &a.Segments[i].Modules[k]
			add(m.Items, condition.Count, "segments[%d].modules[%d].items", i, k)
			add(m.Route, condition.Text, "segments[%d].modules[%d].route", i, k)
		}
		for b := range a.Segments[i].Next {
			add(a.Segments[i].Next[b].When, condition.Bool, "segments[%d].next[%d].when", i, b)
		}
	}
	return out
}

// identifier is a name that expressions can use.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// names are the names that conditions of an application may use, with their types.
// A module that runs once for each of several items has a list of each output.
func (a *Application) names(c *document.Checker, at string) map[string]string {
	out := map[string]string{}
	put := func(name, typ, path string) {
		if was, ok := out[name]; ok && was != typ {
			c.Fail(path, name+" of type "+typ, "the type "+was+", as elsewhere in the application", "")
		}
		out[name] = typ
	}
	declare := func(owner string, types map[string]string, many bool, path string) {
		for _, name := range slices.Sorted(maps.Keys(types)) {
			here := path + "." + name
			if !identifier.MatchString(name) || !identifier.MatchString(owner) {
				c.Fail(here, document.Quote(owner+"."+name), "names of letters, digits and underscores", "a module's name may differ from its model")
				continue
			}
			typ := types[name]
			if c.FailIf(!knownType(typ), here, "the type "+document.Quote(typ), "bool, int, double, string or list(…) of one of them") {
				continue
			}
			if many {
				typ = "list(" + typ + ")"
			}
			put(owner+"."+name, typ, here)
		}
	}

	// Declare the parameters and what the modules return. A module that runs once per item returns lists.
	declare("parameters", a.Parameters, false, at+".parameters")
	for k := range a.Modules {
		declare(a.Modules[k].Name, a.Modules[k].Outputs, false, fmt.Sprintf("%s.modules[%d].outputs", at, k))
	}
	for i := range a.Segments {
		many := map[string]bool{}
		for k := range a.Segments[i].Modules {
			m := &a.Segments[i].Modules[k]
			many[m.Name] = m.Items != "" || many[m.Each]
			declare(m.Name, m.Outputs, many[m.Name], fmt.Sprintf("%s.segments[%d].modules[%d].outputs", at, i, k))
		}
	}
	if len(a.Segments) > 0 {
		put("visit", "int", at)
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

// mostNearest bounds the passages of a prompt.
const mostNearest = 64

// checkSteps checks that a module's steps are known.
func (m *Module) checkSteps(c *document.Checker, at string) {
	c.Word(at+".pre", m.Pre, PreSteps...)
	if m.Post != "" {
		c.OneOf(at+".post", m.Post, PostSteps...)
	}
	switch p := m.Passages; {
	case p == nil && m.Pre == StepPassages:
		c.Fail(at+".passages", "nothing", "the file that the step passages reads, and how many are taken", "passages: {file: passages.jsonl, nearest: 3}")
	case p == nil:
	case m.Pre != StepPassages:
		c.Fail(at+".passages", document.Quote(p.File), "nothing without the step that reads them", "pre: passages")
	case !filepath.IsLocal(p.File):
		c.Fail(at+".passages.file", document.Quote(p.File), "a file in the folder of the models", "")
	case p.Nearest < 1 || p.Nearest > mostNearest:
		c.Fail(at+".passages.nearest", document.Whole(int64(p.Nearest)), "1 to "+strconv.Itoa(mostNearest), "")
	}
}
